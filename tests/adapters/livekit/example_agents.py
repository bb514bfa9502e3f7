"""The examples, imported so that they run in text and leave nothing on the machine."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

__all__ = ["example", "in_text"]

_EXAMPLES = Path(__file__).parents[3] / "examples" / "livekit"


def example(name: str) -> Any:
    """An example, imported anew; its store is the one that ``SECONDCALL_URL`` names."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # A loaded machine may be slow to load, and no call of a test leaves anything on the machine.
    module.settings = replace(module.settings, preload_seconds=20.0, journal=False)
    return module


def in_text(model: Any) -> dict[str, Any]:
    """What a session needs in place of ``models()`` to be driven in text."""
    return {"llm": model, "vad": None, "turn_handling": {"turn_detection": None}}

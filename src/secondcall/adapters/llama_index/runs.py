"""The runs of agents: which one a call is made in, and whether one is still going on."""

from __future__ import annotations

from typing import Any, cast

from llama_index_instrumentation.dispatcher import active_instrument_tags

try:
    from workflows.plugins import basic_runtime
except ImportError:  # older releases have no runtime that can be asked
    basic_runtime = None

__all__ = ["current_run", "is_running"]


def current_run() -> str | None:
    """The id of the run that this is called in; ``None`` outside of one."""
    tags = cast("dict[str, object]", active_instrument_tags.get())
    run = tags.get("llamaindex.run_id")
    return run if isinstance(run, str) else None


def is_running(run: str) -> bool:
    """Whether a run of this process is going on. ``False`` for one that ended, however it did, and
    for one of a runtime other than LlamaIndex's usual one, of which nothing is known here."""
    if basic_runtime is None:
        return False
    try:
        adapter: Any = basic_runtime.get_external_adapter(run)
        return bool(adapter.is_running)
    except (RuntimeError, KeyError, AttributeError):  # it is not known any more
        return False

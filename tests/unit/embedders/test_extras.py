from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("onnx", "onnxruntime", "onnx"),
        ("sentence_transformers", "sentence_transformers", "sentence-transformers"),
        ("openai", "httpx", "openai"),
    ],
)
def test_a_missing_package_names_its_install_line(module: str, package: str, extra: str) -> None:
    """Importing an embedder without its package says what to install."""
    code = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from secondcall.errors import MissingExtra\n"
        "try:\n"
        f"    import secondcall.embedders.{module}\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert f"pip install 'secondcall[{extra}]'" in done.stdout

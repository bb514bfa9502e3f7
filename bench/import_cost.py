"""What ``import secondcall`` costs, which modules it brings, and what the base install takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine, percentile

_ROUNDS = 15
_FRAMEWORKS = ("livekit", "llama_index", "pydantic", "httpx", "fastapi", "torch", "onnxruntime")


def _seconds(code: str) -> float:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - started


def _install_size(folder: Path) -> dict[str, float]:
    """Megabytes by top-level name of a fresh install of this checkout without extras."""
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(root)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    skipped = {"pip", "setuptools", "_distutils_hack", "pkg_resources"}
    sizes: dict[str, float] = {}
    for entry in packages.iterdir():
        name = entry.name.split("-")[0].removesuffix(".libs")
        if name in skipped:
            continue
        files = entry.rglob("*") if entry.is_dir() else [entry]
        size = sum(one.stat().st_size for one in files if one.is_file()) / 1e6
        sizes[name] = sizes.get(name, 0.0) + size
    return sizes


def main() -> None:
    """Print the import's time beside an empty interpreter's, and the install's parts."""
    print(f"machine: {machine()}")
    empty = [_seconds("pass") for _ in range(_ROUNDS)]
    full = [_seconds("import secondcall") for _ in range(_ROUNDS)]
    cost = percentile(full, 0.5) - percentile(empty, 0.5)
    print(f"import secondcall: {1e3 * cost:.0f} ms at the median (promised < 200 ms)")
    for name, code in (
        ("from secondcall import Memory", "from secondcall import Memory"),
        ("of which numpy", "import numpy"),
    ):
        more = percentile([_seconds(code) for _ in range(_ROUNDS)], 0.5) - percentile(empty, 0.5)
        print(f"{name}: {1e3 * more:.0f} ms")
    check = f"import secondcall, sys; print([n for n in {_FRAMEWORKS!r} if n in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", check], check=True, capture_output=True, text=True
    )
    print(f"frameworks imported: {found.stdout.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        sizes = _install_size(Path(folder))
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1]):
        if size > 0.1:
            print(f"  {name:<20} {size:6.1f} MB")
    print(f"base install: {sum(sizes.values()):.0f} MB (promised < 160 MB)")


if __name__ == "__main__":
    main()

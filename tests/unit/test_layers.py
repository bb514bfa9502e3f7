"""The walls between the rooms, read from the imports of the source."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "secondcall"

GROUND = frozenset({"types", "errors"})
PORTS = GROUND | {"abc", "abc_state", "abc_tokens", "checks", "races", "usage"}
ROOMS = frozenset(
    {"identity", "record", "facts", "recall", "shortterm", "state", "context", "telemetry"}
)
BELOW_FACES = PORTS | ROOMS | {"config", "registry", "memory"}
FACES = BELOW_FACES | {"sync", "tools", "named"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "types": frozenset(),
    "errors": frozenset(),
    "checks": GROUND,
    "abc": GROUND,
    "abc_state": GROUND | {"abc"},
    "abc_tokens": GROUND | {"abc"},
    "races": frozenset(),
    "usage": GROUND,
    "telemetry": GROUND,
    "config": GROUND | {"checks"},
    "registry": PORTS | {"embedders"},
    "stores": GROUND | {"abc", "abc_state"},
    "embedders": GROUND | {"abc", "abc_tokens", "usage"},
    "models": GROUND | {"abc", "usage"},
    "identity": PORTS | {"telemetry"},
    "facts": PORTS | {"telemetry"},
    "recall": PORTS,
    "record": PORTS | {"recall", "telemetry"},
    "shortterm": PORTS | {"telemetry", "registry"},
    "state": PORTS | {"telemetry"},
    "context": PORTS | {"recall", "facts", "state", "shortterm"},
    "memory": PORTS | ROOMS | {"config", "registry"},
    "named": BELOW_FACES,
    "sync": BELOW_FACES,
    "tools": BELOW_FACES,
    "testing": PORTS | {"adapters", "memory", "registry", "stores", "sync"},
    "evaluate": FACES,
    "adapters": FACES,
    "server": FACES,
    "cli": FACES | {"adapters", "evaluate", "testing"},
    "__init__": PORTS
    | {"adapters", "memory", "named", "sync", "record", "shortterm", "context", "state", "tools"},
    "__main__": frozenset({"cli"}),
}
"""A room and whom it may know. A new file or folder of the package needs a line here."""

HOMES: dict[str, tuple[str, ...]] = {
    "aiobotocore": ("stores/dynamodb_calls.py",),
    "aiohttp": ("stores/dynamodb_calls.py",),
    "anyio": ("*",),
    "botocore": ("stores/dynamodb_calls.py",),
    "numpy": ("*",),
    "apsw": ("stores/",),
    "asyncpg": ("stores/postgresql_link.py",),
    "redis": ("stores/redis_link.py",),
    "click": ("cli/",),
    "platformdirs": ("config.py", "cli/"),
    "Stemmer": ("recall/analyze.py",),
    "simsimd": ("recall/products.py",),
    "phonenumbers": ("identity/phone.py",),
    "httpx": ("embedders/openai.py", "models/"),
    "onnxruntime": ("embedders/onnx.py",),
    "tokenizers": ("embedders/onnx.py",),
    "sentence_transformers": ("embedders/sentence_transformers.py",),
    "livekit": (
        "adapters/livekit/",
        "testing/livekit.py",
        "testing/livekit_audio.py",
        "testing/livekit_call.py",
        "testing/livekit_demo.py",
        "testing/livekit_room.py",
    ),
    "llama_index_instrumentation": ("adapters/llama_index/",),
    "llama_index": ("adapters/llama_index/", "testing/llama_index.py"),
    "workflows": ("adapters/llama_index/",),
    "opentelemetry": ("telemetry.py",),
    "pytest": ("testing/",),
    "hypothesis": ("testing/",),
}
"""A package from outside and the only files that may import it."""

PICKLED_BY_HOSTS = "tests/adapters/llama_index/"
"""LlamaIndex's workflows pickle what a context holds."""

UNLOADED = sorted(set(HOMES) - {"anyio", "numpy", "simsimd", "Stemmer"})

SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL_SOURCES = sorted(
    path
    for top in ("src", "tests", "bench", "examples", "scripts")
    for path in ROOT.glob(f"{top}/**/*.py")
)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Import:
    """One imported module, with the file and line that name it."""

    module: str
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{_name(self.path)}:{self.line} imports {self.module}"


def _imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, path, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{_name(path)}:{node.lineno} imports relatively; name it in full"
            )
            assert node.module is not None
            if node.module == "secondcall":
                for alias in node.names:
                    yield Import(f"secondcall.{alias.name}", path, node.lineno)
            else:
                yield Import(node.module, path, node.lineno)


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _room_of_module(module: str) -> str:
    """The room of ``secondcall.room…``; names taken from the root belong to ``__init__``."""
    part = module.split(".")[1] if "." in module else "__init__"
    return part if part in MAY_IMPORT else "__init__"


def _wrong_arrows(path: Path) -> list[str]:
    room = _room(path)
    allowed = MAY_IMPORT.get(room)
    if allowed is None:
        return [f"{_name(path)}: the room {room!r} has no line in MAY_IMPORT"]
    return [
        str(found)
        for found in _imports(path)
        if found.module.split(".")[0] == "secondcall"
        and _room_of_module(found.module) not in allowed | {room}
    ]


def test_imports_point_downwards() -> None:
    """Every file imports only the rooms that the map lets its room know."""
    assert [arrow for path in SOURCES for arrow in _wrong_arrows(path)] == []


def test_map_itself_has_no_circle() -> None:
    """The map of rooms can be put into an order in which each knows only earlier ones."""
    done: set[str] = set()
    waiting = dict(MAY_IMPORT)
    while waiting:
        ready = {room for room, known in waiting.items() if known <= done}
        assert ready, f"these rooms wait for each other: {sorted(waiting)}"
        done |= ready
        for room in ready:
            del waiting[room]


def _at_home(found: Import) -> bool:
    homes = HOMES.get(found.module.split(".")[0], ())
    inside = found.path.relative_to(PACKAGE).as_posix()
    return any(
        home in ("*", inside) or (home[-1] == "/" and inside.startswith(home)) for home in homes
    )


def test_outside_packages_stay_in_their_own_file() -> None:
    """A package from outside is imported only in the files that the map gives it."""
    strangers = [
        str(found)
        for path in SOURCES
        for found in _imports(path)
        if found.module.split(".")[0] not in {*sys.stdlib_module_names, "secondcall"}
        and not _at_home(found)
    ]
    assert strangers == []


def test_nothing_imports_a_banned_module() -> None:
    """No file imports ``sqlite3`` or ``pickle``, and none imports the tests; only tests pickle
    what a host pickles."""
    banned = [
        str(found)
        for path in ALL_SOURCES
        for found in _imports(path)
        if found.module.split(".")[0] in {"sqlite3", "pickle", "tests"}
        and not (found.module == "pickle" and _name(path).startswith(PICKLED_BY_HOSTS))
    ]
    assert banned == []


def test_files_stay_short() -> None:
    """A file has at most 500 lines, or its head says why "over 500 lines"; 800 is the end."""
    long: list[str] = []
    for path in SOURCES:
        text = path.read_text("utf-8")
        head = ast.get_docstring(ast.parse(text)) or ""
        if text.count("\n") > (800 if "over 500 lines" in head.lower() else 500):
            long.append(_name(path))
    assert long == []


def test_package_heads_hold_only_imports() -> None:
    """No ``__init__.py`` defines a class."""
    classes = [
        f"{_name(path)} defines {node.name}"
        for path in SOURCES
        if path.name == "__init__.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert classes == []


_PROBE = """
import json, logging, os, sys, threading, warnings

effects = []

def watch(event, arguments):
    if event.split(".")[0] in {"socket", "subprocess", "os", "shutil", "tempfile"}:
        if event not in {"os.listdir", "os.scandir", "os.fwalk", "os.walk"}:
            effects.append(event)
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        effects.append(f"open {arguments[0]}")

import anyio, numpy
environment, before = dict(os.environ), set(sys.modules)
sys.addaudithook(watch)
import secondcall
json.dump({
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
    "rooms": sorted(name for name in sys.modules if name.startswith("secondcall.")),
    "effects": effects,
    "handlers": len(logging.root.handlers) + len(logging.getLogger("secondcall").handlers),
    "threads": threading.active_count(),
    "environment": environment == dict(os.environ),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    """What ``import secondcall`` did in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", _PROBE],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_import_loads_no_framework(imported: dict[str, list[str]]) -> None:
    """``import secondcall`` loads no driver, framework, web client or optional package."""
    assert sorted(set(imported["modules"]) & set(UNLOADED)) == []


def test_import_loads_no_store(imported: dict[str, list[str]]) -> None:
    """``import secondcall`` loads no store, embedder, command or server before it is used."""
    late = ("stores.", "embedders.", "models.", "adapters.", "cli", "server", "evaluate", "testing")
    loaded = [
        name
        for name in imported["rooms"]
        if name.startswith(tuple(f"secondcall.{room}" for room in late))
    ]
    assert loaded == []


def test_import_does_nothing_else(imported: dict[str, object]) -> None:
    """``import secondcall`` writes no file, opens no socket, starts no thread, sets no log."""
    assert imported["effects"] == []
    assert imported["handlers"] == 0
    assert imported["threads"] == 1
    assert imported["environment"] is True

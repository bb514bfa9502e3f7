"""The public face: what can be imported from where, and that it is explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import secondcall

PACKAGE = Path(__file__).parents[2] / "src" / "secondcall"


def _module_name(path: Path) -> str:
    parts = ("secondcall", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _is_public(path: Path) -> bool:
    return not any(
        part.startswith("_") for part in path.relative_to(PACKAGE).parts if part != "__init__.py"
    )


PUBLIC = [path for path in sorted(PACKAGE.rglob("*.py")) if _is_public(path)]


def _rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions; each by name, as ruff's RUF022 puts them."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def _declared(path: Path) -> list[str]:
    """The names in a file's ``__all__``."""
    for node in ast.parse(path.read_text("utf-8")).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == "__all__":
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def test_root_gives_what_it_declares() -> None:
    """Every name in the root's ``__all__`` is there, and no other public name is."""
    there = {
        name
        for name in dir(secondcall)
        if not name.startswith("_")
        and name not in ("annotations", "TYPE_CHECKING")
        and not isinstance(getattr(secondcall, name), ModuleType)
    }
    assert there == set(secondcall.__all__) - {"__version__", "livekit", "llama_index"}
    assert secondcall.__version__ == version("secondcall")


def test_root_is_sorted() -> None:
    """The root's ``__all__`` is sorted and names nothing twice."""
    assert list(secondcall.__all__) == sorted(set(secondcall.__all__), key=_rank)


def test_names_are_declared_in_order() -> None:
    """Every public module's ``__all__`` is sorted and names nothing twice."""
    unsorted = [
        _module_name(path)
        for path in PUBLIC
        if _declared(path) != sorted(set(_declared(path)), key=_rank)
    ]
    assert unsorted == []


def _undeclared(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("secondcall"):
            continue
        source = PACKAGE.joinpath(*(node.module or "").split(".")[1:])
        if _room(source) == _room(path):
            continue
        source = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
        declared = set(_declared(source))
        for alias in node.names:
            if alias.name not in declared and not _is_module(source, alias.name):
                where = path.relative_to(PACKAGE).as_posix()
                yield f"{where}:{node.lineno} takes {node.module}.{alias.name}"


def test_rooms_borrow_only_declared_names() -> None:
    """A file takes from a file of another room only names in that file's ``__all__``."""
    assert [found for path in sorted(PACKAGE.rglob("*.py")) for found in _undeclared(path)] == []


def _room(path: Path) -> str:
    return (path.relative_to(PACKAGE).parts or ("__init__",))[0].removesuffix(".py")


def _is_module(source: Path, name: str) -> bool:
    return source.name == "__init__.py" and (
        (source.parent / name).is_dir() or (source.parent / f"{name}.py").is_file()
    )


def _undocumented(module: ModuleType, name: str) -> list[str]:
    value: object = getattr(module, name)
    made_by_call = "<locals>" in getattr(value, "__qualname__", "")
    if made_by_call or not (inspect.isclass(value) or inspect.isroutine(value)):
        return []
    missing = (
        [] if vars(value).get("__doc__") or (inspect.isroutine(value) and value.__doc__) else [name]
    )
    if inspect.isclass(value):
        for member, what in vars(value).items():
            if member.startswith("_") or not (
                inspect.isroutine(what) or isinstance(what, property)
            ):
                continue
            if not inspect.getdoc(getattr(value, member)):
                missing.append(f"{name}.{member}")
    return missing


def test_public_modules_are_explained() -> None:
    """Every public module has a docstring."""
    silent = [
        _module_name(path)
        for path in PUBLIC
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def _unexplained(path: Path) -> list[str]:
    """The undocumented public names of a module, read from its text if it cannot be imported."""
    try:
        module = importlib.import_module(_module_name(path))
    except secondcall.MissingExtra:
        return [
            node.name
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ]
    return [gap for name in _declared(path) for gap in _undocumented(module, name)]


@pytest.mark.parametrize("path", [path for path in PUBLIC if _declared(path)], ids=_module_name)
def test_public_names_are_explained(path: Path) -> None:
    """The public classes of a module, their methods and its functions each have a docstring."""
    assert _unexplained(path) == []


def test_every_module_can_be_found() -> None:
    """Every folder of the package is a package: nothing is left out of an installation."""
    found = {info.name for info in pkgutil.walk_packages(secondcall.__path__, "secondcall.")}
    assert {_module_name(path) for path in PUBLIC if path != PACKAGE / "__init__.py"} <= found

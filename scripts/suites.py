#!/usr/bin/env python3
"""LlamaIndex's own test suites, run against secondcall's chat stores and memory: ``make suites``.

    scripts/suites.py [--source FOLDER] [--only NAME] [-v]

The tests are not part of this repository. They are taken from a clone of run-llama/llama_index:
the folder that ``--source`` (``make suites SOURCE=FOLDER``) names, else ``.suites``, into which the
commit that ``suites.toml`` pins is cloned, only the folders with tests. Names of classes are
swapped at run time by ``suites_plugin.py``; each test that is left out stands in ``suites.toml``
with a reason. What fails is run again with LlamaIndex's own class: a test that fails there too does
not fit the version that is installed. Prints one table; exits with 1 when a test fails with ours
alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent
_CORE = Path("llama-index-core") / "tests"


def _clone(source: dict[str, Any]) -> Path:
    """The pinned commit in ``.suites``, cloned there if it is not there yet."""
    folder = _ROOT / ".suites"
    git = ["git", "-C", str(folder)]
    if not folder.exists():
        _say(f"cloning {source['repository']} at {source['commit'][:12]} into .suites")
        folder.mkdir()
        steps = [
            ["init", "-q"],
            ["remote", "add", "origin", source["repository"]],
            ["sparse-checkout", "set", *source["folders"]],
            ["fetch", "-q", "--depth", "1", "--filter=blob:none", "origin", source["commit"]],
            ["checkout", "-q", source["commit"]],
        ]
        for step in steps:
            if subprocess.run([*git, *step], check=False).returncode:
                subprocess.run(["rm", "-rf", str(folder)], check=False)
                raise SystemExit(
                    "the repository could not be cloned; clone it elsewhere and run "
                    "'make suites SOURCE=FOLDER'"
                )
    return folder


def _run(suite: dict[str, Any], source: Path, verbose: bool) -> dict[str, Any]:
    """One suite: its counts, and the names of the tests that failed.

    What fails is run again with LlamaIndex's own class: where that fails too, the test does not fit
    the version that is installed, and says nothing of ours.
    """
    base = source / suite.get("base", str(_CORE))
    paths = [base / path for path in suite["paths"]]
    there = [path for path in paths if path.exists()]
    absent = [str(path.relative_to(base)) for path in paths if path not in there]
    left_out = suite.get("deselect", {})
    result = {"absent": absent, "deselected": len(left_out), "theirs": []}
    if not there:
        return {**result, "deselected": 0, "passed": 0, "failed": [], "skipped": 0}
    inside = [f"tests/{path.relative_to(base)}" for path in there]
    chosen = [f"--deselect={path}::{test}" for path in inside for test in left_out]
    counted = _pytest(suite["swap"], base, [*map(str, there), *chosen], verbose)
    if counted["failed"] and "base" not in suite:
        again = [str(base / failed) for failed in counted["failed"]]
        theirs = set(_pytest("none", base, again, verbose)["failed"])
        result["theirs"] = [one for one in counted["failed"] if one in theirs]
        counted["failed"] = [one for one in counted["failed"] if one not in theirs]
    return {**result, **counted}


def _pytest(swap: str, base: Path, arguments: list[str], verbose: bool) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-P", "-m", "pytest", "-q", "-p", "suites_plugin",
            "-p", "no:cacheprovider", "-p", "no:secondcall", "--import-mode=importlib",
            "-W", "ignore", "-c", os.devnull, "-o", "anyio_mode=auto",
            f"--rootdir={base.parent}", f"--junitxml={report}",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_HERE)]),
            "SECONDCALL_SUITE": swap,
            "SECONDCALL_SUITE_TESTS": str(base.parent),
        }
        done = subprocess.run(
            [*command, *arguments], cwd=base.parent, env=environment, check=False, text=True,
            stdout=None if verbose else subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if not report.exists():
            _say(done.stdout or "")
            raise SystemExit(f"the tests in {base} did not run")
        return _counted(report)


def _counted(report: Path) -> dict[str, Any]:
    failed: list[str] = []
    skipped = passed = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            place = str(case.get("classname")).removeprefix("tests.").replace(".", "/")
            failed.append(f"{place}.py::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "failed": failed, "skipped": skipped}


def _table(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    lines = [
        "| suite | passed | failed | fails with theirs too | skipped by itself | left out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    counts = [
        (
            suite["name"],
            result["passed"],
            len(result["failed"]),
            len(result["theirs"]),
            result["skipped"],
            result["deselected"],
        )
        for suite, result in rows
    ]
    counts.append(("all", *(sum(column) for column in list(zip(*counts, strict=True))[1:])))
    return "\n".join([*lines, *(f"| {' | '.join(map(str, count))} |" for count in counts)])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the suites, print the table, the failures and why tests are left out."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--source", type=Path, help="a clone of run-llama/llama_index")
    arguments.add_argument("--only", help="suites whose name has this in it")
    arguments.add_argument("-v", "--verbose", action="store_true", help="show pytest's output")
    given = arguments.parse_args()
    listed = tomllib.loads((_HERE / "suites.toml").read_text())
    source = (given.source or _clone(listed["source"])).resolve()
    if not (source / _CORE).is_dir():
        raise SystemExit(f"{source} has no {_CORE}; name a clone of run-llama/llama_index")
    suites = [one for one in listed["suite"] if (given.only or "") in one["name"]]
    rows = [(suite, _run(suite, source, given.verbose)) for suite in suites]
    _say(_table(rows))
    for suite, result in rows:
        for name in result["failed"]:
            _say(f"failed: {name}")
        for name in result["theirs"]:
            _say(f"fails with LlamaIndex's own class too: {name}")
        for path in result["absent"]:
            _say(f"absent in this clone: {suite['name']}: {path}")
    for suite, _ in rows:
        for test, reason in suite.get("deselect", {}).items():
            _say(f"left out: {suite['name']}: {test}: {reason}")
    for path, reason in listed["left_out"].items() if not given.only else ():
        _say(f"left out: {path}: {reason}")
    return 1 if any(result["failed"] for _, result in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

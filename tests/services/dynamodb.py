"""DynamoDB for tests and benchmarks: the emulator ``ministack`` on 127.0.0.1, and a proxy before it
that can be cut and can answer for it.

The emulator keeps nothing over a kill and is never busy. So an outage is a cut connection, and
throttling and conflicts of transactions are answers of the proxy in DynamoDB's own form; that an
acknowledged write survives DynamoDB's own failures is Amazon's promise and is not tested here.
``TEST_DYNAMODB_ENDPOINT`` names another endpoint to use instead; its tables are dropped at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest
from aiobotocore import session as _aiobotocore_session

__all__ = ["Fault", "Proxy", "Server", "dynamodb_server", "dynamodb_url", "refusal", "running"]

_START_SECONDS = 60.0
_aiobotocore: Any = cast("Any", _aiobotocore_session)  # it has no types
_NOBODY = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Server:
    """One endpoint. ``table`` gives the name of a new one of ``tables``, dropped at the end."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.tables: list[str] = []

    def table(self) -> str:
        """A name that no table has."""
        self.tables.append(f"test_{uuid4().hex[:20]}")
        return self.tables[-1]

    def url(self, options: str = "") -> str:
        """The URL of an empty place."""
        return dynamodb_url(self.table(), self.endpoint, options)

    async def drop(self) -> None:
        """Drop the tables that were handed out."""
        async with _aiobotocore.get_session().create_client(
            "dynamodb", endpoint_url=self.endpoint
        ) as client:
            for table in self.tables:
                with contextlib.suppress(client.exceptions.ResourceNotFoundException):
                    await client.delete_table(TableName=table)


def dynamodb_url(table: str, endpoint: str, options: str = "") -> str:
    """The URL of this table, made when it is absent."""
    return f"dynamodb://{table}?create=1&endpoint={quote(endpoint, safe='')}{options}"


@contextlib.contextmanager
def running() -> Generator[Server]:
    """The emulator, or the endpoint that ``TEST_DYNAMODB_ENDPOINT`` names; with credentials in the
    environment.

    Raises: ``LookupError`` when the emulator is not installed.
    """
    with _credentials():
        endpoint = os.environ.get("TEST_DYNAMODB_ENDPOINT")
        if endpoint:
            server = Server(endpoint)
            yield server
            asyncio.run(server.drop())
            return
        if importlib.util.find_spec("ministack") is None:
            raise LookupError("the DynamoDB emulator comes with the package ministack: make test")
        with tempfile.TemporaryDirectory(prefix="dynamodb", ignore_cleanup_errors=True) as folder:
            with _emulator(Path(folder)) as endpoint:
                yield Server(endpoint)


@contextlib.contextmanager
def dynamodb_server() -> Generator[Server]:
    """As ``running``, for fixtures: without the emulator tests are skipped, in CI they fail."""
    try:
        context = running()
        server = context.__enter__()
    except LookupError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield server
    finally:
        context.__exit__(None, None, None)


@contextlib.contextmanager
def _credentials() -> Generator[None]:
    """Any will do for an emulator; those that are set are left alone."""
    added = {name: value for name, value in _NOBODY.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _emulator(folder: Path) -> Generator[str]:
    port = _free_port()
    settings = {
        # By itself it listens to the whole network.
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "S3_DATA_DIR": str(folder),
        "SERVICES": "dynamodb",
        "TMPDIR": str(folder),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            cwd=folder,
            env={**os.environ, **settings},
            stdout=log,
            stderr=log,
        )
    try:
        end = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((folder / "log").read_text("utf-8", "replace")[-2_000:])
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    return False


@dataclass
class Fault:
    """What the proxy does with the next requests of one operation, e.g. ``"TransactWriteItems"``.

    ``answer``: what it says instead of the server; ``None``: it hangs up, with ``passed_on`` only
    after the server has done it.
    """

    operation: str
    answer: bytes | None = None
    passed_on: bool = False
    times: int = 1


def refusal(code: str, *, status: int = 400, **more: object) -> bytes:
    """An error in DynamoDB's form."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    body = json.dumps({"__type": kind, "message": code, **more}).encode()
    head = (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Proxy:
    """Stands before an endpoint, in a thread of its own; ``seen`` counts requests by operation."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        assert parts.scheme == "http", "the proxy speaks plain HTTP only"
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._port = _free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.faults: list[Fault] = []
        self.seen: dict[str, int] = {}

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._run(self._cut())

    def mend(self) -> None:
        """Let requests through."""
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in [*self._writers]:
            writer.transport.abort()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
        await asyncio.wait([*others, asyncio.ensure_future(asyncio.sleep(0))])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        self._writers.add(writer)
        try:
            answers, upstream = await asyncio.open_connection(*self._upstream)
            self._writers.add(upstream)
            while True:
                request, operation = await _message(reader)
                self.seen[operation] = self.seen.get(operation, 0) + 1
                fault = self._fault(operation)
                if fault is not None and fault.answer is not None:
                    writer.write(fault.answer)
                    continue
                if fault is not None and not fault.passed_on:
                    break
                upstream.write(request)
                answer, _ = await _message(answers)
                if fault is not None:
                    break
                writer.write(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, upstream):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    def _fault(self, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation == operation and fault.times:
                fault.times -= 1
                return fault
        return None


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """One HTTP message whole, and the operation that it asks for."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    return head + body, fields.get(b"x-amz-target", b"").decode().rpartition(".")[2]

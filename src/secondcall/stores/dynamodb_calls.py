"""Calls of DynamoDB: the URL, a client for each event loop, repeats within bounds, our errors.

A client belongs to the loop that made it. It is held in an asynchronous generator, so that a loop
that ends (``asyncio.run``) closes its own client.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import anyio.to_thread

from secondcall.errors import InvalidValue, MissingExtra, NotOpen, StoreBusy, StoreUnavailable
from secondcall.stores.dynamodb_items import Item

try:
    import aiohttp
    from aiobotocore import session as aiobotocore_session
    from botocore import loaders as botocore_loaders
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        NoRegionError,
        PartialCredentialsError,
    )
    from botocore.parsers import ResponseParserError
except ImportError:
    raise MissingExtra(
        "states in DynamoDB need aiobotocore; pip install 'secondcall[dynamodb]'"
    ) from None

__all__ = ["Calls", "DynamoSettings", "Refused", "parse_url"]

_CONNECTIONS = 50
_LOST_TRIES = 3
_CLOSE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.02, 1.0
_BUSY = frozenset({
    "ProvisionedThroughputExceededException",
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
})  # fmt: skip
_LOST = (BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, asyncio.TimeoutError)
_NO_USE = (NoCredentialsError, PartialCredentialsError, NoRegionError)
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_OPTIONS = ("create", "endpoint", "region", "timeout_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoSettings:
    """What a URL says. ``create``: make the table when it is absent. ``timeout_seconds``: for how
    long one request is repeated."""

    table: str
    region: str | None = None
    endpoint: str | None = None
    create: bool = False
    timeout_seconds: float = 10.0

    def __str__(self) -> str:
        return f"the DynamoDB table {self.table!r}"


def parse_url(url: str) -> DynamoSettings:
    """The settings in ``dynamodb://table?region=eu-west-1&create=1``.

    Raises: ``InvalidValue`` naming the part or option that is not accepted; a URL with credentials
    is not shown.
    """
    parts = urlsplit(url)
    table = unquote(parts.netloc)
    if "@" in table:
        raise InvalidValue(
            "dynamodb:// takes no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
            "profile or a role"
        )
    if parts.scheme != "dynamodb" or parts.path.strip("/") or parts.fragment:
        raise InvalidValue("the URL is not of the form dynamodb://table?region=eu-west-1")
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidValue(
            f"dynamodb:// names the table {table!r}, expected 3 to 255 letters, digits, '_', '-', "
            "'.'"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise InvalidValue(f"dynamodb:// has no option {name!r}; known are {known}")
    return DynamoSettings(
        table=table,
        region=options.get("region") or None,
        endpoint=_parse_endpoint(options.get("endpoint")),
        create=_parse_switch("create", options.get("create", "0")),
        timeout_seconds=_parse_seconds(options.get("timeout_seconds", "10")),
    )


def _parse_endpoint(value: str | None) -> str | None:
    if not value:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidValue("endpoint is not of the form http://host:port, without credentials")
    return value


def _parse_switch(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise InvalidValue(f"{name} is {value!r}, expected 0 or 1")
    return value == "1"


def _parse_seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0.1 <= seconds <= 50:
        raise InvalidValue(f"timeout_seconds is {value!r}, expected a number from 0.1 to 50")
    return seconds


class Refused(Exception):
    """An answer that the caller of ``send`` expects among others."""

    def __init__(self, code: str, response: Mapping[str, Any]) -> None:
        self.code = code
        self.response = response
        super().__init__(code)


class _Again(Exception):
    """A request that may be sent again; ``away``: whether it was done is not known."""

    def __init__(self, what: str, *, away: bool) -> None:
        self.what = what
        self.away = away
        super().__init__(what)


class _Patience:
    """How often one request is sent again, and how long it waits in between."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._tries = 0
        self._lost = 0

    async def busy(self, error: Exception) -> None:
        """Wait and come back to try again. Raises: ``error`` when it has taken too long."""
        self._tries += 1
        most = min(_MOST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**self._tries)
        pause = random.uniform(0, most)
        if time.monotonic() + pause > self._until:
            raise error
        await anyio.sleep(pause)

    async def lost(self, error: Exception) -> None:
        """As ``busy``, a few times at most: nobody answers."""
        self._lost += 1
        if self._lost >= _LOST_TRIES:
            raise error
        await self.busy(error)


class _Held:
    """The client of one event loop."""

    def __init__(self, settings: DynamoSettings) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0
        self._generator: AsyncGenerator[Any] | None = None
        self._client: Any = None

    async def call(self, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._busy += 1
        self._idle.clear()
        try:
            if self._client is None:
                await self._begin()
            return await getattr(self._client, operation)(**parameters)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _begin(self) -> None:
        async with self._lock:
            if self._client is None:
                self._generator = _hold_client(self._settings)
                self._client = await anext(self._generator)

    async def close(self) -> None:
        """Let what is under way end, then close."""
        await self._idle.wait()
        if self._generator is not None:
            await self._generator.aclose()


async def _hold_client(settings: DynamoSettings) -> AsyncGenerator[Any]:
    session = cast("Any", aiobotocore_session).get_session()
    session.register_component("data_loader", await anyio.to_thread.run_sync(_descriptions))
    config = Config(
        connect_timeout=min(3.0, settings.timeout_seconds),
        read_timeout=max(1.0, settings.timeout_seconds / 2),
        retries={"total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        parameter_validation=False,
    )
    async with session.create_client(
        "dynamodb", region_name=settings.region, endpoint_url=settings.endpoint, config=config
    ) as client:
        yield client


async def _close_there(held: _Held, loop: asyncio.AbstractEventLoop) -> None:
    """Close the client of another loop, unless that ends first and does so itself."""
    closing = held.close()
    try:
        future = asyncio.run_coroutine_threadsafe(closing, loop)
    except RuntimeError:
        closing.close()
        return
    await asyncio.wait([asyncio.wrap_future(future)], timeout=_CLOSE_SECONDS)


@functools.cache
def _descriptions() -> Any:
    """What the driver knows of the service: large files, not to be read in an event loop."""
    loader = cast("Any", botocore_loaders).Loader()
    loader.load_service_model("dynamodb", "service-2")
    loader.load_service_model("dynamodb", "endpoint-rule-set-1")
    for name in ("_retry", "endpoints", "partitions", "sdk-default-configuration"):
        loader.load_data(name)
    return loader


class Calls:
    """The way to one table, for any number of event loops at once."""

    def __init__(self, settings: DynamoSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._held: dict[asyncio.AbstractEventLoop, _Held] | None = None

    def start(self) -> bool:
        """Let requests through from now on; whether none were let through before."""
        with self._lock:
            if self._held is not None:
                return False
            self._held = {}
            return True

    async def stop(self) -> None:
        """Let none through any more, and close the clients of all loops."""
        with self._lock:
            held, self._held = self._held or {}, None
        here = asyncio.get_running_loop()
        for loop, one in held.items():
            if loop is here:
                await one.close()
            elif loop.is_running():
                await _close_there(one, loop)

    def require_open(self) -> None:
        """Raises: ``NotOpen``."""
        if self._held is None:
            raise NotOpen("the state store is not open; await store.open() first")

    def _of_this_loop(self) -> _Held:
        loop = asyncio.get_running_loop()
        with self._lock:
            self.require_open()
            assert self._held is not None
            if loop not in self._held:
                self._held = {at: one for at, one in self._held.items() if not at.is_closed()}
                self._held[loop] = _Held(self.settings)
            return self._held[loop]

    async def send(
        self, operation: str, *, expected: Collection[str] = (), **parameters: Any
    ) -> Mapping[str, Any]:
        """One request, repeated while DynamoDB is busy or does not answer.

        Raises: ``Refused`` for an error code among ``expected``; ``StoreBusy``,
        ``StoreUnavailable``, ``NotOpen``.
        """
        patience = _Patience(self.settings.timeout_seconds)
        lost = False
        while True:
            try:
                return await self._send_once(operation, parameters, expected)
            except _Again as again:
                what, away = again.what, again.away
            lost = lost or away
            if away:
                await patience.lost(self._away(operation, what))
            else:
                await patience.busy(self._busy(operation, what, lost=lost))

    async def _send_once(
        self, operation: str, parameters: Mapping[str, Any], expected: Collection[str]
    ) -> Mapping[str, Any]:
        try:
            answer = await self._of_this_loop().call(operation, parameters)
        except ClientError as error:
            response = cast("Mapping[str, Any]", error.response)
            code, status = _code_of(response)
            if code in expected:
                raise Refused(code, response) from None
            if code in _BUSY or status >= 500:
                raise _Again(code, away=code not in _BUSY) from None
            self._refuse(operation, code)
        except _NO_USE as error:
            raise StoreUnavailable(
                f"{self.settings} cannot be used: {type(error).__name__}; credentials come from "
                "the usual places (AWS_ACCESS_KEY_ID, AWS_PROFILE, a role), the region from "
                "?region= or AWS_DEFAULT_REGION"
            ) from None
        except _LOST as error:
            raise _Again(type(error).__name__, away=True) from None
        if not answer["ResponseMetadata"].get("RequestId"):
            # The driver takes what it cannot read for an empty answer.
            raise _Again("somebody else answered", away=True)
        return answer

    async def transact(self, actions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """All of the actions or none. Empty when done; else one reason for each action, with code
        ``"None"`` or ``"ConditionalCheckFailed"`` and perhaps the item that was found.

        The first action decides: when its condition fails nothing else is waited for.
        """
        patience = _Patience(self.settings.timeout_seconds)
        while True:
            try:
                await self.send(
                    "transact_write_items",
                    expected=("TransactionCanceledException",),
                    TransactItems=actions,
                    # A repeat after a lost answer is known by it and not done twice.
                    ClientRequestToken=str(uuid.uuid4()),
                )
            except Refused as refused:
                reasons: Sequence[Mapping[str, Any]] = refused.response["CancellationReasons"]
                codes = [one.get("Code", "None") for one in reasons]
                if codes[0] == "ConditionalCheckFailed" or set(codes) <= _SETTLED:
                    return reasons
                code = next(code for code in codes if code not in _SETTLED)
                if code not in _BUSY:
                    self._refuse("transact_write_items", code)
                await patience.busy(self._busy("transact_write_items", code, lost=False))
            else:
                return ()

    async def rows(self, **parameters: Any) -> AsyncGenerator[Item]:
        """The items that a query finds, page by page."""
        while True:
            page = await self.send("query", TableName=self.settings.table, **parameters)
            for item in page["Items"]:
                yield item
            if "LastEvaluatedKey" not in page:
                return
            parameters["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _busy(self, operation: str, code: str, *, lost: bool) -> Exception:
        seconds = self.settings.timeout_seconds
        problem = f"{self.settings} was too busy for {operation} for {seconds:g} s ({code})"
        return StoreUnavailable(problem) if lost else StoreBusy(f"{problem}; try again")

    def _away(self, operation: str, what: str) -> Exception:
        where = self.settings.endpoint or "AWS"
        return StoreUnavailable(f"{self.settings} at {where} did not answer {operation} ({what})")

    def _refuse(self, operation: str, code: str) -> NoReturn:
        raise StoreUnavailable(f"{self.settings} refused {operation}: {code}") from None


_SETTLED = frozenset({"None", "ConditionalCheckFailed"})


def _code_of(response: Mapping[str, Any]) -> tuple[str, int]:
    code = str(response.get("Error", {}).get("Code", "unknown"))
    return code, int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))

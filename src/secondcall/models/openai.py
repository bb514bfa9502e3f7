"""Answers from any endpoint that speaks OpenAI's ``POST /chat/completions``: hosted, or your own.

A request has a timeout and a few repeats; what it used is reported with ``secondcall.usage``.
Prompts, answers and keys never stand in an error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio

from secondcall.abc import Completion, LanguageModel, Prompt
from secondcall.errors import InvalidValue, MissingExtra, ModelError
from secondcall.types import JsonValue
from secondcall.usage import Call, report

try:
    import httpx
except ImportError:
    raise MissingExtra(
        "the OpenAI-compatible model needs httpx; pip install 'secondcall[openai]'"
    ) from None

__all__ = ["OpenAIModel"]

_TRIES = 3
_MAX_WAIT_SECONDS = 10.0
_BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})


class OpenAIModel(LanguageModel):
    """A chat model behind an OpenAI-compatible endpoint.

    ``model`` may carry the endpoint, as in ``"qwen3@http://localhost:8000/v1"``, which is how a
    setting names both. A prompt's schema is sent as ``response_format`` of type ``json_schema``.
    ``max_tokens`` is sent under that name, which every endpoint knows; where one wants
    ``max_completion_tokens`` instead, ``token_field`` says so. ``timeout_seconds`` holds for each
    try, and there are three at most.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        temperature: float | None = 0.0,
        token_field: str = "max_tokens",
        timeout_seconds: float = 60.0,
    ) -> None:
        name, _, address = model.partition("@")
        base_url = address or base_url
        if not name:
            raise InvalidValue("model must name a model, as in 'qwen3@http://localhost:8000/v1'")
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise InvalidValue("base_url must begin with http:// or https://")
        if not timeout_seconds > 0:
            raise InvalidValue(f"timeout_seconds is {timeout_seconds}, expected more than 0")
        self._model = name
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._temperature = temperature
        self._token_field = token_field
        self._timeout = httpx.Timeout(timeout_seconds)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self.id = f"openai:{urlsplit(base_url).hostname}:{name}"

    async def complete(self, prompt: Prompt) -> Completion:
        """The answer to one prompt. Raises: ``ModelError``."""
        answer = await self._request(self._body(prompt))
        self._report(answer)
        return self._completion(answer)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _body(self, prompt: Prompt) -> dict[str, object]:
        messages = [
            {"role": role, "content": text.encode("utf-8", "replace").decode("utf-8")}
            for role, text in (("system", prompt.system), ("user", prompt.user))
            if text
        ]
        body: dict[str, object] = {"model": self._model, "messages": messages}
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if prompt.max_tokens is not None:
            body[self._token_field] = prompt.max_tokens
        if prompt.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": prompt.schema, "strict": True},
            }
        return body

    async def _request(self, body: Mapping[str, object]) -> dict[str, Any]:
        problem = "no answer"
        for attempt in range(1, _TRIES + 1):
            wait = 0.25 * 2**attempt
            try:
                answer = await self._client().post(self._url, json=body, headers=self._headers)
            except httpx.HTTPError as error:
                problem = type(error).__name__
            else:
                if answer.status_code == 200:
                    return self._json(answer)
                problem = f"HTTP {answer.status_code}"
                if answer.status_code not in _BUSY:
                    break
                wait = _retry_after(answer) or wait
            if attempt < _TRIES:
                await anyio.sleep(min(wait, _MAX_WAIT_SECONDS))
        raise ModelError(
            f"asking {self._model!r} failed: {problem}; check base_url, api_key and the model's "
            "name"
        )

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(timeout=self._timeout)
        return client

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            content: object = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ModelError(f"the endpoint of {self._model!r} did not answer with a JSON object")
        return cast("dict[str, Any]", content)

    def _completion(self, answer: Mapping[str, Any]) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
            truncated = choice.get("finish_reason") == "length"
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ModelError(
                f"the endpoint of {self._model!r} answered out of form ({type(error).__name__})"
            ) from None
        if not isinstance(text, str):
            raise ModelError(
                f"the endpoint of {self._model!r} answered {type(text).__name__}, expected text"
            )
        return Completion(text=text, truncated=truncated)

    def _report(self, answer: Mapping[str, Any]) -> None:
        """Say what the request used, as far as the endpoint says so; never an error."""
        said: object = answer.get("usage")
        raw = cast("dict[str, JsonValue]", said) if isinstance(said, dict) else {}
        report(
            Call(
                model=self.id,
                operation="complete",
                input_tokens=_whole(raw.get("prompt_tokens")),
                output_tokens=_whole(raw.get("completion_tokens")),
                cost=_cost(raw.get("cost")),
                raw=raw,
            )
        )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _cost(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _retry_after(answer: httpx.Response) -> float:
    try:
        seconds = float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0

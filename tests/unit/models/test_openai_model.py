from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from secondcall.abc import LanguageModel, Prompt
from secondcall.errors import InvalidValue, ModelError
from secondcall.models.openai import OpenAIModel
from secondcall.registry import model_from_name
from secondcall.usage import Call, collecting

ASK = Prompt(system="Answer in one word.", user="Say hello.", max_tokens=20)


class Endpoint:
    """A real HTTP server that answers like OpenAI's; ``answers`` are given one by one."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append(body | {"path": self.path})
                endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
                status, data, extra = (
                    endpoint.answers.pop(0) if endpoint.answers else (200, said("hello"), {})
                )
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        """Stop answering."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def said(text: object, *, finish: str = "stop", usage: object = None) -> bytes:
    """An answer as an endpoint gives it."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    body: dict[str, object] = {"choices": [choice]}
    if usage is not None:
        body["usage"] = usage
    return json.dumps(body).encode()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A running endpoint."""
    running = Endpoint()
    yield running
    running.close()


@pytest.fixture(params=["scripted", "real"])
def any_model(request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    """A model behind our endpoint, and behind a real one where OPENAI_BASE_URL names it."""
    if request.param == "real":
        base_url, name = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_MODEL")
        if not base_url or not name:
            pytest.skip("OPENAI_BASE_URL and OPENAI_MODEL name no endpoint")
        yield OpenAIModel(name, base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY"))
        return
    running = Endpoint()
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "cost": 0.5}
    running.answers = [(200, said("hello", usage=usage), {})]
    yield OpenAIModel(f"m@{running.url}")
    running.close()


async def test_an_endpoint_answers(any_model: LanguageModel) -> None:
    """A prompt is answered, and what it used is reported."""
    calls: list[Call] = []
    with collecting(calls.append):
        answer = await any_model.complete(ASK)
    await any_model.aclose()
    assert answer.text.strip()
    assert not answer.truncated
    assert calls[0].operation == "complete"
    assert calls[0].input_tokens > 0


async def test_the_request_has_all_of_it(endpoint: Endpoint) -> None:
    """System and user part, bound, schema, key and model are sent in OpenAI's form."""
    model = OpenAIModel("m", base_url=endpoint.url, api_key="k")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    await model.complete(Prompt(system="s", user="u \ud800", max_tokens=7, schema=schema))
    await model.complete(Prompt(system="", user="u"))
    await model.aclose()
    first, second = endpoint.requests
    assert first["path"] == "/v1/chat/completions"
    assert first["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u ?"},
    ]
    assert (first["model"], first["max_tokens"], first["temperature"]) == ("m", 7, 0.0)
    assert first["response_format"]["json_schema"]["schema"] == schema
    assert [one["role"] for one in second["messages"]] == ["user"]
    assert "max_tokens" not in second
    assert "response_format" not in second
    assert endpoint.headers[0]["authorization"] == "Bearer k"


async def test_usage_is_reported_as_it_came(endpoint: Endpoint) -> None:
    """Raw usage and cost are passed on; an endpoint that says nothing is no error."""
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "cost": 0.002, "details": {"cached": 4}}
    endpoint.answers = [
        (200, said("a", usage=usage, finish="length"), {}),
        (200, said("b", usage="?"), {}),
        (200, said("c", usage={"prompt_tokens": None, "cost": "dear"}), {}),
    ]
    model = OpenAIModel("m", base_url=endpoint.url)
    calls: list[Call] = []
    with collecting(calls.append):
        answers = [await model.complete(ASK) for _ in range(3)]
    await model.aclose()
    assert [one.truncated for one in answers] == [True, False, False]
    assert (calls[0].input_tokens, calls[0].output_tokens, calls[0].cost) == (11, 3, 0.002)
    assert calls[0].raw == usage
    assert [(one.input_tokens, one.cost) for one in calls[1:]] == [(0, None), (0, None)]


async def test_a_busy_endpoint_is_asked_again(endpoint: Endpoint) -> None:
    """After 429 and 503 the request is repeated, after the time that the answer names."""
    endpoint.answers = [(429, b"", {"retry-after": "0.01"}), (503, b"", {"retry-after": "0.01"})]
    model = OpenAIModel("m", base_url=endpoint.url)
    assert (await model.complete(ASK)).text == "hello"
    await model.aclose()
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"secret text"),
        (400, b"secret text"),
        (200, b"secret text"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"choices": []}'),
        (200, b'{"choices": [null]}'),
        (200, said(None)),
        (200, said(["secret text"])),
    ],
)
async def test_a_wrong_answer_is_one_clear_error(
    endpoint: Endpoint, status: int, body: bytes
) -> None:
    """What is out of form is a ``ModelError`` that quotes nothing, after one request."""
    endpoint.answers = [(status, body, {})]
    model = OpenAIModel("m", base_url=endpoint.url, api_key="key-1")
    with pytest.raises(ModelError) as caught:
        await model.complete(ASK)
    await model.aclose()
    assert len(endpoint.requests) == 1
    for secret in ("secret", "key-1", "hello"):
        assert secret not in str(caught.value)


async def test_nobody_there_is_an_error(endpoint: Endpoint) -> None:
    """An endpoint that always fails is given up after three tries."""
    endpoint.answers = [(503, b"", {"retry-after": "0.01"})] * 3
    model = OpenAIModel("m", base_url=endpoint.url)
    with pytest.raises(ModelError, match="HTTP 503"):
        await model.complete(ASK)
    await model.aclose()


def test_names_are_checked(endpoint: Endpoint) -> None:
    """A name carries the endpoint; an empty one or an address of another kind is refused."""
    model = model_from_name(f"openai:m@{endpoint.url}", api_key="k")
    assert isinstance(model, OpenAIModel)
    assert model.id == "openai:127.0.0.1:m"
    for name in ("", "@http://host/v1", "m@ftp://host"):
        with pytest.raises(InvalidValue):
            OpenAIModel(name)
    with pytest.raises(InvalidValue):
        OpenAIModel("m", timeout_seconds=0)

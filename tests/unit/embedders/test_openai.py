from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from secondcall.embedders.openai import OpenAIEmbedder
from secondcall.errors import EmbedderError, InvalidValue
from secondcall.usage import Call, collecting


class Endpoint:
    """A real HTTP server that answers like OpenAI's; ``faults`` are answered first."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[tuple[int, bytes, dict[str, str]]] = []
        self.shuffled = False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                endpoint.requests.append(body | {"path": self.path})
                endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
                status, data, extra = (
                    endpoint.faults.pop(0) if endpoint.faults else (200, endpoint.answer(body), {})
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

    def answer(self, body: dict[str, Any]) -> bytes:
        """Vectors (length of the text, 1, 0)."""
        data = [
            {"index": place, "embedding": [float(len(text)), 1.0, 0.0]}
            for place, text in enumerate(body["input"])
        ]
        return json.dumps({"data": data[::-1] if self.shuffled else data}).encode()

    def close(self) -> None:
        """Stop answering."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A running endpoint."""
    running = Endpoint()
    yield running
    running.close()


async def test_texts_are_embedded_in_batches(endpoint: Endpoint) -> None:
    """Requests hold at most a batch, ask for floats, and answers come back in order."""
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, api_key="k", batch_size=2)
    endpoint.shuffled = True
    vectors = await embedder.embed_documents(["a", "bb", "ccc", "", "eeeee"])
    await embedder.aclose()
    assert [request["input"] for request in endpoint.requests] == [["a", "bb"], ["ccc", "eeeee"]]
    first = endpoint.requests[0]
    assert first["encoding_format"] == "float"
    assert (first["model"], first["path"]) == ("m", "/v1/embeddings")
    assert "dimensions" not in first
    assert endpoint.headers[0]["authorization"] == "Bearer k"
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0, 1])
    assert np.allclose(vectors[:, 0] / np.maximum(vectors[:, 1], 1e-9), [1, 2, 3, 0, 5])


async def test_the_model_may_name_its_endpoint(endpoint: Endpoint) -> None:
    """A name with an address is enough, and learns its dimensions from the first answer."""
    embedder = OpenAIEmbedder(f"m@{endpoint.url}", query_prefix="query: ", dimensions=3)
    vector = await embedder.embed_query("x")
    await embedder.aclose()
    assert endpoint.requests[0]["input"] == ["query: x"]
    assert endpoint.requests[0]["dimensions"] == 3
    assert "authorization" not in endpoint.headers[0]
    assert vector.shape == (embedder.dimensions,) == (3,)


async def test_a_busy_endpoint_is_asked_again(endpoint: Endpoint) -> None:
    """After 429 and 503 the request is repeated, after the time that the answer names."""
    endpoint.faults = [(429, b"", {"retry-after": "0.01"}), (503, b"", {"retry-after": "0.01"})]
    embedder = OpenAIEmbedder("m", base_url=endpoint.url)
    assert (await embedder.embed_query("x")).shape == (3,)
    await embedder.aclose()
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"secret text"),
        (200, b"secret text"),
        (200, b"{}"),
        (200, b'{"data": [{"index": 0, "embedding": [NaN, 1, 2]}]}'),
        (200, b'{"data": []}'),
        (200, b'{"data": [{"index": 0, "embedding": []}]}'),
    ],
)
async def test_a_wrong_answer_is_one_clear_error(
    endpoint: Endpoint, status: int, body: bytes
) -> None:
    """Refusals and answers out of form raise EmbedderError, without the text or the key."""
    endpoint.faults = [(status, body, {})]
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, api_key="hush")
    with pytest.raises(EmbedderError) as caught:
        await embedder.embed_documents(["my private words"])
    await embedder.aclose()
    shown = f"{caught.value}{caught.value.__cause__}"
    assert "hush" not in shown
    assert "private" not in shown
    assert "secret" not in shown


async def test_an_endpoint_that_is_away_is_one_clear_error(endpoint: Endpoint) -> None:
    """A refused connection raises EmbedderError after its repeats."""
    embedder = OpenAIEmbedder("m", base_url="http://127.0.0.1:9/v1", timeout_seconds=1)
    with pytest.raises(EmbedderError, match="ConnectError"):
        await embedder.embed_query("x")
    await embedder.aclose()


async def test_a_change_of_dimensions_is_noticed(endpoint: Endpoint) -> None:
    """Vectors of another length than declared raise EmbedderError."""
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, dimensions=4)
    with pytest.raises(EmbedderError, match="expected"):
        await embedder.embed_query("x")
    await embedder.aclose()


def test_the_id_names_all_that_changes_vectors() -> None:
    """Host, model, dimensions and prefixes are in the id; the key is not."""
    plain = OpenAIEmbedder("m", base_url="https://one.example/v1", api_key="hush")
    others = [
        OpenAIEmbedder("m", base_url="https://two.example/v1"),
        OpenAIEmbedder("m", base_url="https://one.example/v1", dimensions=8),
        OpenAIEmbedder("m", base_url="https://one.example/v1", document_prefix="passage: "),
        OpenAIEmbedder("n", base_url="https://one.example/v1"),
    ]
    assert len({embedder.id for embedder in (plain, *others)}) == 5
    assert "hush" not in plain.id


def test_wrong_settings_are_refused() -> None:
    """An address without a scheme and sizes below 1 are usage errors."""
    for arguments in ({"base_url": "localhost:80"}, {"batch_size": 0}, {"dimensions": 0}):
        with pytest.raises(InvalidValue):
            OpenAIEmbedder("m", **arguments)  # pyright: ignore[reportArgumentType] - wrong on purpose


async def test_what_the_endpoint_counted_is_reported(endpoint: Endpoint) -> None:
    """Each request reports its model and the endpoint's own ``usage``; without one it counts 0."""
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, api_key="k", batch_size=1)
    body = json.loads(endpoint.answer({"input": ["a"]}))
    used = {"prompt_tokens": 7, "total_tokens": 7, "cost": 0.25}
    endpoint.faults = [(200, json.dumps(body | {"usage": used}).encode(), {})]
    calls: list[Call] = []
    with collecting(calls.append):
        await embedder.embed_documents(["a", "b"])
    await embedder.aclose()
    assert [(one.model, one.operation, one.input_tokens, one.cost) for one in calls] == [
        ("m", "embed", 7, 0.25),
        ("m", "embed", 0, None),
    ]
    assert calls[0].raw == used

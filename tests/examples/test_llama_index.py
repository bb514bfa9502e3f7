"""The examples of LlamaIndex run as they are, and their agent keeps its state wherever it is put.

They run with their scripts, and once more with a real model where ``OPENAI_API_KEY`` or
``OPENAI_BASE_URL`` is set (``OPENAI_MODEL`` says which one).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from services import postgresql, redis
from services.dynamodb import Server, dynamodb_server

from secondcall import IllegalTransition, InvalidValue, Memory, VersionConflict
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = [
    pytest.mark.filterwarnings(one)
    for one in (
        # LlamaIndex looks at every attribute of an agent, deprecated ones of pydantic among them.
        "ignore::pydantic.warnings.PydanticDeprecationWarning",
        "ignore:is_running called from within a step:DeprecationWarning",
    )
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "llama_index"
NAMES = (
    "baseline",
    "summarising",
    "long_term_recall",
    "workflow_tools",
    "production_agent",
)
MODEL = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
ANSWERS = {
    "baseline": [
        "It was shipped on Monday.",
        "On Thursday.",
        "user: Where is my order A-17?",
        "assistant: (calls a tool)",
        "tool: shipped on Monday, arrives on Thursday",
        "assistant: It was shipped on Monday.",
        "user: And when does it arrive?",
        "assistant: On Thursday.",
    ],
    "long_term_recall": [
        "ana, monday: Hello!",
        "  Noted.",
        "ana, monday: My violin teacher is Mrs Okonkwo.",
        "  Noted.",
        "ana, tuesday: What is the name of my violin teacher?",
        "  It is Mrs Okonkwo.",
        "bob, tuesday: What is the name of my violin teacher?",
        "  I do not know.",
    ],
    "workflow_tools": [
        "  {'start': 'refund'} -> details",
        "  {'step': 'paid'} -> no transition leads from 'details' to 'paid'",
        (
            "  {'step': 'review', 'user_id': 'bob'} -> update_workflow_state does not take user_id;"
            " it takes step, slots. It is bound to this user and session already"
        ),
        "  {'step': 'review', 'slots': {'order': 'A-17', 'amount': '40'}} -> review",
        "  {'step': 'paid'} -> 'paid' needs the user's confirmation, by the host",
        "40 euros for A-17: shall I pay them back?",
        "  {'step': 'paid'} -> paid",
        "They are on their way.",
        "1 model [None, 'details']",
        "2 model ['details', 'review']",
        "3 model ['review', 'paid']",
    ],
    "production_agent": [
        "Evenings, noted.",
        "Started.",
        "review {'order': 'A-17', 'amount': Decimal('40')} Case(language='de', priority=0)",
        "there is no field prioritty; there are language, priority",
        "there is no field user_id; there are language, priority",
        "call-1 You like deliveries in the evening; the refund is in review.",
        "call-2 You like deliveries in the evening; the refund is not begun.",
    ],
}


def _run(name: str, folder: Path, **environment: str) -> list[str]:
    """The lines that an example prints, in a process of its own with a store of its own."""
    kept = {key: value for key, value in os.environ.items() if key not in MODEL}
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", "sqlite:///tutorial.db"],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_example(name: str, tmp_path: Path) -> None:
    """The example says what it is to say: what is remembered, what is refused, what was done."""
    assert _run(name, tmp_path) == ANSWERS[name]


def test_summarising(tmp_path: Path) -> None:
    """What was said first is answered from a window that has no room for it; of the forty-four
    messages all are kept, and a summary stands for those that are not shown."""
    answer, shown, *summary, kept = _run("summarising", tmp_path)
    assert answer == "It is A-17."
    assert int(shown.split()[1]) < 44
    assert summary[0].startswith("<memory")
    assert "A-17" in "\n".join(summary)
    assert kept.startswith("kept: 44 messages, the first of them: My order number is A-17")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_with_a_real_model(name: str, tmp_path: Path) -> None:
    """With a real model the example runs to its end and prints what was said."""
    configured = {key: os.environ[key] for key in MODEL if os.environ.get(key)}
    if not configured:
        pytest.skip("OPENAI_API_KEY or OPENAI_BASE_URL configure no real model")
    lines = _run(name, tmp_path, **configured)
    if name == "baseline":
        assert any("Thursday" in line for line in lines[:2])
    assert lines


class _Endpoint(BaseHTTPRequestHandler):
    """Answers as an endpoint of OpenAI's form does: a call for an order, then what came of it."""

    def do_POST(self) -> None:
        asked: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        outputs = [one["content"] for one in asked["messages"] if one["role"] == "tool"]
        delta: dict[str, Any] = {"role": "assistant", "content": "".join(outputs)}
        if not outputs:
            function = {"name": "order_status", "arguments": '{"number": "A-17"}'}
            delta["tool_calls"] = [
                {"index": 0, "id": "c1", "type": "function", "function": function}
            ]
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "ours",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_a_model_behind_an_endpoint(tmp_path: Path) -> None:
    """A model of any name is asked at ``OPENAI_BASE_URL``, with the tool and its output."""
    if find_spec("llama_index.llms") is None:
        pytest.skip("llama-index-llms-openai is not installed here")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        lines = _run("baseline", tmp_path, OPENAI_BASE_URL=url, OPENAI_MODEL="ours")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert lines[0] == "shipped on Monday, arrives on Thursday"


@pytest.fixture
def dynamo() -> Iterator[Server]:
    """DynamoDB's emulator."""
    with dynamodb_server() as found:
        yield found


@pytest.fixture(
    params=[
        "sqlite",
        *(
            pytest.param(name, marks=pytest.mark.external_service)
            for name in ("postgresql", "redis", "dynamodb")
        ),
    ]
)
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for states on each kind of store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'states.db'}"
    if request.param == "dynamodb":
        table: Server = request.getfixturevalue("dynamo")
        return table.url()
    named = {"postgresql": "postgresql_18", "redis": "redis_durable"}[request.param]
    server: postgresql.Server | redis.Server = request.getfixturevalue(named)
    return server.url()


def test_the_state_is_kept_where_its_url_says(state_url: str, tmp_path: Path) -> None:
    """With another URL for the state the production agent does the same over two openings, and
    the state is in that store and not with the records."""
    said = _run("production_agent", tmp_path, SECONDCALL_STATE=state_url)
    assert said == ANSWERS["production_agent"]
    records = f"sqlite:///{tmp_path / 'tutorial.db'}"

    async def look(state: str | None) -> tuple[str, Any] | None:
        workflows = [_module("workflow_tools").REFUND]
        async with Memory.open(records, state=state, workflows=workflows) as store:
            session = await store.user("ana").session("call-1")
            found = await session.state.load()
            return None if found is None else (str(found.step), found.slots["amount"])

    assert asyncio.run(look(state_url)) == ("review", Decimal(40))
    assert asyncio.run(look(None)) is None


def _module(name: str) -> Any:
    """An example as a module."""
    return importlib.import_module(name)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def _started(state: Any) -> Any:
    return state.start(_module("workflow_tools").REFUND)


async def _agent(store: Memory, script: Any = (), session_id: str = "call-1") -> Any:
    opened = _module("production_agent").ProductionAgent.open
    return await opened(store, user_id="ana", session_id=session_id, llm=ScriptedLLM(script))


@pytest.mark.anyio
async def test_updates_at_once_are_all_kept(state_url: str, tmp_path: Path) -> None:
    """Of twenty updates of one conversation by two processes' agents at once none is lost."""
    records = f"sqlite:///{tmp_path / 'memory.db'}"
    workflows = [_module("workflow_tools").REFUND]
    async with (
        Memory.open(records, state=state_url, workflows=workflows) as one,
        Memory.open(records, state=state_url, workflows=workflows) as other,
    ):
        async with await _agent(one) as first, await _agent(other) as second:

            def urgent(state: Any) -> Any:
                return state.with_fields(priority=state.fields.priority + 1)

            await asyncio.gather(
                *(agent.state.update(urgent) for agent in (first, second) for _ in range(10))
            )
            assert (await first.state.load()).fields.priority == 20
            stale = await first.state.load()
            await second.update_state(language="fr")
            with pytest.raises(VersionConflict):
                await first.state.save(stale.with_fields(language="it"))
            assert (await first.state.load()).fields.language == "fr"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"prioritty": 1}, InvalidValue),
        ({"user_id": "bob"}, InvalidValue),
        ({"session_id": "call-2"}, InvalidValue),
        ({"tenant_id": "acme"}, InvalidValue),
        ({"slots": {"iban": "x"}}, InvalidValue),
        ({"slots": {"amount": "-1"}}, InvalidValue),
        ({"step": "paid"}, IllegalTransition),
        ({"language": "de", "step": -3}, InvalidValue),
    ],
)
async def test_update_state_refuses(
    change: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    """A name that is no field, an id, a slot that is not declared and a step that is not allowed
    are refused, and nothing of the update is kept."""
    refund = _module("workflow_tools").REFUND
    async with Memory.open(f"sqlite:///{tmp_path / 'memory.db'}", workflows=[refund]) as store:
        async with await _agent(store) as agent:
            before = await agent.state.update(_started)
            with pytest.raises(error):
                await agent.update_state(**change)
            after = await agent.state.load()
            assert (after.version, after.fields) == (before.version, before.fields)


@pytest.mark.anyio
async def test_what_a_tool_changed_stays(tmp_path: Path) -> None:
    """The state that a tool changes within a turn is the state after the turn, and the fields
    of the application are still there."""
    refund = _module("workflow_tools").REFUND
    script = [
        Reply(calls=[Call("fill_slots", {"order": "A-17", "amount": "40"})]),
        Reply(calls=[Call("update_workflow_state", {"step": "review"})]),
        "Shall I?",
    ]
    async with Memory.open(f"sqlite:///{tmp_path / 'memory.db'}", workflows=[refund]) as store:
        async with await _agent(store, script) as agent:
            await agent.state.update(_started)
            await agent.update_state(priority=3)
            await agent.chat("40 euros for A-17, please.")
            state = await agent.state.load()
            assert (state.step, state.fields.priority) == ("review", 3)


@pytest.mark.anyio
async def test_a_run_that_failed(tmp_path: Path) -> None:
    """After a run that failed the next one is asked with a valid list, in which stands what the
    tools had done."""
    script = [
        Reply(calls=[Call("order_status", {"number": "A-17"})]),
        Reply(error=RuntimeError("no model")),
        "It is on its way.",
    ]
    refund = _module("workflow_tools").REFUND
    async with Memory.open(f"sqlite:///{tmp_path / 'memory.db'}", workflows=[refund]) as store:
        llm = ScriptedLLM(script)
        opened = _module("production_agent").ProductionAgent.open
        async with await opened(store, user_id="ana", session_id="c", llm=llm) as agent:
            with pytest.raises(Exception, match="no model"):
                await agent.chat("Where is A-17?")
            assert await agent.chat("Well?") == "It is on its way."
            assert check_history(llm.requests[-1]) == []
            assert "shipped on Monday" in str([one.content for one in llm.requests[-1]])

"""One call in a process of its own: ``python -m secondcall.cli.call``, for ``secondcall demo``.

Standard input holds one JSON object: ``url``, ``phone`` and either ``script`` with ``session_id``
(the call that is recorded) or ``question`` (the call that asks). Standard output gets one JSON
object. Nothing else comes in from the process that started it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import secrets
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias, cast

from secondcall.cli.asking import recalled_answer_json
from secondcall.cli.output import item_json, to_json
from secondcall.cli.remembering import remember_lines
from secondcall.cli.timing import Timer, opened
from secondcall.memory import UserMemory
from secondcall.record.transfer import Source, transcripts
from secondcall.types import Brief, Item, Message, Recalled, RecalledItem

__all__ = ["main"]

_Done: TypeAlias = Coroutine[Any, Any, dict[str, object]]
_RecordCall: TypeAlias = Callable[[str, str, Path, str], _Done]
_AskCall: TypeAlias = Callable[[str, str, str], _Done]


def main() -> None:
    """Read the request, have the call, print what happened."""
    request = cast("dict[str, str]", json.load(sys.stdin))
    url, phone = request["url"], request["phone"]
    calls = _with_livekit() or (record_call, ask_call)
    if "script" in request:
        done = calls[0](url, phone, Path(request["script"]), request["session_id"])
    else:
        done = calls[1](url, phone, request["question"])
    sys.stdout.write(to_json(asyncio.run(done)) + "\n")


def _with_livekit() -> tuple[_RecordCall, _AskCall] | None:
    """The calls as LiveKit sessions, where its extra is installed."""
    if importlib.util.find_spec("livekit") is None:
        return None
    from secondcall.cli import spoken

    return spoken.record_call, spoken.ask_call


async def record_call(url: str, phone: str, script: Path, session_id: str) -> dict[str, object]:
    """The first call: every line of the script is recorded as it is said, then the facts."""
    timer = Timer()
    said: list[dict[str, object]] = []
    times: list[float] = []
    async with opened(url, timer) as memory:
        with timer.step("identify"):
            caller = await memory.identify(phone=phone)
        user = memory.user(caller)
        with timer.step("brief"):
            brief = await user.brief(deadline_seconds=None)
        facts = 0
        for part in transcripts(Source(script), default_session=session_id):
            session = await user.session(part.session_id)
            for item in part.items:
                begun = time.perf_counter()
                recorded = await session.record(item)
                times.append((time.perf_counter() - begun) * 1_000)
                found = await user.item(recorded.keys[0])
                if found is not None:
                    said.append(item_json(found))
            await remember_lines(user, part.facts)
            facts += len(part.facts)
            await session.close()
    timer.steps["record_each"] = round(sorted(times)[len(times) // 2], 3) if times else 0.0
    return {
        "user_id": user.user_id,
        "brief": brief.text,
        "said": said,
        "facts": facts,
        "ms": timer.steps,
    }


async def ask_call(url: str, phone: str, question: str) -> dict[str, object]:
    """A later call: the brief, a greeting made of it, the question, an answer that quotes."""
    timer = Timer()
    async with opened(url, timer) as memory:
        with timer.step("identify"):
            caller = await memory.identify(phone=phone)
        user = memory.user(caller)
        with timer.step("brief"):
            brief = await user.brief(deadline_seconds=None)
        with timer.step("recall"):
            found = await user.recall(question)
        answer = answer_of(found)
        if brief.known:
            await _record(user, question, answer, found)
    return {
        "user_id": user.user_id,
        "anonymous": caller.anonymous,
        "greeting": greeting_of(brief),
        "brief": brief.text,
        "question": question,
        "answer": answer,
        "recalled": recalled_answer_json(found)["items"],
        "facts": recalled_answer_json(found)["facts"],
        "reason": found.reason,
        "brief_ms": timer.steps["brief"],
        "recall_ms": timer.steps["recall"],
        "ms": timer.steps,
    }


def greeting_of(brief: Brief) -> str:
    """A greeting that says what is known, and nothing that is not."""
    if not brief.known:
        return "Hello! I don't think we have spoken before. How can I help?"
    parts = ["Welcome back."]
    if brief.sessions:
        parts.append(f"We last spoke on {brief.sessions[0].last_at:%d %B %Y}.")
    parts.extend(f"We promised: {_words(one.value)}." for one in brief.promises[:1])
    parts.extend(f"Still open: {_words(one.value)}." for one in brief.issues[:1])
    return " ".join(parts)


def answer_of(found: Recalled) -> str:
    """The best found words, quoted with their date; or that nothing was found."""
    said = _quoted(found)
    if said is None or not isinstance(said.item, Message):
        return "I have nothing about that from you."
    who = {"user": "you said", "assistant": "we told you"}.get(said.item.role, "it was noted")
    return f"On {said.at:%d %B %Y} {who}: “{said.item.text}”"


def _quoted(found: Recalled) -> RecalledItem | None:
    return next((one for one in found.items if isinstance(one.item, Message)), None)


async def _record(user: UserMemory, question: str, answer: str, found: Recalled) -> None:
    session = await user.session(f"call-{secrets.token_hex(4)}")
    quoted = _quoted(found)
    metadata = {} if quoted is None else {"quotes": list(quoted.key)}
    items: list[Item] = [
        Message("user", question),
        Message("assistant", answer, metadata=metadata),
    ]
    await session.record(*items)
    await session.close()


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    main()

"""The demo's calls as real LiveKit sessions: see ``call``, which takes them where LiveKit is."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondcall.adapters.livekit.call import LiveCall
from secondcall.adapters.livekit.settings import CallSettings
from secondcall.cli.asking import recalled_answer_json
from secondcall.cli.output import item_json
from secondcall.cli.remembering import remember_lines
from secondcall.cli.timing import Timer, opened
from secondcall.record.transfer import FactLine, Source, Transcript, transcripts
from secondcall.testing.livekit_call import take_call
from secondcall.testing.livekit_demo import Staged, answer_call, play_call
from secondcall.types import Item, ItemKey, Message, Recalled, RecordedItem

if TYPE_CHECKING:
    from secondcall.memory import UserMemory

__all__ = ["ask_call", "record_call"]

# A call that is shown waits for its memory; one that is taken does not.
_SHOWN = CallSettings(journal=False, grace_seconds=0, preload_seconds=5.0)


async def record_call(url: str, phone: str, script: Path, session_id: str) -> dict[str, object]:
    """The first call: the script is had with an agent whose model answers as it says."""
    timer = Timer()
    said: list[dict[str, object]] = []
    calls: list[LiveCall[Any]] = []
    facts = 0
    async with opened(url, timer) as memory:
        for part in transcripts(Source(script), default_session=session_id):
            staged = Staged.of(part.items)
            settings = replace(_SHOWN, session_id=part.session_id)

            async def entrypoint(
                ctx: Any, staged: Staged = staged, settings: CallSettings = settings
            ) -> None:
                calls.append(await play_call(ctx, memory, staged, settings=settings))

            with timer.step("call"):
                await take_call(entrypoint, staged.lines, number=phone)
            user = memory.user(calls[-1].resolved.caller)
            items = await (await user.session(part.session_id)).items()
            said.extend(item_json(one) for one in items)
            await remember_lines(user, _facts(part, items))
            facts += len(part.facts)
    return {
        "user_id": calls[-1].user.user_id,
        "brief": _brief(calls[0]),
        "said": said,
        "facts": facts,
        "ms": {**timer.steps, "brief": _milliseconds(calls[0].preloaded.seconds)},
    }


async def ask_call(url: str, phone: str, question: str) -> dict[str, object]:
    """A later call: a greeting and an answer by an agent whose model knows nothing but the memory
    it is given."""
    timer = Timer()
    calls: list[LiveCall[Any]] = []
    recalled: list[Recalled] = []
    async with opened(url, timer) as memory:

        async def entrypoint(ctx: Any) -> None:
            calls.append(await answer_call(ctx, memory, settings=_SHOWN, before=look))

        async def look(user: UserMemory) -> None:
            with timer.step("recall"):
                recalled.append(await user.recall(question))

        started = time.perf_counter()
        heard = await take_call(entrypoint, [question], number=phone)
        timer.steps["call"] = _milliseconds(time.perf_counter() - started)
    live, found = calls[-1], recalled_answer_json(recalled[-1])
    timer.steps["brief"] = _milliseconds(live.preloaded.seconds)
    return {
        "user_id": live.user.user_id,
        "anonymous": live.resolved.caller.anonymous,
        "greeting": heard.replies[0] if len(heard.replies) > 1 else "",
        "brief": _brief(live),
        "question": question,
        "answer": heard.replies[-1] if heard.replies else "",
        "recalled": found["items"],
        "facts": found["facts"],
        "reason": recalled[-1].reason,
        "brief_ms": timer.steps["brief"],
        "recall_ms": timer.steps["recall"],
        "ms": timer.steps,
    }


def _facts(part: Transcript, items: Sequence[RecordedItem]) -> list[FactLine]:
    """The script's facts, resting on the items that the call was recorded as."""
    recorded: defaultdict[object, list[ItemKey]] = defaultdict(list)
    for one in items:
        recorded[_content(one.item)].append(one.key)
    named: dict[tuple[str, str], str] = {}
    for item in part.items:
        keys = recorded[_content(item)]
        if keys:
            named[_name(item)] = keys.pop(0).id
    return [
        replace(
            fact,
            sources=tuple(
                replace(one, id=named[one.kind, one.id])
                for one in fact.sources
                if (one.kind, one.id) in named
            ),
        )
        for fact in part.facts
    ]


def _content(item: Item) -> object:
    if isinstance(item, Message):
        return item.role, item.text.strip()
    return item.name, str(item.arguments)


def _name(item: Item) -> tuple[str, str]:
    if isinstance(item, Message):
        return "message", item.id or ""
    return "tool_call", item.call_id


def _brief(live: LiveCall[Any]) -> str:
    return "" if live.brief is None else live.brief.text


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000, 3)

"""Key facts that a buffer moved to the facts: who may see them, and where they do not stand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from secondcall import Caller, Memory, Message, UserMemory
from secondcall.cli.app import run
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.testing.fakes import FrozenClock
from secondcall.types import Fact

WORDS = "The garden is full of birds and the kitchen smells of paint in the morning."


async def _moved(user: UserMemory) -> list[Fact]:
    """The key facts that a long talk moved to the facts, oldest first."""
    session = await user.session("s")
    buffer = await session.buffer(1_000)
    for number in range(60):
        await session.record(
            Message("user", f"The code of room {number} is {number * 7}. {WORDS}", id=f"u{number}"),
            Message("assistant", f"I see. {WORDS}", id=f"a{number}"),
        )
    await user.flush()
    assert isinstance(buffer, SummarizingBuffer)
    assert buffer.left_out
    found = [fact for fact in await user.history() if fact.metadata.get("key_fact") is True]
    return sorted(found, key=lambda fact: (fact.valid_from, fact.id))


async def _person(memory: Memory) -> tuple[Caller, UserMemory, UserMemory]:
    caller = await memory.identify(phone="+1 415 555 0100")
    return caller, memory.user(caller.user_id), memory.user(caller)


async def test_a_later_sensitive_fact_hides_what_was_moved_before(memory: Memory) -> None:
    """When a sensitive fact names an item as its source, the words of that item which were moved to
    the facts before are nowhere a merely claimed caller looks; other moved facts are."""
    _, verified, claimed = await _person(memory)
    moved = await _moved(verified)
    secret, other = moved[0], moved[1]
    assert {secret.id, other.id} <= {fact.id for fact in await claimed.facts()}
    before = (await claimed.recall(str(secret.value))).withheld
    await verified.remember("room", "0", sensitive=True, sources=secret.sources)
    words = str(secret.value)
    for found in (
        await claimed.facts(),
        await claimed.history(),
        await claimed.history(secret.predicate),
    ):
        assert secret.id not in {fact.id for fact in found}
        assert words not in str(found)
    assert other.id in {fact.id for fact in await claimed.facts()}
    recalled = await claimed.recall(words, limit=20)
    assert secret.id not in {one.fact.id for one in recalled.facts}
    assert words not in recalled.text
    assert recalled.withheld > before
    assert words not in (await claimed.brief(max_tokens=5_000)).text
    context = await (await claimed.session("t")).context(words, window=8_000)
    assert words not in context.state + context.recall
    ended = await claimed.retract(secret.predicate)
    assert (ended.value, ended.sources) == (None, ())


async def test_a_verified_host_has_all_of_it(memory: Memory) -> None:
    """The verified caller still finds the fact, and its history and export have it."""
    _, verified, _ = await _person(memory)
    secret = (await _moved(verified))[0]
    await verified.remember("room", "0", sensitive=True, sources=secret.sources)
    assert secret.id in {fact.id for fact in await verified.facts()}
    assert secret.id in {fact.id for fact in await verified.history()}
    recalled = await verified.recall(str(secret.value), limit=20)
    assert secret.id in {one.fact.id for one in recalled.facts}


def test_the_export_has_it(
    tmp_path: Path,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``secondcall export`` writes it, as everything that is held."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    monkeypatch.setenv("SECONDCALL_URL", url)

    async def fill() -> tuple[str, object]:
        async with Memory.open(url, clock=clock) as memory:
            _, verified, _ = await _person(memory)
            secret = (await _moved(verified))[0]
            await verified.remember("room", "0", sensitive=True, sources=secret.sources)
            return verified.user_id, secret.value

    user_id, value = asyncio.run(fill())
    file = tmp_path / "all.jsonl"
    assert run(["export", "--user", user_id, "--output", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]
    assert value in [json.loads(line).get("value") for line in file.read_text("utf-8").splitlines()]


async def test_a_fact_told_by_the_host_is_not_hidden_by_its_source(memory: Memory) -> None:
    """Only the words of the item go with it; a fact that the host told of the same item stays."""
    _, verified, claimed = await _person(memory)
    session = await verified.session("s")
    await session.record(Message("user", "I have asthma and a dog called Rex.", id="a"))
    key = (await session.items())[0].key
    await verified.remember("dog", "Rex", sources=[key])
    await verified.remember("diagnosis", "asthma", sensitive=True, sources=[key])
    assert [fact.value for fact in await claimed.facts()] == ["Rex"]


async def test_moved_key_facts_do_not_crowd_the_brief(memory: Memory) -> None:
    """They stand neither in the brief nor in the state part of a context, merged or not, and take
    no room there; recall finds them."""
    user = memory.user("ana")
    await user.remember("seat", "aisle", kind="preference")
    moved = await _moved(user)
    await memory.user("ben").remember("shoes", "42")
    for merged in (False, True):
        if merged:
            await memory.merge("ben", "ana")
        brief = await user.brief(max_tokens=5_000)
        assert "aisle" in brief.text
        assert not {fact.id for fact in brief.facts} & {fact.id for fact in moved}
        context = await (await user.session("t")).context("x", window=8_000)
        assert "aisle" in context.state
        assert str(moved[0].value) not in context.state
        found = await user.recall(str(moved[0].value), limit=20)
        assert moved[0].id in {one.fact.id for one in found.facts}

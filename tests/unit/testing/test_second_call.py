"""The checker of the second call finds what is wrong with an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from secondcall import Memory, Message
from secondcall.testing.second_call import Dial, HeardCall, SecondCallFailed, second_call

pytestmark = pytest.mark.anyio


@pytest.fixture
async def memory() -> AsyncGenerator[Memory]:
    """An empty memory."""
    async with Memory.open("memory://") as opened:
        yield opened


def agent(memory: Memory, fault: str = "", *, wording: str = "") -> Dial:
    """An agent without a model: it says what it was given, and has one fault. With ``wording`` it
    speaks of each issue in these words."""
    calls = 0

    async def dial(number: str | None, lines: Sequence[str]) -> HeardCall:
        nonlocal calls
        calls += 1
        caller = await memory.identify(phone=number or "anonymous")
        if fault == "one memory for all":
            user = memory.user("everybody")
        elif fault == "an id per call":
            user = memory.user(f"room-{calls}")
        else:
            user = memory.user(caller)
        session = await user.session(f"call-{calls}")
        given: list[str] = []
        if fault != "no preload":
            given.append((await user.brief(deadline_seconds=None)).text)
        replies: list[str] = []
        for line in lines:
            if fault not in ("no lookup", "no preload"):
                found = await user.recall(line)
                given.extend(one.item.text for one in found.items if isinstance(one.item, Message))
            if fault != "no recording":
                await session.record(Message("user", line))
            replies.append("Sorry?" if fault == "silent" else " ".join(given))
        if fault == "resolved issues stay open":
            replies.extend(str(fact.value) for fact in await user.history() if fact.kind == "issue")
        if wording:
            issues = [str(fact.value) for fact in await user.history() if fact.kind == "issue"]
            replies.extend(wording.format(issue.split()[-1]) for issue in issues)
        return HeardCall(replies=replies, given=given, user_id=user.user_id)

    return dial


async def test_a_good_agent_passes(memory: Memory) -> None:
    """An agent that records, loads and looks up passes every judgement."""
    report = await second_call(agent(memory), memory)
    report.check()
    assert [one.passed for one in report.judgements] == [True] * 5


@pytest.mark.parametrize(
    ("fault", "failed", "cause", "said"),
    [
        ("no recording", 0, "not recorded", "Is the session attached"),
        ("an id per call", 0, "wrong id", "'room-1', but the second call was taken as 'room-2'"),
        ("no preload", 0, "not loaded", "neither the brief nor anything recalled"),
        ("silent", 0, "not said", "did not use it"),
        ("silent", 1, "not said", "did not use it"),
        ("no preload", 1, "not loaded", "It stands in the brief"),
        ("no recording", 1, "not recorded", "Nobody is known"),
        ("resolved issues stay open", 2, "repeated", "replies name it"),
        ("one memory for all", 3, "leaked", "taken as 'everybody'"),
        ("one memory for all", 4, "leaked", "taken as 'everybody'"),
    ],
)
async def test_a_fault_is_named_with_its_cause(
    memory: Memory, fault: str, failed: int, cause: str, said: str
) -> None:
    """Each fault fails the judgement that it breaks, which names the cause."""
    report = await second_call(agent(memory, fault), memory)
    judgement = report.judgements[failed]
    assert (judgement.passed, judgement.cause) == (False, cause)
    assert said in judgement.detail
    with pytest.raises(SecondCallFailed, match=f"FAILED: {judgement.name}: {cause}"):
        report.check()


@pytest.mark.parametrize(
    ("wording", "passed"),
    [
        ("Your trouble with the {} has not been resolved yet, it is open.", False),
        ("{0} is still an open issue of yours. Your call was resolved.", False),
        ("Yes, one is open and unresolved: the {}.", False),
        ("The {} isn't really fixed.", False),
        ("Nobody has fixed the {}.", False),
        ("The {} still needs to be fixed.", False),
        ("Has the {} been resolved?", False),
        ("The {} is working again.", True),
        ("The {} was not only fixed but replaced.", True),
        ("No, nothing: the trouble with the {} was Resolved.", True),
        ("Nothing is open. The {} is settled.", True),
        ("Nothing. We fixed the {} last week.", True),
    ],
)
async def test_an_issue_is_over_if_the_agent_says_so_in_any_words(
    memory: Memory, wording: str, passed: bool
) -> None:
    """Each sentence that names the resolved issue must say that it is over, and not deny it."""
    report = await second_call(agent(memory, wording=wording), memory)
    assert report.judgements[2].passed is passed, str(report)


async def test_what_the_brief_lacks_is_told_apart(memory: Memory) -> None:
    """A brief that came but does not hold the words is another cause than one that did not come."""

    async def dial(number: str | None, lines: Sequence[str]) -> HeardCall:
        user = memory.user(number or "nobody")
        session = await user.session(f"call-{lines[0]}")
        brief = await user.brief(deadline_seconds=None, max_tokens=90)
        await session.record(*(Message("user", line) for line in lines))
        for filler in range(40):
            await session.record(Message("user", f"And then {filler} other things happened."))
        await session.close()
        await user.flush()
        return HeardCall(replies=["Hello."], given=[brief.text], user_id=user.user_id)

    report = await second_call(dial, memory)
    assert report.judgements[0].cause == "recorded but not in the brief"

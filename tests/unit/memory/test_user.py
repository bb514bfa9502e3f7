"""A user's handle: reading, recall, brief, erasure, retention, merging."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from secondcall import (
    InvalidValue,
    ItemKey,
    Memory,
    Message,
    NotOpen,
    RecalledItem,
    RecordedItem,
    ToolCall,
)
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


def _texts(items: Sequence[RecalledItem | RecordedItem]) -> list[str]:
    return [one.item.text for one in items if isinstance(one.item, Message)]


async def _talk(memory: Memory, user_id: str, session_id: str, *texts: str) -> None:
    session = await memory.user(user_id).session(session_id)
    await session.record(*(Message("user", text, id=text) for text in texts))


async def test_recall_finds_what_was_said(memory: Memory) -> None:
    """A question finds the message that answers it, with its key, date and score."""
    await _talk(
        memory, "ann", "s", "My dog is called Rex.", "I moved to Porto.", "I work at a bakery."
    )
    found = await memory.user("ann").recall("What is the name of my dog?", limit=1)
    assert _texts(found.items) == ["My dog is called Rex."]
    assert found.items[0].key == ItemKey("ann", "s", "message", "My dog is called Rex.")
    assert '"My dog is called Rex."' in found.text
    assert found.reason is None


async def test_recall_sees_what_was_just_recorded(memory: Memory) -> None:
    """A recorded item is found by the next recall, without waiting."""
    user = memory.user("ann")
    await _talk(memory, "ann", "s", "My dog is called Rex.")
    await user.recall("dog")
    await _talk(memory, "ann", "s", "My cat is called Mimi.")
    assert "My cat is called Mimi." in _texts((await user.recall("cat", limit=1)).items)


async def test_a_correction_is_found_in_place_of_the_error(memory: Memory) -> None:
    """After a correction only the corrected words are found."""
    session = await memory.user("ann").session("s")
    await session.record(Message("user", "My dog is called Max.", id="m"))
    await memory.user("ann").recall("dog")
    await session.record(Message("user", "My dog is called Rex.", id="m"))
    found = await memory.user("ann").recall("what is my dog called")
    assert _texts(found.items) == ["My dog is called Rex."]


async def test_nobody_finds_what_another_said(memory: Memory) -> None:
    """Recall of one user never reaches another's record, whatever is asked."""
    await _talk(memory, "ann", "s", "The password is swordfish.")
    found = await memory.user("bob").recall("The password is swordfish.")
    assert found.items == ()
    assert found.reason == "nothing is recorded"
    assert "swordfish" not in found.text


@pytest.mark.parametrize(
    "query", ["", "   ", "\x00", "\ud800", '"', "-", "*", "AND", "😀", "שלום", "the of and", "?!"]
)
async def test_odd_queries_find_nothing_or_something_but_never_fail(
    memory: Memory, query: str
) -> None:
    """Empty, broken and wordless queries answer with a reason or with items, not an error."""
    await _talk(memory, "ann", "s", "My dog is called Rex.")
    found = await memory.user("ann").recall(query)
    assert found.items or found.reason


async def test_a_query_of_a_megabyte_is_answered(memory: Memory) -> None:
    """A whole document pasted in as the query is answered from its informative words."""
    await _talk(memory, "ann", "s", "My dog is called Rex.", "I like tea.")
    query = "nothing of note here " * 50_000 + " dog Rex"
    assert (await memory.user("ann").recall(query, limit=1)).items


@pytest.mark.parametrize("limit", [0, -1])
async def test_limits_below_one_are_refused(memory: Memory, limit: int) -> None:
    """A limit below one is an error that names it."""
    with pytest.raises(InvalidValue, match=f"limit is {limit}, expected 1"):
        await memory.user("ann").recall("dog", limit=limit)


async def test_filters_apply_before_ranking(memory: Memory) -> None:
    """With filters the best items among those that pass are found, not what is left of the best."""
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(
        *(Message("assistant", f"dog dog dog {number}", id=str(number)) for number in range(20)),
        Message("user", "I once had a dog", id="mine", metadata={"topic": "pets"}),
        ToolCall("dog_lookup", {"breed": "any"}, call_id="call"),
    )
    by_role = await user.recall("dog", limit=1, roles=["user"])
    by_topic = await user.recall("dog", limit=1, where={"topic": "pets"})
    by_kind = await user.recall("dog", limit=1, kinds=["tool_call"])
    assert [one.key.id for one in by_role.items] == ["mine"]
    assert [one.key.id for one in by_topic.items] == ["mine"]
    assert [one.key.id for one in by_kind.items] == ["call"]
    assert not (await user.recall("dog", sessions=["other"])).items


async def test_filters_apply_to_facts_too(memory: Memory) -> None:
    """Kinds and metadata choose among facts as among items."""
    user = memory.user("ann")
    await _talk(memory, "ann", "s", "I eat no meat, my food is vegan.")
    await user.remember("food", "vegan", kind="preference", metadata={"topic": "food"})
    await user.remember("food voucher", "10 EUR", kind="promise")
    found = await user.recall("food", kinds=["promise"])
    assert ([one.fact.value for one in found.facts], found.items) == (["10 EUR"], ())
    found = await user.recall("food", where={"topic": "food"})
    assert ([one.fact.value for one in found.facts], found.items) == (["vegan"], ())


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"kinds": ["messages"]}, "kinds has 'messages', expected attribute, decision"),
        ({"roles": ["caller"]}, "roles has 'caller', expected assistant, system, user"),
        ({"roles": "user"}, "roles must be a list of names, not str"),
        ({"sessions": "call-1"}, "sessions must be a list of names"),
        ({"where": ["topic"]}, "where must be a dict"),
        ({"kinds": 5}, "kinds must be a list of names, not int"),
        ({"roles": [["user"]]}, "roles must be text, not list"),
        ({"deadline_seconds": "1"}, "deadline_seconds must be a number, not str"),
        ({"by": "day"}, "by is 'day', expected 'message', 'turn' or 'session'"),
    ],
)
async def test_unknown_filters_are_refused_by_name(
    memory: Memory, filters: dict[str, Any], words: str
) -> None:
    """A filter that nothing answers to is an error, never silently dropped."""
    with pytest.raises(InvalidValue, match=words):
        await memory.user("ann").recall("food", **filters)


async def test_recall_keeps_to_its_token_budget(memory: Memory) -> None:
    """The rendered answer never has more tokens than were granted."""
    await _talk(memory, "ann", "s", *(f"dog number {number} barks" for number in range(10)))
    user = memory.user("ann")
    found = await user.recall("dog", limit=10, max_tokens=150)
    assert 0 < len(found.items) < 10
    counted = (await user.recall("dog", limit=10)).text
    assert len(found.text) < len(counted)


async def test_facts_are_recalled_apart(memory: Memory) -> None:
    """A fact that answers the question comes beside the items."""
    user = memory.user("ann")
    await user.remember("seat preference", "aisle", kind="preference")
    found = await user.recall("which seat do I prefer?")
    assert [one.fact.value for one in found.facts] == ["aisle"]


async def test_an_item_whose_fact_has_ended_is_marked(memory: Memory, clock: FrozenClock) -> None:
    """What was said and is no longer true says since when and what is true now."""
    user = memory.user("ann")
    await _talk(memory, "ann", "s", "I am vegetarian.")
    source = ItemKey("ann", "s", "message", "I am vegetarian.")
    await user.remember("diet", "vegetarian", kind="preference", sources=[source])
    clock.advance(timedelta(days=30))
    await user.remember("diet", "vegan", kind="preference")
    found = await user.recall("am I vegetarian?", limit=1)
    assert found.items[0].stale == "since 2026-06-03: diet is vegan"


async def test_what_a_sensitive_fact_rests_on_is_withheld(memory: Memory) -> None:
    """A claimed caller finds neither the sensitive fact nor the words it came from."""
    caller = await memory.identify(phone="+14155550100")
    user = memory.user(caller.user_id)
    await _talk(memory, caller.user_id, "s", "I have asthma.", "I like tea.")
    source = ItemKey(caller.user_id, "s", "message", "I have asthma.")
    await user.remember("diagnosis", "asthma", sensitive=True, sources=[source])
    claimed = memory.user(caller)
    found = await claimed.recall("do I have asthma?")
    assert "asthma" not in found.text
    assert found.withheld > 0
    assert "I have asthma." not in _texts([one async for one in claimed.items()])
    assert await claimed.item(source) is None
    assert "asthma" in (await user.recall("do I have asthma?")).text


async def test_the_brief_says_what_was_promised_and_last_said(memory: Memory) -> None:
    """A brief holds promises, open issues, facts and the last words, within its tokens."""
    user = memory.user("ann")
    await _talk(memory, "ann", "call-1", "The bill is wrong.", "Thank you, bye.")
    await user.remember("discount", "20 % off the next bill", kind="promise")
    await user.remember("billing dispute", "charged twice in May", kind="issue")
    await user.remember("name", "Ann")
    brief = await user.brief(deadline_seconds=None)
    for words in ("20 % off", "charged twice", "Ann", "Thank you, bye."):
        assert words in brief.text
    assert brief.tokens <= 400
    assert brief.known
    assert brief.missing == ()


async def test_a_small_brief_keeps_promises_first(memory: Memory) -> None:
    """When tokens are short, promises stay and what is left out is counted."""
    user = memory.user("ann")
    await user.remember("discount", "20 % off", kind="promise")
    for number in range(20):
        await user.remember(f"note {number}", "something not so important", kind="attribute")
    brief = await user.brief(max_tokens=100, deadline_seconds=None)
    assert [fact.predicate for fact in brief.promises] == ["discount"]
    assert brief.left_out > 0
    assert brief.tokens <= 100


async def test_a_stranger_s_brief_is_empty(memory: Memory) -> None:
    """A brief of somebody unknown has no text and makes no user."""
    brief = await memory.user("nobody").brief(deadline_seconds=None)
    assert (brief.text, brief.known) == ("", False)
    assert await memory.users() == []


async def test_a_deadline_of_nothing_still_answers(memory: Memory) -> None:
    """With no time at all brief and recall return what they have and say what is missing."""
    await _talk(memory, "ann", "s", "My dog is called Rex.")
    user = memory.user("ann")
    brief = await user.brief(deadline_seconds=0)
    found = await user.recall("dog", deadline_seconds=0)
    assert set(brief.missing) <= {"facts", "sessions"}
    assert found.stale or found.items


async def test_forget_leaves_nothing_and_says_so(memory: Memory) -> None:
    """After forget nothing is found anywhere, and the receipt names what went."""
    caller = await memory.identify(phone="+14155550100")
    await _talk(memory, caller.user_id, "s", "My dog is called Rex.")
    await memory.user(caller.user_id).remember("dog", "Rex")
    receipt = await memory.user(caller.user_id).forget()
    assert receipt.complete
    assert receipt.remaining == {}
    assert sum(receipt.removed.values()) > 3
    user = memory.user(caller.user_id)
    assert [one async for one in user.items()] == []
    assert await user.facts() == []
    assert not (await user.recall("dog")).items
    again = await memory.identify(phone="+14155550100")
    assert again.user_id != caller.user_id
    assert not again.known


async def test_a_legal_hold_refuses_forgetting(memory: Memory) -> None:
    """Under a hold forget is refused; lifted, it goes through."""
    await _talk(memory, "ann", "s", "one")
    await memory.user("ann").hold()
    with pytest.raises(InvalidValue, match="legal hold"):
        await memory.user("ann").forget()
    await memory.user("ann").hold(False)
    assert (await memory.user("ann").forget()).complete


async def test_what_has_run_out_is_hidden_at_once_and_swept_later(
    url: str, clock: FrozenClock
) -> None:
    """Retention hides at read time; the sweep removes it from record and search."""
    async with Memory.open(url, clock=clock, retain="30d") as memory:
        await _talk(memory, "ann", "old", "My dog is called Rex.")
        await memory.user("ann").remember("dog", "Rex")
        clock.advance(timedelta(days=31))
        await _talk(memory, "ann", "new", "I like tea.")
        user = memory.user("ann")
        assert _texts([one async for one in user.items()]) == ["I like tea."]
        assert "Rex" not in (await user.recall("dog Rex")).text
        assert await user.facts() == []
        assert [one.session_id for one in await user.sessions()] == ["new"]
        assert await memory.sweep(dry_run=True) == {"ann": 2}
        assert await memory.sweep() == {"ann": 2}
        assert await memory.sweep() == {}


async def test_retention_by_kind_touches_no_other_kind(url: str, clock: FrozenClock) -> None:
    """A policy for tool calls leaves messages alone."""
    async with Memory.open(url, clock=clock, retain={"tool_call": "1d"}) as memory:
        session = await memory.user("ann").session("s")
        await session.record(Message("user", "keep"), ToolCall("t", {}, call_id="c"))
        clock.advance(timedelta(days=2))
        assert await memory.user("ann").sweep() == 1
        assert [one.key.kind for one in await session.items()] == ["message"]


async def test_a_user_s_own_policy_goes_before_the_tenant_s(url: str, clock: FrozenClock) -> None:
    """A user may be kept for a shorter time than the rest."""
    async with Memory.open(url, clock=clock, retain="90d") as memory:
        await _talk(memory, "ann", "s", "short")
        await _talk(memory, "bob", "s", "long")
        await memory.user("ann").retain("1d")
        clock.advance(timedelta(days=2))
        assert await memory.sweep() == {"ann": 1}


async def test_single_items_can_be_removed(memory: Memory) -> None:
    """A removed item is read and found no more, the others are."""
    await _talk(memory, "ann", "s", "My card is 4111.", "I like tea.")
    user = memory.user("ann")
    await user.recall("card")
    assert await user.remove([ItemKey("ann", "s", "message", "My card is 4111.")]) == 1
    assert _texts([one async for one in user.items()]) == ["I like tea."]
    assert "4111" not in (await user.recall("card 4111")).text
    with pytest.raises(InvalidValue, match="belongs to another user"):
        await user.remove([ItemKey("bob", "s", "message", "x")])


async def test_a_merged_user_is_read_with_both_histories(memory: Memory) -> None:
    """After a merge the canonical user reads and recalls both, and new writes go to it alone."""
    await _talk(memory, "old", "s", "My dog is called Rex.")
    await _talk(memory, "new", "s", "I like tea.")
    await memory.user("old").remember("dog", "Rex")
    await memory.merge("old", "new", reason="same person")
    user = memory.user("new")
    texts = _texts([one async for one in user.items()])
    assert sorted(texts) == ["I like tea.", "My dog is called Rex."]
    found = await user.recall("what is my dog called", limit=1)
    assert found.items[0].key.user_id == "old"
    assert [fact.value for fact in await user.facts()] == ["Rex"]
    await _talk(memory, "old", "s2", "Written under the old id.")
    await memory.unmerge("old", reason="a mistake")
    assert _texts([one async for one in memory.user("old").items()]) == ["My dog is called Rex."]
    left = _texts([one async for one in memory.user("new").items()])
    assert left == ["I like tea.", "Written under the old id."]


async def test_forgetting_a_merged_user_erases_both_partitions(memory: Memory) -> None:
    """Erasing the canonical user erases what was merged into it."""
    await _talk(memory, "old", "s", "one")
    await _talk(memory, "new", "s", "two")
    await memory.merge("old", "new")
    assert (await memory.user("new").forget()).complete
    assert await memory.users() == []


async def test_long_records_are_sealed_and_still_found(memory: Memory) -> None:
    """Past 512 items segments are written, and a fresh index finds what the old one found."""
    user = memory.user("ann")
    session = await user.session("s")
    for start in range(0, 1_500, 100):
        await session.record(
            *(
                Message("user", f"note {n} about topic{n}", id=str(n))
                for n in range(start, start + 100)
            )
        )
    await user.flush()
    before = await user.recall("topic700 topic1400", limit=2)
    assert await user.reindex() >= 1_500
    after = await user.recall("topic700 topic1400", limit=2)
    assert [one.key.id for one in before.items] == ["700", "1400"] or [
        one.key.id for one in before.items
    ] == ["1400", "700"]
    assert [(one.key, one.score) for one in after.items] == [
        (one.key, one.score) for one in before.items
    ]


async def test_a_closed_memory_says_so(url: str) -> None:
    """A memory that is not open refuses with the way to open it."""
    memory = Memory.open(url)
    with pytest.raises(NotOpen, match=r"async with Memory\.open"):
        memory.user("ann")

"""What a merely claimed caller is not shown of facts that were made from items."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from secondcall.facts.moved import EXTRACTED_BY, KEY_FACT, is_withheld
from secondcall.types import Fact, ItemKey, Metadata

ITEM = ItemKey("ana", "s", "message", "m1")
OTHER = ItemKey("ana", "s", "message", "m2")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fact(metadata: Metadata, *, sensitive: bool = False) -> Fact:
    """A fact that rests on one item."""
    return Fact(
        id="f",
        kind="attribute",
        subject="user",
        predicate="code",
        value="7",
        status="current",
        valid_from=NOW,
        recorded_at=NOW,
        sensitive=sensitive,
        sources=(ITEM,),
        metadata=metadata,
    )


@pytest.mark.parametrize("metadata", [{KEY_FACT: True}, {EXTRACTED_BY: "openai:m"}])
def test_what_was_made_from_a_hidden_item_is_withheld_with_it(metadata: Metadata) -> None:
    """Moved key facts and facts that a model found go with the item whose words they are."""
    assert is_withheld(fact(metadata), {ITEM})
    assert not is_withheld(fact(metadata), {OTHER})


def test_what_the_host_told_stands_for_itself() -> None:
    """A fact of the host's is withheld when it is sensitive, not because an item is."""
    assert not is_withheld(fact({}), {ITEM})
    assert is_withheld(fact({}, sensitive=True), ())

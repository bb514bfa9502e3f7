"""Key facts that a session's buffer had no room for and moved to the facts, with their sources.

They are clauses of items, word for word: what may be shown of them is what may be shown of those.
Recall finds them; a brief, which has room for little, leaves them out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondcall.types import Fact, ItemKey

__all__ = ["EXTRACTED_BY", "KEY_FACT", "is_moved", "is_withheld"]

KEY_FACT = "key_fact"
"""The metadata that marks them, with the value ``True``."""
EXTRACTED_BY = "extracted_by"
"""The metadata of a fact that a model found: which one."""


def is_moved(fact: Fact) -> bool:
    """Whether it was moved here from a buffer's key facts."""
    return fact.metadata.get(KEY_FACT) is True


def is_withheld(fact: Fact, hidden: Collection[ItemKey]) -> bool:
    """Whether a merely claimed caller is not shown it: it is sensitive, or it was made from an item
    (moved here, or found by a model) that is ``hidden`` since sensitive facts come from it,
    whenever those were told."""
    made_from_words = is_moved(fact) or EXTRACTED_BY in fact.metadata
    return fact.sensitive or (made_from_words and any(one in hidden for one in fact.sources))

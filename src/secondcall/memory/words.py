"""The vectors of single words, from the shipped table, whichever embedder is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from secondcall.context.nearness import Asked, asked_of, asked_texts, texts_of
from secondcall.registry import embedder_from_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from secondcall.abc import Embedder
    from secondcall.record.index import OpenIndex
    from secondcall.types import Fact

__all__ = ["Words"]

_STEP = 256


@dataclass(eq=False)
class Words:
    """Looks words up, and keeps those of the facts beside an open index for as long as it is."""

    _kept: WeakKeyDictionary[OpenIndex, Mapping[str, npt.NDArray[np.float32]]] = field(
        default_factory=lambda: WeakKeyDictionary()
    )

    async def of_facts(
        self, opened: OpenIndex, facts: Sequence[Fact]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """The vectors of the predicates of facts and of their words, by text."""
        older = self._kept.get(opened, {})
        wanted = dict.fromkeys(text for fact in facts for text in texts_of(fact))
        found = {text: older[text] for text in wanted if text in older}
        fresh = [text for text in wanted if text not in found]
        for start in range(0, len(fresh), _STEP):
            part = fresh[start : start + _STEP]
            made = await self._table.embed_documents(part)
            found |= zip(part, made, strict=True)
            await asyncio.sleep(0)
        self._kept[opened] = found
        return found

    async def of_question(self, question: str) -> Asked | None:
        """The words of a question; ``None`` when it has none that say something."""
        return asked_of(await self._table.embed_documents(asked_texts(question)))

    @cached_property
    def _table(self) -> Embedder:
        return embedder_from_name("static")

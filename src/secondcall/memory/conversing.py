"""The conversation of a session handle: a plain buffer of the session, cut to each window anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from secondcall.context.conversation import BufferedConversation, Conversation
from secondcall.memory.buffering import open_buffer
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.measure import Measure
from secondcall.shortterm.owned import has_run_out
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.types import Item, ItemKind, Message

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.memory.buffering import BufferedSession
    from secondcall.memory.following import Reach
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory

    Attached: TypeAlias = ChatBuffer | SummarizingBuffer

__all__ = ["HeldConversation", "as_conversation", "kind_and_id"]

_FRAMING_TOKENS = 4


def kind_and_id(item: Item) -> tuple[ItemKind, str]:
    """What names an item within its session."""
    if isinstance(item, Message):
        return "message", item.id or ""
    return "tool_call", item.call_id


def as_conversation(buffer: Attached, counter: TokenCounter) -> Conversation:
    """The conversation as the host's buffer shows it, with the summary of one that has any.

    Raises: ``OverBudget`` as the buffer's ``get``.
    """
    items, report, tokens, summary = buffer.get(), buffer.explain(), buffer.tokens, ""
    if isinstance(buffer, SummarizingBuffer):
        tokens, summary = tokens - report.reserved_tokens, buffer.summary()
    return BufferedConversation(items, report, tokens=tokens, summary=summary, counter=counter)


class HeldConversation:
    """The newest turns of a session, at least as many as fit into the largest window asked for.

    They are held by a buffer that everything recorded in this process goes into, and that sees what
    others record.
    """

    def __init__(self, user: UserMemory, place: Place, session_id: str) -> None:
        self._user = user
        self._place = place
        self._session_id = session_id
        self.buffered: BufferedSession | None = None
        self._sizes: dict[tuple[ItemKind, str], tuple[Item, int]] = {}
        self._conversation: Conversation | None = None
        self._version = 0

    async def conversation(self, token_limit: int, headers: Reach) -> Conversation:
        """The newest turns, at least as many as fit into ``token_limit``; the ``headers`` were read
        just now.

        Raises: ``OverBudget`` when the newest turn alone does not, even shortened.
        """
        if self.buffered is None or self.buffered.buffer.token_limit < token_limit:
            self.buffered = await open_buffer(
                self._user,
                self._place,
                self._session_id,
                token_limit=token_limit,
                summarise=False,
                every=None,
            )
            self._conversation = None
        else:
            await self.buffered.refresh(self._place, headers)
        if self._conversation is None or self._is_old(self._conversation, self.buffered):
            version, items = self.buffered.version, self.buffered.buffer.get()
            self._version = version
            counter = self._place.shared.counter
            self._conversation = Conversation(items, self._measured(items), counter=counter)
        return self._conversation

    def _is_old(self, conversation: Conversation, buffered: BufferedSession) -> bool:
        """Whether the buffer has changed since, or something in it has run out."""
        cutoffs = buffered.cutoffs()
        return self._version != buffered.version or (
            bool(cutoffs) and any(has_run_out(item, cutoffs) for item in conversation.items)
        )

    def _measured(self, items: Sequence[Item]) -> list[int]:
        """The tokens of each item, counted once."""
        assert self.buffered is not None
        measure = Measure(
            self._place.shared.counter,
            token_limit=self.buffered.buffer.token_limit,
            framing_tokens=_FRAMING_TOKENS,
        )
        known, self._sizes = self._sizes, {}
        sizes: list[int] = []
        for item in items:
            name = kind_and_id(item)
            before = known.get(name)
            if before is None or before[0] != item:
                before = (item, measure.size(item).tokens)
            self._sizes[name] = before
            sizes.append(before[1])
        return sizes

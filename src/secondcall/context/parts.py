"""What a model is handed for its next reply, part by part, and what was left out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from secondcall.context.chat import messages_from_items
from secondcall.types import Brief, Item, Message, Recalled

if TYPE_CHECKING:
    from secondcall.context.chat import ChatForm
    from secondcall.state.agent_state import AgentState
    from secondcall.types import JsonValue

__all__ = ["Context", "LeftOut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that did not come along: what it is, by name and not by its words, the layer that
    had no room for it, the tokens that it would have taken, and why. Of what was ``shortened`` a
    part is there."""

    what: str
    layer: str
    tokens: int
    reason: str
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of one request to a model, which together fit into its window.

    ``state`` is where the workflows stand and then the brief, ``recall`` what was found for the
    question, ``summary`` what stands for the older turns: fenced texts, empty when there is
    nothing. ``items`` are the conversation's newest turns, in order. ``tokens`` are counted by part
    (*system, tools, reserve, state, recall, summary, buffer*), with those that frame a message;
    their sum is never above the window. ``limits`` are what *buffer* (its summary included),
    *recall* and *state* might have taken.

    ``missing`` names the parts that the deadline cut off. ``stale`` is true when what was recalled
    may lack what other processes wrote just now. ``states`` (the session's, the user-wide one),
    ``brief`` and ``recalled`` are what the texts were made of.
    """

    state: str
    recall: str
    summary: str
    items: Sequence[Item]
    tokens: Mapping[str, int]
    limits: Mapping[str, int]
    left_out: Sequence[LeftOut] = ()
    missing: Sequence[str] = ()
    stale: bool = False
    brief: Brief
    recalled: Recalled
    states: Sequence[AgentState[Any]] = ()
    elapsed_seconds: float = 0.0

    def messages(
        self, form: ChatForm = "openai", *, system: str = ""
    ) -> list[dict[str, JsonValue]]:
        """The request's messages in a provider's form: ``system`` if there is any, the summary, the
        turns, and what is remembered as data of the user's, before the newest user message.

        Memory never goes into the system role here: what callers said has no business there. In the
        form of Anthropic the system text stands beside the messages; it is refused here.

        Raises: ``InvalidValue``.
        """
        items = list(self.items)
        memory = "\n".join(text for text in (self.state, self.recall) if text)
        if memory:
            items.insert(_newest_user_message(items), Message("user", memory))
        if self.summary:
            items.insert(_after_system(items), Message("user", self.summary))
        return messages_from_items(items, form=form, system=system)


def _newest_user_message(items: Sequence[Item]) -> int:
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if isinstance(item, Message) and item.role == "user":
            return place
    return len(items)


def _after_system(items: Sequence[Item]) -> int:
    return next(
        (
            place
            for place, item in enumerate(items)
            if not isinstance(item, Message) or item.role != "system"
        ),
        len(items),
    )

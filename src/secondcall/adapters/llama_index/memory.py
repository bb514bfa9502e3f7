"""``SecondCallMemory``: the memory that a LlamaIndex agent is run with.

It holds no messages. What it is made of is a place (a store's name) and a scope (tenant, user,
session): that is all that is written when a ``Context`` is serialised, and from it the same
conversation is found again, in this process as the same object, in another one by the name.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from llama_index.core.memory import BaseMemory
from llama_index.core.schema import QueryBundle

from secondcall.adapters.llama_index.places import HostPlace, Place, place_of
from secondcall.adapters.llama_index.runs import current_run
from secondcall.adapters.llama_index.talk import OnFailure, Scope, Settings, Talk
from secondcall.adapters.llama_index.view import Insert
from secondcall.adapters.llama_index.window import room_of
from secondcall.checks import check_deadline, check_id, check_limit
from secondcall.context.budget import DEFAULT_SHARES, TokenBudget
from secondcall.errors import InvalidValue
from secondcall.memory import Memory
from secondcall.named import DEFAULT_NAME, store_name
from secondcall.types import Caller, Trust

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.tools import BaseTool

    from secondcall.abc import TokenCounter

__all__ = ["SecondCallMemory"]

T = TypeVar("T")

_live: WeakValueDictionary[str, SecondCallMemory] = WeakValueDictionary()


class SecondCallMemory(BaseMemory):
    """Buffer, summary, recall and state of one conversation, within one window.

    Made by ``from_defaults``. Every message is recorded as it comes; what ``get`` gives is put
    together anew: system messages, the summary, the newest turns, and in front of the newest
    question what is remembered of the user, fenced as data and stored as nobody's words.

    One object may be used by several runs at once, from several loops and threads. It is copied by
    reference; serialised it is the names below, never a URL or what was said.
    """

    model_config = ConfigDict(frozen=True)

    user_id: str
    session_id: str
    tenant_id: str = "default"
    trust: Trust = "verified"
    store: str | None = None
    handle: str = ""
    window: int
    reserve: int
    shares: tuple[float, float, float]
    recall_limit: int
    summarise: bool
    insert: Insert
    deadline_seconds: float | None = None
    on_failure: OnFailure = "raise"
    _place: Place = PrivateAttr()
    _talk: Talk = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        """``SecondCallMemory``."""
        return "SecondCallMemory"

    @classmethod
    def from_defaults(
        cls,
        *,
        user_id: str | Caller,
        session_id: str,
        url: str | None = None,
        name: str | None = None,
        memory: Memory | None = None,
        tenant_id: str = "default",
        llm: LLM | None = None,
        system_prompt: str | None = None,
        tools: Sequence[BaseTool | Callable[..., Any]] = (),
        window: int | None = None,
        reserve: int | None = None,
        token_limit: int | None = None,
        shares: Mapping[str, float] | None = None,
        recall_limit: int = 3,
        summarise: bool = True,
        insert: Insert = "user",
        deadline_seconds: float | None = None,
        on_failure: OnFailure = "raise",
        counter: TokenCounter | None = None,
        **unknown: Any,
    ) -> Self:
        """The memory of one conversation of one user.

        The store is that of ``url``, of a ``name`` given by ``secondcall.configure``, or of a
        ``memory`` that is open; with none of them that of ``SECONDCALL_URL``. A ``Caller`` brings
        its trust with it.

        ``window`` and ``reserve`` (kept for the answer) are the model's, if ``llm`` is given, and
        16,000 and 1,000 otherwise; ``system_prompt`` and ``tools`` are those of the agent, and are
        taken off. Or ``token_limit`` is all that ``get`` gives. ``shares`` split it: 0.6 *buffer*,
        0.2 *recall*, 0.2 *state*. At most ``recall_limit`` earlier turns are recalled for a
        question. ``insert`` is the role in which memory is put in. With ``on_failure="degrade"`` a
        store that is down stops no run: what could not be written is held and written with the next
        message, and the log says so. Prompt and tools are counted with ``counter``, by default that
        of ``memory``; messages with the one that the store was opened with.

        Raises: ``InvalidValue`` naming the field, ``TooLarge`` for an id, ``UnknownName`` for a
        name, ``OverBudget`` for tools and prompt that fill the window.
        """
        if unknown:
            raise InvalidValue(
                f"from_defaults got {', '.join(sorted(unknown))}, which it does not know; "
                "see help(SecondCallMemory.from_defaults)"
            )
        room = room_of(
            llm=llm,
            window=window,
            reserve=reserve,
            token_limit=token_limit,
            system_prompt=system_prompt,
            tools=tools,
            counter=memory.counter if counter is None and memory is not None else counter,
        )
        budget = TokenBudget(room.window, room.reserve, shares or DEFAULT_SHARES)
        place = _place(url, name, memory)
        made = cls(
            user_id=user_id.user_id if isinstance(user_id, Caller) else user_id,
            session_id=session_id,
            tenant_id=memory.tenant_id if memory is not None else tenant_id,
            trust=user_id.trust if isinstance(user_id, Caller) else "verified",
            store=place.name,
            handle=secrets.token_hex(12),
            window=room.window,
            reserve=room.reserve + room.beside,
            shares=(budget.shares["buffer"], budget.shares["recall"], budget.shares["state"]),
            recall_limit=check_limit("recall_limit", recall_limit, maximum=1_000),
            summarise=summarise,
            insert=insert,
            deadline_seconds=check_deadline(deadline_seconds),
            on_failure=on_failure,
        )
        return made.at_place(place)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The memory that was written by ``to_dict``: the same object while this process has it,
        else one that finds its store by name.

        Fields that a later release wrote are passed over.

        Raises: ``UnknownName`` naming the store that is not configured here; ``InvalidValue`` for
        one that was over a memory of the host's own.
        """
        known = {name: one for name, one in {**data, **kwargs}.items() if name in cls.model_fields}
        found = _live.get(str(known.get("handle")))
        if isinstance(found, cls) and _scope_of(found.__dict__) == _scope_of(known):
            return found
        return _restored(cls, known)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Ids, the store's name and the settings: what ``from_dict`` finds it by."""
        data = self.model_dump(mode="json")
        data["class_name"] = self.class_name()
        return data

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpickled, (type(self), self.to_dict())

    async def aget(
        self, input: str | ChatMessage | None = None, **kwargs: Any
    ) -> list[ChatMessage]:
        """What a model is shown next, at most the window's tokens; ``input`` is the question where
        it is not recorded yet. The messages are the caller's own.

        Raises: ``OverBudget`` naming the part that does not fit, store errors.
        """
        question, run = _words(input), current_run()
        return await self._run(lambda memory: self._talk.get(memory, question, run))

    async def aget_all(self) -> list[ChatMessage]:
        """The whole conversation, as it was put."""
        return await self._run(self._talk.all)

    async def aput(self, message: ChatMessage) -> None:
        """Record one message; durable when this returns. Raises: ``TooLarge``, store errors."""
        await self.aput_messages([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Record messages, all of them or none. Raises: ``TooLarge``, store errors."""
        run = current_run()
        await self._run(lambda memory: self._talk.put(memory, messages, run))

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Make these messages the conversation. Those that stand in it stay what they are; what is
        no longer in it stays in the record, and recall finds it."""
        await self._run(lambda memory: self._talk.set(memory, messages))

    async def areset(self) -> None:
        """Remove this session from the record, with what was drawn from it alone: summaries,
        recaps, facts that a model found. What the user said in other sessions and what code
        remembered stay; ``user.forget`` removes that too."""
        await self._run(self._talk.reset)

    async def adrop_unanswered(self) -> int:
        """Take the last question out of the conversation, with its unanswered calls, when a run
        failed and nothing answers it; how many items. The record keeps them."""
        return await self._run(self._talk.drop_unanswered)

    def get(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        """``aget``, blocking."""
        question, run = _words(input), current_run()
        return self._block(lambda memory: self._talk.get(memory, question, run))

    def get_all(self) -> list[ChatMessage]:
        """``aget_all``, blocking."""
        return self._block(self._talk.all)

    def put(self, message: ChatMessage) -> None:
        """``aput``, blocking."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """``aput_messages``, blocking."""
        run = current_run()
        self._block(lambda memory: self._talk.put(memory, messages, run))

    def set(self, messages: list[ChatMessage]) -> None:
        """``aset``, blocking."""
        self._block(lambda memory: self._talk.set(memory, messages))

    def reset(self) -> None:
        """``areset``, blocking."""
        self._block(self._talk.reset)

    @property
    def counter(self) -> TokenCounter | None:
        """What messages are counted with; ``None`` before the store was first used."""
        return self._talk.counter

    def at_place(self, place: Place) -> Self:
        """This memory, reached through a place. Raises: ``InvalidValue``, ``TooLarge``."""
        for field in ("user_id", "session_id", "tenant_id"):
            check_id(field, getattr(self, field))
        self._place = place
        self._talk = Talk(
            _scope_of(self.__dict__),
            Settings(
                window=self.window,
                reserve=self.reserve,
                shares=self.shares,
                recall_limit=self.recall_limit,
                summarise=self.summarise,
                insert=self.insert,
                deadline_seconds=self.deadline_seconds,
                on_failure=self.on_failure,
            ),
        )
        _live[self.handle] = self
        return self

    async def _run(self, work: Callable[[Memory], Awaitable[T]]) -> T:
        return await self._place.run(work)

    def _block(self, work: Callable[[Memory], Awaitable[T]]) -> T:
        return self._place.run_blocking(work)


def _place(url: str | None, name: str | None, memory: Memory | None) -> Place:
    if memory is not None:
        if url is not None or name is not None:
            raise InvalidValue("give one of url, name and memory, not several")
        return HostPlace(memory)
    if url is not None:
        return place_of(store_name(url) if name is None else name, url)
    return place_of(DEFAULT_NAME if name is None else name)


def _scope_of(fields: Mapping[str, Any]) -> Scope:
    return Scope(
        tenant_id=fields.get("tenant_id", "default"),
        user_id=fields["user_id"],
        session_id=fields["session_id"],
        trust=fields.get("trust", "verified"),
    )


def _restored(kind: type[SecondCallMemory], known: Mapping[str, Any]) -> Any:
    made = kind(**known)
    if made.store is None:
        raise InvalidValue(
            f"the memory of session {made.session_id!r} was made with memory=, which another "
            "process cannot find; make it with url= or name="
        )
    return made.at_place(place_of(made.store))


def _unpickled(kind: type[SecondCallMemory], data: dict[str, Any]) -> SecondCallMemory:
    return kind.from_dict(data)


def _words(input: str | ChatMessage | QueryBundle | None) -> str | None:
    """The question's words; ``None`` where there are none. Chat engines ask with whole queries."""
    if isinstance(input, QueryBundle):
        input = input.query_str
    if isinstance(input, ChatMessage):
        input = "\n".join(one.text for one in input.blocks if isinstance(one, TextBlock))
    return input or None

"""Does the second call work? A checker that any team can run on its own agent.

It calls the agent, states things that nobody can guess, hangs up, and calls again, each time in
whatever way the given ``Dial`` makes a call: best each in a fresh process. Then it judges what the
agent said, and looks into the store for the cause of what went wrong::

    report = await second_call(dial, memory)
    report.check()

``secondcall.testing.livekit_call`` dials LiveKit agents.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from secondcall.memory import Memory, UserMemory
from secondcall.types import Message

__all__ = ["Dial", "HeardCall", "Judgement", "SecondCall", "SecondCallFailed", "second_call"]

# Numbers of the range that is kept free for fiction.
_CALLER = "+14155550142"
_STRANGER = "+14155550187"
_READ_ITEMS = 10_000
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_OVER = re.compile(
    r"\b(?:resolved|solved|settled|fixed|sorted|closed|done|finished|no longer|dealt with|"
    r"taken care of|works again|working again)\b"
)
_DENIAL = re.compile(
    r"(?:\b(?:not(?! only)|never|cannot|nobody|nothing|no one|yet to|to be|will be)|n['\u2019]t)"
    r"(?:\W+\w+){0,3}\W*$"
)
"""What turns "resolved" round when it stands shortly before it."""

Cause = Literal[
    "not recorded",
    "wrong id",
    "not loaded",
    "recorded but not in the brief",
    "not said",
    "leaked",
    "repeated",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardCall:
    """What came back from one call: what the agent said, its greeting included, in order.

    ``given`` are the texts that its model was given, over all requests; None where that cannot be
    seen. ``user_id`` is whom the agent took the caller for, None where it does not say.
    """

    replies: Sequence[str]
    given: Sequence[str] | None = None
    user_id: str | None = None


Dial: TypeAlias = Callable[[str | None, Sequence[str]], Awaitable[HeardCall]]
"""Makes one call: from a phone number (None: withheld), saying these lines one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One thing that has to hold; ``cause`` and ``detail`` say why it does not."""

    name: str
    passed: bool
    cause: Cause | None = None
    detail: str = ""

    def __str__(self) -> str:
        if self.passed:
            return f"passed: {self.name}"
        return f"FAILED: {self.name}: {self.cause}. {self.detail}"


class SecondCallFailed(AssertionError):
    """The second call does not work; its text is the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondCall:
    """The judgements, and the calls that they rest on."""

    judgements: Sequence[Judgement]
    first: HeardCall
    second: HeardCall
    stranger: HeardCall
    withheld: HeardCall

    @property
    def passed(self) -> bool:
        """Whether all of them hold."""
        return all(one.passed for one in self.judgements)

    def check(self) -> None:
        """Raises: ``SecondCallFailed`` with every judgement, when one does not hold."""
        if not self.passed:
            raise SecondCallFailed(str(self))

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self.judgements)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planted:
    """Words that are said, promised and settled in this run and nowhere else."""

    said: str
    promised: str
    resolved: str

    @property
    def lines(self) -> list[str]:
        return [
            f"Hello. Please remember that the word for my locker is {self.said}.",
            "That is all for today, thank you. Goodbye.",
        ]

    @property
    def questions(self) -> list[str]:
        return [
            "Hello, it is me again. What is the word for my locker?",
            "What did you promise me?",
            "Is anything of mine still open?",
        ]

    @property
    def secrets(self) -> Sequence[str]:
        return (self.said, self.promised, self.resolved)


async def second_call(
    dial: Dial, memory: Memory, *, caller: str = _CALLER, stranger: str = _STRANGER
) -> SecondCall:
    """Call four times and judge: the caller is known, the promise is mentioned, the resolved issue
    is not brought up again, and neither a stranger nor a withheld number is told any of it.

    ``memory`` is opened on the agent's own store. Between the first and the second call a promise
    and an issue that was resolved are remembered for the caller there, as a back office would.
    """
    words = _Planted(said=_word(), promised=_word(), resolved=_word())
    first = await dial(caller, words.lines)
    keeper = await _keeper(memory, words.said)
    if keeper is not None:
        await _remember(keeper, words)
    second = await dial(caller, words.questions)
    other = await dial(stranger, words.questions)
    nobody = await dial(None, words.questions)
    judgements = [
        await _known(memory, keeper, words, first, second),
        await _promise(keeper, words, second),
        _not_repeated(words, second),
        _kept_from("a stranger", words, other),
        _kept_from("a withheld number", words, nobody),
    ]
    return SecondCall(
        judgements=judgements, first=first, second=second, stranger=other, withheld=nobody
    )


async def _known(
    memory: Memory,
    keeper: UserMemory | None,
    words: _Planted,
    first: HeardCall,
    second: HeardCall,
) -> Judgement:
    name = "what the caller said in the first call is known in the second"
    if _has(second.replies, words.said):
        return Judgement(name=name, passed=True)
    cause, detail = await _why_unknown(memory, keeper, words, first, second)
    return Judgement(name=name, passed=False, cause=cause, detail=detail)


async def _why_unknown(
    memory: Memory,
    keeper: UserMemory | None,
    words: _Planted,
    first: HeardCall,
    second: HeardCall,
) -> tuple[Cause, str]:
    if keeper is None:
        users = len(await memory.users(limit=1_000))
        return "not recorded", (
            f"No user of this store ({users} there) has it in the record; the first call was taken "
            f"as {_shown(first.user_id)}. Is the session attached, and is it the same store?"
        )
    if second.user_id is not None and not await _reaches(memory, second.user_id, words.said):
        return "wrong id", (
            f"It is recorded for {keeper.user_id!r}, but the second call was taken as "
            f"{second.user_id!r}. Both calls came from one number: resolve the caller from it."
        )
    if second.given is None:
        return "not said", (
            f"It is recorded for {keeper.user_id!r}; what the model was given cannot be seen here."
        )
    if _has(second.given, words.said):
        return "not said", "The model was given it and did not use it: look at its instructions."
    brief = await keeper.brief(deadline_seconds=None)
    if brief.text and not any(brief.text[:60] in text for text in second.given):
        return "not loaded", (
            f"It is recorded for {keeper.user_id!r}, but the model was given neither the brief nor "
            "anything recalled. Is the agent wrapped, and does preload run before the session?"
        )
    return "recorded but not in the brief", (
        "The brief was loaded and does not hold it, and no lookup found it for the question."
    )


async def _promise(keeper: UserMemory | None, words: _Planted, second: HeardCall) -> Judgement:
    name = "the promise is mentioned"
    if _has(second.replies, words.promised):
        return Judgement(name=name, passed=True)
    if keeper is None:
        return Judgement(
            name=name,
            passed=False,
            cause="not recorded",
            detail="Nobody is known to whom something could be promised.",
        )
    if second.given is not None and _has(second.given, words.promised):
        cause: Cause = "not said"
        detail = "The model was given the promise and did not use it."
    else:
        brief = await keeper.brief(deadline_seconds=None)
        inside = words.promised in brief.text
        cause = "not loaded" if inside else "recorded but not in the brief"
        detail = f"It stands {'' if inside else 'not '}in the brief of {keeper.user_id!r}."
    return Judgement(name=name, passed=False, cause=cause, detail=detail)


def _not_repeated(words: _Planted, second: HeardCall) -> Judgement:
    name = "the resolved issue is not brought up as open"
    told = [one for one in second.replies if _calls_open(one, words.resolved)]
    if not told:
        return Judgement(name=name, passed=True)
    return Judgement(
        name=name,
        passed=False,
        cause="repeated",
        detail=f"{len(told)} of {len(second.replies)} replies name it and not that it is resolved.",
    )


def _kept_from(whom: str, words: _Planted, heard: HeardCall) -> Judgement:
    name = f"{whom} is told nothing of it"
    asked = words.questions
    given = [text for text in heard.given or () if text not in asked]
    for place, texts in (("in a reply", heard.replies), ("to the model", given)):
        if any(_has(texts, secret) for secret in words.secrets):
            return Judgement(
                name=name,
                passed=False,
                cause="leaked",
                detail=f"It was given {place}; the call was taken as {_shown(heard.user_id)}.",
            )
    return Judgement(name=name, passed=True)


async def _remember(user: UserMemory, words: _Planted) -> None:
    await user.remember("parcel", f"send a new {words.promised} by post", kind="promise")
    await user.remember("trouble", f"trouble with the {words.resolved}", kind="issue")
    await user.settle("trouble", "resolved")


async def _keeper(memory: Memory, said: str) -> UserMemory | None:
    """Whose record holds what was said."""
    after = ""
    while page := await memory.users(after=after, limit=500):
        for user_id in page:
            if await _reaches(memory, user_id, said):
                return memory.user(user_id)
        after = page[-1]
    return None


async def _reaches(memory: Memory, user_id: str, said: str) -> bool:
    """Whether a user's record, with that of merged users, holds what was said."""
    seen = 0
    async for one in memory.user(user_id).items(newest_first=True):
        if isinstance(one.item, Message) and said in one.item.text:
            return True
        seen += 1
        if seen == _READ_ITEMS:
            break
    return False


def _calls_open(reply: str, word: str) -> bool:
    """Whether a reply names a matter in a sentence that does not say it is over."""
    return any(
        word in sentence and not _says_over(sentence)
        for sentence in _SENTENCE.split(reply.casefold())
    )


def _says_over(sentence: str) -> bool:
    if sentence.rstrip().endswith("?"):
        return False
    return any(not _DENIAL.search(sentence[: one.start()]) for one in _OVER.finditer(sentence))


def _has(texts: Iterable[str], word: str) -> bool:
    return any(word in text.casefold() for text in texts)


def _word() -> str:
    """A word that nobody has said before and a speech model can say."""
    return "".join(secrets.choice("bdfgklmnprstvz") + secrets.choice("aeiou") for _ in range(5))


def _shown(user_id: str | None) -> str:
    return "somebody the agent does not name" if user_id is None else repr(user_id)

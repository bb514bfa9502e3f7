"""Key facts: the clauses that a summary must not lose, word for word. Pure; no model is asked.

A key fact is a short clause with a name, number, date or amount in it, or a decision, promise,
preference or negation. ``check`` says which of them stand in a text verbatim: white space and the
shape of quotation marks may differ, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from secondcall.errors import InvalidValue, TooLarge, UnknownName
from secondcall.shortterm.wording import (
    KeyFactKind,
    clauses,
    names_in,
    said,
    sentences,
    tight,
    triggers,
)
from secondcall.types import Item, ItemKey, JsonValue, Message, RecordedItem, ToolCall

__all__ = [
    "DEFAULT_KEY_FACT_TOKENS",
    "KeyFact",
    "KeyFactKind",
    "KeyFactList",
    "check",
    "find_key_facts",
    "normalised",
]

DEFAULT_KEY_FACT_TOKENS = 600
MAX_PER_ITEM = 12
MAX_FACT_CHARACTERS = 400
_MAX_EXAMINED = 20_000
_MAX_SOURCES = 8
_MAX_REMOVED = 200
_MAX_PLAIN = 60
_QUOTES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'}
    | {"\u00ab": '"', "\u00bb": '"', "\u00a0": " "}
)
_DENIAL = (
    r"\b(?:not|nor|neither|never|no longer|\w+n't|false(?:ly)?|untrue|wrong(?:ly)?|incorrect(?:ly)?"
    r"|mistaken(?:ly)?|den(?:y|ies|ied)|allegedly|supposedly|retracted|withdr(?:ew|awn))\b"
)
_DENIED_BEFORE = re.compile(rf"{_DENIAL}(?:\s+[^\s,]+){{0,4}}\s*$", re.IGNORECASE)
_DENIED_AFTER = re.compile(
    rf"\s+(?!(?:and|but|so|or|because)\b)(?:[^\s,]+\s+){{0,4}}{_DENIAL}", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?;\n]")
_AROUND = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """A clause as it was said.

    ``sources`` are the items that say it, the first one first; ``item_id`` is that one's id, also
    where nothing is recorded. ``speaker`` is the role that said it, or ``tool`` and its name.
    ``pinned`` facts are always carried and never moved. ``edited`` ones are the host's own words.
    """

    id: str
    text: str
    kinds: frozenset[KeyFactKind]
    item_id: str
    speaker: str
    at: datetime | None = None
    sources: Sequence[ItemKey] = ()
    pinned: bool = False
    edited: bool = False

    @classmethod
    def from_json(cls, content: JsonValue) -> KeyFact:
        """The fact of ``to_json``. Raises: ``KeyError``, ``TypeError``, ``ValueError``."""
        value = cast("dict[str, Any]", content)
        return cls(
            id=value["id"],
            text=value["text"],
            kinds=frozenset(value["kinds"]),
            item_id=value["item_id"],
            speaker=value["speaker"],
            at=None if value["at"] is None else datetime.fromisoformat(value["at"]),
            sources=tuple(ItemKey(*source) for source in value["sources"]),
            pinned=value["pinned"],
            edited=value["edited"],
        )

    def to_json(self) -> dict[str, JsonValue]:
        """A JSON object that holds all of it."""
        return {
            "id": self.id,
            "text": self.text,
            "kinds": sorted(self.kinds),
            "item_id": self.item_id,
            "speaker": self.speaker,
            "at": None if self.at is None else self.at.isoformat(),
            "sources": [list(source) for source in self.sources],
            "pinned": self.pinned,
            "edited": self.edited,
        }


def normalised(text: str) -> str:
    """The text with one kind of quotation mark and single spaces: what *verbatim* compares."""
    return " ".join(text.translate(_QUOTES).split())


def find_key_facts(items: Iterable[Item | RecordedItem]) -> list[KeyFact]:
    """The key facts in what was said and done, in order, each once; at most 12 of one item.

    System text is not looked at, nor what stands between ``<memory>`` fences, since it was said
    before. Of a tool call a value counts that nobody had said by then. A name counts where it is
    first met. Of a text over 20,000 characters the beginning and the end are looked at.
    """
    found: dict[str, KeyFact] = {}
    heard: set[str] = set()
    for one in items:
        key = one.key if isinstance(one, RecordedItem) else None
        item = one.item if isinstance(one, RecordedItem) else one
        for text, kinds in _said_in(item, heard, found)[:MAX_PER_ITEM]:
            fact = _fact(text, kinds, item, key)
            known = found.get(fact.id)
            found[fact.id] = fact if known is None else _joined(known, fact)
    return list(found.values())


def check(key_facts: Iterable[KeyFact], text: str) -> frozenset[str]:
    """The ids of the facts that stand in ``text`` verbatim, as whole words and whole numbers.

    One that the text denies ("it is not true that …", "… was wrong") does not count.
    """
    plain = normalised(text)
    return frozenset(one.id for one in key_facts if _stands(normalised(one.text), plain))


class KeyFactList:
    """The key facts of one conversation, with a token limit for those that are carried.

    *Carried* is what no live summary holds verbatim, and whatever is pinned. When that passes the
    limit, the oldest are given back as *moved*: they are the caller's to keep elsewhere. Every
    change raises ``version``.
    """

    def __init__(
        self,
        facts: Iterable[KeyFact] = (),
        *,
        limit_tokens: int = DEFAULT_KEY_FACT_TOKENS,
        count: Callable[[str], int],
        version: int = 0,
        removed: Iterable[str] = (),
        moved_count: int = 0,
    ) -> None:
        self._facts = {fact.id: fact for fact in facts}
        self._limit = limit_tokens
        self._count = count
        self._held: frozenset[str] = frozenset()
        self._removed = dict.fromkeys(removed)
        self.version = version
        self.moved_count = moved_count

    @property
    def facts(self) -> tuple[KeyFact, ...]:
        """All of them, in the order in which they were said."""
        return tuple(self._facts.values())

    @property
    def carried(self) -> tuple[KeyFact, ...]:
        """Those that are shown beside the summaries."""
        return tuple(one for one in self._facts.values() if one.pinned or one.id not in self._held)

    @property
    def removed(self) -> tuple[str, ...]:
        """The ids of what was taken out by hand, which is not found again."""
        return tuple(self._removed)

    @property
    def limit_tokens(self) -> int:
        """What the carried ones may take."""
        return self._limit

    @property
    def tokens(self) -> int:
        """What the carried ones take."""
        return self._count(self.text())

    def text(self) -> str:
        """The carried facts, one line for each stretch of one speaker; empty for none."""
        return rendered(self.carried)

    def copy(self) -> KeyFactList:
        """The same list, to be changed apart."""
        other = KeyFactList(
            self._facts.values(),
            limit_tokens=self._limit,
            count=self._count,
            version=self.version,
            removed=self._removed,
            moved_count=self.moved_count,
        )
        other.hold(self._held)
        return other

    def hold(self, ids: Iterable[str]) -> None:
        """Say which facts the live summaries hold verbatim: they need not be carried."""
        self._held = frozenset(ids)

    def add(self, facts: Iterable[KeyFact]) -> None:
        """Put new facts in; what is there, or was removed by hand, or is only a name that is known,
        adds nothing but its sources."""
        heard = {name for one in self._facts.values() for name in names_in(f". {one.text}")}
        for fact in facts:
            known = self._facts.get(fact.id)
            if known is not None:
                self._facts[fact.id] = _joined(known, fact)
            elif fact.id not in self._removed and not _only_known_names(fact, heard):
                self._facts[fact.id] = fact
                heard.update(names_in(f". {fact.text}"))
                self.version += 1

    def remove(self, fact_id: str) -> None:
        """Take a fact out for good. Raises: ``UnknownName``."""
        self._named(fact_id)
        del self._facts[fact_id]
        self._removed[fact_id] = None
        while len(self._removed) > _MAX_REMOVED:
            del self._removed[next(iter(self._removed))]
        self.version += 1

    def pin(self, fact_id: str, on: bool = True) -> None:
        """Carry a fact always, or as the others again.

        Raises: ``UnknownName``; ``TooLarge`` when the pinned ones alone pass the token limit.
        """
        before = self._named(fact_id)
        self._facts[fact_id] = replace(before, pinned=on)
        pinned = [one for one in self._facts.values() if one.pinned]
        size = self._count(rendered(pinned))
        if on and size > self._limit:
            self._facts[fact_id] = before
            raise TooLarge(
                f"the pinned key facts would take {size} tokens of {self._limit}; unpin some first"
            )
        self.version += 1

    def replace(self, fact_id: str, text: str) -> None:
        """Give a fact other words, which then stand for it.

        Raises: ``UnknownName``; ``InvalidValue``, ``TooLarge`` for the text.
        """
        before = self._named(fact_id)
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue("the text of a key fact must not be empty")
        if len(text) > MAX_FACT_CHARACTERS:
            raise TooLarge(
                f"the key fact has {len(text)} characters, at most {MAX_FACT_CHARACTERS} fit"
            )
        self._facts[fact_id] = replace(before, text=text.strip(), edited=True)
        self._held -= {fact_id}
        self.version += 1

    def forget(self, ids: Iterable[str]) -> None:
        """Drop facts whose items are gone; they may be found again elsewhere."""
        for fact_id in ids:
            if self._facts.pop(fact_id, None) is not None:
                self.version += 1

    def overflow(self) -> list[KeyFact]:
        """Take the oldest carried facts out until the rest fits, pinned ones aside; those taken."""
        moved: list[KeyFact] = []
        while self.tokens > self._limit:
            oldest = next((one for one in self.carried if not one.pinned), None)
            if oldest is None:
                break
            del self._facts[oldest.id]
            moved.append(oldest)
        if moved:
            self.version += 1
            self.moved_count += len(moved)
        return moved

    def _named(self, fact_id: str) -> KeyFact:
        fact = self._facts.get(fact_id)
        if fact is None:
            raise UnknownName(f"no key fact has the id {fact_id!r}")
        return fact


def rendered(facts: Sequence[KeyFact]) -> str:
    """Facts as quoted data: a line for each stretch of one speaker."""
    lines: list[str] = []
    speaker = ""
    for fact in facts:
        words = quoted(fact.text)
        if fact.speaker == speaker:
            lines[-1] += f" {words}"
        else:
            lines.append(f"- {fact.speaker}: {words}")
        speaker = fact.speaker
    return "\n".join(lines)


def quoted(text: str) -> str:
    """Text in quotation marks on one line, unable to open or close a tag."""
    one_line = re.sub("[\u0085\u2028\u2029]", " ", re.sub(r"<(?=\s*[/!?a-zA-Z])", "&lt;", text))
    return json.dumps(one_line, ensure_ascii=False)


def _said_in(
    item: Item, heard: set[str], found: dict[str, KeyFact]
) -> list[tuple[str, frozenset[KeyFactKind]]]:
    if isinstance(item, ToolCall):
        return _tool_facts(item, found)
    if item.role == "system":
        return []
    return _spoken_facts(_examined(item.text), heard)


def _spoken_facts(text: str, heard: set[str]) -> list[tuple[str, frozenset[KeyFactKind]]]:
    facts: list[tuple[str, frozenset[KeyFactKind]]] = []
    for clause in (one for sentence in sentences(text) for one in clauses(sentence)):
        why = triggers(clause)
        words = clause.text.split()
        fresh = [one for one in why if one.kind != "name" or _bare(words[one.start]) not in heard]
        heard.update(_bare(words[one.start]) for one in why if one.kind == "name")
        if fresh:
            kinds = frozenset[KeyFactKind](one.kind for one in why)
            facts.append((tight(clause, why)[:MAX_FACT_CHARACTERS], kinds))
    return facts


def _tool_facts(
    call: ToolCall, found: dict[str, KeyFact]
) -> list[tuple[str, frozenset[KeyFactKind]]]:
    """The values of a call that no clause before has: numbers, codes, names, each once."""
    said_before = " ".join(normalised(one.text) for one in found.values())
    facts: list[tuple[str, frozenset[KeyFactKind]]] = []
    seen: set[str] = set()
    for name, value in (*_flat("", call.arguments), *_output(call)):
        text = f"{name}: {value}" if name else value
        if value in seen or _stands(normalised(value), said_before):
            continue
        seen.add(value)
        for clause in clauses(text) if len(text) <= _MAX_PLAIN else ():
            kinds = frozenset[KeyFactKind](one.kind for one in triggers(clause))
            if kinds:
                facts.append((clause.text, kinds))
    return facts


def _output(call: ToolCall) -> list[tuple[str, str]]:
    text = _examined(call.output or "")
    try:
        return _flat("", json.loads(text)) if text[:1] in "[{" and text else _lines(text)
    except (ValueError, RecursionError):
        return _lines(text)


def _lines(text: str) -> list[tuple[str, str]]:
    return [("", clause.text) for one in sentences(text) for clause in clauses(one)]


def _flat(name: str, value: JsonValue, depth: int = 0) -> list[tuple[str, str]]:
    if depth > 6 or value is None or isinstance(value, bool):
        return []
    if isinstance(value, str | int | float):
        return [(name, said(str(value)))]
    if isinstance(value, dict):
        parts = value.items()
        return [one for key, part in parts for one in _flat(str(key), part, depth + 1)]
    return [
        one for part in cast("Sequence[JsonValue]", value) for one in _flat(name, part, depth + 1)
    ]


def _examined(text: str) -> str:
    text = said(text)
    if len(text) <= _MAX_EXAMINED:
        return text
    half = _MAX_EXAMINED // 2
    return f"{text[:half]}\n{text[-half:]}"


def _fact(text: str, kinds: frozenset[KeyFactKind], item: Item, key: ItemKey | None) -> KeyFact:
    digest = hashlib.blake2b(normalised(text).encode("utf-8", "replace"), digest_size=6)
    if isinstance(item, Message):
        item_id, speaker = item.id or "", item.role
    else:
        item_id, speaker = item.call_id, f"tool {quoted(item.name)[1:-1]}"
    return KeyFact(
        id=digest.hexdigest(),
        text=text,
        kinds=kinds,
        item_id=item_id if key is None else key.id,
        speaker=speaker,
        at=item.at,
        sources=() if key is None else (key,),
    )


def _joined(known: KeyFact, again: KeyFact) -> KeyFact:
    sources = tuple(dict.fromkeys([*known.sources, *again.sources]))[:_MAX_SOURCES]
    return known if sources == tuple(known.sources) else replace(known, sources=sources)


def _only_known_names(fact: KeyFact, heard: set[str]) -> bool:
    return fact.kinds <= frozenset[KeyFactKind](["name"]) and all(
        name in heard for name in names_in(f". {fact.text}")
    )


def _bare(word: str) -> str:
    return word.strip("\"'.,;:!?()[]\u2018\u2019\u201c\u201d").removesuffix("'s")


def _stands(clause: str, text: str) -> bool:
    """Whether the clause is in the text as whole words and numbers, and not denied there."""
    if not clause:
        return False
    place = text.find(clause)
    while place >= 0:
        end = place + len(clause)
        if _stands_alone(text, place, end) and not _is_denied(text, place, end):
            return True
        place = text.find(clause, place + 1)
    return False


def _stands_alone(text: str, start: int, end: int) -> bool:
    return _is_edge(text[max(0, start - 2) : start][::-1], text[start]) and _is_edge(
        text[end : end + 2], text[end - 1]
    )


def _is_denied(text: str, start: int, end: int) -> bool:
    """Whether the sentence says of what stands there that it is not so."""
    before = _SENTENCE_END.split(text[max(0, start - _AROUND) : start])[-1]
    after = _SENTENCE_END.split(text[end : end + _AROUND])[0]
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.match(after))


def _is_edge(outside: str, inside: str) -> bool:
    """Whether a word or number ends between ``inside`` and what follows it, going outwards."""
    if not outside:
        return True
    if inside.isalnum() and outside[0].isalnum():
        return False
    digits = inside.isdecimal() and len(outside) > 1 and outside[1].isdecimal()
    return not (digits and outside[0] in ".,:/-'")

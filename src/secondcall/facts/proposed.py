"""What a model is asked for facts, and its answer taken apart. Pure.

The answer follows ``SCHEMA``. Names in it are labels that the prompt gave out (``i1`` for an item,
``f1`` for a fact), so that no id of a user, session or tenant is ever shown to a model or believed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib import resources
from typing import Any, Literal, cast, get_args

from secondcall.abc import Completion, Prompt
from secondcall.errors import ModelError
from secondcall.types import Fact, FactKind, FactStatus, ItemKey, JsonValue, Role

__all__ = [
    "MAX_FACTS",
    "MAX_KNOWN",
    "SCHEMA",
    "Operation",
    "Proposal",
    "Quoted",
    "Source",
    "extraction_prompt",
    "read_answer",
]

MAX_FACTS = 40
"""More of one answer are not taken."""
MAX_KNOWN = 60
_MAX_SOURCES = 4
_MAX_PREDICATE = 100
_MAX_VALUE = 500
_MAX_QUOTE = 2_000
_MAX_ITEM = 3_000
_ANSWER_TOKENS = 3_000
_FENCED = re.compile(r"^\s*```(?:json)?\s*(?P<json>.*?)\s*```\s*$", re.DOTALL)
_BREAK = re.compile("[\x7f-\x9f\u2028\u2029]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Operation = Literal["add", "supersede", "end", "none"]
_OPERATIONS = frozenset(get_args(Operation))
_KINDS = frozenset(get_args(FactKind))
_ENDS: Mapping[str, FactStatus] = {
    "kept": "kept",
    "broken": "broken",
    "withdrawn": "withdrawn",
    "resolved": "resolved",
}


def _object(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT: Mapping[str, JsonValue] = {"type": "string"}
_MAYBE: Mapping[str, JsonValue] = {"type": ["string", "null"]}
_YES: Mapping[str, JsonValue] = {"type": "boolean"}
SCHEMA: Mapping[str, JsonValue] = _object(
    {
        "facts": {
            "type": "array",
            "items": _object(
                {
                    "op": {"type": "string", "enum": sorted(_OPERATIONS)},
                    "fact": _MAYBE,
                    "kind": {"type": "string", "enum": sorted(_KINDS)},
                    "predicate": _TEXT,
                    "value": {"type": ["string", "number", "boolean"]},
                    "several": _YES,
                    "sensitive": _YES,
                    "since": _MAYBE,
                    "due": _MAYBE,
                    "status": {"type": ["string", "null"], "enum": [*sorted(_ENDS), None]},
                    "sources": {
                        "type": "array",
                        "items": _object({"item": _TEXT, "quote": _TEXT}),
                    },
                }
            ),
        }
    }
)
"""The JSON Schema of an answer, in the form that strict endpoints ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An item as a model is shown it: what was said, without what stood in fences.

    ``label`` is ``None`` for what only helps to understand the others. Items of ``sensitive`` facts
    make sensitive facts.
    """

    label: str | None
    key: ItemKey
    role: Role
    text: str
    at: datetime
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class Quoted:
    """Words that a model quotes, and the label of the item in which they are said to stand."""

    label: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A fact as a model proposes it; nothing of it is believed yet."""

    op: Operation
    known: str | None
    kind: FactKind
    predicate: str
    value: str | int | float | bool
    several: bool
    sensitive: bool
    since: date | None
    due: date | None
    status: FactStatus | None
    sources: Sequence[Quoted]


def extraction_prompt(sources: Sequence[Source], known: Mapping[str, Fact]) -> Prompt:
    """The rules of ``prompts/extract.md``, and record and known facts as lines of JSON."""
    system, user = _text()
    values = {
        "{known}": "\n".join(_known_line(label, fact) for label, fact in known.items()),
        "{record}": "\n".join(map(_item_line, sources)),
    }
    filled = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]] or "", user)
    return Prompt(system=system, user=filled, max_tokens=_ANSWER_TOKENS, schema=SCHEMA)


def read_answer(answer: Completion) -> tuple[list[Proposal], int]:
    """The proposals, and how many were out of form.

    Raises: ``ModelError`` when the whole answer is, or was cut off; it is to be asked for again.
    """
    if answer.truncated:
        raise ModelError("the model's answer was cut off at max_tokens")
    text = answer.text if isinstance(answer.text, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance] - models err
    fenced = _FENCED.match(text)
    try:
        content: object = json.loads(text if fenced is None else fenced["json"])
    except (ValueError, RecursionError):
        content = None
    listed: object = cast("dict[str, object]", content).get("facts") if _is_map(content) else None
    if not isinstance(listed, list):
        raise ModelError("the model did not answer with a JSON object that lists facts")
    several = cast("list[object]", listed)
    found = [_proposal(one) for one in several[:MAX_FACTS]]
    kept = [one for one in found if one is not None]
    return kept, len(several) - len(kept)


def _proposal(content: object) -> Proposal | None:
    """The proposal, or ``None`` for one that is out of form."""
    if not _is_map(content):
        return None
    given = cast("dict[str, Any]", content)
    sources = _sources(given.get("sources"))
    predicate, value = given.get("predicate"), given.get("value")
    fits = (
        given.get("op") in _OPERATIONS
        and given.get("kind") in _KINDS
        and isinstance(predicate, str)
        and 0 < len(predicate.strip()) <= _MAX_PREDICATE
        and _is_value(value)
    )
    if not fits or sources is None:
        return None
    known = given.get("fact")
    return Proposal(
        op=given["op"],
        known=known if isinstance(known, str) else None,
        kind=given["kind"],
        predicate=" ".join(cast("str", predicate).split()),
        value=" ".join(value.split()) if isinstance(value, str) else cast("Any", value),
        several=given.get("several") is True,
        sensitive=given.get("sensitive") is not False,
        since=_day(given.get("since")),
        due=_day(given.get("due")),
        status=_ENDS.get(str(given.get("status"))),
        sources=sources,
    )


def _sources(content: object) -> list[Quoted] | None:
    if not isinstance(content, list):
        return None
    several = cast("list[object]", content)
    found: list[Quoted] = []
    for one in several[:_MAX_SOURCES]:
        given = cast("dict[str, object]", one) if _is_map(one) else {}
        label, words = given.get("item"), given.get("quote")
        if not isinstance(label, str) or not isinstance(words, str) or len(words) > _MAX_QUOTE:
            return None
        found.append(Quoted(label, words))
    return found


def _is_map(content: object) -> bool:
    return isinstance(content, dict)


def _is_value(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value.strip()) <= _MAX_VALUE
    return isinstance(value, bool) or (
        isinstance(value, int | float) and abs(value) < 1e15  # NaN is not
    )


def _day(value: object) -> date | None:
    """A day that exists; ``None`` for what is no date, such as 31 February."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _known_line(label: str, fact: Fact) -> str:
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
    return _line(
        {
            "id": label,
            "kind": fact.kind,
            "predicate": fact.predicate,
            "value": value[:_MAX_VALUE],
            "since": fact.valid_from.date().isoformat(),
        }
    )


def _item_line(source: Source) -> str:
    text = source.text
    if len(text) > _MAX_ITEM:
        half = _MAX_ITEM // 2
        text = f"{text[:half]} (cut, {len(text) - 2 * half:,} characters) {text[-half:]}"
    return _line(
        {
            "id": source.label,
            "date": source.at.date().isoformat(),
            "day": f"{source.at:%A}",
            "who": source.role,
            "text": text,
        }
    )


def _line(content: Mapping[str, object]) -> str:
    """One line of JSON in which no tag can be closed."""
    text = json.dumps(content, ensure_ascii=False).replace("</", "<\\/")
    return _BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.cache
def _text() -> tuple[str, str]:
    file = resources.files("secondcall.facts") / "prompts" / "extract.md"
    system, _, user = file.read_text("utf-8").partition("\n---\n")
    return system.strip(), user.strip()

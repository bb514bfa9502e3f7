"""Random conversations of agents, as lists of OpenAI messages. Standard library only.

Parallel calls with shuffled outputs, sizes that differ by a factor of hundreds, system messages in
80 %, 20 % that end in the middle of a turn. The same seed always gives the same history.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["History", "make", "words"]

Chat: TypeAlias = list[dict[str, Any]]

_WORDS = [
    "seat",
    "aisle",
    "invoice",
    "claim",
    "parcel",
    "window",
    "refund",
    "ticket",
    "address",
    "monday",
    "delay",
    "gate",
    "boarding",
    "amount",
    "card",
    "receipt",
    "change",
    "vendor",
    "budget",
    "meeting",
]


@dataclass(frozen=True)
class History:
    """A conversation, the limit it is to be brought down to, and how it ends."""

    messages: Chat
    token_limit: int
    ends_in_turn: bool


def words(text: str) -> list[str]:
    """The tokens of this benchmark: what stands between white space."""
    return text.split()


def make(seed: int, *, unanswered: bool = False) -> History:
    """One history. With ``unanswered``, half of those that end in the middle of a turn end with
    calls whose outputs are not all there yet; else such a turn only lacks its answer."""
    dice = random.Random(seed)
    limit = _log_uniform(dice, 20, 4_000)
    ends_in_turn = dice.random() < 0.2
    messages: Chat = []
    if dice.random() < 0.8:
        messages.append({"role": "system", "content": _text(dice, 3, 20)})
    if dice.random() < 0.15:
        messages.append({"role": "assistant", "content": _text(dice, 2, 12)})
    turns = dice.randint(1, 14)
    for turn in range(turns):
        last = turn == turns - 1
        messages.append({"role": "user", "content": _text(dice, 1, 60)})
        if turn and messages[0]["role"] == "system" and dice.random() < 0.02:
            messages.append({"role": "system", "content": _text(dice, 2, 8)})
        rounds = dice.choice((0, 0, 1, 1, 2, 3))
        if last and ends_in_turn:
            rounds = max(rounds, 1)
        for number in range(rounds):
            part = _round(dice, f"{turn}-{number}")
            if (
                last
                and ends_in_turn
                and unanswered
                and number == rounds - 1
                and dice.random() < 0.5
            ):
                part = part[: dice.randint(1, len(part) - 1)]
            messages.extend(part)
        if not (last and ends_in_turn):
            messages.append({"role": "assistant", "content": _text(dice, 1, 120)})
    return History(messages, limit, ends_in_turn)


def _round(dice: random.Random, name: str) -> Chat:
    """One message with up to four calls, then their outputs in any order."""
    ids = [f"call-{name}-{number}" for number in range(dice.choice((1, 1, 2, 3, 4)))]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": dice.choice(("lookup", "book_seat", "refund")),
                "arguments": json.dumps({"query": _text(dice, 1, 12)}),
            },
        }
        for call_id in ids
    ]
    said = _text(dice, 1, 8) if dice.random() < 0.3 else None
    outputs: Chat = [
        {"role": "tool", "tool_call_id": call_id, "content": _text(dice, 1, 600)} for call_id in ids
    ]
    dice.shuffle(outputs)
    return [{"role": "assistant", "content": said, "tool_calls": calls}, *outputs]


def _text(dice: random.Random, fewest: int, most: int) -> str:
    """Words, of which the first is like no other, so that a text can be found again."""
    count = _log_uniform(dice, fewest, most)
    return " ".join([f"w{dice.getrandbits(64):x}", *dice.choices(_WORDS, k=count - 1)])


def _log_uniform(dice: random.Random, low: int, high: int) -> int:
    return round(math.exp(dice.uniform(math.log(low), math.log(high))))

"""One long conversation of our own, about 600 messages, with 40 key facts planted in it.

All of it was written for secondcall. The talk between the facts says nothing that has to be kept
word for word: no number, no name, no date, no promise.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from secondcall import Message

__all__ = ["PLANTED", "Planted", "talk"]

_MATERIAL = Path(__file__).parent / "data" / "long_talk.json"
_START = datetime(2026, 3, 2, 9, tzinfo=UTC)


class Planted(NamedTuple):
    """A clause that must survive, who says it, and what kind it is of."""

    role: str
    clause: str
    kind: str


PLANTED: tuple[Planted, ...] = (
    Planted("user", "my name is Dolores Whitfield", "name"),
    Planted("user", "my account number is 4417-882", "number"),
    Planted("user", "we moved in on 14 June 2019", "date"),
    Planted("user", "please don't call before 9 am", "negation"),
    Planted("user", "my sister is called Marguerite", "name"),
    Planted("user", "the budget is 18,400 euros", "number"),
    Planted("user", "the dog must not go upstairs", "negation"),
    Planted("user", "the invoice says 1,249.90 euros", "number"),
    Planted("user", "the baby is due on 3 November", "date"),
    Planted("user", "I am allergic to walnuts", "negation"),
    Planted("assistant", "your case number is KX-20931", "number"),
    Planted("user", "the painter is called Ignatius Brandt", "name"),
    Planted("user", "the door is 83 cm wide", "number"),
    Planted("user", "we do not want gas in the kitchen", "negation"),
    Planted("user", "the lease ends on 30 September 2027", "date"),
    Planted("user", "my mobile is 0171 555 0133", "number"),
    Planted("user", "our neighbour is Mrs Okonkwo", "name"),
    Planted("user", "never send letters to the old flat", "negation"),
    Planted("assistant", "the technician comes on 21 March at 14:30", "date"),
    Planted("user", "the alarm code ends in 7702", "number"),
    Planted("user", "the contract is with Halvorsen Energy", "name"),
    Planted("user", "my son cannot eat gluten", "negation"),
    Planted("user", "the boiler is from 1998", "date"),
    Planted("user", "we need 26 tiles for the bath", "number"),
    Planted("user", "my doctor is Theodora Lindqvist", "name"),
    Planted("user", "the upper valve must not be opened", "negation"),
    Planted("user", "the last reading was 58,213", "number"),
    Planted("user", "the wedding is on 8 August", "date"),
    Planted("user", "the landlord lives in Trondheim", "name"),
    Planted("user", "I am not the owner of the garage", "negation"),
    Planted("assistant", "the deposit of 350 euros is refundable", "number"),
    Planted("user", "our electrician is Casimir Nowak", "name"),
    Planted("user", "the roof was repaired in April 2021", "date"),
    Planted("user", "the attic is never heated", "negation"),
    Planted("user", "our flat is number 12B", "number"),
    Planted("user", "the school starts on 1 September", "date"),
    Planted("user", "we are insured with Montclair", "name"),
    Planted("user", "my mother must not hear of it", "negation"),
    Planted("user", "the parcel weighs 7.5 kg", "number"),
    Planted("user", "the key is with Bartholomew", "name"),
)


def talk(*, messages: int = 600, last_planted: int = 600, seed: int = 7) -> list[Message]:
    """The conversation; its facts are planted one after another up to ``last_planted`` messages.

    A user message and a reply make a turn. Each has one to three sentences.
    """
    material: dict[str, list[str]] = json.loads(_MATERIAL.read_text("utf-8"))
    chooser = random.Random(seed)
    step = last_planted / len(PLANTED)
    places = {int(number * step): fact for number, fact in enumerate(PLANTED)}
    said: list[Message] = []
    waiting: list[Planted] = []
    for number in range(messages):
        role = "user" if number % 2 == 0 else "assistant"
        if number in places:
            waiting.append(places[number])
        fact = next((one for one in waiting if one.role == role), None)
        sentences = chooser.sample(material[role], chooser.choice((1, 2, 2)))
        if fact is not None:
            waiting.remove(fact)
            clause = fact.clause[0].upper() + fact.clause[1:]
            lead = chooser.choice(("By the way, ", "Just so you know, ", "Oh, and ", "Well, "))
            text = f"{lead}{fact.clause}." if chooser.random() < 0.7 else f"{clause}."
            sentences.insert(chooser.randint(0, len(sentences)), text)
        at = _START + timedelta(seconds=30 * number)
        said.append(Message(role, " ".join(sentences), id=f"m{number}", at=at))
    return said

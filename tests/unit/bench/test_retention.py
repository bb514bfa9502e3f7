from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

sys.path.append(str(Path(__file__).parents[3] / "bench"))

retention: Any = import_module("retention")
long_talk: Any = import_module("long_talk")


async def test_no_planted_fact_is_lost() -> None:
    """Round after round with a careless model, each planted key fact stands in the context word for
    word, while a naive rolling summary loses them."""
    messages = long_talk.talk(messages=240, last_planted=80)
    ours = await retention.ours(messages)
    naive = await retention.naive(messages)
    assert len(ours) >= 5
    assert all(one.context == one.said for one in ours)
    assert ours[-1].said == 40
    assert naive[4].context < 5


async def test_what_has_no_room_is_recalled() -> None:
    """With a small limit the facts that the list let go of are found by recall."""
    messages = long_talk.talk(messages=80, last_planted=80)
    said, context, moved, found = await retention.recalled(messages, limit=500)
    assert (said, context + moved, found) == (40, 40, moved)
    assert moved > 10


async def test_the_picture_is_drawn() -> None:
    """The curve is well-formed SVG with a line for each series."""
    found = await retention.ours(long_talk.talk(messages=120))
    root = ET.fromstring(retention.picture([("a", "#000000", found), ("b", "#111111", found)]))
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2

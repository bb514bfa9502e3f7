from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recall_kit import EMBEDDER_ID, ask, blob, ids, row, vectors

from secondcall.abc import EntryKey
from secondcall.errors import InvalidValue, StoreCorrupt
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import (
    IndexRow,
    Removal,
    Segment,
    decode,
    embedding_text,
    encode,
    merge,
    quantize,
)

ROWS = [
    row(1, "I moved to Lisbon", metadata={"topic": "home"}),
    row(2, "How nice, Lisbon is sunny", role="assistant"),
    row(3, "My dog is called Biscuit", session="s2", speaker="Anna"),
]


def _same(one: Segment, other: Segment) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in Segment.__dataclass_fields__
    )


def test_what_is_encoded_is_decoded() -> None:
    """Keys, times, names, metadata and ranges come back as they went in."""
    segment = decode(blob(ROWS))
    assert [segment.key(place) for place in range(3)] == [one.key for one in ROWS]
    assert segment.at_us.tolist() == [one.at_us for one in ROWS]
    assert (segment.first_change, segment.last_change) == (1, 3)
    assert segment.metadata() == {0: {"topic": "home"}}
    assert segment.speakers == ["", "Anna"]
    assert segment.embedder_id == EMBEDDER_ID


def test_encoding_is_deterministic() -> None:
    """The same rows give the same bytes."""
    assert blob(ROWS) == blob(ROWS)


def test_no_words_are_readable_in_a_segment() -> None:
    """The text of an item cannot be read in the blob."""
    assert b"isbon" not in blob(ROWS)
    assert b"iscuit" not in blob(ROWS)


def test_a_segment_may_be_empty() -> None:
    """A range without rows encodes, decodes and merges."""
    empty = decode(blob([], [Removal(change=4, key=ROWS[0].key)]))
    assert len(empty) == 0
    merged = decode(merge([decode(blob(ROWS)), empty]))
    assert [merged.key(place).id for place in range(len(merged))] == ["m002", "m003"]


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_is_noticed(place: int, change: int) -> None:
    """A blob with one byte changed raises the one error for damage."""
    data = bytearray(blob(ROWS))
    data[place % len(data)] ^= change
    with pytest.raises(StoreCorrupt):
        decode(bytes(data))


@given(st.integers(min_value=0, max_value=3000))
def test_a_cut_blob_is_noticed(length: int) -> None:
    """A blob that ends early raises the one error for damage."""
    data = blob(ROWS)
    with pytest.raises(StoreCorrupt):
        decode(data[: length % len(data)])


@given(st.binary(max_size=200))
def test_foreign_bytes_are_noticed(data: bytes) -> None:
    """Bytes that are no segment raise the one error for damage."""
    with pytest.raises(StoreCorrupt):
        decode(data)


_IDS = st.text(alphabet=st.characters(exclude_categories=()), min_size=1, max_size=12)


@settings(max_examples=50)
@given(st.lists(st.tuples(_IDS, _IDS, st.text(max_size=30)), max_size=8, unique_by=lambda t: t[:2]))
def test_any_ids_come_back(entries: list[tuple[str, str, str]]) -> None:
    """Session and item ids of any characters, lone surrogates included, are kept."""
    rows = [
        row(place, text, session=session, item=item)
        for place, (session, item, text) in enumerate(entries, start=1)
    ]
    segment = decode(blob(rows))
    assert [segment.key(place) for place in range(len(rows))] == [one.key for one in rows]


def test_merging_equals_encoding_at_once() -> None:
    """Segments of one range merge to what encoding the whole range gives."""
    parts = [decode(blob(ROWS[:1])), decode(blob(ROWS[1:]))]
    assert _same(decode(merge(parts)), decode(blob(ROWS)))


def test_merging_drops_what_was_superseded() -> None:
    """Of a corrected item only the newest entry stays, with its first position."""
    newer = row(4, "I moved to Porto", item="m001", position=1)
    merged = decode(merge([decode(blob(ROWS)), decode(blob([newer]))]))
    assert [merged.key(place).id for place in range(3)] == ["m002", "m003", "m001"]
    assert merged.positions.tolist() == [2, 3, 1]


def test_merging_drops_dead_items_and_their_names() -> None:
    """Nothing of an item named as dead is left, its speaker and session included."""
    data = merge([decode(blob(ROWS))], dead=[ROWS[2].key])
    assert b"Anna" not in data
    assert b"s2" not in data
    assert b"m003" not in data


def test_a_removal_stays_while_older_segments_may_need_it() -> None:
    """A merge that does not begin with the first change keeps its removals."""
    removal = Removal(change=5, key=ROWS[0].key)
    later = decode(merge([decode(blob([row(4, "x")], [removal]))]))
    assert later.removals == [removal]
    assert decode(merge([decode(blob(ROWS)), later])).removals == []


def test_an_item_recorded_again_after_its_removal_stays() -> None:
    """A removal masks only entries with a lower change number."""
    removal = Removal(change=4, key=ROWS[0].key)
    again = row(5, "I live in Lisbon again", item="m001")
    merged = decode(merge([decode(blob(ROWS)), decode(blob([again], [removal]))]))
    assert [merged.key(place).id for place in range(len(merged))] == ["m002", "m003", "m001"]


def test_segments_of_two_embedders_do_not_merge() -> None:
    """Vectors of different models never share a segment."""
    other = encode(ROWS[:1], vectors(["x"]), embedder_id="other:1", first_change=1, last_change=1)
    with pytest.raises(InvalidValue, match="reindex"):
        merge([decode(other), decode(blob(ROWS[1:]))])


def test_vectors_must_fit_the_rows() -> None:
    """A wrong number of vectors is an error."""
    with pytest.raises(InvalidValue, match="shape"):
        encode(ROWS, vectors(["x"]), embedder_id="e", first_change=1, last_change=3)


def test_a_change_outside_the_range_is_an_error() -> None:
    """A segment holds only changes of its range."""
    with pytest.raises(InvalidValue, match=r"2\.\.3"):
        encode(ROWS, None, embedder_id=None, first_change=2, last_change=3)


def test_quantized_vectors_keep_their_direction() -> None:
    """The cosine of a vector and its int8 form is above 0.999; zeros and NaN count as none."""
    random = np.random.default_rng(1)
    given_ = random.normal(size=(50, 256)).astype(np.float32)
    whole, scales = quantize(given_)
    back = whole.astype(np.float32) * scales[:, None]
    norms = np.linalg.norm(back, axis=1) * np.linalg.norm(given_, axis=1)
    assert ((back * given_).sum(axis=1) / norms).min() > 0.999
    assert quantize(np.array([[0, 0], [np.nan, 1]], np.float32))[1].tolist() == [0, 0]


def test_an_embedded_text_says_who_speaks() -> None:
    """A named speaker stands before the words that are embedded."""
    assert embedding_text(ROWS[2]) == "Anna: My dog is called Biscuit"
    assert embedding_text(ROWS[0]) == ROWS[0].text


def test_a_merged_segment_is_searched_like_its_parts() -> None:
    """Metadata and postings still point to the right rows after a merge."""
    index = UserIndex(embedder_id=EMBEDDER_ID)
    index.add_segment(decode(merge([decode(blob(ROWS[:2])), decode(blob(ROWS[2:]))])))
    assert ids(ask(index, "Lisbon", where={"topic": "home"})) == ["m001"]
    assert ids(ask(index, "dog Biscuit"))[0] == "m003"


def test_a_tool_call_has_its_own_kind() -> None:
    """The same id as a message and as a tool call is two items."""
    call = IndexRow(
        change=2, position=2, key=EntryKey("s1", "tool_call", "m001"), at_us=0, role="", text="x"
    )
    segment = decode(blob([ROWS[0], call]))
    assert segment.key(1).kind == "tool_call"
    assert segment.key_hashes[0] != segment.key_hashes[1]

"""Versioned documents: compare-and-set, deletion, announcements, listing."""

from __future__ import annotations

import dataclasses

import pytest

from secondcall.abc import ANY_VERSION, Batch, Document, DocumentWrite, Store
from secondcall.errors import VersionConflict
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    StoreSuite,
    all_changes,
    document,
    entry,
    key,
    record,
    write_documents,
)

__all__ = ["DocumentsSuite"]


async def _version(store: Store, name: str = "d") -> int | None:
    found = await store.document(SCOPE, "fact", name)
    return None if found is None else found.version


async def _keys(store: Store, *, prefix: str = "", after: str = "", limit: int = 100) -> list[str]:
    found = await store.documents(SCOPE, "fact", prefix=prefix, after=after, limit=limit)
    return [one.key for one in found]


class DocumentsSuite(StoreSuite):
    """Versions from 1, conflicts that write nothing, tombstones, listing by code points."""

    async def test_document_is_kept_as_it_came(self, store: Store) -> None:
        """Every field of a document comes back, by key and in the list."""
        write = DocumentWrite(
            kind="fact", key="d", body=b"\x00\xff", expected_version=None, expires_us=-5
        )
        await write_documents(store, write, document("e", b""))
        expected = Document(
            kind="fact", key="d", version=1, body=b"\x00\xff", updated_us=NOW_US, expires_us=-5
        )
        assert await store.document(SCOPE, "fact", "d") == expected
        first, second = await store.documents(SCOPE, "fact", limit=5)
        assert first == expected
        assert second == dataclasses.replace(expected, key="e", body=b"", expires_us=None)
        assert await store.document(SCOPE, "fact", "absent") is None
        assert await store.document(SCOPE, "other", "d") is None

    async def test_a_glance_gives_what_single_reads_give(self, store: Store) -> None:
        """Head, documents and entries come as each alone, what is not there as nothing."""
        await write_documents(store, document("d", b"one"), document("e", b"two"))
        await record(store, entry("a"), entry("b"))
        asked = [("fact", "e"), ("fact", "absent"), ("other", "d"), ("fact", "d")]
        found = await store.glance(SCOPE, documents=asked, entries=[key("b"), key("x"), key("a")])
        assert found.header == await store.header(SCOPE)
        assert list(found.documents) == [await store.document(SCOPE, *one) for one in asked]
        assert list(found.entries) == list(await store.entries(SCOPE, [key("b"), key("a")]))
        nobody = await store.glance(
            SCOPE._replace(name="nobody"), documents=asked, entries=[key("a")]
        )
        assert (nobody.header, list(nobody.documents)) == (None, [None] * 4)
        assert list(nobody.entries) == []

    async def test_versions_count_from_1(self, store: Store) -> None:
        """Each write gives the next version, whether compared or not."""
        await write_documents(store, document("d"))
        assert await _version(store) == 1
        await write_documents(store, document("d", expected=1))
        await write_documents(store, document("d", expected=ANY_VERSION))
        assert await _version(store) == 3
        await write_documents(store, document("new", expected=ANY_VERSION))
        assert await _version(store, "new") == 1

    async def test_conflict_names_both_versions(self, store: Store) -> None:
        """A lost compare-and-set says what was expected and found, and writes nothing."""
        await write_documents(store, document("d", b"first"))
        for name, expected, found in [
            ("d", None, 1),
            ("d", 2, 1),
            ("d", 0, 1),
            ("x", 1, None),
            ("x", 0, None),
        ]:
            with pytest.raises(VersionConflict) as caught:
                await write_documents(store, document(name, b"second", expected=expected))
            assert (caught.value.expected, caught.value.found) == (expected, found)
        kept = await store.document(SCOPE, "fact", "d")
        assert kept is not None
        assert (kept.body, kept.version) == (b"first", 1)
        assert await _version(store, "x") is None

    async def test_versions_count_over_a_deletion(self, store: Store) -> None:
        """A deleted document is absent, and its next version is above all it ever had."""
        await write_documents(store, document("d"))
        await write_documents(store, document("d", expected=1))
        await write_documents(store, document("d", None, expected=2))
        assert await _version(store) is None
        assert await _keys(store) == []
        for expected in (1, 2):
            with pytest.raises(VersionConflict) as caught:
                await write_documents(store, document("d", expected=expected))
            assert caught.value.found is None
        await write_documents(store, document("d"))
        assert await _version(store) == 3
        await write_documents(store, document("d", None, expected=ANY_VERSION))
        await write_documents(store, document("d", expected=ANY_VERSION))
        assert await _version(store) == 4

    async def test_absent_document_is_deleted_without_a_trace(self, store: Store) -> None:
        """Deleting what is not there takes no number and no version, also when announced."""
        gone = document("d", None, expected=ANY_VERSION, announce=True)
        await write_documents(store, gone, document("d", None))
        assert len(await all_changes(store)) == 0
        await write_documents(store, document("d"))
        assert await _version(store) == 1
        with pytest.raises(VersionConflict):
            await write_documents(store, document("absent", None, expected=1))

    async def test_announced_documents_take_a_number(self, store: Store) -> None:
        """Only announced writes and deletions are in the change log, by kind and key."""
        await write_documents(store, document("d", announce=True), document("e"))
        await write_documents(store, document("d", None, expected=1, announce=True))
        await record(store, entry("a"))
        changes = await all_changes(store)
        assert [change.kind for change in changes] == ["document", "document", "entry"]
        assert [change.document for change in changes] == [("fact", "d"), ("fact", "d"), None]

    async def test_writes_of_a_batch_see_each_other(self, store: Store) -> None:
        """Within a batch each compare-and-set finds what the one before it wrote."""
        await write_documents(
            store,
            document("d", b"1"),
            document("d", b"2", expected=1),
            document("d", None, expected=2),
            document("d", b"3"),
        )
        found = await store.document(SCOPE, "fact", "d")
        assert found is not None
        assert (found.body, found.version) == (b"3", 3)
        with pytest.raises(VersionConflict) as caught:
            await write_documents(store, document("n"), document("n"))
        assert (caught.value.expected, caught.value.found) == (None, 1)
        assert await _version(store, "n") is None

    async def test_conflict_undoes_the_documents_before_it(self, store: Store) -> None:
        """When the last of several documents conflicts, none of them is written."""
        await write_documents(store, document("a"))
        with pytest.raises(VersionConflict):
            await store.write(
                SCOPE,
                Batch(
                    documents=[
                        document("a", b"new", expected=1),
                        document("b"),
                        document("a", None, expected=9),
                    ]
                ),
                epoch=EPOCH,
                now_us=NOW_US,
            )
        assert await _keys(store) == ["a"]
        assert await _version(store, "a") == 1

    async def test_list_is_ordered_by_code_points(self, store: Store) -> None:
        """Keys come in the order of their code points: not of a language, not of UTF-16."""
        keys = ["\U00010000", "\uffee", "a", "B", "é", "e\u0301", "b", "A", "10", "9", " x", "~"]
        await write_documents(store, *(document(one) for one in keys))
        assert await _keys(store) == sorted(keys)

    async def test_list_takes_a_prefix_literally(self, store: Store) -> None:
        """A prefix has no wildcards, minds the case and finds its own key."""
        keys = [
            "a",
            "a%",
            "a%b",
            "a_",
            "a_b",
            "ab",
            "A",
            "a\\",
            "a*",
            "a\U0010ffff",
            "b",
            "a\ud7ff",
        ]
        await write_documents(store, *(document(one) for one in keys))
        for prefix in [*keys, "a\U0010ffff\U0010ffff", "zz"]:
            expected = sorted(one for one in keys if one.startswith(prefix))
            assert await _keys(store, prefix=prefix) == expected

    async def test_list_comes_in_pages(self, store: Store) -> None:
        """Pages after the last key give every document of the kind and prefix once."""
        await write_documents(store, *(document(f"k{n:02}") for n in range(12)))
        await write_documents(store, document("k05", kind="other"), document("j"), document("l"))
        seen: list[str] = []
        while page := await _keys(store, prefix="k", after=seen[-1] if seen else "", limit=5):
            assert len(page) <= 5
            seen += page
        assert seen == [f"k{n:02}" for n in range(12)]
        assert await _keys(store, prefix="k", after="k10") == ["k11"]
        assert await _keys(store, prefix="k", after="z") == []
        assert await _keys(store, prefix="k", after="a", limit=1) == ["k00"]

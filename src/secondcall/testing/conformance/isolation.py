"""Walls between scopes, sessions and names, whatever characters they hold."""

from __future__ import annotations

import contextlib

from secondcall.abc import Batch, EntryKey, NewEntry, Partition, Scope, Store
from secondcall.errors import InvalidValue
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    StoreSuite,
    document,
    entry,
    key,
    record,
    write_documents,
)

__all__ = ["HOSTILE_NAMES", "IsolationSuite"]

HOSTILE_NAMES = [
    "/", ":", "_", ".", "..", "%", "*", "?", "a:b", "a/b", "a|b", "a#b", "a,b", "{a}", "[a]",
    "%2F", "a%", "a_", "a.", " ", "a ", " a", "a\t", "a\n", "'", '"', "';--", "\\", "\\0", "null",
    "None", "0", "00", "-1", "1e3", "Alice", "ALICE", "alice", "alıce", "é", "e\u0301", "ß", "ss",
    "\u200b", "a\u200d", "\u202eabc", "用户", "🙂", "🙂🙂", "\ue000", "\uffff", "x" * 1_000,
    "x" * 999 + "y", "é" * 1_000,
]  # fmt: skip
"""Names that differ in ways that databases, file systems and joined keys like to lose."""

PAIRS = [("a", "bc"), ("ab", "c"), ("a:", "b"), ("a", ":b"), ("a/b", "c"), ("a", "b/c")]


async def _fill(store: Store, scope: Scope, mark: str) -> None:
    await store.write(
        scope,
        Batch(entries=[entry("i", mark)], documents=[document("d", mark.encode())]),
        epoch=mark.encode(),
        now_us=NOW_US,
        create=True,
    )
    await store.put_blob(scope, "b", mark.encode(), epoch=mark.encode())


async def _marks(store: Store, scope: Scope) -> list[bytes]:
    """What is found in each place of a scope."""
    header = await store.header(scope)
    found_document = await store.document(scope, "fact", "d")
    found = [one.body for one in await store.read(scope, limit=9)]
    found += [one.body for one in await store.read(scope, session_id="s", limit=9)]
    found += [one.body for one in await store.entries(scope, [key("i")])]
    found += [one.entry.body for one in await store.changes(scope, after=0, limit=9) if one.entry]
    found += [one.body for one in await store.documents(scope, "fact", limit=9)]
    found += [
        header.epoch if header else b"",
        found_document.body if found_document else b"",
        await store.blob(scope, "b") or b"",
    ]
    return found


class IsolationSuite(StoreSuite):
    """Nothing of one scope, session or name is seen or changed through another."""

    async def test_scopes_do_not_meet(self, store: Store) -> None:
        """Each of some hundred look-alike scopes reads only its own, in every place."""
        scopes = [Scope("tenant", "user", name) for name in HOSTILE_NAMES]
        scopes += [Scope(name, "user", "alice") for name in HOSTILE_NAMES]
        scopes += [Scope(tenant_id, "user", name) for tenant_id, name in PAIRS]
        scopes += [Scope("tenant", "identity", "alice"), Scope("tenant", "identity", "/")]
        for number, scope in enumerate(scopes):
            await _fill(store, scope, f"mark {number}")
        for number, scope in enumerate(scopes):
            marks = await _marks(store, scope)
            assert len(marks) == 8
            assert set(marks) == {f"mark {number}".encode()}
            assert len(await store.sessions(scope, limit=9)) == 1
            assert list(await store.blobs(scope)) == ["b"]

    async def test_empty_scopes_show_nothing_of_others(self, store: Store) -> None:
        """A scope that holds nothing, made or not, does not show what a look-alike holds."""
        await _fill(store, SCOPE, "mark")
        names = ["alice ", "ALICE", "alic", "alicee", "%", "_", "*", "alice/", "/alice", "b", "bob"]
        scopes = [Scope("tenant", "user", name) for name in names]
        scopes += [Scope("tenant", "identity", "alice"), Scope("tenant2", "user", "alice")]
        for made in (False, True):
            for scope in scopes:
                if made:
                    await record(store, scope=scope)
                assert set(await _marks(store, scope)) <= {b"", EPOCH}
                assert list(await store.sessions(scope, limit=9)) == []
                assert dict(await store.blobs(scope)) == {}
                assert sum((await store.scan(scope)).values()) == int(made)

    async def test_erasing_one_leaves_its_look_alikes(self, store: Store) -> None:
        """Erasing a scope touches no other one, however similar its name is."""
        names = ["alice", "alice ", "ALICE", "alic", "alicee", "%", "_", "alice/", "*"]
        scopes = [Scope("tenant", "user", name) for name in names]
        scopes += [Scope("tenant", "identity", "alice"), Scope("Tenant", "user", "alice")]
        for number, scope in enumerate(scopes):
            await _fill(store, scope, f"mark {number}")
        for number, scope in enumerate(scopes):
            await store.erase(scope)
            assert await store.header(scope) is None
            for left in range(number + 1, len(scopes)):
                assert set(await _marks(store, scopes[left])) == {f"mark {left}".encode()}

    async def test_leases_do_not_meet(self, store: Store) -> None:
        """A lease in one scope, or of one name, is no lease in another."""
        other = Scope("tenant", "user", "alice ")
        await record(store)
        await record(store, scope=other)
        for scope in (SCOPE, other):
            for name in ("seal", "SEAL", "seal ", "s:eal"):
                assert await store.acquire_lease(
                    scope, name, holder=f"{scope.name}{name}", now_us=0, seconds=60
                )

    async def test_items_and_sessions_do_not_meet(self, store: Store) -> None:
        """Look-alike ids of items and sessions are different ones."""
        keys = [EntryKey("s", "message", name) for name in HOSTILE_NAMES]
        keys += [EntryKey(name, "message", "i") for name in HOSTILE_NAMES]
        keys += [EntryKey(session_id, "message", item_id) for session_id, item_id in PAIRS]
        await record(
            store,
            *(
                NewEntry(key=one, at_us=number, body=b"%d" % number, digest=b"%d" % number)
                for number, one in enumerate(keys)
            ),
        )
        found = await store.entries(SCOPE, keys)
        assert [one.key for one in found] == keys
        assert [one.body for one in found] == [b"%d" % number for number in range(len(keys))]
        for name in HOSTILE_NAMES:
            in_session = await store.read(SCOPE, session_id=name, limit=1_000)
            assert [one.key for one in in_session] == [
                one for one in keys if one.session_id == name
            ]
        outlines = await store.sessions(SCOPE, limit=1_000)
        assert {one.session_id for one in outlines} == {one.session_id for one in keys}

    async def test_documents_and_blobs_do_not_meet(self, store: Store) -> None:
        """Look-alike kinds, keys and blob names are different ones."""
        await write_documents(
            store,
            *(document(name, name.encode()) for name in HOSTILE_NAMES),
            *(document("d", name.encode(), kind=name) for name in HOSTILE_NAMES),
            *(document(name, (kind + name).encode(), kind=kind) for kind, name in PAIRS),
        )
        for name in HOSTILE_NAMES:
            await store.put_blob(SCOPE, name, name.encode(), epoch=EPOCH)
        for name in HOSTILE_NAMES:
            for kind, one in (("fact", name), (name, "d")):
                found = await store.document(SCOPE, kind, one)
                assert found is not None
                assert found.body == name.encode()
            assert await store.blob(SCOPE, name) == name.encode()
        listed = await store.documents(SCOPE, "fact", limit=1_000)
        assert [one.key for one in listed] == sorted(HOSTILE_NAMES)
        assert set(await store.blobs(SCOPE)) == set(HOSTILE_NAMES)

    async def test_nul_is_refused_or_kept_apart(self, store: Store) -> None:
        """A name with a NUL character is either not accepted or not the same as without it."""
        await record(store, entry("a"))
        await write_documents(store, document("a"))
        for scope, new in (
            (SCOPE, entry("a\x00b", "nul")),
            (SCOPE, entry("a", "nul", session_id="s\x00")),
            (Scope("tenant", "user", "alice\x00"), entry("a", "nul")),
        ):
            with contextlib.suppress(InvalidValue):
                await record(store, new, scope=scope)
                (found,) = await store.entries(scope, [new.key])
                assert found.body == b"nul"
        with contextlib.suppress(InvalidValue):
            await write_documents(store, document("a\x00b", b"nul"))
        (kept,) = await store.entries(SCOPE, [key("a")])
        assert kept.body == b"words"
        kept_document = await store.document(SCOPE, "fact", "a")
        assert kept_document is not None
        assert kept_document.body == b"{}"

    async def test_scopes_are_listed_by_code_points(self, store: Store) -> None:
        """Names of one tenant and partition come in order, page by page, and no others."""
        for name in HOSTILE_NAMES:
            await record(store, scope=Scope("tenant", "user", name))
        await record(store, scope=Scope("tenant", "identity", "hidden"))
        await record(store, scope=Scope("tenant ", "user", "hidden"))
        seen: list[str] = []
        partition: Partition = "user"
        while page := await store.scopes(
            "tenant", partition, after=seen[-1] if seen else "", limit=10
        ):
            assert {one[:2] for one in page} == {("tenant", "user")}
            seen += [one.name for one in page]
        assert seen == sorted(HOSTILE_NAMES)
        await store.erase(Scope("tenant", "user", "%"))
        listed = await store.scopes("tenant", "user", limit=1_000)
        assert [one.name for one in listed] == sorted({*HOSTILE_NAMES} - {"%"})

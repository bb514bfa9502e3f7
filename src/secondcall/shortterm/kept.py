"""Summaries as they are kept in a store: one head for each session, and a document for each node.

The head (kind ``buffer``, key the session's id) has the boundary up to which the session is
summarised, the live nodes, and the key facts. It changes by compare-and-set: of two writers the one
that read an older head loses with ``VersionConflict``, reads again, and finds that its items are
summarised already. A node (kind ``summary``) never changes; it has what it stands for. Both are
derived: what is removed from the record goes from them, and they are made anew.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Epoch, Scope, Store
from secondcall.errors import StoreCorrupt, VersionConflict
from secondcall.shortterm.keyfacts import KeyFact
from secondcall.shortterm.levels import SummaryNode
from secondcall.types import ItemKey, ItemKind, JsonValue, RecordedItem

__all__ = [
    "BEGINNING",
    "Head",
    "Shelf",
    "drop_items",
    "read_head",
    "read_nodes",
    "resting_nodes",
    "write_head",
]

BEGINNING = (-(1 << 62), 0)
"""The boundary before everything."""
_HEAD, _NODE = "buffer", "summary"
_PAGE = 500
_MAX_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a session's summaries stand.

    ``boundary`` is the (time in microseconds, position) of the last item summarised, in reading
    order; it only moves forward. ``version`` is the document's, ``None`` before it was written.
    ``moved`` counts the key facts that went to the facts. ``late`` are items from before the
    boundary that came after it was drawn, and that no summary stands for yet.
    """

    boundary: tuple[int, int] = BEGINNING
    nodes: Sequence[SummaryNode] = ()
    facts: Sequence[KeyFact] = ()
    facts_version: int = 0
    removed: Sequence[str] = ()
    moved: int = 0
    system: Sequence[ItemKey] = ()
    late: Sequence[ItemKey] = ()
    version: int | None = None


class Shelf(ABC):
    """Where a buffer keeps its summaries, and the record that they rest on."""

    @abstractmethod
    async def load(self) -> Head | None:
        """The head, if there is one."""

    @abstractmethod
    async def save(self, head: Head, nodes: Sequence[SummaryNode]) -> Head:
        """Write new nodes and the head in one step; the head with its new version.

        Raises: ``VersionConflict``, ``UserErased``, store errors.
        """

    @abstractmethod
    async def nodes(self, ids: Collection[str]) -> Mapping[str, SummaryNode]:
        """Nodes by id, those that are there."""

    @abstractmethod
    async def items(self, keys: Sequence[ItemKey]) -> list[RecordedItem]:
        """The items of the record with these keys that may be shown, in order."""

    @abstractmethod
    async def newest(self, boundary: tuple[int, int]) -> list[RecordedItem]:
        """The items behind ``boundary`` in reading order; of very many the newest."""

    @abstractmethod
    async def move(self, facts: Sequence[KeyFact]) -> None:
        """Keep key facts that the list has no room for where recall finds them."""

    @abstractmethod
    async def drop(self, keys: Collection[ItemKey], *, gone: bool) -> None:
        """Drop what rests on these items, which are gone or have changed; see ``drop_items``."""

    def cutoffs(self) -> Mapping[ItemKind, int]:
        """What was said before these times (microseconds) has run out, by kind; nothing, if empty.
        Asked at every read, so it must not wait for anything."""
        return {}


@dataclass(slots=True)
class _Dropping:
    """The nodes of one session and what a removal does to them."""

    known: Mapping[str, SummaryNode]
    keys: frozenset[ItemKey]
    gone: bool
    deleted: list[str] = field(default_factory=list[str])
    _rests: dict[str, bool] = field(default_factory=dict[str, bool])

    def rests(self, node_id: str) -> bool:
        """Whether a node stands for one of the items, by itself or through those below it."""
        if node_id not in self._rests:
            node = self.known.get(node_id)
            self._rests[node_id] = node is not None and (
                not self.keys.isdisjoint(node.items) or any(map(self.rests, node.children))
            )
        return self._rests[node_id]

    def without(self, node: SummaryNode) -> list[SummaryNode]:
        """What is live instead of a node: its children that rest on nothing removed, and items that
        wait to be summarised anew."""
        full = node if node.level == 0 else self.known.get(node.id, node)
        if full.level == 0:
            return self._waiting(full)
        if not self.rests(node.id):
            return [node]
        self.deleted.append(node.id)
        if full.level == 1:
            return self._waiting(full)
        return [
            one
            for child in full.children
            if child in self.known
            for one in self.without(self.known[child].outline())
        ]

    def _waiting(self, node: SummaryNode) -> list[SummaryNode]:
        left = [key for key in node.items if not self.gone or key not in self.keys]
        return [replace(node, level=0, text="", items=tuple(left), children=())] if left else []


async def read_head(store: Store, scope: Scope, session_id: str) -> Head | None:
    """The head of a session's summaries. Raises: ``StoreCorrupt``."""
    document = await store.document(scope, _HEAD, session_id)
    if document is None:
        return None
    try:
        content = cast("dict[str, Any]", json.loads(document.body))
        at_us, position = content["boundary"]
        return Head(
            boundary=(at_us, position),
            nodes=tuple(SummaryNode.from_json(one) for one in content["nodes"]),
            facts=tuple(KeyFact.from_json(one) for one in content["facts"]),
            facts_version=content["facts_version"],
            removed=tuple(content["removed"]),
            moved=content["moved"],
            system=tuple(ItemKey(*key) for key in content["system"]),
            late=tuple(ItemKey(*key) for key in content.get("late", ())),
            version=document.version,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(session_id, error) from None


async def write_head(
    store: Store,
    scope: Scope,
    session_id: str,
    head: Head,
    nodes: Sequence[SummaryNode] = (),
    *,
    deleted: Collection[str] = (),
    epoch: Epoch,
    now_us: int,
) -> Head:
    """Write the head, new nodes and deletions in one step; the head with its new version.

    Raises: ``VersionConflict`` when the head is not the one that ``head.version`` names.
    """
    content: dict[str, JsonValue] = {
        "v": 1,
        "boundary": list(head.boundary),
        "nodes": [node.outline().to_json() for node in head.nodes],
        "facts": [fact.to_json() for fact in head.facts],
        "facts_version": head.facts_version,
        "removed": list(head.removed),
        "moved": head.moved,
        "system": [list(key) for key in head.system],
        "late": [list(key) for key in head.late],
    }
    writes = [
        DocumentWrite(
            kind=_HEAD, key=session_id, body=_encoded(content), expected_version=head.version
        ),
        *(_node_write(session_id, node.id, _encoded(node.to_json())) for node in nodes),
        *(_node_write(session_id, node_id, None) for node_id in deleted),
    ]
    await store.write(scope, Batch(documents=writes), epoch=epoch, now_us=now_us)
    written = await store.document(scope, _HEAD, session_id) if head.version is None else None
    if head.version is not None:
        return replace(head, version=head.version + 1)
    return replace(head, version=1 if written is None else written.version)


async def read_nodes(
    store: Store, scope: Scope, session_id: str, ids: Collection[str] | None = None
) -> dict[str, SummaryNode]:
    """Nodes of a session by id: those named, or all. Raises: ``StoreCorrupt``."""
    if ids is not None:
        documents = [await store.document(scope, _NODE, _node_key(session_id, one)) for one in ids]
        return _decoded(session_id, [one.body for one in documents if one is not None])
    found: dict[str, SummaryNode] = {}
    prefix, after = _node_key(session_id, ""), ""
    prefix = prefix[: -len('"]')]
    while True:
        page = await store.documents(scope, _NODE, prefix=prefix, after=after, limit=_PAGE)
        found.update(_decoded(session_id, [one.body for one in page]))
        if len(page) < _PAGE:
            return found
        after = page[-1].key


async def drop_items(
    store: Store,
    scope: Scope,
    keys: Collection[ItemKey],
    *,
    epoch: Epoch,
    now_us: int,
    gone: bool = True,
) -> int:
    """Drop what the summaries kept in ``scope`` rest on ``keys``; how many nodes and key facts.

    The nodes that stand for an item go, with every node above them and the key facts that have no
    other source. What is left of the items waits in the head to be summarised anew, by whoever next
    opens the session's buffer. With ``gone=False`` the items changed and are summarised again too.

    Raises: ``VersionConflict`` after twenty lost races, ``UserErased``, store errors.
    """
    sessions: defaultdict[str, set[ItemKey]] = defaultdict(set)
    for key in keys:
        sessions[key.session_id].add(key)
    dropped = 0
    for session_id, some in sessions.items():
        for attempt in range(_MAX_TRIES):
            try:
                dropped += await _drop(
                    store, scope, session_id, frozenset(some), gone, epoch=epoch, now_us=now_us
                )
            except VersionConflict:
                if attempt == _MAX_TRIES - 1:
                    raise
                continue
            break
    return dropped


def resting_nodes(
    nodes: Mapping[str, SummaryNode], live: Sequence[SummaryNode], keys: Collection[ItemKey]
) -> frozenset[str]:
    """The ids of the ``live`` nodes that stand for one of the items, directly or not."""
    dropping = _Dropping(nodes, frozenset(keys), gone=True)
    return frozenset(
        node.id
        for node in live
        if dropping.rests(node.id) or not dropping.keys.isdisjoint(node.items)
    )


async def _drop(
    store: Store,
    scope: Scope,
    session_id: str,
    keys: frozenset[ItemKey],
    gone: bool,
    *,
    epoch: Epoch,
    now_us: int,
) -> int:
    head = await read_head(store, scope, session_id)
    if head is None:
        return 0
    dropping = _Dropping(await read_nodes(store, scope, session_id), keys, gone)
    nodes = tuple(one for node in head.nodes for one in dropping.without(node))
    facts = tuple(one for fact in head.facts if (one := _without(fact, keys)) is not None)
    system = tuple(key for key in head.system if not gone or key not in keys)
    late = tuple(key for key in head.late if not gone or key not in keys)
    changed = replace(head, nodes=nodes, facts=facts, system=system, late=late)
    if changed == replace(
        head,
        nodes=tuple(head.nodes),
        facts=tuple(head.facts),
        system=tuple(head.system),
        late=tuple(head.late),
    ):
        return 0
    changed = replace(changed, facts_version=head.facts_version + 1)
    await write_head(
        store, scope, session_id, changed, deleted=dropping.deleted, epoch=epoch, now_us=now_us
    )
    return len(dropping.deleted) + len(head.facts) - len(facts)


def _without(fact: KeyFact, keys: frozenset[ItemKey]) -> KeyFact | None:
    left = tuple(key for key in fact.sources if key not in keys)
    if len(left) == len(fact.sources):
        return fact
    return replace(fact, sources=left) if left else None


def _node_key(session_id: str, node_id: str) -> str:
    return json.dumps([session_id, node_id], ensure_ascii=False)


def _node_write(session_id: str, node_id: str, body: bytes | None) -> DocumentWrite:
    return DocumentWrite(
        kind=_NODE, key=_node_key(session_id, node_id), body=body, expected_version=ANY_VERSION
    )


def _encoded(content: JsonValue) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(session_id: str, bodies: Sequence[bytes]) -> dict[str, SummaryNode]:
    try:
        nodes = [SummaryNode.from_json(json.loads(body)) for body in bodies]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(session_id, error) from None
    return {node.id: node for node in nodes}


def _unreadable(session_id: str, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"the stored summaries of session {session_id!r} cannot be read ({type(error).__name__}); "
        "they are derived from the record: run 'secondcall doctor'"
    )

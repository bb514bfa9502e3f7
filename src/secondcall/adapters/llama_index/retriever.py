"""A retriever of LlamaIndex over one user's record."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from secondcall.adapters.llama_index.bound import bound_to
from secondcall.record.append import text_of
from secondcall.types import ItemKind, Message, Metadata, RecalledFact, RecalledItem, Role

if TYPE_CHECKING:
    from secondcall.memory import Memory, UserMemory

__all__ = ["SecondCallRetriever"]


class SecondCallRetriever(BaseRetriever):
    """What was said and done, and the facts, that answer a query, best first: one node each.

    The store is given by ``url``, by the ``name`` that ``secondcall.configure`` knows it under, or
    as an open ``memory``; without any of them it is that of ``SECONDCALL_URL``. ``where``,
    ``kinds``, ``roles``, ``sessions``, ``since`` and ``until`` narrow it as in ``user.recall``. A
    node's metadata says session, role or tool, speaker, time, and what became of what it states;
    only the text is embedded and counted. An empty query finds nothing.

    Raises: ``InvalidValue``, ``UnknownName``; asking raises store errors.
    """

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        name: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        limit: int = 5,
        facts: bool = True,
        where: Metadata | None = None,
        kinds: Collection[ItemKind] | None = None,
        roles: Collection[Role] | None = None,
        sessions: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        deadline_seconds: float | None = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self._bound = bound_to(
            user_id=user_id, tenant_id=tenant_id, url=url, name=name, memory=memory
        )
        self._facts = facts
        self._options: dict[str, Any] = {
            "limit": limit,
            "where": where,
            "kinds": kinds,
            "roles": roles,
            "sessions": sessions,
            "since": since,
            "until": until,
            "deadline_seconds": deadline_seconds,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._bound.run_blocking(lambda user: self._found(user, query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._bound.run(lambda user: self._found(user, query_bundle.query_str))

    async def _found(self, user: UserMemory, query: str) -> list[NodeWithScore]:
        found = await user.recall(query, **self._options)
        nodes = [_item_node(one) for one in found.items]
        if self._facts:
            nodes += [_fact_node(one) for one in found.facts]
        # a stable order: of equal scores the items, as they were ranked, come first
        return sorted(nodes, key=lambda node: node.score or 0.0, reverse=True)


def _item_node(found: RecalledItem) -> NodeWithScore:
    item = found.item
    metadata: dict[str, Any] = {
        "session_id": found.key.session_id,
        "kind": found.key.kind,
        "at": found.at.isoformat(),
    }
    if isinstance(item, Message):
        metadata["role"] = item.role
        metadata |= {} if item.speaker is None else {"speaker": item.speaker}
    else:
        metadata["tool"] = item.name
    metadata |= {} if found.stale is None else {"stale": found.stale}
    metadata |= {} if found.to_confirm is None else {"to_confirm": found.to_confirm}
    return _node(found.key.id, text_of(item), metadata, found.score)


def _fact_node(found: RecalledFact) -> NodeWithScore:
    fact = found.fact
    metadata: dict[str, Any] = {
        "kind": fact.kind,
        "status": fact.status,
        "at": fact.valid_from.isoformat(),
    }
    text = f"{fact.subject} {fact.predicate}: {fact.value}"
    return _node(fact.id, text, metadata, found.score)


def _node(node_id: str, text: str, metadata: dict[str, Any], score: float) -> NodeWithScore:
    apart = list(metadata)
    node = TextNode(
        id_=node_id,
        text=text,
        metadata=metadata,
        excluded_embed_metadata_keys=apart,
        excluded_llm_metadata_keys=["kind"],
    )
    return NodeWithScore(node=node, score=score)

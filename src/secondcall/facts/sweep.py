"""Removes facts that have run out by the retention policy, heads and history alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondcall.abc import Batch, DocumentWrite
from secondcall.checks import to_us
from secondcall.facts.chain import decode_fact

if TYPE_CHECKING:
    from secondcall.abc import Document, Epoch, Scope, Store

__all__ = ["sweep_facts"]

_PAGE = 500
_KINDS = ("fact_ended", "fact_standing", "fact")


async def sweep_facts(
    store: Store, scope: Scope, *, cutoff_us: int, epoch: Epoch, now_us: int, dry_run: bool
) -> int:
    """Delete facts recorded before ``cutoff_us``; how many there were.

    What sensitive ones rested on stays listed: those items are to be withheld as long as they live.

    Raises: ``VersionConflict`` when a fact changed meanwhile; then run it again.
    """
    total = 0
    for kind in _KINDS:
        after = ""
        while True:
            page = await store.documents(scope, kind, after=after, limit=_PAGE)
            expired = [one for one in page if _recorded_us(one) < cutoff_us]
            if kind != "fact_standing":
                total += len(expired)
            if expired and not dry_run:
                batch = Batch(documents=[_deletion(one) for one in expired])
                await store.write(scope, batch, epoch=epoch, now_us=now_us)
            if len(page) < _PAGE:
                break
            after = page[-1].key
    return total


def _recorded_us(document: Document) -> int:
    return to_us("recorded_at", decode_fact(document.body).recorded_at)


def _deletion(document: Document) -> DocumentWrite:
    return DocumentWrite(
        kind=document.kind,
        key=document.key,
        body=None,
        expected_version=document.version,
        announce=document.kind == "fact",
    )

"""Removes facts that have run out by the retention policy, heads and history alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from secondcall.abc import Batch, DocumentWrite
from secondcall.checks import to_us
from secondcall.facts.over import no_longer_listed
from secondcall.facts.stored import decode_fact, is_fact

if TYPE_CHECKING:
    from secondcall.abc import Document, Epoch, Scope, Store
    from secondcall.types import Fact

__all__ = ["remove_facts", "sweep_facts"]

_PAGE = 500
_KINDS = ("fact_ended", "fact_standing", "fact")


async def sweep_facts(
    store: Store, scope: Scope, *, cutoff_us: int, epoch: Epoch, now_us: int, dry_run: bool
) -> int:
    """Delete facts recorded before ``cutoff_us``; how many there were.

    What sensitive ones rested on stays listed: those items are to be withheld as long as they live.

    Raises: ``VersionConflict`` when a fact changed meanwhile; then run it again.
    """
    return await _sweep(
        store,
        scope,
        lambda one: _recorded_us(one) < cutoff_us,
        epoch=epoch,
        now_us=now_us,
        dry_run=dry_run,
    )


async def remove_facts(
    store: Store,
    scope: Scope,
    unwanted: Callable[[Fact], bool],
    *,
    epoch: Epoch,
    now_us: int,
) -> int:
    """Delete the facts that are unwanted, ended ones included; how many there were.

    Raises: ``VersionConflict`` when a fact changed meanwhile; then run it again.
    """
    return await _sweep(
        store,
        scope,
        lambda one: unwanted(decode_fact(one.body)),
        epoch=epoch,
        now_us=now_us,
        dry_run=False,
    )


async def _sweep(
    store: Store,
    scope: Scope,
    goes: Callable[[Document], bool],
    *,
    epoch: Epoch,
    now_us: int,
    dry_run: bool,
) -> int:
    total = 0
    for kind in _KINDS:
        after = ""
        while True:
            page = await store.documents(scope, kind, after=after, limit=_PAGE)
            expired = [one for one in page if is_fact(one.body) and goes(one)]
            if kind != "fact_standing":
                total += len(expired)
            if expired and not dry_run:
                deletions = [_deletion(one) for one in expired]
                # One of a batch tells open views that they hold what is gone.
                deletions[0] = replace(deletions[0], announce=kind != "fact_standing")
                batch = Batch(documents=[*deletions, *_unlisted(expired)])
                await store.write(scope, batch, epoch=epoch, now_us=now_us)
            if len(page) < _PAGE:
                break
            after = page[-1].key
    return total


def _unlisted(documents: Iterable[Document]) -> list[DocumentWrite]:
    listed = [write for one in documents for write in no_longer_listed(decode_fact(one.body))]
    return list({write.key: write for write in listed}.values())


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

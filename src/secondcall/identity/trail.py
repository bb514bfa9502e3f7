"""Reading the audit trail of a person."""

from __future__ import annotations

from collections.abc import Sequence

from secondcall.abc import Store
from secondcall.checks import check_limit
from secondcall.identity.audit import KIND, AuditEntry, read_event
from secondcall.identity.family import family_of
from secondcall.identity.person import Where, user_scope

__all__ = ["audit"]

_PAGE = 500


async def audit(
    store: Store, tenant_id: str, user_id: str, *, limit: int = 1000
) -> Sequence[AuditEntry]:
    """What happened to the identities of a user and of everybody merged with it, oldest first.

    At most the oldest ``limit`` entries of each user. Raises: ``InvalidValue`` for a ``limit`` that
    is not a whole number from 1 to 1,000,000.
    """
    limit = check_limit("limit", limit)
    entries: list[AuditEntry] = []
    for person in await family_of(Where(store=store, tenant_id=tenant_id), user_id):
        entries += await _trail(store, tenant_id, person.user_id, limit)
    return sorted(entries, key=lambda entry: entry.at)


async def _trail(store: Store, tenant_id: str, user_id: str, limit: int) -> list[AuditEntry]:
    scope = user_scope(tenant_id, user_id)
    entries: list[AuditEntry] = []
    after = ""
    while len(entries) < limit:
        size = min(_PAGE, limit - len(entries))
        page = await store.documents(scope, KIND, after=after, limit=size)
        entries += [read_event(user_id, document) for document in page]
        if len(page) < size:
            break
        after = page[-1].key
    return entries

"""Who is calling: from phone numbers, addresses and ids to one user, and back."""

from secondcall.identity.audit import AuditEntry
from secondcall.identity.erasure import Erasure, Swept, begin_erasure, release_identities, sweep
from secondcall.identity.family import Partitions, partitions_of
from secondcall.identity.identifiers import (
    Identifier,
    Identifiers,
    IdentityKind,
    Rejected,
    identifiers_from,
)
from secondcall.identity.linking import LinkedIdentity, identities_of, link, link_all, unlink
from secondcall.identity.merge import merge, unmerge
from secondcall.identity.person import DOCUMENT, Person, person_in
from secondcall.identity.phone import mask_phone, normalize_phone, warm_phone, withheld_forms
from secondcall.identity.resolve import resolve
from secondcall.identity.sip import normalize_sip
from secondcall.identity.trail import audit

__all__ = [
    "DOCUMENT",
    "AuditEntry",
    "Erasure",
    "Identifier",
    "Identifiers",
    "IdentityKind",
    "LinkedIdentity",
    "Partitions",
    "Person",
    "Rejected",
    "Swept",
    "audit",
    "begin_erasure",
    "identifiers_from",
    "identities_of",
    "link",
    "link_all",
    "mask_phone",
    "merge",
    "normalize_phone",
    "normalize_sip",
    "partitions_of",
    "person_in",
    "release_identities",
    "resolve",
    "sweep",
    "unlink",
    "unmerge",
    "warm_phone",
    "withheld_forms",
]

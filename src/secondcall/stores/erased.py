"""What a store keeps of an erased partition: a mark that tells nothing without the erased epoch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope

__all__ = ["erasure_mark"]


def erasure_mark(scope: Scope, epoch: Epoch) -> bytes:
    """16 bytes that a late write, which still has the epoch, is known by.

    The epoch is random and erased with the partition, so nobody can find a name from its mark.
    """
    mark = hashlib.blake2b(digest_size=16)
    for part in (epoch, *(one.encode() for one in scope)):
        mark.update(len(part).to_bytes(8, "big"))
        mark.update(part)
    return mark.digest()

"""What every store refuses in the same words, before it writes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondcall.errors import InvalidValue, TooLarge

if TYPE_CHECKING:
    from secondcall.abc import Batch, Capabilities, Scope

__all__ = ["check_batch", "check_blob", "check_limit", "check_name", "check_number", "check_scope"]


def check_limit(limit: int) -> None:
    """Raises: ``InvalidValue`` for less than one row."""
    if limit < 1:
        raise InvalidValue(f"limit is {limit}, expected at least 1")


def check_name(field: str, value: str) -> None:
    """Raises: ``InvalidValue`` for an empty name or one that is not Unicode text."""
    if not value:
        raise InvalidValue(f"{field} must not be empty")
    check_text(field, value)


def check_text(field: str, value: str) -> None:
    """Raises: ``InvalidValue`` for lone surrogates, which no database can hold."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            f"{field} holds a lone surrogate at position {error.start}; send UTF-8 text"
        ) from None


def check_scope(scope: Scope) -> None:
    """Raises: ``InvalidValue``."""
    check_text("tenant_id", scope.tenant_id)
    check_name("the partition's name", scope.name)


def check_number(field: str, value: int) -> None:
    """Raises: ``InvalidValue`` for what does not fit into 64 bits."""
    if not -(2**63) <= value < 2**63:
        raise InvalidValue(f"{field} is {value}, which does not fit into 64 bits")


def check_batch(batch: Batch, capabilities: Capabilities) -> None:
    """Raises: ``InvalidValue`` for names, ``TooLarge`` for bodies over ``max_document_bytes``."""
    for index, entry in enumerate(batch.entries):
        check_text(f"entries[{index}].key", entry.key.session_id)
        check_text(f"entries[{index}].key", entry.key.id)
        check_number(f"entries[{index}].at_us", entry.at_us)
        _check_size(f"entries[{index}]", entry.body, capabilities.max_document_bytes)
    for index, key in enumerate(batch.removals):
        check_text(f"removals[{index}]", key.session_id)
        check_text(f"removals[{index}]", key.id)
    for index, document in enumerate(batch.documents):
        check_text(f"documents[{index}].kind", document.kind)
        check_name(f"documents[{index}].key", document.key)
        check_number(f"documents[{index}].expires_us", document.expires_us or 0)
        if document.body is not None:
            _check_size(f"documents[{index}]", document.body, capabilities.max_document_bytes)


def check_blob(name: str, data: bytes, capabilities: Capabilities) -> None:
    """Raises: ``InvalidValue``, ``TooLarge`` over ``max_blob_bytes``."""
    check_name("blob name", name)
    _check_size("the blob", data, capabilities.max_blob_bytes)


def _check_size(what: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise TooLarge(f"{what} has {len(data):,} bytes, this store accepts at most {most:,}")

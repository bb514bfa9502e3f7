"""What every store refuses in the same words, before it writes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondcall.errors import InvalidValue, TooLarge

if TYPE_CHECKING:
    from secondcall.abc import Batch, Capabilities, Scope
    from secondcall.abc_state import StateCapabilities, StateKey

__all__ = [
    "check_after",
    "check_batch",
    "check_blob",
    "check_change",
    "check_limit",
    "check_name",
    "check_number",
    "check_save",
    "check_scope",
    "check_state_key",
    "check_state_owner",
    "check_version",
]


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


def check_state_owner(tenant_id: str, user_id: str) -> None:
    """Raises: ``InvalidValue`` for an empty user id, NUL characters and lone surrogates."""
    _check_plain("tenant_id", tenant_id)
    _check_plain("user_id", user_id)
    if not user_id:
        raise InvalidValue("user_id must not be empty")


def check_state_key(key: StateKey) -> None:
    """Raises: ``InvalidValue``, also for an empty session id, which is not user-wide."""
    check_state_owner(key.tenant_id, key.user_id)
    if key.session_id is not None:
        _check_plain("session_id", key.session_id)
        if not key.session_id:
            raise InvalidValue("session_id must not be empty; None stands for the user-wide state")


def check_version(field: str, value: int | None) -> None:
    """Raises: ``InvalidValue`` for a version below 1; ``None`` is absent."""
    if value is None:
        return
    if isinstance(value, bool) or value < 1:
        raise InvalidValue(f"{field} is {value}; versions begin at 1, and None means absent")
    check_number(field, value)


def check_save(
    body: bytes, summary: bytes, capabilities: StateCapabilities, *, by: str, **numbers: int | None
) -> None:
    """Raises: ``InvalidValue``, ``TooLarge`` for body and summary over ``max_state_bytes``."""
    _check_plain("by", by)
    for field, value in numbers.items():
        check_number(field, value or 0)
    size, most = len(body) + len(summary), capabilities.max_state_bytes
    if size > most:
        raise TooLarge(
            f"the state has {len(body):,} bytes and its summary {len(summary):,}, this store "
            f"accepts at most {most:,} together"
        )


def check_change(
    key: StateKey,
    capabilities: StateCapabilities,
    *,
    expected_version: int | None,
    by: str,
    summary: bytes,
    body: bytes = b"",
    **numbers: int | None,
) -> None:
    """What every save and deletion is checked for. Raises: ``InvalidValue``, ``TooLarge``."""
    check_state_key(key)
    check_version("expected_version", expected_version)
    check_save(body, summary, capabilities, by=by, **numbers)


def check_after(tenant_id: str, user_id: str, after: StateKey | None) -> None:
    """Raises: ``InvalidValue`` for a page that would go on after a state of somebody else."""
    if after is not None and after[:2] != (tenant_id, user_id):
        raise InvalidValue("after is the key of another user's state")


def _check_plain(field: str, value: str) -> None:
    check_text(field, value)
    if "\x00" in value:
        raise InvalidValue(f"{field} holds a NUL character at position {value.index(chr(0))}")


def _check_size(what: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise TooLarge(f"{what} has {len(data):,} bytes, this store accepts at most {most:,}")

"""Every error that secondcall raises.

::

    SecondcallError
    ├── UsageError                you called it wrongly
    │   ├── InvalidValue          (ValueError) a field, id, time or limit that is not accepted
    │   │   └── TooLarge          over a documented limit
    │   │       └── OverBudget    does not fit into a token limit; carries part, tokens and limit
    │   ├── UnknownName           (LookupError) no such scheme, embedder, format, fact, session
    │   ├── MissingExtra          (ImportError) an optional package is not installed
    │   └── NotOpen               used before ``async with`` or after ``aclose``
    └── OperationFailed           it failed
        ├── StoreError            the store could not do it
        │   ├── StoreBusy         (TimeoutError) a lock was not free in time; nothing was written
        │   ├── StoreUnavailable  (OSError) cannot be opened or reached, is read-only or full
        │   ├── StoreCorrupt      stored bytes do not check out
        │   └── SchemaTooNew      written by a newer release
        ├── VersionConflict       a compare-and-set lost; carries both versions
        ├── UserErased            the user was forgotten since this handle was made
        ├── EmbedderError         an embedder failed or answered out of form
        └── ModelError            a language model failed or answered out of form

Messages name the field, id, size or position, what was expected and what to do. They never hold
remembered text, and phone numbers only masked.
"""

from __future__ import annotations

__all__ = [
    "EmbedderError",
    "InvalidValue",
    "MissingExtra",
    "ModelError",
    "NotOpen",
    "OperationFailed",
    "OverBudget",
    "SchemaTooNew",
    "SecondcallError",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
    "UnknownName",
    "UsageError",
    "UserErased",
    "VersionConflict",
]


class SecondcallError(Exception):
    """The root of all errors of this library."""


class UsageError(SecondcallError):
    """The call was wrong; repeating it will not help."""


class InvalidValue(UsageError, ValueError):
    """A value that is not accepted."""


class TooLarge(InvalidValue):
    """A value over a documented limit."""


class OverBudget(TooLarge):
    """Something that may not be left out does not fit into its token limit.

    ``part`` names it, ``tokens`` is what it takes and ``limit`` what there is.
    """

    def __init__(self, part: str, *, tokens: int, limit: int, advice: str) -> None:
        self.part = part
        self.tokens = tokens
        self.limit = limit
        super().__init__(
            f"{part} takes {tokens:,} tokens, {tokens - limit:,} more than the {limit:,} there "
            f"are; {advice}"
        )


class UnknownName(UsageError, LookupError):
    """A name that nothing answers to."""


class MissingExtra(UsageError, ImportError):
    """An optional package is needed; the message holds the install line."""


class NotOpen(UsageError):
    """Use ``async with Memory.open(...)`` first."""


class OperationFailed(SecondcallError):
    """The call was right, but it could not be done."""


class StoreError(OperationFailed):
    """The store could not do it."""


class StoreBusy(StoreError, TimeoutError):
    """A lock was not free in time. Nothing was written; try again."""


class StoreUnavailable(StoreError, OSError):
    """The store cannot be opened, reached or written."""


class StoreCorrupt(StoreError):
    """Stored bytes do not check out."""


class SchemaTooNew(StoreError):
    """The store was written by a newer release; upgrade secondcall."""


class VersionConflict(OperationFailed):
    """A compare-and-set lost against another writer.

    ``expected`` and ``found`` are versions; ``None`` means absent.
    """

    def __init__(self, what: str, *, expected: int | None, found: int | None) -> None:
        self.what = what
        self.expected = expected
        self.found = found
        super().__init__(
            f"{what} has version {found if found is not None else 'none (absent)'}, expected "
            f"{expected if expected is not None else 'none (absent)'}; read it again and retry"
        )


class UserErased(OperationFailed):
    """The user was forgotten since this handle was made; make a new handle to start anew."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        super().__init__(
            f"user {user_id!r} was forgotten since this handle was made; nothing was written. "
            "Make a new handle with memory.user(...) to start anew"
        )


class EmbedderError(OperationFailed):
    """An embedder failed or answered out of form."""


class ModelError(OperationFailed):
    """A language model failed or answered out of form."""

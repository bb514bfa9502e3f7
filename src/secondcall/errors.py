"""Every error that secondcall raises.

::

    SecondcallError
    ├── UsageError                you called it wrongly
    │   ├── InvalidValue          (ValueError) a field, id, time or limit that is not accepted
    │   │   └── TooLarge          over a documented limit
    │   │       └── OverBudget    does not fit into a token limit; carries part, tokens and limit
    │   ├── StateError            a change of state that is not allowed; says what is
    │   │   ├── IllegalTransition from the present step it does not go there
    │   │   ├── MissingSlots      a step was asked for whose slots are not filled
    │   │   ├── GuardFailed       a guard said no
    │   │   └── NotConfirmed      the host has not confirmed it, or the caller is not verified
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

from collections.abc import Sequence

__all__ = [
    "EmbedderError",
    "GuardFailed",
    "IllegalTransition",
    "InvalidValue",
    "MissingExtra",
    "MissingSlots",
    "ModelError",
    "NotConfirmed",
    "NotOpen",
    "OperationFailed",
    "OverBudget",
    "SchemaTooNew",
    "SecondcallError",
    "StateError",
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


class StateError(UsageError):
    """A change of state that is not allowed. Nothing was changed.

    ``workflow`` and ``step`` say where the state is (``None``: in no workflow), ``allowed`` which
    steps can be reached from here, and ``missing`` which slots are not filled for what was asked.
    """

    def __init__(
        self,
        problem: str,
        *,
        workflow: str | None,
        step: str | None,
        allowed: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.workflow = workflow
        self.step = step
        self.allowed = tuple(allowed)
        self.missing = tuple(missing)
        where = "no workflow runs" if workflow is None else f"{workflow!r} is at {step!r}"
        there = ", ".join(repr(one) for one in self.allowed) or "nothing"
        super().__init__(f"{problem}; {where}; allowed from here: {there}; nothing was changed")


class IllegalTransition(StateError):
    """The workflow does not go there from the present step."""


class MissingSlots(StateError):
    """A step was asked for, or a slot cleared, whose required slots would not all be filled."""


class GuardFailed(StateError):
    """A guard of the transition said no."""


class NotConfirmed(StateError):
    """The transition needs the host's confirmation, or a caller whose identity is verified."""


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

    ``expected`` and ``found`` are versions; ``None`` means absent. Of a state it is the subclass
    ``secondcall.abc_state.StateConflict``, which also carries the state as it stands.
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

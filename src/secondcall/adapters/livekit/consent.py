"""What may be recorded: nothing before consent, nothing of what was said off the record."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Consent"]


class Consent:
    """Whether what is said now may be kept, and what was said when it might not.

    The times are those of the worker's clock, as in the session's own items. An item counts from
    when it began until it was committed: if any of that was off the record, it is not recorded,
    also not by the final comparison with the session's history. What was recorded before stays
    until the user is forgotten (``Recorder.forget``).
    """

    def __init__(self, *, given: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.on_given: Callable[[], None] | None = None
        """Called when it is given after it was not."""
        self.is_held: Callable[[], bool] = lambda: False
        """Asked when it is given: while it is held nothing is recorded, and it is to be given again
        when what holds it is over."""
        self.wanted = given
        """Whether it was given last, and not withdrawn."""
        self._since: float | None = None if given else -float("inf")
        self._closed: list[tuple[float, float]] = []

    @property
    def recording(self) -> bool:
        """Whether what is said now is recorded."""
        return self._since is None

    @property
    def ever_given(self) -> bool:
        """Whether anything may have been recorded yet."""
        return self._since is None or self._since != -float("inf")

    def give(self) -> None:
        """Record from now on. What was said before is not made up for. After a ``forget`` that
        failed it takes effect as soon as that has been done, see ``recording``."""
        self.wanted = True
        if self._since is not None and self.is_held():
            if self.on_given is not None:
                self.on_given()
        elif self._since is not None:
            now = self._clock()  # which may have been set back meanwhile
            self._closed.append((min(self._since, now), max(self._since, now)))
            self._since = None
            if self.on_given is not None:
                self.on_given()

    def withdraw(self) -> None:
        """Record nothing from now on."""
        self.wanted = False
        if self._since is None:
            self._since = self._clock()

    off_the_record = withdraw
    back_on_the_record = give

    def covers_nothing_since(self, moment: float) -> None:
        """Count everything from ``moment`` back as off the record, as after forgetting a user."""
        self._closed.append((-float("inf"), moment))

    def allows(self, begun: float, ended: float | None = None) -> bool:
        """Whether what was said from ``begun`` to ``ended`` (``begun`` by default) is recorded.

        With ``ended`` it is also asked whether anything is recorded now.
        """
        until = begun if ended is None else max(begun, ended)
        since = self._since
        if since is not None and (ended is not None or until >= since):
            return False
        return not any(first <= until and begun <= last for first, last in self._closed)

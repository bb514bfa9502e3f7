"""What this process wrote while a question was on its way, which the question need not know.

In a call the caller's words are recorded as they are looked up. The record has then moved when the
question looks, but by nothing that had been acknowledged when it was asked: searching again would
make a reply wait for the very words that it answers.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import NamedTuple

from secondcall.abc import Epoch, Header, Scope, Written

__all__ = ["OwnWrites"]

_WRITES = 64
_SCOPES = 4_096


class _Own(NamedTuple):
    epoch: Epoch
    first: int
    last: int
    acknowledged: float


class OwnWrites:
    """The newest writes of this process, by partition: 64 each, of the 4,096 used last.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._writes: OrderedDict[Scope, deque[_Own]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, scope: Scope, epoch: Epoch, written: Written) -> None:
        """A write is acknowledged now."""
        if written.first_change > written.change:
            return
        own = _Own(epoch, written.first_change, written.change, time.perf_counter())
        with self._lock:
            writes = self._writes.setdefault(scope, deque(maxlen=_WRITES))
            self._writes.move_to_end(scope)
            writes.append(own)
            while len(self._writes) > _SCOPES:
                self._writes.popitem(last=False)

    def are_all(self, scope: Scope, header: Header, *, behind: int, since: float) -> bool:
        """Whether every change after ``behind`` that the header counts is of writes that were
        acknowledged after ``since``, on the performance counter."""
        with self._lock:
            writes = sorted(self._writes.get(scope, ()), key=lambda one: one.first)
        for own in writes:
            if own.epoch != header.epoch or own.last <= behind:
                continue
            if own.first != behind + 1 or own.acknowledged <= since:
                return False
            behind = own.last
        return behind >= header.change

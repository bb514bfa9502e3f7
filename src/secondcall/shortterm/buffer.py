"""The chat buffer: the newest whole turns of a conversation that fit into a token limit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from secondcall.abc import TokenCounter
from secondcall.checks import check_limit
from secondcall.errors import OverBudget
from secondcall.registry import default_counter
from secondcall.shortterm.fitting import least_tokens, shorten_outputs
from secondcall.shortterm.measure import Measure, Size
from secondcall.shortterm.owned import checked, copied
from secondcall.shortterm.report import BufferReport, Fate, ItemReport
from secondcall.shortterm.window import Entry, Turn, Window
from secondcall.types import Item, Message

__all__ = ["MAX_TOKEN_LIMIT", "ChatBuffer"]

MAX_TOKEN_LIMIT = 10_000_000
_LISTED_HELD = 200


@dataclass(slots=True)
class _View:
    """What ``get`` gives until the next change: entries, shortened ones by identity, tokens."""

    entries: list[Entry]
    tokens: int
    shortened: dict[int, tuple[Item, int]] = field(default_factory=dict[int, tuple[Item, int]])
    problem: OverBudget | None = None


class ChatBuffer:
    """The newest whole turns of a conversation, at most ``token_limit`` tokens of them.

    System messages always stay, in front and in order. Other than that only whole turns are cut,
    the oldest first, and the newest one never: when it alone is too long, its tool outputs are
    shortened, the largest first, each with a marker that says by how much. Items that are cut leave
    memory; the record has all of them. What came before the first user message is cut first, and
    as long as nobody has spoken it is cut item by item.

    Tokens are counted once, as an item comes in: text, speaker, thinking, tool name, arguments and
    output, and ``framing_tokens`` for each message that a model is sent (two for a tool call). A
    counter that fails loses nothing: see ``explain``.

    A message with a known id, or a tool call with a known call id and the same name and arguments,
    takes the place of the earlier one; if that was cut already, it is ignored. A tool call without
    its output is held but not given, since models refuse unanswered calls. Another call with the id
    of an answered one gets ``#2`` behind its id. Order is that of arrival.

    Safe from threads. Items are copied in and copied out.

    Raises: ``InvalidValue`` for a ``token_limit`` below 1 or over 10,000,000.
    """

    def __init__(
        self,
        token_limit: int = 3_000,
        *,
        counter: TokenCounter | None = None,
        framing_tokens: int = 4,
        on_cut: Callable[[Sequence[Item]], None] | None = None,
    ) -> None:
        """``on_cut`` is told what is cut, in order, while the buffer is locked: be quick there."""
        self._limit = check_limit("token_limit", token_limit, maximum=MAX_TOKEN_LIMIT)
        check_limit("framing_tokens", framing_tokens, minimum=0, maximum=1_000)
        self._measure = Measure(
            default_counter() if counter is None else counter,
            token_limit=token_limit,
            framing_tokens=framing_tokens,
        )
        self._window = Window(token_limit, on_cut)
        self._view: _View | None = None
        self._lock = threading.RLock()

    @property
    def token_limit(self) -> int:
        """What ``get`` takes at most."""
        return self._limit

    @property
    def tokens(self) -> int:
        """What ``get`` takes, reserved tokens not included; what does not fit, where it raises."""
        with self._lock:
            return self._seen().tokens

    def put(self, *items: Item) -> None:
        """Append items, all of them or none; what does not fit any more is cut.

        Raises: ``InvalidValue``, ``TooLarge`` naming the item, as recording it would.
        """
        self.take(items)

    def take(self, items: Sequence[Item], sizes: Sequence[Size | None] | None = None) -> list[Size]:
        """As ``put``; the tokens of each item. Of one whose ``sizes`` are known they are not
        counted again."""
        entries = [
            self._entry(f"items[{index}]", item, None if sizes is None else sizes[index])
            for index, item in enumerate(items)
        ]
        found = [entry.size for entry in entries]
        with self._lock:
            self._view = None
            for entry in entries:
                self._window.put(entry)
        return found

    def get(self) -> list[Item]:
        """System messages, then the newest whole turns that fit, in order.

        Raises: ``OverBudget`` naming the part, when the system text and the newest turn do not fit
        even with its tool outputs cut to their markers. Nothing is lost by it.
        """
        with self._lock:
            view = self._seen()
            if view.problem is not None:
                raise view.problem
            shown = view.shortened
            return [
                copied(shown[id(entry)][0] if id(entry) in shown else entry.item)
                for entry in view.entries
            ]

    def explain(self) -> BufferReport:
        """What is held, what was cut, and why, with the tokens of each item."""
        with self._lock:
            view = self._seen()
            window = self._window
            reports = self._reports(view)
            counts: Counter[Fate] = Counter(report.fate for report in reports)
            counts.update(window.counts)
            listed = [*window.leavers, *reports[-_LISTED_HELD:]]
            return BufferReport(
                token_limit=self._limit,
                tokens=view.tokens,
                system_tokens=window.system_tokens,
                reserved_tokens=window.reserved,
                turns=sum(turn.user is not None for turn in window.turns),
                items=tuple(listed),
                counts=dict(counts),
                cut_tokens=window.cut_tokens,
                not_listed=sum(counts.values()) - len(listed),
                problem=None if view.problem is None else str(view.problem),
                counter_failure=self._measure.failure,
            )

    def clear(self) -> None:
        """Hold nothing, as when it was made."""
        with self._lock:
            self._view = None
            self._window.clear()

    def let_go(self, goes: Callable[[Item], bool]) -> int:
        """Hold none of the items that ``goes`` says yes to any more, wherever they stand; how many
        there were. ``on_cut`` is not told."""
        with self._lock:
            gone = self._window.remove(goes)
            if gone:
                self._view = None
            return gone

    def reserve(self, tokens: int) -> None:
        """Take so many tokens off the limit, for text that is put in front from elsewhere.

        Raises: ``InvalidValue``.
        """
        check_limit("tokens", tokens, minimum=0, maximum=MAX_TOKEN_LIMIT)
        with self._lock:
            self._view = None
            self._window.reserved = tokens
            self._window.make_room()

    @property
    def spare_tokens(self) -> int:
        """What may be reserved at most: what the system text and the newest turn leave, that turn
        with its outputs cut to their markers."""
        with self._lock:
            window = self._window
            newest = window.turns[-1] if window.turns else None
            taken = 0 if newest is None else least_tokens(newest, self._measure)
            return max(0, self._limit - window.system_tokens - taken)

    @property
    def turn_count(self) -> int:
        """How many turns are held, an opening among them."""
        with self._lock:
            return len(self._window.turns)

    def turns(self) -> list[list[Item]]:
        """The turns held, oldest first, waiting calls included; an opening comes before them.

        Outputs are whole, but for those that alone are longer than the limit."""
        with self._lock:
            self._before_read()
            turns = self._window.turns
            return [[copied(entry.full_item()) for entry in turn.entries] for turn in turns]

    def drop_oldest(self, turns: int, *, why: str) -> None:
        """Let go of so many of the oldest turns, since a summary stands for them; never of the
        newest. ``on_cut`` is not told."""
        with self._lock:
            self._view = None
            self._window.drop(turns, "summarised", why)

    def _before_read(self) -> None:
        """What a buffer that is fed from elsewhere has to see to before it is looked at."""

    def _entry(self, name: str, item: Item, size: Size | None) -> Entry:
        item = checked(name, item)
        size = self._measure.size(item) if size is None else size
        if isinstance(item, Message):
            return Entry(item, size)
        characters = len(item.output or "")
        if item.output is not None and size.output > self._limit:
            held = self._measure.head(item.output)
            item = replace(item, output=held)
        return Entry(item, size, characters=characters, host_id=item.call_id)

    def _seen(self) -> _View:
        self._before_read()
        if self._view is not None:
            return self._view
        view = self._look()
        if view.problem is None:  # each caller gets an exception of its own
            self._view = view
        return view

    def _look(self) -> _View:
        window = self._window
        entries = [entry for entry in window.entries() if not entry.waiting]
        tokens = window.system_tokens + sum(turn.tokens + turn.lost_tokens for turn in window.turns)
        view = _View(entries, tokens)
        if window.room < 0:
            view.problem = OverBudget(
                "the system text" if not window.reserved else "the system and reserved text",
                tokens=window.system_tokens + window.reserved,
                limit=self._limit,
                advice="give the buffer a larger token_limit, or shorten the system text",
            )
        elif window.turns:
            self._fit(window.turns[-1], view)
        return view

    def _fit(self, turn: Turn, view: _View) -> None:
        """Shorten the outputs of the newest turn where it is too long; older ones were cut."""
        if turn.tokens + turn.lost_tokens <= self._window.room:
            return
        try:
            view.shortened = shorten_outputs(turn, self._window.room, self._measure)
        except OverBudget as problem:
            view.problem = problem
            return
        saved = sum(entry.size.output for entry in turn.entries if id(entry) in view.shortened)
        view.tokens += sum(tokens for _, tokens in view.shortened.values()) - saved

    def _reports(self, view: _View) -> list[ItemReport]:
        reports: list[ItemReport] = []
        for entry in self._window.entries():
            if entry.waiting:
                reports.append(entry.report("waiting", "waits for its output"))
            elif id(entry) in view.shortened:
                shown = entry.size.firm + view.shortened[id(entry)][1]
                why = "the newest turn is longer than the limit; the record has the whole output"
                reports.append(entry.report("shortened", why, shown=shown))
            else:
                reports.append(entry.report("kept", _why_kept(entry), shown=entry.tokens))
        return reports


def _why_kept(entry: Entry) -> str:
    if entry.turn is None:
        return "system messages are always kept"
    return "in one of the newest turns that fit" if entry.turn.user else "nothing had to be cut yet"

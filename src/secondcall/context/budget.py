"""One context window, split between the layers: what each may take, and never a token more. Pure.

What is left of the window after the reserve for the answer, the system text and the tools is split
by shares. Shares are taken as the decimal numbers that they are written as, and rounded down: the
token or two that this leaves over is given to nobody, because whoever got it would have to give it
back when the window grows by one. So a larger window never takes a token from any layer.

A share that a layer does not use is passed on in the order buffer, recall, state: the next reply
hangs on the conversation first, then on what was found for the question, and the state, which is
short by nature, is what seldom needs more than its own share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from secondcall.checks import check_limit
from secondcall.errors import InvalidValue, OverBudget

if TYPE_CHECKING:
    from typing import TypeAlias

    _Counts: TypeAlias = Mapping[str, int]

__all__ = ["DEFAULT_SHARES", "LAYERS", "MAX_WINDOW_TOKENS", "TokenBudget"]

LAYERS: tuple[str, ...] = ("buffer", "recall", "state")
"""In the order in which unused shares are passed on."""
DEFAULT_SHARES: Mapping[str, float] = {"buffer": 0.6, "recall": 0.2, "state": 0.2}
MAX_WINDOW_TOKENS = 100_000_000
_TOLERANCE = 1e-9
_MAX_COUNT = 1 << 62


class TokenBudget:
    """A window of ``window`` tokens, of which ``reserve`` are kept for the answer.

    ``shares`` (layer to 0..1, together 1; a layer that is not named gets nothing) split what the
    system text and the tools leave. ``minimum`` (layer to tokens) is what a layer gets even where
    its share is less; the others then share the rest in proportion.

    Raises: ``InvalidValue`` naming the field; ``OverBudget`` for a reserve larger than the window.
    """

    def __init__(
        self,
        window: int,
        reserve: int,
        shares: Mapping[str, float] | None = None,
        minimum: Mapping[str, int] | None = None,
    ) -> None:
        self.window = check_limit("window", window, maximum=MAX_WINDOW_TOKENS)
        self.reserve = check_limit("reserve", reserve, minimum=0, maximum=MAX_WINDOW_TOKENS)
        self.shares: Mapping[str, float] = _shares(DEFAULT_SHARES if shares is None else shares)
        self.minimum: _Counts = _counts("minimum", {} if minimum is None else minimum)
        self._exact = {layer: Fraction(repr(self.shares[layer])) for layer in LAYERS}
        self._room(0, 0)

    def limits(
        self, *, system_tokens: int = 0, tools_tokens: int = 0, wanted: _Counts | None = None
    ) -> _Counts:
        """Layer to the tokens that it may take, in the order of ``LAYERS``.

        ``wanted`` (layer to tokens; one that is not named wants all it can get) passes on what a
        layer does not use; without it each layer gets its share. A layer that wants less than its
        share gets what it wants.

        Raises: ``OverBudget`` naming the part for which there is no room, ``InvalidValue``.
        """
        room = self._room(
            check_limit("system_tokens", system_tokens, minimum=0, maximum=MAX_WINDOW_TOKENS),
            check_limit("tools_tokens", tools_tokens, minimum=0, maximum=MAX_WINDOW_TOKENS),
        )
        shared = self._split(room)
        return shared if wanted is None else _passed_on(shared, _counts("wanted", wanted))

    def check_buffer_limit(
        self, limit: int, *, system_tokens: int = 0, tools_tokens: int = 0
    ) -> int:
        """The ``token_limit`` of a buffer, if it is within the buffer's share.

        Raises: ``OverBudget`` above the share, ``InvalidValue``.
        """
        check_limit("token_limit", limit, maximum=MAX_WINDOW_TOKENS)
        share = self.limits(system_tokens=system_tokens, tools_tokens=tools_tokens)["buffer"]
        if limit > share:
            raise OverBudget(
                "the buffer's token_limit",
                tokens=limit,
                limit=share,
                advice=(
                    f"give the buffer at most its share of the {self.window:,} tokens, or the "
                    "budget a larger share for it"
                ),
            )
        return limit

    def _room(self, system_tokens: int, tools_tokens: int) -> int:
        """What the fixed parts leave, which is at least what the layers are guaranteed."""
        left = self.window
        for part, tokens, advice in (
            ("the reserve for the answer", self.reserve, "ask for a shorter answer"),
            ("the system text", system_tokens, "shorten it"),
            ("the description of the tools", tools_tokens, "offer fewer tools"),
        ):
            self._check_room(part, tokens, left, advice)
            left -= tokens
        guaranteed = sum(self.minimum.values())
        self._check_room("the layers' minimum", guaranteed, left, "guarantee less")
        return left

    def _check_room(self, part: str, tokens: int, left: int, advice: str) -> None:
        if tokens > left:
            raise OverBudget(
                part,
                tokens=tokens,
                limit=left,
                advice=f"{advice}, or use a window of more than {self.window:,} tokens",
            )

    def _split(self, room: int) -> dict[str, int]:
        """Each layer ``max(minimum, level * share)``, with the level at which all of it is used.

        Layers that stay at their minimum are taken out one round after the other, at most one
        round for each layer.
        """
        held: dict[str, int] = {}
        while True:
            open_layers = [layer for layer in LAYERS if layer not in held]
            whole = sum(self._exact[layer] for layer in open_layers)
            left = room - sum(held.values())
            split = {
                layer: left * self._exact[layer] / whole if whole else Fraction(0)
                for layer in open_layers
            }
            short = [layer for layer in open_layers if split[layer] < self.minimum.get(layer, 0)]
            if not short:
                return {
                    layer: held[layer] if layer in held else math.floor(split[layer])
                    for layer in LAYERS
                }
            held.update((layer, self.minimum[layer]) for layer in short)


def _passed_on(shared: _Counts, wanted: _Counts) -> dict[str, int]:
    granted = {layer: min(share, wanted.get(layer, share)) for layer, share in shared.items()}
    free = sum(shared.values()) - sum(granted.values())
    for layer in LAYERS:
        more = free if layer not in wanted else min(free, wanted[layer] - granted[layer])
        granted[layer] += more
        free -= more
    return granted


def _shares(shares: object) -> dict[str, float]:
    numbers = dict.fromkeys(LAYERS, 0.0)
    for layer, share in _named("shares", shares).items():
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise InvalidValue(f"shares[{layer!r}] must be a number, not {type(share).__name__}")
        if not 0 <= share <= 1:
            raise InvalidValue(f"shares[{layer!r}] is {share}, expected 0 to 1")
        numbers[layer] = float(share)
    whole = math.fsum(numbers.values())
    if abs(whole - 1) > _TOLERANCE:
        raise InvalidValue(f"shares sum to {whole:.10g}, expected 1")
    return numbers


def _counts(field: str, counts: object) -> dict[str, int]:
    return {
        layer: check_limit(f"{field}[{layer!r}]", count, minimum=0, maximum=_MAX_COUNT)
        for layer, count in _named(field, counts).items()
    }


def _named(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{field} must map layers to numbers, not {type(value).__name__}")
    named = dict(cast("Mapping[str, object]", value))
    for layer in named:
        if layer not in LAYERS:
            raise InvalidValue(f"{field} names {layer!r}, expected {', '.join(LAYERS)}")
    return named

"""One context window, split between the layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall import InvalidValue, OverBudget
from secondcall.context.budget import LAYERS, TokenBudget


@st.composite
def shares(draw: st.DrawFn) -> dict[str, float]:
    """Shares that sum to 1, with one layer or two left out now and then."""
    parts = draw(st.lists(st.integers(0, 1_000), min_size=3, max_size=3).filter(any))
    return {
        layer: part / sum(parts)
        for layer, part in zip(LAYERS, parts, strict=True)
        if part or draw(st.booleans())
    }


tokens = st.integers(0, 5_000)
minimums = st.dictionaries(st.sampled_from(LAYERS), st.integers(0, 300))
wishes = st.dictionaries(st.sampled_from(LAYERS), tokens) | st.none()


def test_default_split_is_the_documented_one() -> None:
    """Of 8,000 tokens with 1,000 for the answer the layers get 60, 20 and 20 percent."""
    limits = TokenBudget(8_000, 1_000).limits(system_tokens=1_500, tools_tokens=500)
    assert limits == {"buffer": 3_000, "recall": 1_000, "state": 1_000}
    assert tuple(limits) == LAYERS


def test_unused_share_goes_to_the_buffer_first() -> None:
    """What recall and state do not use goes to the buffer, then to recall, then to state."""
    budget = TokenBudget(1_000, 0)
    assert budget.limits(wanted={"buffer": 5_000, "recall": 50, "state": 0}) == {
        "buffer": 950,
        "recall": 50,
        "state": 0,
    }
    assert budget.limits(wanted={"buffer": 700, "recall": 0, "state": 900}) == {
        "buffer": 700,
        "recall": 0,
        "state": 300,
    }
    assert budget.limits(wanted={"buffer": 100, "state": 900}) == {
        "buffer": 100,
        "recall": 700,
        "state": 200,
    }


def test_a_layer_gets_its_minimum_from_the_others() -> None:
    """A small window still leaves recall what it is guaranteed; the rest is split as before."""
    limits = TokenBudget(500, 0, minimum={"recall": 300}).limits()
    assert limits == {"buffer": 150, "recall": 300, "state": 50}


@given(
    window=st.integers(1, 20_000),
    reserve=tokens,
    system_tokens=tokens,
    tools_tokens=tokens,
    split=shares(),
    minimum=minimums,
    wanted=wishes,
)
def test_the_sum_is_never_above_the_window(
    window: int,
    reserve: int,
    system_tokens: int,
    tools_tokens: int,
    split: Mapping[str, float],
    minimum: Mapping[str, int],
    wanted: Mapping[str, int] | None,
) -> None:
    """All parts together fit into the window, no layer gets more than it wants, and each gets its
    minimum if it wants it; or the error says by how much it does not fit."""
    fixed = reserve + system_tokens + tools_tokens
    try:
        limits = TokenBudget(window, reserve, split, minimum).limits(
            system_tokens=system_tokens, tools_tokens=tools_tokens, wanted=wanted
        )
    except OverBudget:
        assert fixed + sum(minimum.values()) > window
        return
    assert fixed + sum(limits.values()) <= window
    assert tuple(limits) == LAYERS
    for layer, limit in limits.items():
        want = None if wanted is None else wanted.get(layer)
        assert limit >= 0
        if want is None:
            assert limit >= minimum.get(layer, 0)
        else:
            assert min(want, minimum.get(layer, 0)) <= limit <= want


@given(window=st.integers(1, 100_000), split=shares())
def test_shares_are_kept_when_all_want_everything(window: int, split: Mapping[str, float]) -> None:
    """Without wishes and minimums each layer has its share, rounded down, and two tokens at most
    are given to nobody."""
    limits = TokenBudget(window, 0, split).limits()
    for layer, limit in limits.items():
        share = split.get(layer, 0.0) * window
        assert math.floor(share - 1e-3) <= limit <= share + 1e-3
    assert window - sum(limits.values()) <= len(LAYERS) - 1
    assert limits == TokenBudget(window, 0, split).limits(wanted={})


@given(
    window=st.integers(1_000, 20_000),
    more=st.integers(0, 500),
    split=shares(),
    minimum=minimums,
    wanted=wishes,
)
def test_a_larger_window_takes_from_nobody(
    window: int,
    more: int,
    split: Mapping[str, float],
    minimum: Mapping[str, int],
    wanted: Mapping[str, int] | None,
) -> None:
    """Each layer's limit grows with the window, whatever the layers want."""
    small = TokenBudget(window, 0, split, minimum).limits(wanted=wanted)
    large = TokenBudget(window + more, 0, split, minimum).limits(wanted=wanted)
    assert all(small[layer] <= large[layer] for layer in LAYERS)


@given(window=st.integers(1, 20_000), split=shares(), wanted=wishes, seed=st.randoms())
def test_order_of_arguments_does_not_matter(
    window: int, split: Mapping[str, float], wanted: Mapping[str, int] | None, seed: Any
) -> None:
    """The same shares and wishes in another order give the same limits."""
    shuffled = list(split.items())
    seed.shuffle(shuffled)
    turned = None if wanted is None else dict(reversed(list(wanted.items())))
    assert TokenBudget(window, 0, split).limits(wanted=wanted) == TokenBudget(
        window, 0, dict(shuffled)
    ).limits(wanted=turned)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ({"buffer": 0.6, "recall": 0.2, "state": 0.1}, "shares sum to 0.9, expected 1"),
        ({"buffer": 0.6, "recall": 0.6, "state": 0.6}, "shares sum to 1.8"),
        ({}, "shares sum to 0"),
        ({"buffer": 1.2, "recall": -0.2}, r"shares\['buffer'\] is 1.2"),
        ({"buffer": 1.0, "recall": -0.0, "state": math.nan}, r"shares\['state'\] is nan"),
        ({"buffer": math.inf}, r"shares\['buffer'\] is inf"),
        ({"buffer": True}, "must be a number, not bool"),
        ({"buffer": "1"}, "must be a number, not str"),
        ({"buffer": 0.5, "facts": 0.5}, "names 'facts', expected buffer, recall, state"),
        ([0.6, 0.2, 0.2], "must map layers to numbers, not list"),
    ],
)
def test_wrong_shares_are_refused(split: Any, said: str) -> None:
    """Shares that do not sum to 1, are no numbers or name no layer are refused with the field."""
    with pytest.raises(InvalidValue, match=said):
        TokenBudget(1_000, 100, split)


def test_sum_within_the_tolerance_is_one() -> None:
    """Shares written as thirds are accepted, and their sum does not exceed the window."""
    third = 1 / 3
    limits = TokenBudget(999, 0, {"buffer": third, "recall": third, "state": third}).limits()
    assert set(limits.values()) == {333}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"window": 0, "reserve": 0}, "window is 0"),
        ({"window": -5, "reserve": 0}, "window is -5"),
        ({"window": True, "reserve": 0}, "window must be a whole number, not bool"),
        ({"window": 100.0, "reserve": 0}, "window must be a whole number, not float"),
        ({"window": 100, "reserve": -1}, "reserve is -1"),
        ({"window": 100, "reserve": 0, "minimum": {"recall": -1}}, r"minimum\['recall'\] is -1"),
        ({"window": 100, "reserve": 0, "minimum": {"recall": True}}, "not bool"),
        ({"window": 100, "reserve": 0, "minimum": {"all": 1}}, "minimum names 'all'"),
    ],
)
def test_wrong_numbers_are_refused(arguments: dict[str, Any], said: str) -> None:
    """Each number is checked where the budget is made, and the error names it."""
    with pytest.raises(InvalidValue, match=said):
        TokenBudget(**arguments)


@pytest.mark.parametrize(
    ("reserve", "fixed", "part", "over"),
    [
        (101, {}, "the reserve for the answer", 1),
        (20, {"system_tokens": 90}, "the system text", 10),
        (20, {"system_tokens": 50, "tools_tokens": 33}, "the description of the tools", 3),
    ],
)
def test_too_small_a_window_names_the_part(
    reserve: int, fixed: dict[str, int], part: str, over: int
) -> None:
    """The error names the first part that does not fit, and by how many tokens."""
    with pytest.raises(OverBudget) as caught:
        TokenBudget(100, reserve).limits(
            system_tokens=fixed.get("system_tokens", 0), tools_tokens=fixed.get("tools_tokens", 0)
        )
    assert caught.value.part == part
    assert caught.value.tokens - caught.value.limit == over


def test_full_window_leaves_the_layers_nothing() -> None:
    """A window that the fixed parts fill to the last token gives zeros, not an error."""
    limits = TokenBudget(100, 20).limits(system_tokens=50, tools_tokens=30)
    assert set(limits.values()) == {0}


def test_minimum_that_does_not_fit_is_refused() -> None:
    """More guaranteed than there is room for is an error at the time of asking, and of making."""
    with pytest.raises(OverBudget, match="the layers' minimum takes 120 tokens, 20 more"):
        TokenBudget(100, 0, minimum={"buffer": 60, "state": 60})
    budget = TokenBudget(100, 0, minimum={"buffer": 60})
    with pytest.raises(OverBudget, match="the layers' minimum"):
        budget.limits(system_tokens=50)


@pytest.mark.parametrize("wanted", [{"buffer": -1}, {"buffer": True}, {"facts": 1}, [1, 2, 3]])
def test_wrong_wishes_are_refused(wanted: Any) -> None:
    """Wishes are checked like the rest."""
    with pytest.raises(InvalidValue, match="wanted"):
        TokenBudget(100, 0).limits(wanted=wanted)


def test_buffer_limit_above_its_share_is_refused() -> None:
    """A buffer that could take more than its share of the window is refused, with both numbers."""
    budget = TokenBudget(8_000, 1_000)
    assert budget.check_buffer_limit(4_200) == 4_200
    with pytest.raises(OverBudget, match="token_limit takes 4,201 tokens, 1 more than the 4,200"):
        budget.check_buffer_limit(4_201)
    with pytest.raises(OverBudget):
        budget.check_buffer_limit(4_200, system_tokens=10)
    for wrong in (0, -1, True, 10.0):
        with pytest.raises(InvalidValue):
            budget.check_buffer_limit(wrong)  # pyright: ignore[reportArgumentType] - on purpose

"""Fits the shipped weights on LongMemEval dev and on own synthetic talks; never on LoCoMo.

    python bench/fit.py [--data FILE]            fit, print the figures, write recall/_weights.py
    python bench/fit.py --check [--data FILE]    fit and compare with what is shipped; exit code 1
    python bench/fit.py --cache FOLDER …         keep the signals there, so that a repeat is fast

Weights move in steps of 0.4, 0.2, then 0.1, the best step first, while the objective rises: half
the share of evidence in the first ten and half a discounted rank, of messages and (by less) of
sessions. Nothing is random. FILE defaults to longmemeval_s_dev.json.gz in SECONDCALL_EVAL_DATA
(../shared/data).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cases import Case, as_people, longmemeval
from talks import talks

from secondcall.embedders.static import StaticEmbedder
from secondcall.recall._weights import PROFILES
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import IndexRow, embedding_text

_STEPS = (0.4, 0.2, 0.1)
_GAIN = 1e-4
"""A step that moves less than a tenth of one question in a thousand is noise."""
_TARGET = Path(__file__).parents[1] / "src" / "secondcall" / "recall" / "_weights.py"
_EMBED_CHARACTERS = 8_000

STARTS = {
    "assistant": {
        "word": 1.0,
        "word_after": 0.3,
        "session_word": 0.4,
        "meaning": 1.5,
        "meaning_before": 0.0,
        "role": 0.6,
        "time": 1.0,
    },
    "people": {
        "word": 1.0,
        "word_before": 0.6,
        "word_after": 0.0,
        "session_word": 0.4,
        "around": 0.0,
        "meaning": 1.0,
        "meaning_after": 0.3,
        "speaker": 0.8,
        "time": 1.0,
        "length": 0.8,
    },
}
"""The signals of each profile and where the ascent begins; ``word`` stays 1. For "people" that is
where the fit before the last change of a signal ended: its slope there is nearly flat."""
ECHOES = frozenset({"assistant"})
"""The profiles with ``echo``: it rests on the other weights, so a second ascent adds it to them."""
_ECHO_STARTS = (0.4, 0.8)
"""Where the second ascent begins; the better end counts, since the slope is nearly flat."""
_LEAST = {"meaning_before": -0.5}
"""All other weights stay at 0 or above: a signal that speaks against an item needs a reason."""
_MOST = {"role": 0.8, "speaker": 0.8, "time": 1.0, "length": 0.8}
"""Hints stay below a full match of words: a question that names somebody is no filter."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question's signals ``(signals, rows)``, its evidence, and the session of each row."""

    signals: npt.NDArray[np.float32]
    gold: npt.NDArray[np.int64]
    sessions: npt.NDArray[np.int64]
    gold_sessions: npt.NDArray[np.int64]


def examples(
    cases: Iterable[Case], names: Sequence[str], weights: Mapping[str, float] | None = None
) -> list[Example]:
    """The signals ``names`` of each case, through the index that users get; ``echo`` is that of
    ``weights``."""
    embedder = StaticEmbedder()
    found: list[Example] = []
    rows: Sequence[IndexRow] = ()
    index = UserIndex(embedder_id=embedder.id)
    for case in cases:
        if case.rows is not rows:
            rows, index = case.rows, UserIndex(embedder_id=embedder.id)
            texts = [embedding_text(one)[:_EMBED_CHARACTERS] for one in rows]
            index.add(rows, embedder.embed(texts))
        vector = embedder.embed([case.question])[0]
        raised = index.signals(case.question, vector, at=case.at, weights=weights)
        blank = np.zeros(len(rows), np.float32)
        numbers: dict[str, int] = {}
        sessions = [numbers.setdefault(one.key.session_id, len(numbers)) for one in rows]
        gold_sessions = [numbers[name] for name in sorted(case.sessions) if name in numbers]
        found.append(
            Example(
                np.stack([raised.get(name, blank) for name in names]),
                np.array(sorted(case.gold), np.int64),
                np.array(sessions, np.int64),
                np.array(gold_sessions, np.int64),
            )
        )
        if len(found) % 50 == 0:
            print(f"  {len(found)} questions", file=sys.stderr, flush=True)
    return found


def objective(data: Sequence[Example], weights: npt.NDArray[np.float32]) -> float:
    """What the ascent raises, 0 to 1."""
    total = 0.0
    for one in data:
        ranks, session_ranks = _ranks(one, weights)
        total += 0.35 * float((ranks < 10).mean()) + 0.35 * _discounted(ranks)
        total += 0.15 * float(session_ranks.max() < 5) + 0.15 * _discounted(session_ranks)
    return total / len(data)


def figures(data: Sequence[Example], weights: npt.NDArray[np.float32]) -> dict[str, float]:
    """Message frac@5 and frac@10, session any@1 and all@5."""
    ranked = [_ranks(one, weights) for one in data]
    return {
        "message frac@5": float(np.mean([(ranks < 5).mean() for ranks, _ in ranked])),
        "message frac@10": float(np.mean([(ranks < 10).mean() for ranks, _ in ranked])),
        "session any@1": float(np.mean([ranks.min() == 0 for _, ranks in ranked])),
        "session all@5": float(np.mean([ranks.max() < 5 for _, ranks in ranked])),
    }


def ascend(
    start: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    rate: Callable[[npt.NDArray[np.float32]], float],
) -> npt.NDArray[np.float32]:
    """The weights at which no single step is better, the best step first; the first stays."""
    weights = np.array(start, np.float32)
    best = rate(weights)
    for step in _STEPS:
        while True:
            tries = [
                _moved(weights, place, change)
                for place in range(1, len(weights))
                for change in (step, -step)
                if bounds[place][0] <= round(float(weights[place]) + change, 1) <= bounds[place][1]
            ]
            values = [rate(tried) for tried in tries]
            place = int(np.argmax(values))
            if values[place] <= best + _GAIN:
                break
            best, weights = values[place], tries[place]
    return weights


def _moved(weights: npt.NDArray[np.float32], place: int, change: float) -> npt.NDArray[np.float32]:
    tried = weights.copy()
    tried[place] = round(float(tried[place]) + change, 1)
    return tried


def _ranks(
    one: Example, weights: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    scores = np.round(weights @ one.signals, 6)
    best = np.full(int(one.sessions.max()) + 1, -np.inf, np.float32)
    np.maximum.at(best, one.sessions, scores)
    above = (scores[None, :] > scores[one.gold, None]).sum(axis=1)
    sessions_above = (best[None, :] > best[one.gold_sessions, None]).sum(axis=1)
    return np.sort(above), np.sort(sessions_above)


def _discounted(ranks: npt.NDArray[np.int64]) -> float:
    return float((1 / np.log2(2 + ranks)).mean())


def _load(
    profile: str, data: Path, cache: Path | None, weights: Mapping[str, float] | None = None
) -> list[list[Example]]:
    names = [*STARTS[profile], *([] if weights is None else ["echo"])]
    stage = "" if weights is None else "-echo"
    stored = None if cache is None else cache / f"fit-{profile}{stage}.npz"
    if stored is not None and stored.exists():
        return _restore(stored)
    print(f"signals for {profile!r} …", file=sys.stderr)
    if profile == "assistant":
        groups = [examples(longmemeval(data), names, weights)]
    else:
        restructured = (as_people(case, n) for n, case in enumerate(longmemeval(data)))
        people = (case for case in restructured if case is not None)
        groups = [examples(people, names, weights), examples(talks(), names, weights)]
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        _store(stored, groups)
    return groups


def _store(path: Path, groups: Sequence[Sequence[Example]]) -> None:
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for group, several in enumerate(groups):
        for number, one in enumerate(several):
            for name in Example.__dataclass_fields__:
                arrays[f"{group}.{number}.{name}"] = getattr(one, name)
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType] - keywords are arrays


def _restore(path: Path) -> list[list[Example]]:
    groups: dict[int, list[Example]] = {}
    with np.load(path) as stored:
        for name in stored.files:
            group, number, field = name.split(".")
            if field == "signals":
                fields = [stored[f"{group}.{number}.{one}"] for one in Example.__dataclass_fields__]
                groups.setdefault(int(group), []).append(Example(*fields))
    return [groups[group] for group in sorted(groups)]


def fit(profile: str, data: Path, cache: Path | None) -> dict[str, float]:
    """The weights of a profile: the ascent's end, each group of questions counting the same."""
    groups = _load(profile, data, cache)
    start = STARTS[profile]
    weights = ascend(list(start.values()), _bounds(start), partial(_rate, groups))
    _print_figures(profile, "keywords only", groups, np.eye(1, len(start), dtype=np.float32)[0])
    _print_figures(profile, "fitted", groups, weights)
    fitted = _named(start, weights)
    if profile in ECHOES:
        groups = _load(profile, data, cache, fitted)
        names = [*start, "echo"]
        ends = [
            ascend([*weights.tolist(), begin], _bounds(names), partial(_rate, groups))
            for begin in _ECHO_STARTS
        ]
        weights = max(ends, key=partial(_rate, groups))
        _print_figures(profile, "with echo", groups, weights)
        fitted = _named(names, weights)
    return fitted


def _rate(groups: Sequence[Sequence[Example]], weights: npt.NDArray[np.float32]) -> float:
    return sum(objective(group, weights) for group in groups) / len(groups)


def _bounds(names: Iterable[str]) -> list[tuple[float, float]]:
    return [(_LEAST.get(name, 0.0), _MOST.get(name, 9.0)) for name in names]


def _named(names: Iterable[str], weights: npt.NDArray[np.float32]) -> dict[str, float]:
    fitted = {name: round(float(value), 1) for name, value in zip(names, weights, strict=True)}
    return {name: value for name, value in fitted.items() if value}


def _print_figures(
    profile: str,
    label: str,
    groups: Sequence[Sequence[Example]],
    weights: npt.NDArray[np.float32],
) -> None:
    for place, group in enumerate(groups):
        shown = ", ".join(f"{key} {value:.3f}" for key, value in figures(group, weights).items())
        print(f"{profile} group {place} ({len(group)} questions), {label}: {shown}")


def source(profiles: dict[str, dict[str, float]]) -> str:
    """The text of ``recall/_weights.py`` for these weights."""
    lines = _TARGET.read_text("utf-8").split("\n")
    begin = next(n for n, line in enumerate(lines) if line.startswith("PROFILES"))
    end = next(n for n in range(begin, len(lines)) if lines[n] == "}")
    table: list[str] = []
    for profile, weights in sorted(profiles.items()):
        entries = [f'        "{name}": {value},' for name, value in weights.items()]
        table += [f'    "{profile}": {{', *entries, "    },"]
    return "\n".join([*lines[: begin + 1], *table, *lines[end:]])


def main() -> int:
    """Runs the command line."""
    folder = Path(os.environ.get("SECONDCALL_EVAL_DATA", _TARGET.parents[4] / "shared" / "data"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=folder / "longmemeval_s_dev.json.gz")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        print(f"{arguments.data} is absent: nothing is fitted. Set SECONDCALL_EVAL_DATA.")
        return 0
    fitted = {one: fit(one, arguments.data, arguments.cache) for one in sorted(STARTS)}
    for profile, weights in fitted.items():
        print(profile, weights)
    if arguments.check:
        same = fitted == {name: dict(weights) for name, weights in PROFILES.items()}
        print("the shipped weights are reproduced" if same else "the shipped weights DIFFER")
        return 0 if same else 1
    _TARGET.write_text(source(fitted), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

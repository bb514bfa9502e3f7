"""PrecisionMemBench, as far as it has a counterpart here; its data is read and never copied.

    python bench/precision.py [--data FOLDER]

A belief is told as a fact, in the order in which it was made; what superseded it takes its
predicate, an open question is an issue. Checked are the cases on what was superseded, resolved,
somebody else's, or never told: nothing ended or foreign is given as what holds, what holds and what
is open is there. Which further beliefs may come along is not judged. The rest is about the tiers of
its own prompt (scopes, aliases, pins, a persona, a count of beliefs) and is listed with the reason;
its two cases over a conversation are about those tiers too. Exit code 1 if a case fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from secondcall import Memory
from secondcall.memory import UserMemory

_FOLDER = Path(os.environ.get("SECONDCALL_EVAL_DATA", "../shared/data")) / "precisionmembench"
_REASONS = {
    "Alias resolution": "names are found by words and meaning; there is no table of aliases",
    "Scope disambiguation": "scopes are users and sessions here, not topics of one user",
    "Fuzzy matching and prefix guards": "words are stemmed, not matched with edits",
    "Budget eviction and capacity": "budgets are tokens here, not counts of beliefs",
    "Persona prelude content": "nothing is written about a person unasked",
    "Relation expansion": "facts have no relations but what they rest on",
    "Ranking stability": "the order goes by its own weights of name and alias fields",
    "Counter-signal retrieval": "rests on aliases",
}

Belief = Mapping[str, Any]


def predicate_of(belief: Belief, beliefs: Mapping[str, Belief]) -> str:
    """The name of what superseded it last, so that the chain is one predicate."""
    while belief["superseded_by"]:
        belief = beliefs[belief["superseded_by"]]
    return belief["canonical_name"]


async def tell(memory: Memory, beliefs: Mapping[str, Belief]) -> None:
    """Every belief to its user, oldest first."""
    for belief in sorted(beliefs.values(), key=lambda one: one["created_at"]):
        user = memory.user(belief["user_id"])
        question = belief["type"] == "open_question"
        predicate = predicate_of(belief, beliefs)
        await user.remember(
            predicate,
            belief["content"],
            kind="issue" if question else "attribute",
            valid_from=datetime.fromisoformat(belief["created_at"]),
        )
        if belief["resolved_at"]:
            at = datetime.fromisoformat(belief["resolved_at"])
            await user.settle(predicate, "resolved", at=at)


async def wrong(user: UserMemory, case: Mapping[str, Any], beliefs: Mapping[str, Belief]) -> str:
    """What is wrong with the answer to a case; empty when nothing is."""
    found = await user.recall(case["query"], limit=50)
    standing = [fact for fact in await user.facts() if fact.status != "resolved"]
    current = {str(fact.value) for fact in standing}
    issues = {str(fact.value) for fact in standing if fact.kind == "issue"}
    asked = (one.fact for one in found.facts if one.fact.status != "resolved")
    given = {str(fact.value) for fact in asked} | current
    of = {name: belief["content"] for name, belief in beliefs.items()}
    ended = {
        of[name] for name, one in beliefs.items() if one["superseded_by"] or one["resolved_at"]
    }
    others = {of[name] for name, one in beliefs.items() if one["user_id"] != case_user(case)}
    expected = case["expect"]
    pinned = {of[name] for name in expected.get("pinnedFacts", {}).get("mustInclude", ())}
    opened = {of[name] for name in expected.get("openQuestions", {}).get("mustInclude", ())}
    if given & others:
        return "somebody else's is given"
    if given & ended:
        return "what ended is given"
    if not pinned <= current:
        return "what holds is not among the facts"
    return "" if opened <= issues else "an open issue is missing"


def case_user(case: Mapping[str, Any]) -> str:
    """Whom a case asks about."""
    return case.get("userId", "test-user")


async def run(cases: Sequence[Mapping[str, Any]], beliefs: Mapping[str, Belief]) -> int:
    """Prints each failure and the counts; how many failed."""
    left_out: Counter[str] = Counter()
    checked = failed = 0
    async with Memory.open("memory://") as memory:
        await tell(memory, beliefs)
        for case in cases:
            if case["category"] in _REASONS:
                left_out[case["category"]] += 1
                continue
            checked += 1
            fault = await wrong(memory.user(case_user(case)), case, beliefs)
            if fault:
                failed += 1
                print(f"failed: {case['caseId']}: {fault}")
    print(f"{checked - failed} of {checked} cases with a counterpart pass")
    for category, count in left_out.items():
        print(f"left out: {count} {category}: {_REASONS[category]}")
    return failed


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=_FOLDER)
    folder = parser.parse_args().data
    if not folder.is_dir():
        print(f"{folder} is absent: nothing is measured. Set SECONDCALL_EVAL_DATA.")
        return 0
    beliefs = {one["_id"]: one for one in json.loads((folder / "beliefs.seed.json").read_text())}
    cases = json.loads((folder / "retrieval.cases.json").read_text())
    return 1 if asyncio.run(run(cases, beliefs)) else 0


if __name__ == "__main__":
    raise SystemExit(main())

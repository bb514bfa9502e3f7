"""The workflows that a process knows, by name and version, and how an older state comes along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from secondcall.errors import InvalidValue, SchemaTooNew, UnknownName
from secondcall.state.workflow import Workflow

__all__ = ["Workflows"]


class Workflows:
    """Workflows by name and version, with those that they run. Never changes."""

    def __init__(self, workflows: Iterable[Workflow] = ()) -> None:
        self._known: dict[tuple[str, int], Workflow] = {}
        for one in workflows:
            self._add(one)

    def including(self, *workflows: Workflow) -> Workflows:
        """These and more. Raises: ``InvalidValue`` when one differs from a known one of the same
        version."""
        if all(self._known.get((one.name, one.version)) is one for one in workflows):
            return self
        more = Workflows()
        more._known = dict(self._known)
        for one in workflows:
            more._add(one)
        return more

    def __iter__(self) -> Iterator[Workflow]:
        return iter(self._known.values())

    def get(self, name: str, version: int) -> Workflow | None:
        """The workflow, or ``None``."""
        return self._known.get((name, version))

    def at(self, name: str, version: int, step: str) -> Workflow | None:
        """The workflow, if it declares the step, or ``None``."""
        found = self.get(name, version)
        return None if found is None or step not in found.steps else found

    def find(self, name: str, version: int) -> Workflow:
        """The workflow.

        Raises: ``SchemaTooNew`` when only older ones are known, ``UnknownName`` when none is, or
        only newer ones.
        """
        found = self.get(name, version)
        if found is not None:
            return found
        versions = self._versions(name)
        if versions and version > versions[-1]:
            raise SchemaTooNew(
                f"the state is in version {version} of workflow {name!r}, which is newer than "
                f"version {versions[-1]} that this process knows; deploy the newer one here"
            )
        known = f"known are versions {', '.join(map(str, versions))}" if versions else "none is"
        raise UnknownName(
            f"version {version} of workflow {name!r} is not known here ({known}); name it in "
            "Memory.open(..., workflows=[...]), or give a newer version a migration from it"
        )

    def migrate(
        self, name: str, version: int, step: str, slots: Mapping[str, object]
    ) -> tuple[int, str, Mapping[str, object]]:
        """The version, step and slots with which a state goes on: those it has while its version is
        known, and otherwise those that migrations lead to.

        Raises: ``InvalidValue`` when a migration gives what the newer version does not accept.
        """
        while self.get(name, version) is None:
            newer = self._migrating(name, version)
            if newer is None:
                break
            what = f"the migration of workflow {name!r} from version {version} to {newer.version}"
            try:
                moved = newer.migrations[version](step, dict(slots))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise InvalidValue(
                    f"{what} failed ({type(error).__name__}); what is stored stays as it is"
                ) from error
            step, slots = _checked(newer, what, moved)
            version = newer.version
        return version, step, slots

    def _add(self, workflow: Workflow) -> None:
        if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"expected a Workflow, not {type(workflow).__name__}")
        known = self._known.get((workflow.name, workflow.version))
        if known is not None and known.declared() != workflow.declared():
            raise InvalidValue(
                f"two different workflows are called {workflow.name!r} version {workflow.version}; "
                "give the changed one a new version"
            )
        self._known[workflow.name, workflow.version] = workflow
        for step in workflow.steps.values():
            if step.runs is not None:
                self._add(step.runs)

    def _versions(self, name: str) -> list[int]:
        return sorted(version for known, version in self._known if known == name)

    def _migrating(self, name: str, version: int) -> Workflow | None:
        """The oldest workflow that takes states of a version over."""
        for newer in self._versions(name):
            found = self._known[name, newer]
            if version in found.migrations:
                return found
        return None


def _checked(workflow: Workflow, what: str, moved: object) -> tuple[str, Mapping[str, object]]:
    if not isinstance(moved, tuple):
        raise InvalidValue(f"{what} must give (step, slots), not {type(moved).__name__}")
    parts = cast("tuple[object, ...]", moved)
    if len(parts) != 2:
        raise InvalidValue(f"{what} must give (step, slots), not {len(parts)} things")
    step, slots = parts
    if not isinstance(step, str) or step not in workflow.steps:
        raise InvalidValue(f"{what} gave the step {step!r}, which is not declared")
    if not isinstance(slots, Mapping):
        raise InvalidValue(f"{what} must give slots by name, not {type(slots).__name__}")
    taken: dict[str, object] = {}
    for name, value in cast("Mapping[str, object]", slots).items():
        if name not in workflow.slots:
            raise InvalidValue(f"{what} gave the slot {name!r}, which is not declared")
        taken[name] = workflow.slots[name].take(f"{what}, slots.{name}", value)
    lacking = [one for one in workflow.steps[step].requires if one not in taken]
    if lacking:
        raise InvalidValue(f"{what} leads to {step!r} without {', '.join(map(repr, lacking))}")
    return step, taken

"""``import`` and ``export``."""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

import click

from secondcall.cli.output import Progress, print_json, say
from secondcall.cli.place import Place, known_user, store_options, user_option
from secondcall.cli.remembering import check_line, remember_lines, session_of, settles
from secondcall.cli.repeated import ItemId, Repeated, item_id
from secondcall.cli.times import time
from secondcall.facts.chain import chain_key
from secondcall.memory import UserMemory
from secondcall.record.transfer import (
    FORMATS,
    OF_MANY_PEOPLE,
    FactLine,
    Source,
    Transcript,
    check,
    detect,
    fact_line,
    header_line,
    item_line,
    transcripts,
)
from secondcall.types import Item, RecordedItem

__all__ = ["export", "import_"]

_STEP = timedelta(seconds=1)
_CHUNK = 5_000
"""Longer sessions are recorded in several batches."""


@dataclass
class _Total:
    """What an import did."""

    format: str
    users: set[str] = field(default_factory=set[str])
    sessions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    items: int = 0
    added: int = 0
    corrected: int = 0
    unchanged: int = 0
    facts: int = 0
    left_out: int = 0


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--user", "user_id", help="Whose memory; needed unless the file names people.")
@click.option("--session", "session_id", help="The session, for a file that names none.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Default: told by the file.")
@click.option("--begun-at", type=time, help="When a conversation without times began; default now.")
@store_options
def import_(
    place: Place,
    file: str,
    user_id: str | None,
    session_id: str | None,
    format_: str | None,
    begun_at: datetime | None,
    as_json: bool,
) -> None:
    """Record the conversations in FILE ('-' for standard input).

    The whole file is checked first; then every session is recorded, all of it or nothing. Importing
    again changes nothing. Of an item that the file holds more than once, the last line counts.
    """
    with _source(file) as source:
        plan = _Plan(source, format_ or detect(source), user_id, session_id, begun_at)
        checked = plan.check()
        total = asyncio.run(_import(place, plan, checked))
    done = {
        "format": total.format,
        "users": sorted(total.users),
        "sessions": len(total.sessions),
        "items": total.items,
        "added": total.added,
        "corrected": total.corrected,
        "unchanged": total.unchanged,
        "facts": total.facts,
        "left_out": total.left_out,
    }
    if as_json:
        print_json(done)
        return
    say(
        f"{total.items:,} items in {len(total.sessions):,} sessions of {len(total.users)} users "
        f"({total.format}): {total.added:,} new, {total.corrected:,} corrected, "
        f"{total.unchanged:,} there already; {total.facts} facts"
    )
    if total.left_out:
        say(f"{total.left_out} left out: instructions and summaries are not recorded.")


@click.command()
@user_option
@click.option("--output", type=click.Path(dir_okay=False), help="A file; default standard output.")
@store_options
def export(place: Place, user_id: str, output: str | None, as_json: bool) -> None:
    """Write everything held of a user as JSON Lines, which 'import' reads.

    The file of --output is replaced when everything is written, and left as it is before.
    """
    if output is None:
        if as_json:
            raise click.UsageError("--json needs --output", click.get_current_context())
        stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
        try:
            asyncio.run(_export(place, user_id, stream))
        finally:
            stream.detach()
        return
    with _replacing(Path(output)) as file:
        items, facts = asyncio.run(_export(place, user_id, file))
    if as_json:
        print_json({"file": output, "items": items, "facts": facts})
    else:
        say(f"{items:,} items and {facts:,} facts written to {output}")


@dataclass
class _Checked:
    """What reading the whole file brought up: facts that settle what only the store can hold."""

    repeated: Repeated = field(default_factory=Repeated)
    settling: list[tuple[str, FactLine]] = field(default_factory=list[tuple[str, FactLine]])


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be imported, and as whose."""

    source: Source
    format: str
    user_id: str | None
    session_id: str | None
    begun_at: datetime | None

    def parts(self) -> Iterator[tuple[str, Transcript]]:
        """The parts of the file, each with its user; ``person`` is left where it became a part of
        the session's name."""
        found = transcripts(self.source, format=self.format, session_id=self.session_id)
        positions: dict[str, int] = {}
        for part in found:
            person, named = part.person, part
            if self.user_id is not None:
                named = replace(part, session_id=session_of(part.session_id, person))
            elif self.format in OF_MANY_PEOPLE:
                named = replace(part, person=None)
            user_id = self.user_id or (person if self.format in OF_MANY_PEOPLE else None)
            if user_id is None:
                raise click.UsageError(
                    f"a {self.format} file does not say whose memory it is; give --user",
                    click.get_current_context(),
                )
            yield user_id, self._dated(named, positions)

    def check(self) -> _Checked:
        """Check the whole file, and see what it holds. Raises: ``InvalidValue``."""
        checked = _Checked()
        stated: set[tuple[str, str]] = set()
        with Progress("checked") as progress:
            for user_id, part in self.parts():
                check(self.source, part)
                checked.repeated.see(user_id, part)
                for line in part.facts:
                    check_line(line)
                    of = [line.value] if line.multi else []
                    chain = (user_id, chain_key(line.subject, line.predicate, of=of))
                    if settles(line) and chain not in stated:
                        checked.settling.append((user_id, line))
                    stated.add(chain)
                progress.reach(checked.repeated.items, None)
        checked.repeated.end()
        return checked

    def _dated(self, part: Transcript, positions: dict[str, int]) -> Transcript:
        begun_at = self.begun_at
        if begun_at is None or any(item.at is not None for item in part.items):
            return part
        first = positions.get(part.session_id, 0)
        positions[part.session_id] = first + len(part.items)
        items = [
            replace(item, at=begun_at + (first + index) * _STEP)
            for index, item in enumerate(part.items)
        ]
        return replace(part, items=items)


@contextmanager
def _source(file: str) -> Generator[Source, None, None]:
    if file != "-":
        yield Source(Path(file))
        return
    with tempfile.TemporaryDirectory(prefix="secondcall-import-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield Source(path, name="stdin")


@contextmanager
def _replacing(path: Path) -> Generator[IO[str], None, None]:
    """A file beside ``path`` that takes its place once everything is written; none on failure."""
    if path.exists() and not path.is_file():  # such as /dev/stdout or a named pipe
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".secondcall-{secrets.token_hex(8)}.part")
    try:
        file = beside.open("x", encoding="utf-8", newline="\n")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            if target.exists():
                shutil.copymode(target, beside)
            yield file
        os.replace(beside, target)
    except BaseException:  # interrupted too: no half file stays; raised on
        beside.unlink(missing_ok=True)
        raise


async def _import(place: Place, plan: _Plan, checked: _Checked) -> _Total:
    total = _Total(plan.format)
    held = _Held()
    count = checked.repeated.items
    # No model is asked about old conversations by the thousand; the newest are read when used.
    async with replace(place, model=None).open() as memory:
        for user_id, line in checked.settling:
            if not await memory.user(user_id).history(line.predicate, subject=line.subject):
                line.place.refuse(f"no promise or issue stands that could become {line.status}")
        with Progress("recorded", count) as progress:
            for user_id, part in plan.parts():
                total.users.add(user_id)
                if part.items:
                    total.sessions.add((user_id, part.session_id))
                total.left_out += part.left_out
                settled = checked.repeated.settle(user_id, part)
                await _record(memory.user(user_id), settled, held, total)
                progress.reach(total.items, count)
        with Progress("indexing"):
            await memory.flush()
    return total


async def _record(user: UserMemory, part: Transcript, held: _Held, total: _Total) -> None:
    session = await user.session(part.session_id)
    await held.turn_to(user, part)
    for items in _chunks(part.items):
        new = [item for item in items if not held.has(item)]
        total.items += len(items)
        total.unchanged += len(items) - len(new)
        if new:
            names = {item_id(item) for item in new}
            attached = {name: data for name, data in part.attached.items() if name in names}
            recorded = await session.listed().append(new, attached)
            held.homes[user.user_id] = recorded.keys[0].user_id
            total.added += recorded.added
            total.corrected += recorded.corrected
            total.unchanged += recorded.unchanged
    await remember_lines(user, part.facts, home=held.homes.get(user.user_id))
    total.facts += len(part.facts)


class _Held:
    """What a session held before the import, in any partition of a merged user.

    An item without a time is there if its words are, and one from an export if its time is that at
    which it was recorded; the store alone would take either for a correction. ``homes`` are the
    partitions that what was recorded went to, by user.
    """

    def __init__(self) -> None:
        self._session: tuple[str, str] | None = None
        self._items: dict[ItemId, list[Item]] = {}
        self.homes: dict[str, str] = {}

    async def turn_to(self, user: UserMemory, part: Transcript) -> None:
        """Read the session of a part, unless it is the one that was read last."""
        session_id, person = part.session_id, part.person
        if self._session == (user.user_id, session_id):
            return
        self._session = (user.user_id, session_id)
        self._items = {}
        async for one in user.items(session_id=session_id):
            self._keep(one)
        if person is not None:
            own = session_id.removeprefix(session_of("", person))
            async for one in user.items(session_id=own):
                if one.key.user_id == person:
                    self._keep(one)

    def has(self, item: Item) -> bool:
        """Whether the session holds the same item."""
        return any(
            known == (item if item.at is not None else replace(item, at=known.at))
            for known in self._items.get(item_id(item), ())
        )

    def _keep(self, recorded: RecordedItem) -> None:
        name = ItemId(recorded.key.kind, recorded.key.id)
        self._items.setdefault(name, []).append(recorded.item)


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


async def _export(place: Place, user_id: str, stream: IO[str]) -> tuple[int, int]:
    async with place.open() as memory:
        user = await known_user(memory, user_id)
        facts = await user.history()
        items = 0
        stream.write(header_line(user_id) + "\n")
        with Progress("written") as progress:
            async for item in user.items():
                attached = await user.attached([item.key])
                stream.write(item_line(item, user_id, attached.get(item.key)) + "\n")
                items += 1
                progress.advance()
            for fact in facts:
                stream.write(fact_line(fact, user_id) + "\n")
        stream.flush()
    return items, len(facts)

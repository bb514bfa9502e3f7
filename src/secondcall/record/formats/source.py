"""A transcript file as text: whole, line by line, gzip or plain, always UTF-8."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, NoReturn

from secondcall.record.formats.fields import Place, parse_json

__all__ = ["Source"]

_GZIP = b"\x1f\x8b"


class Source:
    """One file, readable more than once. ``name`` stands in errors and names the session."""

    def __init__(self, path: Path, *, name: str | None = None) -> None:
        self.path = path
        self.name = path.name if name is None else name

    @property
    def place(self) -> Place:
        """The file itself, for errors."""
        return Place(self.name)

    @property
    def stem(self) -> str:
        """The file's name without its endings: the session of a file that names none."""
        stem = self.name
        for ending in (".gz", ".json", ".jsonl", ".ndjson", ".txt"):
            stem = stem.removesuffix(ending)
        return stem or "session"

    @cached_property
    def document(self) -> object:
        """The whole file as one JSON value. Raises: ``InvalidValue``."""
        with self._open() as stream:
            try:
                text = stream.read()
            except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                self._refuse(error)
        if not text.strip():
            self.place.refuse("the file is empty; there is nothing to import")
        return parse_json(text, self.place)

    def lines(self) -> Iterator[tuple[Place, str]]:
        """The lines that are not blank, each with its place."""
        with self._open() as stream:
            try:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        yield self.place.inside(f"line {number}"), line
            except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                self._refuse(error)

    def values(self) -> Iterator[tuple[Place, object]]:
        """The JSON values of the lines that are not blank, each with its place."""
        for place, line in self.lines():
            yield place, parse_json(line, place)

    def _open(self) -> IO[str]:
        with self.path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
        if packed:
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="\n")
        return self.path.open(encoding="utf-8-sig", newline="\n")

    def _refuse(self, error: Exception) -> NoReturn:
        if isinstance(error, UnicodeDecodeError):
            self.place.refuse(f"not UTF-8 text (byte {error.object[error.start]:#04x})")
        self.place.refuse("the gzip data is cut short or damaged")

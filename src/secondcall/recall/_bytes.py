"""The outer form of a segment's blob: prefix, header, aligned sections, checksum."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from secondcall.errors import StoreCorrupt

__all__ = ["FORMAT_VERSION", "pack", "unpack"]

FORMAT_VERSION = 2

_MAGIC = b"SCSG"
_PREFIX = struct.Struct("<4sHHI")
_CHECKSUM_BYTES = 16

Sections = Mapping[str, npt.NDArray[Any]]


def pack(header: Mapping[str, object], sections: Sections) -> bytes:
    """The blob of a header and its sections; the same input gives the same bytes."""
    places: dict[str, tuple[str, list[int], int]] = {}
    chunks: list[bytes] = []
    offset = 0
    for name, array in sorted(sections.items()):
        data = np.ascontiguousarray(array).tobytes()
        places[name] = (array.dtype.str, list(array.shape), offset)
        padding = -len(data) % 8
        chunks += [data, bytes(padding)]
        offset += len(data) + padding
    text = json.dumps({**header, "sections": places}, separators=(",", ":")).encode("ascii")
    text += b" " * (-(len(text) + _PREFIX.size) % 8)
    prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(text))
    body = b"".join([prefix, text, *chunks])
    return body + blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Header and sections of a blob. Raises: ``StoreCorrupt``."""
    header, body = _header(data)
    try:
        sections = {
            name: _section(data, body + start, kind, shape)
            for name, (kind, shape, start) in header.pop("sections").items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StoreCorrupt(
            f"a search segment has a damaged table ({type(fault).__name__}); it must be rebuilt"
        ) from None
    return header, sections


def _section(data: bytes, start: int, kind: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    size = 1
    for length in shape:
        size *= length
    return np.frombuffer(data, dtype=kind, count=size, offset=start).reshape(shape)


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    end = len(data) - _CHECKSUM_BYTES
    if end < _PREFIX.size or data[:4] != _MAGIC:
        raise StoreCorrupt("a search segment does not begin as one; it must be rebuilt")
    _, version, _, length = _PREFIX.unpack_from(data)
    if blake2b(memoryview(data)[:end], digest_size=_CHECKSUM_BYTES).digest() != data[end:]:
        raise StoreCorrupt("a search segment's checksum does not fit; it must be rebuilt")
    if version != FORMAT_VERSION:
        raise StoreCorrupt(
            f"a search segment has format {version}, this release reads {FORMAT_VERSION}; reindex"
        )
    body = _PREFIX.size + length
    try:
        header = cast("dict[str, Any]", json.loads(data[_PREFIX.size : body]))
    except ValueError:
        raise StoreCorrupt("a search segment has a damaged header; it must be rebuilt") from None
    return header, body

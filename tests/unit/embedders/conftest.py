"""A tiny sentence model in ONNX form, made byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

WORDS = ["[PAD]", "[UNK]", "dog", "cat", "tax"]
VECTORS = np.array([[9, 9], [0, 0.1], [1, 0], [0.8, 0.6], [0, 1]], np.float32)


def _field(number: int, value: bytes | int) -> bytes:
    """One protobuf field: a varint or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _value(name: str, kind: int, dimensions: int) -> bytes:
    shape = b"".join(_field(1, _field(2, f"d{n}".encode())) for n in range(dimensions))
    tensor = _field(1, kind) + _field(2, shape)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _model() -> bytes:
    """An ONNX model that looks up each token's vector: opset 13, Gather(table, input_ids)."""
    node = _field(1, b"table") + _field(1, b"input_ids") + _field(2, b"hidden")
    node += _field(4, b"Gather")
    table = _field(1, len(WORDS)) + _field(1, 2) + _field(2, 1) + _field(8, b"table")
    table += _field(9, VECTORS.tobytes())
    graph = _field(1, node) + _field(2, b"g") + _field(5, table)
    graph += _field(11, _value("input_ids", 7, 2)) + _field(12, _value("hidden", 1, 3))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, 13))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tiny model and its tokenizer."""
    (tmp_path / "model.onnx").write_bytes(_model())
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tmp_path

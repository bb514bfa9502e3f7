"""Makes the default embedder's data files from the `wordllama` wheel (MIT), byte for byte the same.

    python scripts/convert_static_vectors.py wordllama-0.4.0….whl src/secondcall/embedders/data

Reads the wheel as a zip: nothing of it is installed or run. Needs numpy only.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

_TOKENIZER = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_LICENSE_SUFFIX = ".dist-info/licenses/LICENSE"
_FIRST_PIECE = 259


def convert(wheel: Path, target: Path) -> None:
    """Writes vocabulary.txt, vectors.npy (int8), scales.npy (float32) and LICENSE.wordllama."""
    with zipfile.ZipFile(wheel) as archive:
        vocabulary = json.loads(archive.read(_TOKENIZER))["model"]["vocab"]
        weights = _read_safetensors(archive.read(_WEIGHTS))
        licence = next(name for name in archive.namelist() if name.endswith(_LICENSE_SUFFIX))
        (target / "LICENSE.wordllama").write_bytes(archive.read(licence))
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    text = "".join(f"{piece}\n" for piece in pieces[_FIRST_PIECE:])
    (target / "vocabulary.txt").write_text(text, "utf-8", newline="\n")
    scales = np.abs(weights).max(axis=1) / 127.0
    scales[scales == 0.0] = 1.0
    np.save(target / "vectors.npy", np.rint(weights / scales[:, None]).astype(np.int8))
    np.save(target / "scales.npy", scales.astype(np.float32))


def _read_safetensors(data: bytes) -> np.ndarray:
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])["embedding.weight"]
    begin, end = header["data_offsets"]
    if header["dtype"] != "F16":
        raise SystemExit(f"the table is {header['dtype']}, not F16: this is another release")
    values = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype="<f2")
    return values.reshape(header["shape"]).astype(np.float32)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

"""Embeddings from a sentence model in ONNX form, in this process, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio.to_thread
import numpy as np
import numpy.typing as npt

from secondcall.abc import Embedder
from secondcall.errors import EmbedderError, InvalidValue, MissingExtra

try:
    import onnxruntime
    import tokenizers
except ImportError:
    raise MissingExtra(
        "this embedder needs onnxruntime and tokenizers; pip install 'secondcall[onnx]'"
    ) from None

__all__ = ["OnnxEmbedder", "SentenceModel", "TokenStates"]

_HASH_BYTES = 6


class TokenStates(NamedTuple):
    """The last hidden states of one text ``(tokens, dimensions)``, without padding, and the
    characters (begin, end) that each token stands for; (0, 0) for the model's own marks."""

    hidden: npt.NDArray[np.float32]
    spans: Sequence[tuple[int, int]]


class SentenceModel:
    """``model.onnx`` and ``tokenizer.json`` of a folder, run on ``threads`` cores; of each text the
    first ``max_tokens`` tokens. ``id`` holds the folder's name and the file's hash."""

    def __init__(self, folder_name: str, *, max_tokens: int, threads: int) -> None:
        folder = Path(folder_name)
        path, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        for needed in (path, tokenizer):
            if not needed.is_file():
                raise InvalidValue(
                    f"{needed.name!r} is missing in the model folder {folder_name!r}"
                )
        options = cast("Any", onnxruntime).SessionOptions()
        options.intra_op_num_threads = threads
        self._session = cast("Any", onnxruntime).InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._tokenizer = cast("Any", tokenizers).Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.enable_padding()
        with path.open("rb") as file:
            digest = blake2b(digest_size=_HASH_BYTES)
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        self.id = f"{folder.name}:{digest.hexdigest()}"
        self.dimensions = int(self.states(["a"])[0].hidden.shape[1])

    def states(self, texts: Sequence[str]) -> list[TokenStates]:
        """The texts' hidden states, in one batch. Raises: ``EmbedderError``."""
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encoded = self._tokenizer.encode_batch(clean)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        feed = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        known = {name: value for name, value in feed.items() if name in self._inputs}
        try:
            outputs = cast("list[npt.NDArray[np.float32]]", self._session.run(None, known))
        except Exception as error:  # onnxruntime's own errors share no other parent
            raise EmbedderError(f"{self.id!r} failed ({type(error).__name__})") from None
        hidden = next((one for one in outputs if one.ndim == 3), None)
        if hidden is None:
            raise EmbedderError(f"{self.id!r} gives no hidden states (batch, tokens, dimensions)")
        return [
            TokenStates(states[seen > 0], [one.offsets[n] for n in np.flatnonzero(seen)])
            for states, seen, one in zip(hidden, mask, encoded, strict=True)
        ]


class OnnxEmbedder(Embedder):
    """A folder with ``model.onnx`` and ``tokenizer.json``; mean of the last hidden states.

    The file's hash is part of ``id``, so that another export never mixes with this one. Runs in a
    worker thread, on ``threads`` cores. ``prefixes`` for queries and documents as the model's page
    says (E5: ``query: `` and ``passage: ``).
    """

    def __init__(
        self,
        model: str,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        max_tokens: int = 256,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        self._model = SentenceModel(model, max_tokens=max_tokens, threads=threads)
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._batch_size = batch_size
        prefixes = f":{query_prefix}|{document_prefix}" if query_prefix or document_prefix else ""
        self.id = f"onnx:{self._model.id}:{max_tokens}{prefixes}"
        self.dimensions = self._model.dimensions

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), dimensions)``, unit length. Raises: ``EmbedderError``."""
        return await anyio.to_thread.run_sync(self._embed, texts, self._document_prefix)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(dimensions,)``, unit length. Raises: ``EmbedderError``."""
        return (await anyio.to_thread.run_sync(self._embed, [text], self._query_prefix))[0]

    def _embed(self, texts: Sequence[str], prefix: str) -> npt.NDArray[np.float32]:
        result = np.zeros((len(texts), self.dimensions), np.float32)
        places = [place for place, text in enumerate(texts) if text.strip()]
        # Texts of like length share a batch: less padding, and padding is most of the cost.
        places.sort(key=lambda place: len(texts[place]))
        for start in range(0, len(places), self._batch_size):
            batch = places[start : start + self._batch_size]
            for place, states in zip(
                batch, self._model.states([f"{prefix}{texts[n]}" for n in batch]), strict=True
            ):
                pooled = states.hidden.sum(axis=0) / np.float32(max(1, len(states.hidden)))
                result[place] = pooled / np.float32(max(float(np.linalg.norm(pooled)), 1e-12))
        return result

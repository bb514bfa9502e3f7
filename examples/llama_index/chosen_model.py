"""The model that the examples ask: a real one where one is configured, else one that is scripted.

With ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` set it is an OpenAI model, or any other behind an
endpoint of that form, under the name that ``OPENAI_MODEL`` gives; it needs the package
``llama-index-llms-openai``. Your own agent takes whichever LlamaIndex model it has.
"""

from __future__ import annotations

import os

from llama_index.core.llms.function_calling import FunctionCallingLLM

from secondcall.testing.llama_index import Script, ScriptedLLM

__all__ = ["chosen", "is_real"]


def is_real() -> bool:
    """Whether a real model is configured."""
    return bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))


def chosen(script: Script) -> FunctionCallingLLM:
    """The model that is configured, or one that answers by ``script``."""
    if not is_real():
        return ScriptedLLM(script)
    from llama_index.core.base.llms.types import LLMMetadata
    from llama_index.llms.openai import OpenAI

    class Served(OpenAI):
        """One whose name OpenAI's own list need not know."""

        @property
        def metadata(self) -> LLMMetadata:
            """What the examples need to know of a model."""
            return LLMMetadata(
                context_window=32_000,
                num_output=1_000,
                is_chat_model=True,
                is_function_calling_model=True,
                model_name=self.model,
            )

    return Served(
        model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"),
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        api_base=os.environ.get("OPENAI_BASE_URL"),
        temperature=0.0,
    )

"""LlamaIndex: buffer, summaries, recall and state behind its own memory interfaces.

``SecondCallMemory`` is the whole, for ``agent.run(memory=...)``. The chat stores are for those who
keep a memory of LlamaIndex's own, the blocks for its ``Memory(memory_blocks=[...])``.
"""

from __future__ import annotations

from secondcall.adapters.llama_index.async_chat_store import SecondCallAsyncChatStore
from secondcall.adapters.llama_index.blocks import (
    FactsMemoryBlock,
    RecallMemoryBlock,
    StateMemoryBlock,
)
from secondcall.adapters.llama_index.chat_store import SecondCallChatStore
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import close_places
from secondcall.adapters.llama_index.retriever import SecondCallRetriever
from secondcall.adapters.llama_index.running import (
    Cleared,
    bound_running_turn,
    clear_failed_run,
    context_after,
)
from secondcall.adapters.llama_index.tools import StateToolRetriever, function_tool, function_tools
from secondcall.adapters.llama_index.wrappers import (
    LlamaIndexCounter,
    LlamaIndexEmbedder,
    LlamaIndexModel,
)

__all__ = [
    "Cleared",
    "FactsMemoryBlock",
    "LlamaIndexCounter",
    "LlamaIndexEmbedder",
    "LlamaIndexModel",
    "RecallMemoryBlock",
    "SecondCallAsyncChatStore",
    "SecondCallChatStore",
    "SecondCallMemory",
    "SecondCallRetriever",
    "StateMemoryBlock",
    "StateToolRetriever",
    "bound_running_turn",
    "clear_failed_run",
    "close_places",
    "context_after",
    "function_tool",
    "function_tools",
]

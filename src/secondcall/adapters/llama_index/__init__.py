"""LlamaIndex: buffer, summaries, recall and state behind its own memory interfaces."""

"""What a model may call, bound to one user or session: no tool takes an id of either.

A tool has a name, a description and parameters as JSON Schema, and is called with the arguments
that the model wrote; what comes back is text for the model. A call that is refused, for whatever
the model did wrong, is answered with what is allowed and what is missing, so that the model can do
better; only failures of the store are raised, to the host.

``StateTools`` gives the tools for a state: ask it for ``tools()`` each time a model is called.
``MemoryTools`` gives those for what is remembered of a user; they are the same all the time.
"""

from __future__ import annotations

from secondcall.tools.memory import MemoryTools
from secondcall.tools.state import StateTools
from secondcall.tools.tool import Tool

__all__ = ["MemoryTools", "StateTools", "Tool"]

"""What must be true: workflows and the state that moves through them. Pure, but for the update."""

from __future__ import annotations

from secondcall.state.agent_state import AgentState, Allowed
from secondcall.state.known import Workflows
from secondcall.state.moves import Frame
from secondcall.state.slots import Slot
from secondcall.state.update import Retry
from secondcall.state.workflow import Guard, Migration, Step, To, Workflow

__all__ = [
    "AgentState",
    "Allowed",
    "Frame",
    "Guard",
    "Migration",
    "Retry",
    "Slot",
    "Step",
    "To",
    "Workflow",
    "Workflows",
]

"""A language model that answers by a script and keeps what it was asked: for tests of any kind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from secondcall.abc import Completion, LanguageModel, Prompt, TokenCounter
from secondcall.errors import ModelError
from secondcall.registry import default_counter
from secondcall.usage import Call, report

__all__ = ["ScriptedModel"]

Answer: TypeAlias = "str | Completion | BaseException"
Script: TypeAlias = "Callable[[Prompt], Answer | Awaitable[Answer]] | Sequence[Answer]"


class ScriptedModel(LanguageModel):
    """Answers with what ``script`` gives for a prompt, or with the next of a list.

    An exception among the answers is raised. ``prompts`` keeps every prompt; each call reports its
    tokens as a real model does, counted offline. A list that is used up is a ``ModelError``.
    """

    def __init__(
        self, script: Script, *, id: str = "scripted", counter: TokenCounter | None = None
    ) -> None:
        self.id = id
        self.prompts: list[Prompt] = []
        self.closed = False
        self._script = script
        self._counter = default_counter() if counter is None else counter

    async def complete(self, prompt: Prompt) -> Completion:
        """The scripted answer. Raises: what the script says, ``ModelError`` at its end."""
        self.prompts.append(prompt)
        answer = await self._answer(prompt)
        if isinstance(answer, BaseException):
            raise answer
        completion = Completion(text=answer) if isinstance(answer, str) else answer
        count = self._counter.count
        report(
            Call(
                model=self.id,
                operation="complete",
                input_tokens=count(prompt.system) + count(prompt.user),
                output_tokens=count(completion.text),
            )
        )
        return completion

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    async def _answer(self, prompt: Prompt) -> Answer:
        if not callable(self._script):
            place = len(self.prompts) - 1
            if place >= len(self._script):
                raise ModelError(f"the script has {len(self._script)} answers and was asked again")
            return self._script[place]
        answer = self._script(prompt)
        return await answer if inspect.isawaitable(answer) else answer

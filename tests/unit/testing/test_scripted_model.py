from __future__ import annotations

import pytest

from secondcall.abc import Completion, Prompt
from secondcall.errors import ModelError
from secondcall.testing.models import ScriptedModel
from secondcall.usage import Call, collecting

ASK = Prompt(system="Be brief.", user="Hello?")


async def test_it_answers_by_its_script_and_reports() -> None:
    """A function or a list gives the answers; prompts are kept and tokens reported."""
    calls: list[Call] = []
    model = ScriptedModel(["one", Completion(text="two", truncated=True), ValueError("three")])
    with collecting(calls.append):
        assert (await model.complete(ASK)).text == "one"
        assert (await model.complete(ASK)).truncated
    with pytest.raises(ValueError, match="three"):
        await model.complete(ASK)
    with pytest.raises(ModelError, match="3 answers"):
        await model.complete(ASK)
    assert model.prompts == [ASK] * 4
    assert [call.input_tokens > 0 for call in calls] == [True, True]

    async def later(prompt: Prompt) -> str:
        return prompt.user.upper()

    model = ScriptedModel(later)
    assert (await model.complete(ASK)).text == "HELLO?"
    await model.aclose()
    assert model.closed

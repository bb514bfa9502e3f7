"""No id, whatever it contains, reaches another's data."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall import Memory, Message

_IDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20
) | st.sampled_from(
    [
        "a",
        "A",
        "a ",
        " a",
        "a/b",
        "a:b",
        "ab",
        "..",
        ".",
        "%",
        "%25",
        "_",
        "*",
        "x" * 1_000,
        "é",
        "é",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_IDS, _IDS, _IDS), min_size=2, max_size=6, unique=True))
def test_ids_never_run_together(names: list[tuple[str, str, str]]) -> None:
    """For any tenant, user and session ids, each session holds its own item and no other."""

    async def main() -> None:
        async with Memory.open("memory://") as memory:
            for place, (tenant, user, session) in enumerate(names):
                handle = await memory.tenant(tenant).user(user).session(session)
                await handle.record(Message("user", f"secret{place}", id="same"))
            for place, (tenant, user, session) in enumerate(names):
                who = memory.tenant(tenant).user(user)
                own = await (await who.session(session)).items()
                assert [one.item for one in own if one.key.session_id != session] == []
                assert len(own) == 1
                mine = {f"secret{n}" for n, one in enumerate(names) if one[:2] == (tenant, user)}
                found = await who.recall(f"secret{place}", limit=20)
                texts = {one.item.text for one in found.items if isinstance(one.item, Message)}
                assert f"secret{place}" in texts
                assert texts <= mine

    asyncio.run(main())

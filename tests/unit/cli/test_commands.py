"""Each command does what its help says, and says what it did.

One long file: every test runs the same command line over the same short transcript.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from secondcall import Memory, Message
from secondcall.cli.app import run


@dataclass(frozen=True)
class Done:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object on standard output."""
        return cast("dict[str, Any]", json.loads(self.out))


Secondcall = Callable[..., Done]

TALK: Sequence[object] = [
    {
        "id": "m1",
        "role": "user",
        "text": "My parrot is called Zephyrine.",
        "at": "2026-03-01T09:00:00Z",
    },
    {"id": "m2", "role": "assistant", "text": "A fine name.", "at": "2026-03-01T09:00:05Z"},
    {
        "type": "tool_call",
        "call_id": "c1",
        "name": "note",
        "arguments": {"pet": "parrot"},
        "output": "ok",
        "at": "2026-03-01T09:00:06Z",
    },
    {
        "type": "fact",
        "predicate": "pet",
        "value": "a parrot",
        "sources": ["m1"],
        "valid_from": "2026-03-01T09:00:00Z",
    },
    {
        "type": "fact",
        "kind": "promise",
        "predicate": "seeds",
        "value": "send seeds",
        "valid_from": "2026-03-01T09:00:00Z",
    },
]


@pytest.fixture
def secondcall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Secondcall:
    """Run ``secondcall`` in this process; ``expect`` is the exit code that it must have."""
    monkeypatch.setenv("SECONDCALL_URL", f"sqlite:///{tmp_path / 'memory.db'}")
    monkeypatch.chdir(tmp_path)

    def secondcall(*arguments: str, expect: int = 0) -> Done:
        code = run(arguments)
        captured = capsys.readouterr()
        done = Done(code, captured.out, captured.err)
        assert code == expect, done
        return done

    return secondcall


@pytest.fixture
def talk(tmp_path: Path) -> str:
    """A short transcript with a tool call and two facts."""
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in TALK), "utf-8")
    return str(path)


def test_import_twice(secondcall: Secondcall, talk: str) -> None:
    """Importing records items and facts; importing again changes nothing."""
    first = secondcall("import", "--user", "ada", talk, "--json").json
    assert (first["added"], first["facts"], first["format"]) == (3, 2, "jsonl")
    shown = secondcall("show", "--user", "ada", "--json").json
    second = secondcall("import", "--user", "ada", talk, "--json").json
    assert (second["added"], second["corrected"], second["unchanged"]) == (0, 0, 3)
    assert secondcall("show", "--user", "ada", "--json").json == shown


def test_import_says_what_it_did(secondcall: Secondcall, talk: str) -> None:
    """Without ``--json`` an import ends with one line, and standard error stays silent."""
    done = secondcall("import", "--user", "ada", talk)
    assert done.out.startswith("3 items in 1 sessions of 1 users (jsonl): 3 new")
    assert done.err == ""


def test_import_from_standard_input(
    secondcall: Secondcall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dash reads standard input; the session is named after it unless named."""
    content = b'{"role": "user", "text": "Hello"}\n'
    for session in ("stdin", "call-9"):
        stdin = io.TextIOWrapper(io.BytesIO(content))
        monkeypatch.setattr(sys, "stdin", stdin)
        named = ("--session", session) if session != "stdin" else ()
        secondcall("import", "--user", "ada", "-", *named)
    found = secondcall("show", "--user", "ada", "--json").json
    assert {one["session_id"] for one in found["sessions"]} == {"stdin", "call-9"}


def test_import_with_a_beginning(secondcall: Secondcall, tmp_path: Path) -> None:
    """A conversation without times is dated from ``--begun-at``, a second for each item."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": text} for text in "ab"]), "utf-8")
    secondcall("import", "--user", "ada", "--begun-at", "2026-01-01", str(path))
    items = secondcall("show", "--user", "ada", "--all", "--json").json["items"]
    assert [item["at"] for item in items] == ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]


def test_a_bad_file_imports_nothing(secondcall: Secondcall, talk: str) -> None:
    """A file with a bad line leaves nothing behind and is named in one line."""
    with Path(talk).open("a", encoding="utf-8") as file:
        file.write('{"role": "user", "text": 7}\n')
    done = secondcall("import", "--user", "ada", talk, expect=1)
    assert done.err == ("secondcall: talk.jsonl, line 6.text: expected a string, found a number\n")
    secondcall("show", "--user", "ada", expect=1)


def test_import_needs_a_user(secondcall: Secondcall, talk: str) -> None:
    """A file that does not say whose memory it is needs ``--user``."""
    done = secondcall("import", talk, expect=2)
    assert "give --user" in done.err


def people() -> Sequence[object]:
    """Two conversations in LoCoMo's format with equal session and turn names."""
    return [
        {
            "sample_id": name,
            "conversation": {
                "session_1_date_time": "9:00 am on 1 May, 2023",
                "session_1": [{"speaker": name, "dia_id": "D1:1", "text": f"I am {name}."}],
            },
            "qa": [],
        }
        for name in ("ola", "pim")
    ]


def test_import_of_several_people(secondcall: Secondcall, tmp_path: Path) -> None:
    """Each person of a file is a user of their own; under one user their sessions stay apart."""
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(people()), "utf-8")
    assert secondcall("import", str(path), "--json").json["users"] == ["ola", "pim"]
    both = secondcall("import", "--user", "ada", str(path), "--json").json
    assert (both["users"], both["added"], both["corrected"]) == (["ada"], 2, 0)
    found = secondcall("show", "--user", "ada", "--json").json
    assert {one["session_id"] for one in found["sessions"]} == {"ola:session_1", "pim:session_1"}
    assert secondcall("import", str(path), "--session", "s", expect=1).err.count("\n") == 1


def test_recall(secondcall: Secondcall, talk: str) -> None:
    """A question finds the words, with date, speaker and place."""
    secondcall("import", "--user", "ada", talk)
    done = secondcall("recall", "--user", "ada", "What is my parrot called?", "--limit", "1")
    assert "2026-03-01 09:00 UTC  user  [talk / m1]" in done.out
    assert "My parrot is called Zephyrine." in done.out
    found = secondcall("recall", "--user", "ada", "parrot name", "--json").json
    assert found["items"][0]["id"] == "m1"
    assert found["reason"] is None


def test_recall_of_nothing(secondcall: Secondcall, talk: str) -> None:
    """Nothing found is said, with why."""
    secondcall("import", "--user", "ada", talk)
    found = secondcall("recall", "--user", "ada", " ", "--json").json
    assert (found["items"], found["facts"]) == ([], [])
    assert found["reason"]
    assert "Nothing found: " in secondcall("recall", "--user", "ada", " ").out


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_recall_limits(secondcall: Secondcall, limit: str) -> None:
    """A limit that is none is called wrong, with exit code 2."""
    done = secondcall("recall", "--user", "ada", "x", "--limit", limit, expect=2)
    assert "--limit" in done.err
    assert done.err.count("\n") == 1


def test_brief(secondcall: Secondcall, talk: str) -> None:
    """The brief holds the facts, and the recap that the one before it had made."""
    secondcall("import", "--user", "ada", talk)
    assert "send seeds" in secondcall("brief", "--user", "ada").out
    found = secondcall("brief", "--user", "ada", "--json").json
    assert found["known"] is True
    assert [fact["predicate"] for fact in found["promises"]] == ["seeds"]
    assert [one["session_id"] for one in found["recaps"]] == [found["sessions"][0]["session_id"]]
    assert found["recaps"][0]["text"] in found["text"]
    assert found["last_words"] == []


def test_show(secondcall: Secondcall, talk: str) -> None:
    """What is held is shown from users down to one item."""
    secondcall("import", "--user", "ada", talk)
    assert secondcall("show").out == "ada\n"
    overview = secondcall("show", "--user", "ada").out
    assert "attribute: pet = a parrot" in overview
    assert "talk  3 items" in overview
    session = secondcall("show", "--user", "ada", "--session", "talk").out
    assert 'tool note  [talk / c1]\n  {"pet":"parrot"} -> ok' in session
    (item,) = secondcall("show", "--user", "ada", "--item", "m2", "--json").json["items"]
    assert item["text"] == "A fine name."
    assert "no item 'm9'" in secondcall("show", "--user", "ada", "--item", "m9", expect=1).err
    assert "need --user" in secondcall("show", "--item", "m9", expect=2).err


def test_show_context(secondcall: Secondcall, talk: str) -> None:
    """What the chat buffer of a session would give is shown, with tokens, fates and reasons."""
    secondcall("import", "--user", "ada", talk)
    one = ("show", "--user", "ada", "--session", "talk", "--context")
    report = secondcall(*one, "--json").json
    assert [(item["label"], item["fate"]) for item in report["items"]] == [
        ("user", "kept"),
        ("assistant", "kept"),
        ("tool note", "kept"),
    ]
    assert sum(item["shown_tokens"] for item in report["items"]) == report["tokens"]
    shown = secondcall(*one).out
    assert shown.startswith(f"{report['tokens']} of 3,000 tokens, 1 turn\n")
    assert "tool note  c1" in shown
    assert "Zephyrine" not in shown
    assert "get() raises: the newest user message" in secondcall(*one, "--token-limit", "5").out
    assert "token_limit" in secondcall(*one, "--token-limit", "0", expect=1).err
    assert "needs --session" in secondcall("show", "--user", "ada", "--context", expect=2).err
    unknown = secondcall("show", "--user", "ada", "--session", "x", "--context", expect=1)
    assert "no session 'x'" in unknown.err


def test_show_nobody(secondcall: Secondcall) -> None:
    """An empty store is said to be empty."""
    assert secondcall("show").out == "Nobody is known here yet.\n"
    assert secondcall("show", "--json").json == {"users": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ("recall", "x"),
        ("brief",),
        ("show",),
        ("export",),
        ("forget", "--yes"),
        ("reindex",),
        ("retention",),
    ],
)
def test_unknown_users_are_said(secondcall: Secondcall, arguments: Sequence[str]) -> None:
    """A user of whom nothing is known is said to be unknown, by every command."""
    command, *rest = arguments
    done = secondcall(command, "--user", "nobody", *rest, expect=1)
    assert done.out == ""
    assert "nothing is known of user 'nobody'" in done.err
    assert done.err.count("\n") == 1


def test_forget(secondcall: Secondcall, talk: str, tmp_path: Path) -> None:
    """After ``forget --yes`` the user is unknown and the files hold none of the words."""
    secondcall("import", "--user", "ada", talk)
    receipt = secondcall("forget", "--user", "ada", "--yes", "--json").json
    assert receipt["complete"] is True
    assert not any(receipt["remaining"].values())
    secondcall("brief", "--user", "ada", expect=1)
    left = b"".join(path.read_bytes() for path in tmp_path.glob("memory.db*"))
    assert b"Zephyrine" not in left


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_forget_asks(
    secondcall: Secondcall, talk: str, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Without ``--yes`` nothing is forgotten unless the answer is yes."""
    secondcall("import", "--user", "ada", talk)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    done = secondcall("forget", "--user", "ada", expect=1)
    assert "nothing was forgotten" in done.err
    secondcall("brief", "--user", "ada")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    secondcall("forget", "--user", "ada")


def test_export_and_import(secondcall: Secondcall, talk: str, tmp_path: Path) -> None:
    """An export read into another user gives the same items and facts."""
    secondcall("import", "--user", "ada", talk)
    out = secondcall("export", "--user", "ada", "--output", "ada.jsonl", "--json").json
    assert (out["items"], out["facts"]) == (3, 2)
    secondcall("import", "--user", "bob", str(tmp_path / "ada.jsonl"))
    pairs: list[list[list[object]]] = []
    for user in ("ada", "bob"):
        items = secondcall("show", "--user", user, "--all", "--json").json["items"]
        facts = secondcall("show", "--user", user, "--json").json["facts"]
        pairs.append(
            [
                [{**item, "user_id": ""} for item in items],
                [[fact["kind"], fact["predicate"], fact["value"]] for fact in facts],
            ]
        )
    assert pairs[0] == pairs[1]


def test_a_failed_export_leaves_the_file(secondcall: Secondcall, tmp_path: Path) -> None:
    """An export that fails leaves the file of ``--output`` as it was, and nothing beside it."""
    (tmp_path / "folder").mkdir()
    backup = tmp_path / "folder" / "backup.jsonl"
    backup.write_text("precious", "utf-8")
    secondcall("export", "--user", "nobody", "--output", str(backup), expect=1)
    assert backup.read_text("utf-8") == "precious"
    assert list(backup.parent.iterdir()) == [backup]
    done = secondcall("export", "--user", "nobody", "--output", "nowhere/at.jsonl", expect=1)
    assert done.err == "secondcall: nowhere/at.jsonl: No such file or directory\n"


def test_export_replaces_the_file(secondcall: Secondcall, talk: str, tmp_path: Path) -> None:
    """An export takes the place of the file that a link leads to, with the file's permissions."""
    secondcall("import", "--user", "ada", talk)
    backup, link = tmp_path / "backup.jsonl", tmp_path / "link.jsonl"
    backup.write_text("old", "utf-8")
    backup.chmod(0o600)
    link.symlink_to(backup)
    secondcall("export", "--user", "ada", "--output", str(link))
    assert link.is_symlink()
    assert "Zephyrine" in backup.read_text("utf-8")
    assert backup.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def merged(secondcall: Secondcall, tmp_path: Path) -> None:
    """Bob, into whom Ann is merged; both have an item *1* in a session *call*."""

    async def record() -> None:
        async with Memory.open(f"sqlite:///{tmp_path / 'memory.db'}") as memory:
            ann = await (await memory.user("ann").session("call")).record(
                Message("user", "Ann likes walruses.", id="1")
            )
            await (await memory.user("bob").session("call")).record(
                Message("user", "Bob likes giraffes.", id="1")
            )
            await memory.user("ann").remember("animal", "walrus", sources=ann.keys)
            await memory.merge("ann", "bob")

    asyncio.run(record())


@pytest.mark.usefixtures("merged")
def test_export_of_a_merged_user(secondcall: Secondcall, tmp_path: Path) -> None:
    """An export of a merged user loses nothing where two users had the same ids."""
    url = f"sqlite:///{tmp_path / 'other.db'}"
    for user, ann, bob in (("bob", "ann:call", "call"), ("ann", "call", "bob:call")):
        path = str(tmp_path / f"{user}.jsonl")
        secondcall("export", "--user", user, "--output", path)
        for added in (2, 0):
            done = secondcall("import", "--user", user, "--url", url, path, "--json").json
            assert (done["added"], done["corrected"]) == (added, 0)
        items = secondcall("show", "--user", user, "--all", "--json", "--url", url).json["items"]
        assert {item["session_id"]: item["text"] for item in items} == {
            ann: "Ann likes walruses.",
            bob: "Bob likes giraffes.",
        }
        (fact,) = secondcall("show", "--user", user, "--json", "--url", url).json["facts"]
        assert [(one["user_id"], one["session_id"]) for one in fact["sources"]] == [(user, ann)]


@pytest.mark.usefixtures("merged")
def test_import_of_an_export_into_the_merged_user(secondcall: Secondcall) -> None:
    """A merged user's export read back into the same store changes nothing."""
    secondcall("export", "--user", "bob", "--output", "bob.jsonl")
    done = secondcall("import", "--user", "bob", "bob.jsonl", "--json").json
    assert (done["added"], done["corrected"], done["unchanged"]) == (0, 0, 2)


@pytest.mark.usefixtures("merged")
def test_sources_name_where_the_items_are(secondcall: Secondcall, tmp_path: Path) -> None:
    """Facts imported for a merged user rest on items where they were recorded, or already were."""
    path = tmp_path / "more.jsonl"
    lines: Sequence[object] = [
        {"session_id": "late", "id": "9", "role": "user", "text": "I moved to Bergen."},
        {
            "type": "fact",
            "predicate": "city",
            "value": "Bergen",
            "sources": [{"session_id": "late", "id": "9"}],
        },
        {
            "type": "fact",
            "predicate": "old",
            "value": "walrus",
            "sources": [{"session_id": "old", "id": "2"}],
        },
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    secondcall("identity", "unmerge", "ann")
    old = tmp_path / "old.jsonl"
    old.write_text('{"role": "user", "text": "A walrus!", "id": "2"}\n', "utf-8")
    secondcall("import", "--user", "ann", str(old))
    secondcall("identity", "merge", "ann", "bob")
    secondcall("import", "--user", "ann", str(path))
    facts = secondcall("show", "--user", "ann", "--json").json["facts"]
    found = {fact["predicate"]: fact["sources"][0]["user_id"] for fact in facts}
    assert found == {"animal": "ann", "city": "bob", "old": "ann"}


def test_the_last_line_of_an_item_counts(secondcall: Secondcall, tmp_path: Path) -> None:
    """Of an item that a file holds twice the last line stays, however often it is imported, and
    stands where the first one stood."""
    path = tmp_path / "twice.jsonl"
    lines: list[object] = [{"role": "user", "text": "my old number", "id": "d"}]
    lines += [{"role": "user", "text": f"word {number}"} for number in range(1_200)]
    lines += [{"role": "user", "text": "my corrected number", "id": "d"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    for added in (1_201, 0):
        done = secondcall("import", "--user", "ada", str(path), "--json").json
        assert (done["items"], done["added"], done["corrected"]) == (1_201, added, 0)
        items = secondcall("show", "--user", "ada", "--all", "--json").json["items"]
        assert (items[0]["id"], items[0]["text"]) == ("d", "my corrected number")


@pytest.mark.parametrize(
    ("fact", "problem"),
    [
        ({"predicate": " ", "value": 1}, "predicate must not be blank"),
        ({"predicate": "p", "value": "y" * 20_000}, "value has 20,000 bytes"),
        ({"predicate": "p", "sources": [f"a{one}" for one in range(300)]}, "sources has 300"),
        ({"predicate": "p", "sources": [""]}, "sources[0].id must not be empty"),
        ({"predicate": "p", "sources": ["\ud800"]}, "sources[0].id holds a lone surrogate"),
        ({"predicate": "p", "kind": "promise", "status": "resolved"}, "kept, broken, withdrawn"),
        ({"predicate": "p", "kind": "promise", "status": "kept"}, "no promise or issue stands"),
    ],
)
def test_a_bad_fact_imports_nothing(
    secondcall: Secondcall, talk: str, fact: dict[str, object], problem: str
) -> None:
    """A fact that memory would refuse is named by file and line before anything is recorded."""
    with Path(talk).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"type": "fact", **fact}) + "\n")
    done = secondcall("import", "--user", "ada", talk, expect=1)
    assert done.err.startswith("secondcall: talk.jsonl, line 6: ")
    assert problem in done.err
    secondcall("show", "--user", "ada", expect=1)


def test_export_into_the_same_store(secondcall: Secondcall, tmp_path: Path) -> None:
    """An export read back changes nothing, and neither does the file that it came from."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}]), "utf-8")
    secondcall("import", "--user", "ada", str(path))
    secondcall("export", "--user", "ada", "--output", "ada.jsonl")
    for file in (tmp_path / "ada.jsonl", path):
        done = secondcall("import", "--user", "ada", str(file), "--json").json
        assert (done["added"], done["corrected"], done["unchanged"]) == (0, 0, 1)


def test_a_changed_file_corrects(secondcall: Secondcall, talk: str) -> None:
    """An item with the same id and other words is a correction."""
    secondcall("import", "--user", "ada", talk)
    content = Path(talk).read_text("utf-8").replace("Zephyrine", "Zenobia")
    Path(talk).write_text(content, "utf-8")
    done = secondcall("import", "--user", "ada", talk, "--json").json
    assert (done["added"], done["corrected"], done["unchanged"]) == (0, 1, 2)


def test_doctor(secondcall: Secondcall, talk: str) -> None:
    """A sound store passes every check; a file that is no store fails with exit code 1."""
    secondcall("import", "--user", "ada", talk)
    found = secondcall("doctor", "--json").json
    assert found["ok"] is True
    assert [check["name"] for check in found["checks"]] == [
        "versions",
        "store",
        "stored bytes",
        "held",
        "embedder",
    ]
    assert secondcall("doctor", "--user", "ada", "--json").json["ok"] is True
    assert "nothing is known of user 'bob'" in secondcall("doctor", "--user", "bob", expect=1).err
    Path("broken.db").write_bytes(b"this is no database, " * 100)
    done = secondcall("doctor", "--url", "sqlite:///broken.db", expect=1)
    assert "FAIL  store: " in done.out


def damaged_document(kind: str, key: str) -> str:
    """The statement that gives Ada a document that is none."""
    return (
        "INSERT INTO documents (partition_id, kind, key, version, updated_us, body) "
        f"SELECT id, '{kind}', '{key}', 1, 0, CAST('Zephyrine' AS BLOB) "
        "FROM partitions WHERE name = 'ada'"
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            "UPDATE changes SET body = CAST('Zephyrine' AS BLOB) WHERE item_id = 'm1'",
            "user 'ada', session 'talk', message 'm1' cannot be read",
        ),
        (
            "UPDATE documents SET body = CAST('{Zephyrine' AS BLOB) WHERE kind = 'fact'",
            "user 'ada', fact '",
        ),
        (
            damaged_document("manifest", "live"),
            "the list of search segments of user 'ada' cannot be read",
        ),
        (
            damaged_document("retention", "policy"),
            "the stored retention policy of user 'ada' cannot be read",
        ),
        (
            damaged_document("fact_sensitive", "k"),
            "user 'ada', fact_sensitive 'k' cannot be read",
        ),
    ],
)
def test_doctor_names_what_cannot_be_read(
    secondcall: Secondcall, talk: str, tmp_path: Path, damage: str, said: str
) -> None:
    """What cannot be read is a line that names user, session and id but no text; exit code 1."""
    for user in ("ada", "bob"):
        secondcall("import", "--user", user, talk)
    with closing(apsw.Connection(str(tmp_path / "memory.db"))) as connection:
        connection.execute(damage)  # pyright: ignore[reportUnknownMemberType] - apsw's own types
        assert connection.changes() > 0
    for named in ((), ("--user", "ada")):
        done = secondcall("doctor", *named, expect=1)
        failed = [line for line in done.out.splitlines() if line.startswith("FAIL")]
        assert failed[0].startswith("FAIL  held: ")
        assert said in failed[0]
        assert "Zephyrine" not in done.out + done.err


def test_retention(secondcall: Secondcall, talk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has run out is counted by a dry run and removed by a sweep."""
    secondcall("import", "--user", "ada", talk)
    assert "for ever" in secondcall("retention").out
    assert secondcall("retention", "--dry-run", "--json").json["swept"] == {}
    monkeypatch.setenv("SECONDCALL_RETAIN", "1d")
    counted = secondcall("retention", "--dry-run", "--json").json["swept"]
    assert counted["ada"] >= 3
    assert secondcall("retention", "--sweep", "--json").json["swept"] == counted
    monkeypatch.delenv("SECONDCALL_RETAIN")
    assert secondcall("retention", "--dry-run", "--json").json["swept"] == {}
    secondcall("retention", "--sweep", "--dry-run", expect=2)
    secondcall("retention", "--hold", expect=2)


def test_retention_of_a_user(secondcall: Secondcall, talk: str) -> None:
    """A user may have a policy of their own, and a hold, which refuses forgetting."""
    secondcall("import", "--user", "ada", talk)
    policy = secondcall("retention", "--user", "ada", "--keep", "400d", "--hold", "--json").json
    assert policy["policy"]["hold"] is True
    assert policy["policy"]["keep_seconds"]["message"] == 400 * 86_400
    secondcall("forget", "--user", "ada", "--yes", expect=1)
    secondcall("retention", "--user", "ada", "--keep", "tenant", "--lift-hold")
    secondcall("forget", "--user", "ada", "--yes")


def test_reindex(secondcall: Secondcall, talk: str) -> None:
    """A reindex counts what it indexed, and recall goes on finding it."""
    secondcall("import", "--user", "ada", talk)
    assert secondcall("reindex", "--json").json["users"] == 1
    secondcall("reindex", "--user", "ada")
    found = secondcall("recall", "--user", "ada", "parrot", "--json").json
    assert found["items"][0]["id"] == "m1"


def test_identity(secondcall: Secondcall, talk: str) -> None:
    """Users are linked and merged, the merge is undone, and the trail tells of it."""
    for user in ("ada", "bob"):
        secondcall("import", "--user", user, talk)
    linked = secondcall(
        "identity", "link", "--user", "ada", "--email", "ada@example.com", "--json"
    ).json
    assert linked["linked"] == 1
    secondcall("identity", "merge", "bob", "ada", "--reason", "same person")
    secondcall("identity", "unmerge", "bob")
    trail = secondcall("identity", "audit", "--user", "ada", "--json").json
    assert len(trail["identities"]) == 1
    assert "ada@example.com" not in json.dumps(trail)
    assert {"absorbed", "released"} <= {entry["action"] for entry in trail["audit"]}
    assert "same person" in secondcall("identity", "audit", "--user", "ada").out
    secondcall("identity", "link", "--user", "ada", expect=2)


def test_tenants_are_apart(secondcall: Secondcall, talk: str) -> None:
    """What one tenant holds is unknown under another."""
    secondcall("import", "--user", "ada", "--tenant", "north", talk)
    elsewhere = secondcall("brief", "--user", "ada", expect=1)
    there = secondcall("brief", "--user", "ada", "--tenant", "north")
    assert elsewhere.out == ""
    assert there.out != ""


def test_store_errors_are_one_line(secondcall: Secondcall) -> None:
    """A store that cannot be opened is one line on standard error and exit code 1."""
    for url in ("nosuch://x", "sqlite:////nowhere/at/all/memory.db"):
        done = secondcall("show", "--url", url, expect=1)
        assert done.err.startswith("secondcall: ")
        assert done.err.count("\n") == 1


def test_usage_errors_are_one_line(secondcall: Secondcall) -> None:
    """A wrong command line is one line on standard error and exit code 2."""
    for arguments in (("nosuch",), ("recall", "x"), ("show", "--nosuch"), ("import", "nowhere")):
        done = secondcall(*arguments, expect=2)
        assert done.err.startswith("secondcall: ")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["import", "demo", "eval locomo", "identity link", "retention"])
def test_help(secondcall: Secondcall, command: str) -> None:
    """Every command explains itself and its options."""
    assert "--json" in secondcall(*command.split(), "--help").out

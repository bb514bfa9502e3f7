"""For and against: read from structure, with kept words, never from a bare substring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.recall.opposites import lexicon
from secondcall.recall.polarity import asks, intent, looks_further, may_deny, speaks_against, stance
from secondcall.recall.sides import agreement, denies, names_the_same, opposition


def _against(question: str, text: str) -> float:
    wanted = intent(question)
    return opposition(wanted, stance(text, wanted))


@pytest.mark.parametrize(
    ("question", "right", "opposite"),
    [
        ("when did I cancel my subscription?", "cancel my subscription", "I want to subscribe"),
        ("where is it allowed to park?", "parking is allowed here", "parking is not allowed there"),
        ("which door is not locked?", "the back door is not locked", "the front door is locked"),
        ("what do I like?", "I love pizza", "I hate broccoli"),
        ("what can't I stand?", "I hate broccoli", "I love pizza"),
        ("what am I not keen on?", "not keen on olives", "I am fond of figs"),
        ("why did I turn the heating off?", "please switch the heating off", "turn on the heating"),
        ("when did I want it raised?", "please raise the limit", "please lower the limit"),
        ("how do I uninstall the app", "uninstall the app", "install the app like this"),
        ("what will they pay?", "they will pay for the roof", "they won't pay for the shed"),
        ("why must I avoid aspirin?", "you should avoid aspirin", "you may take aspirin again"),
        ("how do I get my mail out of it?", "export the mail here", "import the mail here"),
        ("when was the pager still in use?", "still using the pager", "I no longer use the pager"),
        ("where is parking free of charge?", "parking is no charge", "parking is a surcharge"),
        ("why did I choose tea over coffee", "tea instead of coffee", "coffee instead of tea"),
        ("who may enter the hall?", "dogs are let into the hall", "dogs keep out of the hall"),
        (
            "when can guests use the pool?",
            "guests may use the pool",
            "guests must not use the pool",
        ),
        ("which lids did I put up?", "I put up two lids", "I took two lids down"),
        ("what did I say about the choir?", "I joined the choir", "I won't join the choir"),
        ("when did I quit the choir?", "I left the choir", "so, rain, but I joined the choir"),
    ],
)
def test_the_opposite_is_told_from_what_is_asked(question: str, right: str, opposite: str) -> None:
    """What says the opposite stands against the question, what answers it does not."""
    assert _against(question, right) == 0
    assert _against(question, opposite) > 0


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("I don't want to cancel the gym", "I want to keep the gym"),
        ("I don't dislike green", "I like green"),
        ("I wouldn't say no to rice", "I say yes to rice"),
        ("I used to love tofu", "I dislike tofu"),
        ("do not forget to order milk", "please order milk"),
    ],
)
def test_negations_add_up(text: str, same_as: str) -> None:
    """Twice negated is said; "don't forget to" denies nothing; "used to" is over."""
    one, other = stance(text, {}), stance(same_as, {})
    shared = [kind for kind in one if other.get(kind) and not kind.startswith("~")]
    assert shared
    assert all(one[kind] == other[kind] for kind in shared)


def test_a_noun_is_no_action() -> None:
    """ "Cancel my booking" books nothing."""
    assert stance("cancel my booking", {})["book-cancel"] == -1
    assert "order-return" not in stance("where is my order", {})


def test_a_part_of_a_word_is_no_word() -> None:
    """ "Notable" is not "not", "discover" is not "cover", "candidate" not "can"."""
    assert not may_deny("a famous table", intent("a table"))
    assert "cover-exclude" not in stance("we discover things", {})
    assert stance("a notable opening was allowed", {})["allow-forbid"] == 1


@pytest.mark.parametrize(
    "question", ["do I like olives?", "is it allowed to park?", "Can you recommend a film?"]
)
def test_asking_whether_asks_for_neither_side(question: str) -> None:
    """ "It is not" answers "is it?" as well as "it is"; a request asks for no past side."""
    assert not any(sign for kind, sign in intent(question).items() if not kind.startswith("~"))


@pytest.mark.parametrize("question", ["has my aunt moved in?", "is the light switched off?"])
def test_asking_how_it_is_now_asks_for_neither_side(question: str) -> None:
    """ "It is not" answers a question for how it is by now, of whatever action."""
    assert intent(question) == {}


def test_the_clause_that_names_the_thing_decides() -> None:
    """What another clause of the sentence denies is not denied of the thing that is asked about."""
    wanted = intent("when did I join the choir?")
    text = "I joined the choir, and I cancelled the pottery"
    assert stance(text, wanted)["join-leave"] == 1
    assert opposition(wanted, stance(text, wanted)) == 0


def test_a_particle_after_an_article_belongs_to_no_verb() -> None:
    """ "Set the back door alarm" sets nothing back."""
    assert "earlier-later" not in stance("set the back door alarm", {})
    assert stance("set the meeting back", {})["earlier-later"] == -1


def test_what_is_not_to_be_forgotten_is_spoken_for() -> None:
    """ "Do not forget to move it" is for moving, "stop moving it" against, "don't move it" too."""
    assert stance("do not forget to move in there", {})["*"] == 1
    assert stance("stop moving in there", {})["*"] == -1
    assert stance("don't move in there", {})["*"] == -1


def test_what_agrees_takes_the_side_of_every_kind() -> None:
    """What answers agrees, what says the opposite does not, and what is silent does not either."""
    wanted = intent("when did I quit the choir?")
    assert denies(wanted)
    assert agreement(wanted, stance("I left the choir", wanted)) == 1
    assert agreement(wanted, stance("I joined the choir", wanted)) == 0
    assert agreement(wanted, stance("the choir sings", wanted)) == 0


def test_a_thing_is_named_by_a_third_of_the_words() -> None:
    """A text that has one of four words of a question speaks of something else."""
    wanted = intent("which green wooden garden bench did I order?")
    assert names_the_same(wanted, stance("a green wooden box", wanted))
    assert not names_the_same(wanted, stance("a green box", wanted))
    assert names_the_same({"join-leave": 1}, {})


def test_plain_questions_look_no_further() -> None:
    """A question without a side costs no wider search."""
    assert not looks_further(intent("what is the name of my dog?"))
    assert looks_further(intent("when did I cancel the gym?"))


def test_no_form_is_on_both_sides_of_a_kind() -> None:
    """The kept words do not contradict themselves."""
    for forms in lexicon().forms.values():
        for form in forms:
            kinds = [kind for kind, _ in form.sides]
            assert len(kinds) == len(set(kinds))


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_two_texts_compare(question: str, text: str) -> None:
    """Every question and text give an opposition from 0 to 1, the same each time."""
    first = _against(question, text)
    assert 0 <= first <= 1
    assert first == _against(question, text)


@given(st.text(max_size=200))
def test_what_is_said_does_not_oppose_itself_without_negation(text: str) -> None:
    """A text whose stance is clear agrees with its own words as a question."""
    wanted = {kind: sign for kind, sign in stance(text, {}).items() if sign}
    assert opposition(wanted, stance(text, wanted)) == 0 or not all(stance(text, wanted).values())


def test_the_kind_of_thing_that_is_asked_for_need_not_be_named() -> None:
    """ "Which drink can't I stand?" is answered by "tea": the word counts if it is there, and is
    not missed if it is not."""
    wanted = intent("which drink can't I stand?")
    assert names_the_same(wanted, stance("beetroot juice turns my stomach", wanted))
    wanted = intent("which plants did I dig out?")
    assert opposition(wanted, stance("I planted roses", wanted)) == 1.0
    assert agreement(wanted, stance("I ripped out the hedge", wanted)) == 1.0
    wanted = intent("when did I water the plants?")
    assert not names_the_same(wanted, stance("I called the plumber", wanted))


def test_where_somebody_must_not_do_something_asks_for_what_is_forbidden() -> None:
    """Also where the action has an opposite of its own."""
    wanted = intent("where can the children not come in?")
    assert opposition(wanted, stance("children are welcome in the cellar", wanted)) == 1.0


def test_a_parted_form_means_what_it_means_together() -> None:
    """ "Took it out" takes the sides of "took out" and of "took _ off" alike."""
    wanted = intent("how much did I put in the box?")
    assert opposition(wanted, stance("I took it out of the box again", wanted)) == 1.0


def test_nobody_denies_an_action_of_plain_words() -> None:
    """ "Nobody gets in" denies something, though getting is neither for nor against."""
    wanted = intent("where can the children not come in?")
    assert denies(stance("Nobody under eighteen gets into the casino.", wanted))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("can he have breakfast before the test", True),
        ("and for the second one, is it open on Sundays?", True),
        ("could you block my card", False),
        ("when does it open?", False),
        ("he can have breakfast", False),
    ],
)
def test_questions_of_yes_or_no(text: str, expected: bool) -> None:
    """A question asks for yes or no by an auxiliary before its subject; a request does not."""
    assert asks(text) is expected


def test_a_clause_against_the_thing_speaks_against_an_event() -> None:
    """Only where the question asks for an event, and only in the clause that names its thing."""
    wanted = intent("which loan did they give me?")
    assert speaks_against("the kitchen loan was turned down", wanted)
    assert not speaks_against("I have a loan, and the parcel was turned down", wanted)
    assert not speaks_against("the kitchen loan was turned down", intent("tell me of the loan"))

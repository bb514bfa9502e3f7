"""Small talk: greetings, thanks, farewells and sounds of listening. Recorded, not searched. Pure.

A text is small talk when it is short and nothing in it is anything else. An answer is not: "yes",
"no" and "sure" say something about the question before them.
"""

from __future__ import annotations

import re

__all__ = ["is_small_talk"]

_MAX_CHARACTERS = 120
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_LEFT_OVER = re.compile(r"[\w\u2600-\u27bf\U0001f000-\U0001faff]")

_PHRASES = """
hello; hi; hey; hiya; howdy; hi there; hello there; hey there; hello again; hi again; hey again; yo
good morning; morning; good afternoon; afternoon; good evening; evening; good night; good day
how are you; how are you doing; how are you today; how are you doing today; how's it going
how is it going; how's everything; how have you been; what's up; how do you do; hope you're well
i'm fine; i'm good; i'm well; i'm fine thanks; i'm doing well; all good; fine; doing well
nice to meet you; nice to hear from you; good to hear from you; good to see you; great to see you
nice to see you; pleased to meet you; welcome; welcome back
thank you; thanks; thank you so much; thank you very much; thanks a lot; thanks so much; many thanks
thanks a million; thanks a bunch; cheers; ta; much appreciated; i appreciate it; appreciate it; thx
thank you for your help; thanks for your help; thanks for the help; thank you for calling
thanks for calling; thank you for your time; thanks again; thank you again; thankyou
you're welcome; you are welcome; no problem; no worries; my pleasure; don't mention it; anytime
any time; not at all; glad to help; happy to help; glad i could help; no need to thank me
bye; bye bye; bye-bye; goodbye; good bye; see you; see you later; see you soon; see ya; later
talk to you later; talk to you soon; talk soon; speak soon; take care; have a nice day
have a good day; have a great day; have a lovely day; have a good one; have a nice evening
have a good evening; have a great evening; have a nice weekend; have a good weekend
have a great weekend; have a lovely weekend; enjoy your day; enjoy your evening; you too
same to you; and you; bye for now; sleep well; until next time; catch you later
uh; uh-huh; uh huh; um; umm; uhm; er; erm; hm; hmm; hmmm; mm; mmm; mhm; mm-hmm; mm-hm; mm hmm; mhmm
huh; ah; aha; oh; ooh; wow; oh wow; oh dear; oh my; oops; ha; haha; hahaha; lol; hehe
ok; okay; alright; all right; right; i see; i understand; understood; got it; gotcha; fair enough
sounds good; sounds great; great; cool; nice; lovely; wonderful; perfect; excellent; awesome
brilliant; super; good; very good; very nice; that's great; that's nice; that's good; that's fine
that's all; that's it; that is all; that will be all; nothing else; you know; well; so; anyway
please; one moment; one moment please; just a moment; hold on; hang on; one second; just a second
are you there; are you still there; can you hear me; i'm here; i'm listening; go ahead; go on
for your help; for the help; for your time; for calling; for everything; again
there; very much; a lot; so much; indeed; there you go; here you go
hallo; guten tag; guten morgen; guten abend; danke; danke schön; vielen dank; gern; gerne
bitte schön; tschüss; auf wiedersehen; auf wiederhören; bonjour; bonsoir; salut; merci
merci beaucoup; au revoir; de rien; hola; buenos días; buenas tardes; buenas noches; gracias
muchas gracias; de nada; adiós; hasta luego; ciao; buongiorno; grazie; grazie mille; prego
arrivederci; olá; bom dia; boa tarde; obrigado; obrigada; hej; tack
"""
_SPELLED = [phrase.split() for phrase in re.split(r"[;\n]", _PHRASES) if phrase.strip()]
_KNOWN = frozenset(tuple(words) for words in _SPELLED)
_LONGEST = max(map(len, _KNOWN))
_BEFORE_A_NAME = frozenset(
    [
        "hello",
        "hi",
        "hey",
        "hiya",
        "morning",
        "afternoon",
        "evening",
        "night",
        "thanks",
        "you",
        "bye",
        "goodbye",
        "cheers",
        "welcome",
        "hallo",
        "danke",
        "bonjour",
        "merci",
        "hola",
        "gracias",
        "ciao",
        "grazie",
    ]
)


def is_small_talk(text: str) -> bool:
    """Whether a text consists of small talk alone; one that has no words at all does not."""
    if len(text) > _MAX_CHARACTERS:
        return False
    found = _WORD.findall(text)
    if not found or _LEFT_OVER.search(_WORD.sub("", text)):
        return False
    words = [word.casefold().replace("\u2019", "'") for word in found]
    place = 0
    while place < len(words):
        length = next(
            (n for n in range(_LONGEST, 0, -1) if tuple(words[place : place + n]) in _KNOWN), 0
        )
        if not length and not _is_name(found, words, place):
            return False
        place += length or 1
    return "?" not in text or _only_greets(words)


def _is_name(found: list[str], words: list[str], place: int) -> bool:
    """ "Hi Anna": somebody is greeted by name."""
    return place > 0 and found[place][0].isupper() and words[place - 1] in _BEFORE_A_NAME


def _only_greets(words: list[str]) -> bool:
    """Asking back is small talk only in set phrases: "how are you?", not "right?"."""
    return len(words) > 1

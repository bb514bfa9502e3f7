"""Words that say too little to search for: function words, question words, auxiliaries, fillers."""

from __future__ import annotations

__all__ = ["STOP_WORDS"]

_ENGLISH = """
a an the this that these those some any each every either neither both all such same other another
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
she her hers herself it its itself they them their theirs themselves one ones someone anyone
everyone something anything everything nothing
who whom whose which what when where why how whatever whenever wherever whether
am is are was were be been being do does did doing done have has had having will would shall should
can could may might must ought need dare cannot
don didn doesn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn mustn ain
and or but nor so yet if then else than because while although though unless until since as
of in on at by for with about against between into through during before after above below to from
up down out off over under again further once here there too very just only also even still ever
s t d m ll re ve
many much more most lot lots really kind sort
get gets got getting go goes going gone went make makes made let lets
tell told say says said talk talked mention mentioned discuss discussed ask asked
please yes no not ok okay oh well hey hi hello thanks thank um uh yeah
"""
_OTHER = "的 了 是 在 我 你 他 她 它 们 吗 呢 吧 啊 么 什 と は が を に の で も た て か"

STOP_WORDS: frozenset[str] = frozenset(_ENGLISH.split()) | frozenset(_OTHER.split())
"""Case-folded, without accents or apostrophes."""

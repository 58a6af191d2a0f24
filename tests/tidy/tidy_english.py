"""Regular expressions for constructions that technical English does not use, and their counting.

Each of `PATTERNS` has a text that it finds, and a good text that it does not find.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """A construction: an expression that finds it, a text with it, and a good text without it."""

    expression: str
    bad: str
    good: str


START = r"(?:^|(?<=[.:;!?] ))"
PREPOSITION = r"(?:about|beyond|by|for|from|in|into|of|on|than|through|to|under|with)"
PATTERNS = [
    # The subject of a sentence is a thing, and the sentence is positive.
    Pattern(
        START + r"What (?!if\b|you\b|to\b|does\b|happens\b|is\b|are\b|pump\b)\w+ (?!.*\?)",
        "What left the GPU is copied.",
        "What does pump do?",
    ),
    Pattern(
        START + r"(?:Who|Whoever|Whose|Whatever|Such(?! an? )|Nor|That which|Thus|One that)\b"
        r"(?! as\b)",
        "Whoever asks gets a lease.",
        "Such a job gets a lease.",
    ),
    Pattern(START + r"Of (?!course\b)\w+", "Of two jobs one waits.", "Of course it waits."),
    Pattern(
        r"\b(?:None of|[Nn]othing (?:but|else|more)|[Nn]one (?:is|was|of)|[Nn]o other)\b",
        "None of these is moved.",
        "Pump moves no such block.",
    ),
    Pattern(
        r"(?<![Tt]here )\b(?:is|are|was|were) (?:no|none|neither|nothing)\b(?! longer| more than)",
        "'9' is no whole number.",
        "There is no file 'a'.",
    ),
    Pattern(
        r"\b(?:be|is|are|says|see|shows?|knows?) what\b(?! pump| it| the| you)",
        "The budget is what fits.",
        "See what pump did.",
    ),
    Pattern(
        r"\bwhat (?:is|are|was|were|has|had|can|must|may) (?:not |been |be )?\w+(?:en|t|d)\b",
        "Pump moves what is needed.",
        "Pump moves the needed blocks.",
    ),
    Pattern(rf"\b{PREPOSITION} what\b", "More than what fits.", "More memory than the GPU has."),
    Pattern(
        r"\b(?:those (?:of|that|which)|that of|that which|such a one|the (?:former|latter))\b",
        "Blocks and those of others.",
        "Blocks and the blocks of others.",
    ),
    Pattern(
        r"\bone (?:can|has|may|must|needs|reads|sees|takes|writes)\b",
        "So one sees the cause.",
        "The report shows the cause.",
    ),
    Pattern(
        r"(?<![Oo]ne )(?<!all )(?<!ome )\bof (?:them|it)\b",
        "The rest of it fits.",
        "One of them fits.",
    ),
    Pattern(
        r"\b(?:at|by|from|of|to|upon|than) which\b|\bwhose \w+ (?:lie|stand|is)s?\b",
        "The GPU of which it has half.",
        "The device on which it runs.",
    ),
    # Old-fashioned words.
    Pattern(
        r"\b[Ww]here (?:all|both|it|jobs|neither|no|none|nothing|that|they|there|this)\b",
        "Where nothing fits, pump waits.",
        "In the folder where the file lives.",
    ),
    Pattern(
        r"\b(?:amid|amongst|atop|behind|beneath|besides?|in front of|upon)\b",
        "The flash behind it is slow.",
        "The slow flash tier.",
    ),
    Pattern(
        r"\b(?:t?here|where)(?:by|in|of|to|from|upon|with)\b",
        "The block and the bytes therein.",
        "It is therefore slow.",
    ),
    Pattern(
        r"\b(?:albeit|anew|ere|hardly|hence|henceforth|lest|likewise|meanwhile|oft|scarcely"
        r"|seldom|shall|unto|whence|whilst|whither)\b",
        "The job hardly waits.",
        "The job rarely waits.",
    ),
    Pattern(
        r"\b(?:after all|all the same\b(?! \w)|be it|by and by|for good|for (?:lack|want) of"
        r"|in the place of|of late|on the average|once and for all|to this end|whether or no)\b",
        "It ends all the same.",
        "They take all the same options.",
    ),
    Pattern(
        r"\b(?:but for|but that|save for|as (?:any|before|ever|it is|they are)|ever so)\b",
        "All but for the first run.",
        "All except the first run.",
    ),
    Pattern(r"\b(?:as long as|so far as) (?:it|they)\b", "as long as it lives", "while it runs"),
    Pattern(
        r"\b[Ss]o (?:few|far|little|long|many|much)\b(?! as\b| that\b)",
        "So many blocks are moved.",
        "It is so large that it does not fit.",
    ),
    Pattern(
        r"\b[Tt]he (?:fewer|larger|less|longer|more|sooner|greater)\b[^.;:]*,? the "
        r"(?:fewer|larger|less|longer|more|sooner|greater)\b",
        "The more it has, the longer it waits.",
        "A larger budget shortens the waits.",
    ),
    Pattern(
        r"\bfrom (?:\w+ ){1,3}on(?=[.,;:)]|$)",
        "Only drivers from 580 on.",
        "Drivers since 580 discard it.",
    ),
    Pattern(
        r"(?<!leave )(?<!left )(?<!stand)\balone\b(?! on its\b)",
        "It works on the GPU alone.",
        "A job that is alone on its GPU is left alone.",
    ),
    # Verbs that do not fit programs and bytes.
    Pattern(r"\b(?:tells?|told|says?|said)\b", "The driver says so.", "The driver reports it."),
    Pattern(
        r"\b(?:lies?|lay|stands?|stood)\b(?! for\b| in for\b|-)",
        "The bytes lie in RAM.",
        "N stands for the number.",
    ),
    Pattern(
        r"\b(?:came|comes?|coming) (?:about|and goes?|into being|or going)\b",
        "How these numbers come about.",
        "Where these numbers come from.",
    ),
    Pattern(r"\b(?:goes|go|went) on\b", "The job goes on.", "The job keeps running."),
    Pattern(
        r"\b(?:costs? nothing|counts? for|does nothing more|gets? nothing|makes? nothing"
        r"|means? nothing|mean nothing|there is to|hold(?:s)? (?:up|good))\b",
        "The loss means nothing.",
        "The loss is meaningless.",
    ),
    Pattern(r"\b(?:is|are) (?:not )?(?:asked|due|had|ours|theirs)\b", "It is had.", "It is here."),
    # Words with another name in this field: GPU, metrics, CPU cores, tokens, integer.
    Pattern(
        r"\b(?:[Ff]igures|[Pp]rocessors?|whole numbers?|[Gg]raphics cards?)\b",
        "All figures as JSON.",
        "All metrics as JSON.",
    ),
]


def hits(content: str) -> list[str]:
    """Returns the matches of all patterns in one paragraph or message."""
    return [found[0] for one in PATTERNS for found in re.finditer(one.expression, content)]


def sentences(content: str) -> list[str]:
    """Splits a paragraph or message. Dots inside numbers and names do not end a sentence.

    Sentences begin with a capital letter, with pump or with an identifier.
    """
    begin = r"(?=[^a-z]|pump|[a-z]+_)"
    parts = re.split(rf"(?<=[.!?])[\"')*_]*\s+{begin}", content)
    return [part for part in parts if part.strip()]

"""What leaves the house: the words of a phrase, and nothing that a search engine reads as a command."""

import re

from medlive.evidence.corpora.parsing.text import language_of

MOST_WORDS = 12
"""Words of a phrase that are sent; relevance ranking gains nothing from more, and long phrases match nothing."""

_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_OPERATORS = frozenset({"and", "or", "not", "to"})


def plain_words(phrase: str) -> str:
    """Return the words of a phrase in lower case, without operators, field names, quotes and wildcards.

    Args:
        phrase: A search phrase as an engine wrote it.

    Returns:
        At most `MOST_WORDS` words; "" if the phrase holds none, or is not in a script that the services index.
    """
    if language_of(phrase) not in ("en", "und"):
        return ""
    words = [word.lower() for word in _WORD.findall(phrase)]
    return " ".join([word for word in words if word not in _OPERATORS][:MOST_WORDS])

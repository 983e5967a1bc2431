"""How many tokens a text costs, estimated from its characters: no tokeniser is needed, and none is favoured."""

import re

UNITS = 4
"""Units of weight to a token: a Latin character weighs one, a wide one (Chinese, Japanese, full width) a token."""
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


def weight(text: str) -> int:
    """The weight of a text, in units of a quarter of a token."""
    if text.isascii():
        return len(text)
    return len(text) + (UNITS - 1) * len(_WIDE.findall(text))


def estimate_tokens(text: str) -> int:
    """About as many tokens as models of today count; for Chinese rather more."""
    return -(-weight(text) // UNITS)


def longest_prefix(text: str, units: int) -> int:
    """The length of the longest beginning of `text` that weighs at most `units`; at least one character."""
    if weight(text) <= units:
        return len(text)
    left = units
    for length, char in enumerate(text):
        left -= weight(char)
        if left < 0:
            return max(1, length)
    return len(text)

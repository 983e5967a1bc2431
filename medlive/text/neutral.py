"""Neutralise text before it goes into a prompt.

`neutralise` removes invisible characters, which can hide words or reorder visible ones. It changes no letter, so
that quotes still match. `inert` escapes the marks of chat templates, instruction formats and fences in a JSON
text, which parses to the same strings.
"""

import re

_CONTROL = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point (tag characters and variation selectors 17 to 256 among them) and
interlinear annotations; variation selectors 1 to 16 have a rule of their own."""
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U0010ffff"
_NONCHARACTERS = "\ufdd0-\ufdef\ufffe\uffff" + "".join(
    chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(1, 15)
)
_EMOJI = "[#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_INVISIBLE = re.compile(
    f"[{_CONTROL}{_IGNORABLE}{_PRIVATE}{_NONCHARACTERS}\ud800-\udfff\ufe00-\ufe0d]"
    f"|(?<!{_EMOJI})[\ufe0e\ufe0f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSUAL = re.compile(
    "[^\t\n -~\u00a0-\u00ac\u00ae-\u02ff\u0391-\u03c9\u2010-\u2027\u2030-\u205e\u2070-\u2bff"
    "\u3000-\u302f\u3400-\u9fff\uff01-\uff9f]"
)
"""Neither ASCII, Latin, Greek, punctuation, symbol nor Chinese; a text without any needs no change."""
LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")

# What occurs only in the strings of a JSON text: fences, <|im_start|>, <s>, <start_of_turn>, <<SYS>>; the blank of
# SentencePiece.
_SINGLE = {"<": "\\u003c", ">": "\\u003e", "\u2581": "\\u2581"}
_RUN = re.compile("##+|``+")
"""### Instruction, and code fences."""
_BRACKETED = re.compile(r"\[(?=/?(?!(?:true|false|null)\])[A-Za-z_]{2,24}\])")
"""[INST], [/INST], [TOOL_CALLS]."""
_SPEAKER = re.compile(
    r'("|\\n)(\s?)([SUAHGIR])(?=(?:YSTEM|ystem|SER|ser|SSISTANT|ssistant|UMAN|uman|I|PT|nstruction|esponse)\s?[:：])'
)
"""At the beginning of a line, which in JSON follows \\n or the string's quote."""


def neutralise(text: str) -> str:
    """Remove control, zero-width, bidi, tag and private-use characters, lone surrogates, and variation selectors
    other than one after an emoji; write line ends as `\\n`. Tabs stay. Idempotent."""
    if not _UNUSUAL.search(text):
        return text
    return _INVISIBLE.sub("", LINE_END.sub("\n", join_surrogates(text)))


def join_surrogates(text: str) -> str:
    """Replace surrogates in pairs by the characters that they stand for, and remove lone ones."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def inert(json_text: str) -> str:
    """Escape the marks of templates and fences in the strings of a JSON text; it parses to the same value."""
    for mark, escape in _SINGLE.items():
        json_text = json_text.replace(mark, escape)
    if "##" in json_text or "``" in json_text:
        json_text = _RUN.sub(
            lambda run: f"\\u{ord(run.group()[0]):04x}" * len(run.group()), json_text
        )
    json_text = _BRACKETED.sub("\\\\u005b", json_text)
    return _SPEAKER.sub(lambda m: f"{m[1]}{m[2]}\\u{ord(m[3]):04x}", json_text)

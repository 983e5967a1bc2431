"""What no text of a snapshot may hold and a pattern can find; the release gates and `verify` both use these.

Addresses and handles, unstorable characters, and text that reads differently than it is spelled: scanners see the
spelling, readers see the page. The gates scan for more (names, places, telephone numbers), also in the text as it
reads.
"""

import re
import unicodedata
from collections.abc import Iterator

_CONTACT = re.compile(
    r"(?P<url>[a-z]{2,8}://\S|\bwww\.[a-z0-9])"
    r"|(?P<email>[\w.+-]{1,64}@[a-z0-9-]{1,63}\.[a-z]{2})"
    r"|(?P<handle>(?<![\w.@])@[a-z_][\w.]{2,30})",
    re.IGNORECASE,
)
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_HIDDEN = re.compile(
    "[\u0080-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff]"
)
"""Invisible or font-dependent: joiners, direction marks, tags, selectors, private use."""
_FOREIGN = re.compile(
    "[\u0250-\u02af\u0400-\u10ff\u13a0-\u1cff\u1d00-\u1dbf\u24b6-\u24e9\u2c60-\u2dff\ua4d0-\ua95f\ua980-\uabff"
    "\ufb00-\ufdff\ufe70-\ufefe\U00010280-\U00016fff\U0001d400-\U0001d7ff\U0001f110-\U0001f18f]"
)
"""Letters of neither English nor Chinese, and letters that imitate Latin ones."""
_LATIN = "A-Za-z\u00c0-\u024f"
_GREEK = (
    "\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03b9\u03bd\u03bf\u03c1\u03c5"
)
_MIXED = re.compile(f"[{_GREEK}](?:(?<=[{_LATIN}].)|(?=[{_LATIN}]))")
"""Greek letters that look Latin, next to Latin ones; TNFα, β-blocker and μg have none."""

_MARKUP = re.compile(
    r"</[A-Za-z][^<>]{0,300}>|<!|<[A-Za-z]{1,20}\s[^<>]{0,300}=|<[|｜]|[|｜]>|\[/?INST\]|<<SYS>>"
    r"|<(?:script|style|iframe|img|svg|object|embed|input|html|body|system|user|assistant)\b"
    r"|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|&(?:[a-z]{2,6}|#\d+);|[{\[]\s*\"[\w ]{1,40}\"\s*:"
    r"|!\[[^\]]{0,200}\]\(|\]\([a-z]{2,12}:|^\s*```|\n---\n|^\s*#{1,6} \S|(?:^|\s)[=@]\w{2,}\(",
    re.MULTILINE,
)
"""What a program would interpret: tags, chat template turns, escapes, JSON, Markdown headings and links,
formulas."""

_HAN = "\u3400-\u9fff"
_APART = re.compile(rf"[ \u3000.·_-](?<=[{_HAN}].)(?=[{_HAN}](?![{_HAN}]))")
_LETTERS = re.compile(r"(?<!\w)[^\W\d_](?:[ ._-][^\W\d_](?!\w)){3,}")
_SINGLE_DIGITS = re.compile(r"(?<!\d)\d(?:[ ._,/-]\d(?!\d)){6,}")
# The lookahead is bounded, or a row of a million digits would be read again from each of them.
_NEARLY_DIGITS = re.compile(
    r"(?<![A-Za-z])(?=[\dOoIl|SB]{0,18}\d[\dOoIl|SB]{0,18}\d)"
    r"[\dOoIl|SB][\dOoIl|SB ._-]{5,18}[\dOoIl|SB](?![A-Za-z\d])"
)
_AS_DIGIT = str.maketrans("OoIl|SB", "0011158")


def find_contact(text: str) -> str | None:
    """Return the kind of the first contact in a text ("url", "email", "handle"), or None."""
    # Each of them has one of these, and most texts have none: it is forty times as fast to look for them first.
    if "@" not in text and "://" not in text and "www." not in text.lower():
        return None
    match = _CONTACT.search(text)
    return match.lastgroup if match else None


def find_unstorable(text: str) -> str | None:
    """Return the first control character or lone surrogate of a text, as `U+0000`, or None."""
    match = _UNSTORABLE.search(text)
    return f"U+{ord(match.group()):04X}" if match else None


def find_disguise(text: str) -> str | None:
    """Return the first disguised character of a text, as `U+200B`, or None."""
    if text.isascii():
        return None
    match = _HIDDEN.search(text) or _FOREIGN.search(text) or _MIXED.search(text)
    return f"U+{ord(match.group()):04X}" if match else None


def find_leak(text: str) -> str | None:
    """Return the first thing of a text that no file of a snapshot may hold, or None."""
    return find_unstorable(text) or find_disguise(text) or find_contact(text)


def find_markup(text: str) -> str | None:
    """Return the start of the first markup in a text, at most 8 characters, or None."""
    match = _MARKUP.search(text)
    return match.group().strip()[:8] if match else None


def texts_of(value: object) -> Iterator[str]:
    """Yield every text of a JSON value, names of fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_of(part)


def as_read(text: str) -> str:
    """Return the text as it reads, for scanning only, since offsets change.

    Compatibility forms become plain, spread-out letters and digits are joined, and letters for digits are replaced
    within numbers.
    """
    text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    text = _APART.sub("", text)
    text = _LETTERS.sub(_join_letters, text)
    text = _SINGLE_DIGITS.sub(lambda m: re.sub(r"\D", "", m.group()), text)
    return _NEARLY_DIGITS.sub(lambda m: m.group().translate(_AS_DIGIT), text)


def _join_letters(match: re.Match[str]) -> str:
    """`J o h n S m i t h` → `John Smith`: a capital begins a word."""
    plain = re.sub(r"[ ._-]", "", match.group())
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain)

"""What must never stand in a snapshot and can be seen without any library: addresses, handles, unstorable text.

The release gates scan more (names, places, telephone and identity numbers). These few are looked for by the gates
and again by whoever verifies, so that both agree.
"""

import re
from typing import Final

_CONTACT: Final = re.compile(
    r"(?P<url>[a-z]{2,8}://\S|\bwww\.[a-z0-9])"
    r"|(?P<email>[\w.+-]{1,64}@[a-z0-9-]{1,63}\.[a-z]{2})"
    r"|(?P<handle>(?<![\w.@])@[a-z_][\w.]{2,30})",
    re.IGNORECASE,
)
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def find_contact(text: str) -> str | None:
    """The kind of the first URL, e-mail address or handle in a text ("url", "email", "handle"), or None."""
    match = _CONTACT.search(text) if "://" in text or "@" in text or "www." in text.casefold() else None
    return match.lastgroup if match else None


def find_unstorable(text: str) -> str | None:
    """The first control character or lone surrogate of a text as `U+0000`, or None."""
    match = _UNSTORABLE.search(text)
    return f"U+{ord(match.group()):04X}" if match else None

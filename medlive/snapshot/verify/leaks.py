"""What a snapshot must never hold and a pattern can find: addresses, handles, unstorable characters.

The release gates and `verify` both use these; the gates scan for more (names, places, telephone numbers).
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
    """Return the kind of the first contact in a text ("url", "email", "handle"), or None."""
    match = _CONTACT.search(text)
    return match.lastgroup if match else None


def find_unstorable(text: str) -> str | None:
    """Return the first control character or lone surrogate of a text, as `U+0000`, or None."""
    match = _UNSTORABLE.search(text)
    return f"U+{ord(match.group()):04X}" if match else None

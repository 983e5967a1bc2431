"""A stranger's text made fit for a terminal or a line of a log: nothing in it moves the cursor or forges a line.

A stranger is whoever wrote a thread, an answer, a model's name, a file's name or a request. Both outputs
(`cli.output`, `logs`) use this, so that what is shown is what is there.
"""

import json

_KEPT = "\n\t"
"""What a text of several lines may hold besides printable characters and spaces."""


def printable(text: str) -> str:
    r"""Return the text on one line: control, format and unassigned characters as `\u001b`, line ends as well."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: str) -> str:
    """Return the text as `printable` does, but with line ends and tabs kept, for a text of several lines of our own."""
    return "".join(c if c in _KEPT else _escaped(c) for c in text)


def printable_json(text: str) -> str:
    """Return a JSON text with such characters as JSON's escapes, so that its value stays equal; line ends are kept."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or _is_shown(c) else json.dumps(c)[1:-1] for c in text
    )


def _is_shown(character: str) -> bool:
    return (
        character.isprintable() or character == "\u3000"
    )  # the space between Chinese sentences


def _escaped(character: str) -> str:
    if _is_shown(character):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

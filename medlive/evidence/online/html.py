"""The plain text of an abstract that comes with inline markup (`<h4>`, `<i>`, `<sub>`)."""

from html.parser import HTMLParser

_BREAKS = frozenset({"h1", "h2", "h3", "h4", "h5", "p", "br", "li", "div"})


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._break(tag)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def _break(self, tag: str) -> None:
        if tag in _BREAKS:
            self.parts.append(
                ". " if self.parts and self.parts[-1].rstrip()[-1:].isalnum() else " "
            )


def text_of(markup: str) -> str:
    """Return the text on one line; a heading ends as a sentence does."""
    parser = _Text()
    parser.feed(markup)
    parser.close()
    return " ".join("".join(parser.parts).split())

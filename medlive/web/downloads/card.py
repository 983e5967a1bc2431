"""A snapshot's card as HTML: Markdown without its front matter and its title, all markup in it escaped."""

import re

from markdown_it import MarkdownIt
from markupsafe import Markup

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TITLE = re.compile(r"^# .*$", re.MULTILINE)
_MARKS = re.compile(r"^(?:> \[![A-Z]+\]|</?details>)$", re.MULTILINE)
"""Of an alert, and of a table that is folded away on a forge's page."""
_SUMMARY = re.compile(r"^<summary>([^<>]*)</summary>$", re.MULTILINE)
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


def card_html(markdown: str) -> Markup:
    """Render a card for a page that has a heading of its own and allows no inline style."""
    text = _TITLE.sub("", _FRONT.sub("", markdown), count=1)
    text = _SUMMARY.sub(r"\1", _MARKS.sub("", text))
    html = _PARSER.render(text)
    # A table's alignment is a class: the page's policy forbids `style`.
    html = html.replace('style="text-align:right"', 'class="number"')
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>')
    # S704: the renderer escapes all text and all markup.
    return Markup(html.replace("</table>", "</table></div>"))

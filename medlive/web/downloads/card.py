"""A snapshot's card as HTML: Markdown without its front matter, and no markup but what folds tables away."""

import re
from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_ALERT = re.compile(r"^> \[![A-Z]+\]\n", re.MULTILINE)
_FOLDING = re.compile(r"</?details>|<summary>([^<>]*)</summary>")


class _Renderer(RendererHTML):
    """Escapes markup, but for what folds a table away."""

    def html_block(
        self, tokens: Sequence[Token], idx: int, options: object, env: object
    ) -> str:
        return "\n".join(
            line if _FOLDING.fullmatch(line) else escape(line)
            for line in tokens[idx].content.splitlines()
        )

    def html_inline(
        self, tokens: Sequence[Token], idx: int, options: object, env: object
    ) -> str:
        return escape(tokens[idx].content)


_PARSER = MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable(
    "table"
)


def card_html(markdown: str) -> Markup:
    """Render a card for a page that has a heading of its own and allows no inline style."""
    tokens = _PARSER.parse(_ALERT.sub("", _FRONT.sub("", markdown)))
    kept, in_title = [], False
    for token in tokens:
        if token.type == "heading_open" and token.tag == "h1":
            in_title = True
        if not in_title:
            # A table's alignment is a class: the page's policy forbids `style`.
            if str(token.attrs.pop("style", "")) == "text-align:right":
                token.attrs["class"] = "number"
            kept.append(token)
        elif token.type == "heading_close":
            in_title = False
    html = _PARSER.renderer.render(kept, _PARSER.options, {})
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>')
    # S704: the renderer escapes all text, and the markup that is not ours.
    return Markup(html.replace("</table>", "</table></div>"))

"""A snapshot's card as HTML, of real cards and of hostile ones."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from medlive.web.downloads.card import card_html
from tests.support.publishing import a_snapshot

TAGS = {
    "html",
    "head",
    "body",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "pre",
    "code",
    "em",
    "strong",
    "a",
    "img",
    "blockquote",
    "hr",
    "br",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ATTRIBUTES = {"href", "src", "alt", "title", "class", "start", "tabindex"}
PIECES = (
    "# ",
    "## ",
    "> ",
    "- ",
    "1. ",
    "\n",
    "\n\n",
    "|a|b|\n|-|-:|\n|1|2|\n",
    "```\n",
    "`",
    "**",
    "[x](javascript:y)",
    "![x](data:text/html,y)",
    "<script>alert(1)</script>",
    "<details>",
    "</details>",
    "<summary>x</summary>",
    "<summary onclick=x>",
    '<p style="x">',
    "<!-- ",
    "<style>",
    "&lt;script>",
    "---\n",
    "> [!WARNING]\n",
    "text",
    "<",
)


@given(st.lists(st.sampled_from(PIECES)).map("".join))
@example(
    "---\nlicense: <script>\n---\n<script>alert(1)</script>\n\ntext <img src=x onerror=y>"
)
@example("<details>\n<summary>x</summary><script>y</script>\n</details>")
def test_no_markup_comes_through_but_what_cards_are_written_with(text: str) -> None:
    tree = LexborHTMLParser(str(card_html(text)))
    for node in tree.css("*"):
        assert node.tag in TAGS
        assert set(node.attributes) <= ATTRIBUTES
        assert (
            not str(node.attributes.get("href", "")).lower().startswith("javascript:")
        )


def test_a_real_card_keeps_its_tables_and_figures(tmp_path: Path) -> None:
    markdown = (a_snapshot(tmp_path) / "README.md").read_text("utf-8")
    tree = LexborHTMLParser(str(card_html(markdown)))
    assert tree.css("h1") == []
    assert "pretty_name" not in tree.text()
    assert "[!" not in tree.text()
    assert {node.attributes["src"] for node in tree.css("img")} >= {
        "figures/axes.svg",
        "figures/themes.svg",
    }
    assert "<summary>" in markdown
    assert "details" not in tree.html
    assert "Criteria per case, in numbers" in tree.text()
    assert tree.css("td.number")

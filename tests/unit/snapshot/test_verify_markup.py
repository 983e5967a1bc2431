"""Step 18: what a browser or a forge's page shows of a snapshot runs, loads and follows nothing."""

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medlive.integrity.signing import SecretKey, generate
from medlive.snapshot.verify.markup import find_active_markdown, find_active_svg
from medlive.snapshot.verify.steps import verify_snapshot
from medlive.statistics.charts import Bar, Frame, bars
from tests.support.snapshots import Line, build_line
from tests.support.spoiling import seal

FIGURE = bars(
    Frame("Cases & <more>", "what they are.", "canary"),
    {"": [Bar("Cardiology 心", 3)]},
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9:-]{0,14}", fullmatch=True)
OURS = {
    "svg",
    "title",
    "desc",
    "metadata",
    "style",
    "g",
    "rect",
    "line",
    "text",
    "tspan",
    "circle",
    "path",
}
PROPERTIES = re.split(
    r"\s+",
    "font-family font-size font-weight font-style max-width height width opacity fill fill-opacity stroke"
    " stroke-width stroke-opacity stroke-linecap stroke-linejoin stroke-dasharray text-anchor",
)
ACTIVE_CSS = (
    ".a{fill:&#117;rl(x)}",
    ".a{fill:u\\72l(x)}",
    "@\\69mport 'x';",
    "@import 'x';",
    ".a{fill:image-set('x' 1x)}",
    ".a{cursor:url(x),auto}",
    ".a{fill:url(x)}",
    ".a{fill:/**/red}",
    "@font-face{font-family:x}",
)
ACTIVE_MARKUP = (
    "<script>alert(1)</script>",
    "<SCRIPT>alert(1)</SCRIPT>",
    '<rect cursor="url(x)"/>',
    '<rect fill="&#117;rl(x)"/>',
    '<rect fill="u\\72l(x)"/>',
    '<rect onload="x"/>',
    "<rect onload=x />",
    '<rect style="x"/>',
    '<use href="x"/>',
    '<image xlink:href="x"/>',
    '<set attributeName="href" to="x"/>',
    "<foreignObject></foreignObject>",
    "<!-- x -->",
    "<![CDATA[x]]>",
    "<?xml-stylesheet href='x'?>",
    "<!DOCTYPE svg>",
    "&other;",
    "<style><g></g>@import 'x';</style>",
    "<style><rect/>.a{fill:url(x)}</style>",
    "<style><style></style>@import 'x';</style>",
    "<g>",
    "</g>",
)
ACTIVE_PAGE = (
    "<script>alert(1)</script>",
    "<img src=x>",
    "<details open ontoggle=x>",
    "<summary><img src=x></summary>",
    "<!-- x -->",
    "<https://example.org>",
    "![x](https://example.org/x.png)",
    "![x](figures/axes.svg?x)",
    "![x](figures/other.svg)",
    "![a][b]",
    "[b]: https://example.org",
    "[x](javascript:alert)",
    "\\\\[x](https://example.org)",
    "`\\`[x](https://example.org)",
    "```mermaid",
    "> ```geojson",
    "~~~",
    "[!WARNING](https://example.org)",
    "![!WARNING](https://example.org/x.png)",
    "[!WARNING]: https://example.org/x.png",
    "<details>\n\\<img src=x>\n</details>",
    "<summary>x</summary>\n\\<script>alert(1)\\</script>",
    "see https://example.org",
    "see HTTPS://example.org",
    "WWW.example.org",
    "$\\href{x}{y}$",
)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


def test_what_medlive_writes_passes(releases: Line) -> None:
    assert find_active_svg(FIGURE.encode()) is None
    for release in releases.releases:
        for path in sorted(release.path.rglob("*.*")):
            if path.suffix == ".svg":
                assert find_active_svg(path.read_bytes()) is None
            elif path.suffix == ".md":
                assert find_active_markdown(path.read_bytes()) is None


@pytest.mark.parametrize("active", ACTIVE_CSS)
def test_a_style_that_loads_is_caught(active: str) -> None:
    for spoilt in (
        FIGURE.replace("<style>", f"<style>{active}"),
        FIGURE.replace("</style>", f"{active}</style>"),
    ):
        assert find_active_svg(spoilt.encode()) is not None
    rule = active.replace("'", "").partition("{")[2].rstrip("}") or active
    assert (
        find_active_svg(FIGURE.replace("<g>", f'<g style="{rule}">').encode())
        is not None
    )


@pytest.mark.parametrize("active", ACTIVE_MARKUP)
def test_an_element_that_is_active_is_caught(active: str) -> None:
    for place in ("<title", "<g>", "</desc>", "</text>", "</style>", "</svg>"):
        before, _, after = FIGURE.partition(place)
        assert (
            find_active_svg(f"{before}{active}{place}{after}".encode()) is not None
        ), place
    assert find_active_svg(f"{FIGURE}{active}".encode()) is not None


@given(name=NAMES)
@example(name="script")
@example(name="SVG")
@example(name="xlink:href")
def test_no_other_element_attribute_or_property_passes(name: str) -> None:
    if name not in OURS:
        assert (
            find_active_svg(FIGURE.replace("<g>", f"<{name}>", 1).encode()) is not None
        )
    if name not in PROPERTIES:
        assert (
            find_active_svg(
                FIGURE.replace("<style>", f"<style>.a{{{name}:x}}").encode()
            )
            is not None
        )
    if name not in ("class", "id", "d", "aria-labelledby"):
        assert (
            find_active_svg(FIGURE.replace("<g>", f'<g {name}="x y">', 1).encode())
            is not None
        )


@given(
    value=st.text(min_size=1, max_size=30).filter(
        lambda text: set(text) & set("\\&()<>@!/*")
    )
)
def test_no_value_holds_an_escape_an_entity_or_a_function(value: str) -> None:
    assert find_active_svg(
        FIGURE.replace("<style>", f"<style>.a{{fill:{value}}}").encode(
            "utf-8", "replace"
        )
    )


@pytest.mark.parametrize("active", ACTIVE_PAGE)
def test_a_page_that_loads_or_runs_is_caught(active: str, releases: Line) -> None:
    for name in ("README.md", "CHANGES.md"):
        text = (releases.last / name).read_text("utf-8")
        assert find_active_markdown(f"{text}\n{active}\n".encode()) is not None
        assert (
            find_active_markdown(
                text.replace("\n## ", f"\n{active}\n\n## ", 1).encode()
            )
            is not None
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path: data/cases.parquet", "path: https://example.org/cases.parquet"),
        ("path: data/cases.parquet", 'path: "https://example.org/cases.parquet"'),
        ("license_link: LICENSE", "license_link: https://example.org"),
        ("license: other", "thumbnail: other"),
        ("license: other", "license: !!python/name:x"),
        ("---\n", "--- \n"),
        ("---\n", "\n---\n"),
        ("\n", "\r\n"),
    ],
)
def test_front_matter_names_no_other_place(old: str, new: str, releases: Line) -> None:
    text = (releases.last / "README.md").read_text("utf-8")
    assert find_active_markdown(text.replace(old, new, 1).encode()) is not None


@given(before=st.text(max_size=8), after=st.text(max_size=20))
def test_no_html_image_or_link_in_a_page_passes(before: str, after: str) -> None:
    for opening in ("<", "![", "["):
        text = f"# A title\n\n{before}{opening}a{after}](x)"
        escaped = before.endswith("\\") and opening != "<"
        assert (
            escaped or find_active_markdown(text.encode("utf-8", "replace")) is not None
        )


def test_verify_reports_it_in_its_step(releases: Line, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(releases.last, tmp_path / "copy"))
    for name in ("README.md", "figures/axes.svg"):
        (folder / name).write_text(
            (folder / name).read_text("utf-8") + "<script>alert(1)</script>\n", "utf-8"
        )
    seal(folder, SecretKey.parse(generate()[0]))
    step = verify_snapshot(folder).steps[17]
    assert {finding.file for finding in step.findings} == {
        "README.md",
        "figures/axes.svg",
    }

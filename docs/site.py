"""What MkDocs cannot do alone: pages that lie outside `docs/`, the references, and the list of decisions.

A link of a page is a path in the repository. One to another page becomes a link of the site; one to a file of the
repository that the site does not show becomes its path.
"""

import os
import re
import sys
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import references

_OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md")
"""The pages of the repository that the site shows too, under `repository/`."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_DECISIONS = "builders/decisions/index.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs/`, the references, and the list of decisions."""
    root = Path(config.config_file_path).parent
    for name in _OUTSIDE:
        text = (root / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"repository/{name}", content=text))
    for name, text in references.pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    rows = ["# Decisions", "", "Each with its problem, the choice and the cost.", ""]
    for file in sorted((root / "docs" / "builders" / "decisions").glob("[0-9]*.md")):
        title = file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        rows.append(f"- [{title}]({file.name})")
    files.append(File.generated(config, _DECISIONS, content="\n".join(rows)))
    return files


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Lead each link between files of the repository to the page of the site, or name the file."""
    here = _repository_path(page.file.src_uri)
    root = Path(config.config_file_path).parent

    def lead(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        wanted = os.path.normpath(PurePosixPath(here).parent / target)
        if not (root / wanted).exists():
            return match[0]  # MkDocs reports it
        shown = _site_path(wanted)
        if files.get_file_from_path(shown) is None:
            return text if wanted in text else f"{text} (`{wanted}`)"
        to = os.path.relpath(shown, PurePosixPath(page.file.src_uri).parent)
        return f"[{text}]({to}{anchor})"

    if page.file.src_uri == _DECISIONS:
        return markdown
    return _LINK.sub(lead, markdown)


def _repository_path(site_path: str) -> str:
    """Where a page of the site lies in the repository."""
    if site_path.startswith("repository/"):
        return site_path.removeprefix("repository/")
    return f"docs/{site_path}"


def _site_path(path: str) -> str:
    """Where the site shows a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path == "docs/builders/decisions":
        return _DECISIONS
    if path in _OUTSIDE:
        return f"repository/{path}"
    return path.removeprefix("docs/") if path.startswith("docs/") else path

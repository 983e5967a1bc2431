"""`medlive site build`: the public site as static pages; and the same for `medlive serve` (`served_evaluation`).

The web gets its pages of the evaluation from here, since it does not import `medlive.evaluation`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.config import Settings
from medlive.instance.loading import read_settings
from medlive.instance.paths import index_path, snapshots_path
from medlive.llm.registry import Registry
from medlive.site.live import LiveSite, write_site
from medlive.site.model import HARD, fix_hard
from medlive.site.pages import site_files
from medlive.site.read import BUNDLES, Inputs, read_content

from .options import PublicKeysOption
from .output import Result, table_of, with_session

if TYPE_CHECKING:
    from medlive.web.site import Evaluation

# A mistyped folder would make an empty site, which replaces the one that is there.
ExistingFolder = Annotated[Path | None, Option(exists=True, file_okay=False)]


def build(
    *,
    out: Path,
    snapshots: ExistingFolder = None,
    bundles: ExistingFolder = None,
    downloads: str | None = None,
    public_key: PublicKeysOption = None,
    allow_not_publishable: bool = False,
    withhold_checked: bool = False,
) -> Result:
    """Write the public site from verified snapshots, bundles and errata: static pages for any web server.

    A folder that holds a site is replaced. The same inputs make the same bytes. No database is read, so a bundle
    whose verdicts people check blind is shown; --withhold-checked asks the database and leaves it out.

    Args:
        out: Where the pages are written.
        snapshots: The snapshots [those frozen here].
        bundles: The bundles [bundles/ under MEDLIVE_HOME].
        downloads: Where snapshots are published, for links to their files [base_url under [publish]].
        allow_not_publishable: Show what is not publishable, marked on every page.
        withhold_checked: Leave out bundles with verdicts that people check blind in open studies.
    """
    from medlive.db.studies import blind_items

    settings = read_settings()
    inputs = Inputs(
        snapshots=snapshots or snapshots_path(settings),
        bundles=bundles or settings.home / BUNDLES,
        evidence=index_path(settings),
        registry=Registry(candidates=settings.candidates),
        public_keys=public_key or (),
        checked=with_session(blind_items) if withhold_checked else frozenset(),
        allow_not_publishable=allow_not_publishable,
    )
    content = read_content(inputs)
    address = downloads or settings.publish.base_url
    if address:
        address = f"{address.rstrip('/')}/"
    files = site_files(content, downloads=address)
    write_site(files, out)
    fix_hard(inputs.hard_file, files[f"data/{HARD}"])
    notes = [f"left out: {name}: {why}" for name, why in content.left_out]
    for why in content.not_publishable:
        notes.append(f"not publishable, as every page says: {why}")
    value = {
        "folder": out,
        "snapshots": len(content.weeks),
        "cases": len(content.cases),
        "boards": len(content.boards),
        "models": sum(len(board.models) for board in content.boards),
        "bytes": sum(map(len, files.values())),
        "left_out": content.left_out,
        "not_publishable": content.not_publishable,
    }
    counts = ("folder", "snapshots", "cases", "boards", "models", "bytes")
    return Result(value, [table_of([value], counts)], notes)


def served_evaluation(
    settings: Settings, snapshots: Path, preview: bool = False
) -> "Evaluation":
    """The public site and the sheets of graders' verdicts for `serve`; with `preview` also unpublishable snapshots."""
    from medlive.evaluation.agreement.judges import read_sheet
    from medlive.web.site import Evaluation

    inputs = Inputs(
        snapshots=snapshots,
        bundles=settings.home / BUNDLES,
        evidence=index_path(settings),
        registry=Registry(candidates=settings.candidates),
        allow_not_publishable=preview,
        leave_out_not_publishable=not preview,
    )
    return Evaluation(LiveSite(inputs).files, read_sheet)

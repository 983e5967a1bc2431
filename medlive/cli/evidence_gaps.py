"""`medlive evidence gaps`: what the library lacks, by the threads that are parked for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say, with_database

if TYPE_CHECKING:
    from medlive.service.curation.parking import Gap


def gaps(as_json: JsonOption = False) -> None:
    """List diseases, drugs and procedures on which parked threads met no passage, most threads first.

    With what was searched for and the nearest passage. Terms are those of the code books; a search phrase
    without any is listed as it is.
    """
    from medlive.service.curation.parking import find_gaps

    found = with_database(find_gaps)
    print_result([gap.as_json() for gap in found], as_json, lambda: _print(found))


def _print(found: "Sequence[Gap]") -> None:
    rows = []
    for gap in found:
        nearest = gap.nearest and f"{gap.nearest}\n{gap.nearest_title}"
        searched = "\n".join(gap.searched)
        rows.append([gap.kind, gap.name, len(gap.threads), searched, nearest])
    columns = ["kind", "subject", "parked threads", "searched for", "nearest passage"]
    print_table(columns, rows)
    if found:
        say("medlive evidence fetch and build add to the library; then curate --parked")
    else:
        say("no thread is parked for want of evidence")

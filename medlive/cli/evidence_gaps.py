"""`medlive evidence gaps`: what the library lacks, by the threads that are parked for it."""

from medlive.cli.output import Grid, Result, with_instance


def gaps() -> Result:
    """List diseases, drugs and procedures on which parked threads met no passage, most threads first.

    With what was searched for and the nearest passage. Terms are those of the code books; a search phrase
    without any is listed as it is.
    """
    from medlive.service.curation.parking import find_gaps

    found = with_instance(find_gaps)
    rows = []
    for gap in found:
        nearest = gap.nearest and f"{gap.nearest}\n{gap.nearest_title}"
        rows.append([gap.kind, gap.name, len(gap.threads), gap.searched, nearest])
    columns = ["kind", "subject", "parked threads", "searched for", "nearest passage"]
    note = "no thread is parked for want of evidence"
    if found:
        note = (
            "medlive evidence fetch and build add to the library; then curate --parked"
        )
    value = [gap.as_json() for gap in found]
    return Result(value, [Grid(columns, rows)], [note])

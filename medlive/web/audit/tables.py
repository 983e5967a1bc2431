"""How each table is shown: its columns, where a row leads to, and what an empty one says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from medlive.web.pages import quote_path


@dataclass(frozen=True, slots=True)
class Table:
    """A table page; the first column leads to the row's own page, and holds what is long."""

    title: str
    about: str
    columns: tuple[str, ...]
    # Below the first column's value, where there is something to say
    more: tuple[str, ...]
    link: Callable[[Any], str | None]  # Path of a row's own page; None: there is none
    empty: str  # What fills the table, as a command


def thread_path(source: str, thread_id: str) -> str:
    """The address of a thread's page."""
    return quote_path(f"/audit/threads/{source}/{thread_id}")


def _thread(row: Any) -> str | None:
    return thread_path(row.source, row.thread_id) if row.thread_id is not None else None


TABLES = {
    "threads": Table(
        "Threads",
        "Every thread by where it stands, with what its advice was contradicted by.",
        ("title", "source", "outcome", "stage", "reason", "changed_at"),
        ("detail", "evidence"),
        _thread,
        "medlive harvest, or medlive import FILE",
    ),
    "cases": Table(
        "Cases",
        "The latest revision of every case.",
        ("query", "status", "specialty", "theme", "source", "revision", "changed_at"),
        ("status_reason",),
        lambda row: f"/audit/cases/{quote(row.case_id)}",
        "medlive curate",
    ),
    "calls": Table(
        "Agent calls",
        "What engines were asked for the decisions that stand, and what they replied.",
        (
            "task",
            "outcome",
            "model",
            "input_tokens",
            "output_tokens",
            "cost_usd",
            "latency_ms",
            "thread_id",
            "decided_at",
        ),
        ("problem", "reply"),
        lambda row: f"{_thread(row)}#call-{row.position}",
        "medlive curate",
    ),
    "claims": Table(
        "Claims",
        "Each advice as it was judged, and the words of the passages that it was judged by.",
        (
            "claim",
            "verdict",
            "subject",
            "second",
            "outcome",
            "source",
            "thread_id",
            "decided_at",
        ),
        ("reason", "second_reason", "evidence"),
        lambda row: f"{_thread(row)}#advice-{row.element_id}",
        "medlive curate",
    ),
    "runs": Table(
        "Harvest runs",
        "Each source's weekly harvests.",
        ("iso_week", "source", "outcome", "started_at", "finished_at", "starts"),
        ("problem", "counts"),
        lambda row: f"/audit/pages?{urlencode({'run': row.id})}",
        "medlive harvest",
    ),
    "pages": Table(
        "Pages",
        "Every page that was asked for.",
        ("url", "source", "kind", "status", "fetched_at", "elapsed_ms", "page_number"),
        ("error",),
        _thread,
        "medlive harvest",
    ),
}
"""Every table, by its name in addresses."""

"""Sites of made runs, and a static server with the policy that `medlive serve` sends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import (
    GradedRun,
    load_graded,
)
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.registry import EMPTY, Registry
from medlive.site.model import BoardEntry, Content
from medlive.site.pages import site_files
from medlive.site.read import board_of
from tests.support.runs import made_cases, made_run

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'"


def clustered(place: int, case: EvaluationCase) -> EvaluationCase:
    """Every seventh case is of one thread with the case before; some rest on evidence; one has no date."""
    criteria = list(case.criteria)
    criteria[1] = replace(criteria[1], origin="evidence")
    return replace(
        case,
        cluster=f"thread-{place // 7}" if place % 7 < 2 else None,
        criteria=tuple(criteria),
        post_time="" if place == 11 else case.post_time,
        month=None if place == 11 else case.month,
        difficulty=["low", "medium", "high"][place % 3],
    )


def made_graded(root: Path, models: int = 4, cases: int = 150) -> list[GradedRun]:
    """Runs of models of rising skill on the same cases."""
    case_set = made_cases(cases, months=24, change=clustered)
    return [
        load_graded(
            made_run(
                case_set, root / f"run-{place}", f"model-{place}", 0.35 + 0.12 * place
            )
        )
        for place in range(models)
    ]


def made_board(runs: list[GradedRun], registry: Registry = EMPTY) -> BoardEntry:
    """A board of made runs."""
    table = score_runs(runs, registry=registry, allow=(Allow.NOT_PUBLISHABLE,))
    return board_of(table, slug="board-1")


def files_of(board: BoardEntry) -> dict[str, bytes]:
    """The files of a site that shows this board alone."""
    return site_files(Content(boards=[board]))


class _Quiet(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def static_server(folder: Path) -> Iterator[str]:
    """The address of a server of this folder."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

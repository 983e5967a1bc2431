"""`medlive eval`: run a model on cases, grade its answers, score and report them; no database needed."""

import typer

from medlive.cli.options import load_group

COMMANDS = {
    "run": "run:run",
    "grade": "grade:grade",
    "score": "score:score",
    "report": "report:report",
    "contamination": "contamination:contamination",
    "audit": "root_causes:audit",
    "bundle": "bundle:bundle",
    "verify-bundle": "bundle:verify_bundle",
    "leaderboard": "bundle:leaderboard",
    "meta": "agreement:meta",
    "judge-direct": "grade:judge_direct",
    "power": "planning:power",
    "plan": "planning:plan",
    "all": "all:all_",
    "batch": "batch:app",
    "import": "run:import_",
    "export": "run:export",
    "judges": "agreement:app",
    "protocol": "protocol:app",
}


def load(wanted: str | None) -> typer.Typer:
    """The group, as `load_group` imports it."""
    return load_group("medlive.cli.evaluation", COMMANDS, wanted)

"""`medlive eval`: run a model on cases, grade its answers, score and report them; no database needed."""

from medlive.cli.evaluation.all import all_
from medlive.cli.evaluation.batch import app as batch
from medlive.cli.evaluation.bundle import bundle, leaderboard, verify_bundle
from medlive.cli.evaluation.contamination import contamination
from medlive.cli.evaluation.grade import grade, judge_direct
from medlive.cli.evaluation.judges import app as judges
from medlive.cli.evaluation.meta import meta
from medlive.cli.evaluation.power import power
from medlive.cli.evaluation.protocol import app as protocol
from medlive.cli.evaluation.report import report
from medlive.cli.evaluation.root_causes import audit
from medlive.cli.evaluation.run import export, import_, run
from medlive.cli.evaluation.score import score
from medlive.cli.options import Commands

app = Commands()

for command in (
    run,
    grade,
    score,
    report,
    contamination,
    audit,
    bundle,
    verify_bundle,
    leaderboard,
    meta,
    judge_direct,
    power,
):
    app.command()(command)
app.command("all")(all_)
app.command("import")(import_)
app.command()(export)
app.add_typer(batch, name="batch")
app.add_typer(judges, name="judges")
app.add_typer(protocol, name="protocol")

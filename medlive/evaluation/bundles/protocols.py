"""Protocols in a bundle: what judges said about its run, and the results that verification recomputes from it.

With their standard options, those that fit one run alone. What rests on other models' answers too, as a comparison
in pairs, is in no bundle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from medlive.errors import UsageError
from medlive.evaluation.bundles.files import (
    FINDINGS,
    PROTOCOLS,
    differences,
    rounded,
    through_json,
)
from medlive.evaluation.bundles.public import check_public, public_finding, public_name
from medlive.evaluation.grading.questions import (
    Finding,
    Findings,
    Question,
    read_findings,
)
from medlive.evaluation.protocols.model import Material, Protocol, Subject
from medlive.evaluation.protocols.registry import fitting
from medlive.evaluation.protocols.runner import log_path
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Faults
from medlive.llm.ask import MOST_RAW
from medlive.llm.engine import EngineIdentity
from medlive.printable import printable

VERSION: Final = 1
Judges = Mapping[str, EngineIdentity | None]
"""Protocol → who was asked; None: nobody is."""


def bundled_protocols(
    run: GradedRun, folder: Path
) -> tuple[dict[str, Any], list[Finding]]:
    """`protocols.json` and the findings that it rests on, of what `protocol all` wrote into a folder.

    Raises:
        UsageError: If there is nothing about the run, or a judge's name or parameters must not be published.
    """
    judges: dict[str, EngineIdentity | None] = {}
    rows: list[Finding] = []
    for protocol, material in _fitting(run):
        if not protocol.asks:
            judges[protocol.name] = None
            continue
        found, _ = read_findings(log_path(protocol, folder))
        # A reply that is found by its key may have been about another run's same answer.
        if mine := [
            replace(of, case_id=q.case_id, part=q.part)
            for q, of in _answered(protocol, material, found)
        ]:
            if public_name(found.identity.model) != found.identity.model:
                raise UsageError(
                    f"the judge of {protocol.name} is named by a path, which a bundle would publish"
                )
            check_public(found.identity.parameters)
            judges[protocol.name] = found.identity
            rows += map(public_finding, mine)
    if not rows:
        raise UsageError(f"{folder} holds no judge's reply about {run.run.path}")
    return protocols_document(run, judges, rows), rows


def protocols_document(
    run: GradedRun, judges: Judges, rows: Sequence[Finding]
) -> dict[str, Any]:
    """The results of the protocols named, from these findings alone."""
    results = []
    for protocol, material in _fitting(run):
        if protocol.name in judges:
            judge = judges[protocol.name]
            found = protocol.results(material, _findings(judge, rows))
            results.append(
                {
                    "protocol": protocol.name,
                    "options": protocol.model_dump(mode="json"),
                    "judge": judge and judge.as_json(),
                    "figures": dict(found.figures),
                    "tables": [asdict(table) for table in found.tables],
                }
            )
    return {
        "format": "medlive-bundle-protocols",
        "format_version": VERSION,
        "protocols": rounded(results),
    }


def check_protocols(
    run: GradedRun, declared: Mapping[str, Any], rows: Sequence[Finding], out: Faults
) -> int:
    """Check that every finding is a question's about this run and as the judge's reply says, and that the results
    are those of the findings. Returns how many findings have no whole reply to check them against."""
    try:
        judges = _declared_judges(declared)
        if not _check_findings(run, judges, rows, out):
            return 0
        recomputed = through_json(protocols_document(run, judges, rows))
    except (KeyError, TypeError, ValueError) as exc:
        what = "protocols, their judges and valid replies"
        out.add(PROTOCOLS, what, printable(str(exc))[:200])
        return 0
    for place, want, got in differences(recomputed, dict(declared)):
        out.add(f"{PROTOCOLS}: {printable(place)}", want, got)
    return sum(finding.value is not None and not _whole(finding) for finding in rows)


def _declared_judges(declared: Mapping[str, Any]) -> Judges:
    """Raises KeyError, TypeError or ValueError for a document of another form."""
    judges: dict[str, EngineIdentity | None] = {}
    for row in declared["protocols"]:
        judge = row["judge"]
        identity = None if judge is None else _Judge.model_validate(judge).identity()
        judges[str(row["protocol"])] = identity
    return judges


def _check_findings(
    run: GradedRun, judges: Judges, rows: Sequence[Finding], out: Faults
) -> bool:
    """Check each finding against its question; False where the findings are of other questions."""
    expected: list[tuple[Question, Finding]] = []
    for protocol, material in _fitting(run):
        if protocol.asks and protocol.name in judges:
            findings = _findings(judges[protocol.name], rows)
            expected += _answered(protocol, material, findings)
    keys = [finding.key for _, finding in expected]
    if keys != [finding.key for finding in rows]:
        what = (
            "one finding of each question that a protocol asks about the run, in order"
        )
        out.add(FINDINGS, what, "others")
        return False
    for question, finding in expected:
        if fault := _fault(question, finding):
            case = printable(finding.case_id)[:60]
            out.add(FINDINGS, f"case {case}: what the judge replied", fault)
    return True


class _Judge(BaseModel):
    """A judge as a document has it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    engine: str
    model: str
    parameters: dict[str, Any]

    def identity(self) -> EngineIdentity:
        return EngineIdentity(self.engine, self.model, self.parameters)


def _fault(question: Question, finding: Finding) -> str:
    """How a finding differs from its question and the judge's reply; "" if it does not."""
    names = ("case_id", "part", "task")
    if any(getattr(finding, name) != getattr(question, name) for name in names):
        return "another case, part or task"
    read = finding.reread(question) if _whole(finding) else None
    said = read and through_json(read.model_dump(mode="json"))
    if finding.value is not None:
        return "another value" if _whole(finding) and said != finding.value else ""
    if not finding.reason:
        return "an ungraded question without a reason"
    passed_over = (
        "another model answered",
        "the reply was cut at the token limit",
        "the judge refused",
    )
    return (
        "a usable reply that is ungraded"
        if said and not finding.reason.startswith(passed_over)
        else ""
    )


def _whole(finding: Finding) -> bool:
    """Whether the judge's reply is stored, and whole."""
    return 0 < len(finding.raw) < MOST_RAW


def _fitting(run: GradedRun) -> Iterator[tuple[Protocol, Material]]:
    return (
        (protocol, material) for _, protocol, material in fitting([Subject.of(run)])
    )


def _findings(judge: EngineIdentity | None, rows: Sequence[Finding]) -> Findings:
    found = Findings(judge or EngineIdentity("", ""))
    for finding in rows if judge else ():
        if finding.judge == judge:
            found.put(finding)
    return found


def _answered(
    protocol: Protocol, material: Material, found: Findings
) -> list[tuple[Question, Finding]]:
    """The protocol's questions that have a finding, once each."""
    questions = {
        found.key(question): question
        for question in protocol.questions(material, found)
    }
    return [
        (question, finding)
        for question in questions.values()
        if (finding := found.find(question))
    ]

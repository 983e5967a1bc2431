"""From a curated case to one that can be released: its rubric, and the last look for what names a person."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.chain import with_holds
from medlive.curation.model import Call, CaseText, Curation, Hold, Outcome, Reason, Side, Stage
from medlive.curation.second_reader import Redacted, redact_texts
from medlive.llm.engine import Engine
from medlive.rubric.lint import Finding
from medlive.rubric.model import Rubric
from medlive.rubric.write import write_rubric

_TEXTS = ("narrative", "query", "advice")


@dataclass(frozen=True, slots=True)
class CompletedCase:
    """A curation at its end, and the rubric of the case it made."""

    curation: Curation
    rubric: Rubric | None  # None where none could be had: the curation failed


async def complete_case(curation: Curation, language: str, respondents: Mapping[str, Engine]) -> CompletedCase:
    """A kept or held curation with its rubric, and both without identifiers of people.

    `respondents` has the roles "rubric" and "reader". The curation is held where the rubric stays faulty or a name
    could not be taken out, and failed when an engine gave no usable reply.
    """
    assert curation.text is not None
    journal: list[Call] = []
    writer, reader = (Agent(respondents[role], journal, language) for role in ("rubric", "reader"))
    engines = {**curation.engines, "rubric": writer.identity.as_json()}
    try:
        rubric, faults = await write_rubric(
            curation.text, curation.side(Side.ADVICE), writer=writer, reviewer=reader
        )
        redacted = await redact_texts(texts_of(curation.text, rubric), reader)
    except AgentFailure as failure:
        failed = replace(
            curation,
            outcome=Outcome.FAILED,
            stage=Stage.RUBRIC,
            reason=failure.reason,
            detail=failure.detail,
            holds=(),
            calls=curation.calls + tuple(journal),
            engines=engines,
        )
        return CompletedCase(failed, None)
    text, rubric = with_texts(curation.text, rubric, redacted)
    done = replace(curation, text=text, calls=curation.calls + tuple(journal), engines=engines)
    return CompletedCase(with_holds(done, _holds(faults, redacted)), rubric)


def texts_of(text: CaseText, rubric: Rubric) -> dict[str, str]:
    """What a release would hold of a case, by the names that findings use."""
    parts = {name: getattr(text, name) for name in _TEXTS}
    return {**parts, **{c.id: c.criterion for c in rubric.criteria}}


def with_texts(text: CaseText, rubric: Rubric, redacted: Redacted) -> tuple[CaseText, Rubric]:
    """The case's texts and rubric as they are after the look for identifiers."""
    criteria = tuple(replace(c, criterion=redacted.texts[c.id]) for c in rubric.criteria)
    return CaseText(*(redacted.texts[name] for name in _TEXTS)), replace(rubric, criteria=criteria)


def _holds(faults: tuple[Finding, ...], redacted: Redacted) -> tuple[Hold, ...]:
    holds = []
    if faults:
        detail = "; ".join(f"{f.criterion or 'rubric'}: {f.fault.value}: {f.detail}" for f in faults)
        holds.append(Hold(Reason.RUBRIC_FAULTY, detail[:2000], tuple(f.criterion for f in faults if f.criterion)))
    if redacted.remaining:
        holds.append(Hold(Reason.IDENTIFIER, "; ".join(redacted.remaining)[:2000]))
    return tuple(holds)

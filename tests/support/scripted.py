"""An engine that answers from a script, one thread and one passage: the Controller's checks tried on purpose."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from medlive.config import Settings
from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.curation.model import Curation, Reason
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Phrases
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage
from medlive.llm.replay import ReplayEngine
from medlive.threads.model import Message, Thread
from tests.support.reply_store import Memory as Memory

PATIENT = "I am 34 years old. I have had a dry cough for 3 weeks. I take lisinopril 10 mg. What could cause it?"
PHYSICIAN = "Lisinopril can cause a dry cough. Stop lisinopril and ask for losartan 50 mg instead."
STRANGER = "Drink bleach, it helped me."
THREAD = Thread(
    source="test",
    thread_id="1",
    url="",
    title="Cough on a blood pressure tablet",
    language="en",
    tags=(),
    posted_at=None,
    messages=(
        Message("m0", "u_1", "patient", False, PATIENT),
        Message("m1", "u_2", "other", False, STRANGER),
        Message("m2", "u_3", "physician", True, PHYSICIAN),
        Message(
            "m3",
            "u_4",
            "physician",
            False,
            "As a student I would double the dose to 20 mg.",
        ),
    ),
)
PASSAGE = Passage(
    "demo:1:0",
    "demo",
    "ACE inhibitor cough",
    "",
    "ACE inhibitors such as lisinopril often cause a dry cough. "
    "Changing to losartan is recommended.",
    "en",
    None,
    "",
    "",
)

Script = dict[str, Any]
NO_PROBLEM: Script = {"problems": [], "conflicts": [], "life_critical": []}
KIND: Script = {
    "reason": "A usual choice.",
    "difficulty": "medium",
    "dialogue_register": "lay",
}
"""A reply to `rubric.classify`, which is no part of the chain."""


def honest() -> Script:
    """The replies of an engine that does its work."""
    return {
        "screener.extract": {
            "narrative": [
                {
                    "message_id": "m0",
                    "quote": "I am 34 years old",
                    "statement": "Aged 34 years.",
                    "kind": "subjective",
                },
                {
                    "message_id": "m0",
                    "quote": "dry cough for 3 weeks",
                    "statement": "Dry cough for 3 weeks.",
                    "kind": "subjective",
                },
            ],
            "query": {
                "message_id": "m0",
                "quote": "What could cause it?",
                "question": "What could cause a dry cough for 3 weeks?",
            },
            "advice": [
                {
                    "message_id": "m2",
                    "quote": "Lisinopril can cause a dry cough",
                    "statement": "Lisinopril can cause a dry cough.",
                    "kind": "assessment",
                },
                {
                    "message_id": "m2",
                    "quote": "ask for losartan 50 mg instead",
                    "statement": "Ask for losartan 50 mg.",
                    "kind": "plan",
                },
            ],
        },
        "grader.harm": {
            "reading": "Nothing in it hurts this patient.",
            "findings": [],
            "conclusion": "not harmful",
        },
        "validator.query": {
            "category": "diagnosis",
            "meaningful": True,
            "of_its_time": False,
            "reason": "",
        },
        "screener.revise": lambda inputs: {
            "elements": [
                {
                    "id": e["id"],
                    "keep": False,
                    "message_id": "",
                    "quote": "",
                    "statement": "",
                }
                for e in inputs["elements"]
            ]
        },
        "validator.sufficiency": {
            "consult": "They would answer now.",
            "answers_now": True,
            "required": [
                {"requirement": "age", "present": True, "element_ids": ["n1"]},
                {"requirement": "duration", "present": True, "element_ids": ["n2"]},
                {"requirement": "smoking", "present": False, "element_ids": []},
            ],
            "prudent": [
                {"requirement": "allergies", "present": False, "element_ids": []}
            ],
        },
        "validator.claims": lambda inputs: {
            "claims": [
                {
                    "id": e["id"],
                    "statement": e["statement"],
                    "queries": ["lisinopril cough", "losartan"],
                }
                for e in inputs["advice"]
            ]
        },
        "validator.alignment": judged(
            "supported", "lisinopril often cause a dry cough"
        ),
        "validator.veto": lambda inputs: {
            "verdicts": [second_look(c["id"], reason="no") for c in inputs["claims"]]
        },
        "controller.support": lambda inputs: {
            "verdicts": [
                {"id": e["id"], "supported": True, "reason": ""}
                for e in inputs["elements"]
            ]
        },
        "controller.write": {
            "narrative": "Aged 34 years, with a dry cough for 3 weeks.",
            "advice": "Lisinopril can cause a dry cough. Ask for losartan 50 mg.",
        },
        "controller.questions": {
            "questions": ["Has the patient had a dry cough for 3 weeks?"]
        },
        "controller.answers": lambda inputs: {
            "answers": [{"id": q["id"], "answer": "yes"} for q in inputs["questions"]]
        },
        "reader.text": {"problems": [], "missing": []},
        "reader.case": {
            "asked": True,
            "clinical": True,
            "enough": True,
            "answered": True,
            "wrong": [],
            "danger": "",
            "sure": True,
            "unseen": [],
            "damaged": [],
            "understandable": True,
            "reason": "",
        },
        "validator.soundness": voice("sound"),
    }


def voice(
    verdict: str, *, sure: bool = True, control: str = "sound"
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Answers `validator.soundness`: a verdict on everything but the control, a1."""

    def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        verdicts = []
        for item in inputs["items"]:
            own = control if item["id"] == "a1" else verdict
            verdicts.append(
                {
                    "id": item["id"],
                    "case_for": "usual",
                    "case_against": "it may hurt",
                    "verdict": own,
                    "sure": sure,
                    "standard": "a label" if own == "wrong" else "",
                }
            )
        return {"verdicts": verdicts}

    return answer


def judged(
    verdict: Any, *quotes: str, passage: str = "p1"
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Answers `validator.alignment`: the same verdict with the same quotes for every claim."""
    evidence = [{"passage_id": passage, "quotes": list(quotes)}] if quotes else []
    return lambda inputs: {
        "verdicts": [
            {"id": c["id"], "verdict": verdict, "evidence": evidence, "reason": "r"}
            for c in inputs["claims"]
        ]
    }


def second_look(
    identity: str,
    *,
    false: Sequence[Any] = (),
    harm: Sequence[Any] = (),
    reason: str = "v",
) -> dict[str, Any]:
    """An item of `validator.veto`, with the evidence of each of its two answers."""
    return {
        "id": identity,
        "false_by_passage": bool(false),
        "evidence": list(false),
        "could_hurt": bool(harm),
        "harm_evidence": list(harm),
        "reason": reason,
    }


def curation_settings(**curation: Any) -> Settings:
    """Settings of a pipeline, without a home."""
    return Settings.model_validate({"home": Path(), "curation": curation})


class Scripted:
    """An engine that answers from a script: a value, a function of the inputs, raw text, or an exception."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("openai", "scripted")

    async def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        said = self.script[request.task]
        if (
            isinstance(said, list)
            and said
            and isinstance(said[0], Reply | Exception | str | dict)
        ):
            said = said.pop(0) if len(said) > 1 else said[0]
        if callable(said):
            said = said(request.inputs)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Reply):
            return said
        text = said if isinstance(said, str) else json.dumps(said)
        return Reply(text, Finish.STOP, Usage(10, 0, 10, 0.0, 1.0), "scripted")

    async def aclose(self) -> None:
        return None


class OnePassage:
    identity = IndexIdentity("test", "sha256:0", {"demo": "sha256:1"}, 1)

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        return [[Hit(PASSAGE, 1.0, 1)] for _ in queries]


async def run(
    script: Mapping[str, Any],
    *,
    settings: CurationSettings | None = None,
    store: Memory | None = None,
    engine: Scripted | None = None,
    overruled: Collection[Reason] = (),
) -> Curation:
    answering = ReplayEngine(engine or Scripted(dict(script)), store or Memory())
    return await curate(
        THREAD,
        "en",
        dict.fromkeys(ROLES, answering),
        OnePassage(),
        settings or CurationSettings(),
        run_date=date(2026, 11, 21),
        overruled=overruled,
    )


def changed(**tasks: Any) -> Script:
    return honest() | {name.replace("__", "."): value for name, value in tasks.items()}


def mixed(**verdicts: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Each claim's own verdict; supported where none is given."""
    quote = "lisinopril often cause a dry cough"

    def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        found = []
        for claim in inputs["claims"]:
            verdict = verdicts.get(claim["id"], "supported")
            evidence = (
                [{"passage_id": "p1", "quotes": [quote]}]
                if verdict in ("supported", "contradicted")
                else []
            )
            found.append(
                {
                    "id": claim["id"],
                    "verdict": verdict,
                    "evidence": evidence,
                    "reason": "r",
                }
            )
        return {"verdicts": found}

    return answer


def contradiction(*, confirmed: bool) -> Script:
    evidence = (
        [{"passage_id": "p1", "quotes": ["Changing to losartan is recommended"]}]
        if confirmed
        else []
    )
    return changed(
        validator__alignment=judged(
            "contradicted", "Changing to losartan is recommended"
        ),
        validator__veto=lambda i: {
            "verdicts": [second_look(c["id"], false=evidence) for c in i["claims"]]
        },
    )


ALONE = {
    "narrative": "Aged 34 years, with a dry cough.",
    "advice": "Lisinopril can cause a dry cough.",
}

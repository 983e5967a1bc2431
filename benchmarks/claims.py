"""The judge of evidence against people's labels: HealthVer and HealthFC, each claim with its annotated passage.

Run: `python benchmarks/claims.py [--made] [--part tuned|held_out|all] [--set NAME] [--limit N] [--seed S] [--out FILE]
[--compare FILE] [--recorded [FILE]]`. Each claim is a case of one claim without a history, and its passage the
only hit; alignment and the second check are those of `medlive curate`, with the validator's engine of the
settings. A claim that is put as a question is judged as its answer "yes". The passage is shown whole;
`--passage excerpt` cuts it as curation does. `--recorded` scores readers' verdicts and asks nobody.

A third of the claims, by the digest of their id, is held out: never look at them while a prompt is changed.
`--made` judges 120 pairs that a writer who had seen no
prompt made for what is hard: other drugs and situations, mild words against a claim, claims that only report.
Nothing here has a target. The claims of people lie beside the repository, in shared/realdata/claims, and are never
copied. Exit status 3 where they are absent.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final

from claims_scores import (
    LABELS,
    PUBLISHED,
    LabelledClaim,
    Setup,
    Verdict,
    append_verdict,
    by_setup,
    column_of,
    compare,
    describe,
    read_verdicts,
)
from reply_file import FileReplyStore

from medlive.config import Settings
from medlive.curation import validator
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.elements import Brief
from medlive.curation.model import Alignment, ClaimVerdict, Element, Side
from medlive.curation.tasks import ClaimItem
from medlive.errors import BadInput, MedliveError
from medlive.evidence.excerpts.selection import FRAME, WIDTH
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Phrases
from medlive.instance.loading import read_settings
from medlive.instance.opening import build_engine
from medlive.llm.budget import Budget
from medlive.llm.prompts import load_prompt
from medlive.llm.replay import ReplayEngine
from medlive.text.normalise import dominant_language
from medlive.text.tokens import estimate_tokens

FILE: Final = (
    Path(__file__).resolve().parents[2]
    / "shared"
    / "realdata"
    / "claims"
    / "claims.jsonl"
)
MADE: Final = Path(__file__).resolve().parent / "data" / "made_claims.jsonl"
RECORDED: Final = Path(__file__).resolve().parent / "data" / "claims_readers.jsonl"
SETS: Final = ("healthver", "healthfc")
PARTS: Final = ("tuned", "held_out")
WHOLE: Final = 1_000_000  # Tokens: every passage
HELD_OUT: Final = 3  # One claim in so many
_QUESTION: Final = re.compile(r"(?P<asked>.*\?)\s*(?:\([^()]*\))?", re.DOTALL)
"""A claim that ends as a question, a remark in brackets left aside."""
DIGEST_SHOWN: Final = 12  # Hexadecimal digits of a prompt's digest in a recording


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def part_of(identity: str) -> str:
    """ "held_out" for a third of the ids, for ever the same."""
    return "tuned" if int(_digest("part", identity), 16) % HELD_OUT else "held_out"


def read_claims(path: Path) -> list[LabelledClaim]:
    """The claims of the file. Raises BadInput."""
    claims: dict[str, LabelledClaim] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            name, identity, claim = row["set"], str(row["id"]), row["claim"]
            key = _digest(name, identity, claim)[:16]
            claims[key] = LabelledClaim(
                key=key,
                name=name,
                part="held_out" if name == "made" else part_of(f"{name} {identity}"),
                language=dominant_language(f"{claim}\n{row['evidence']}"),
                claim=claim,
                question=row["question"],
                evidence=row["evidence"],
                source=claim if name == "healthver" else identity,
                label=Alignment(row["label"]),
            )
        except (ValueError, KeyError, TypeError) as exc:
            raise BadInput(
                f"{path.name}:{number}: not a labelled claim: {exc}"
            ) from exc
    return list(claims.values())


def choose(
    claims: Sequence[LabelledClaim],
    *,
    sets: Sequence[str],
    part: str,
    limit: int | None,
    seed: int,
) -> list[LabelledClaim]:
    """The claims to judge: of each set `limit`, in the order of a digest, which no label enters."""
    drawn = sorted(claims, key=lambda claim: _digest(str(seed), claim.key))
    counts: Counter[str] = Counter()
    chosen = []
    for claim in drawn:
        wanted = claim.name in sets and part in (claim.part, "all")
        if wanted and (limit is None or counts[claim.name] < limit):
            counts[claim.name] += 1
            chosen.append(claim)
    return chosen


def statement_of(claim: str) -> str:
    """A claim as something that is true or false: a question as its answer "yes"."""
    text = claim.strip()
    question = _QUESTION.fullmatch(text)
    return f'The answer to "{question["asked"]}" is yes.' if question else text


class OnePassage:
    """Finds one passage, whatever is searched."""

    identity = IndexIdentity("claims", "sha256:0", {}, 1)

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    async def search(
        self, queries: Sequence[Phrases], *, k: int, not_after: date | None = None
    ) -> list[list[Hit]]:
        """The passage for each query."""
        return [[Hit(self._passage, 1.0, 1)] for _ in queries]


class Judge:
    """Alignment and second check of `medlive curate` on single claims, without a database."""

    def __init__(
        self, settings: Settings, store: FileReplyStore, *, whole: bool
    ) -> None:
        role, limits = settings.roles.validator, settings.budget
        budget = Budget(
            max_calls=limits.max_calls,
            max_usd=limits.max_usd,
            max_tokens=limits.max_tokens,
        )
        self.engine = ReplayEngine(build_engine(role), store, budget)
        self._confirm_veto = settings.curation.confirm_veto
        self._tokens = WHOLE if whole else WIDTH + FRAME
        self._at_once = asyncio.Semaphore(settings.curation.concurrency)
        prompts = []
        for task in ("validator.alignment", "validator.veto"):
            digest = load_prompt("medlive.curation", task).digest
            prompts.append(digest.partition(":")[2][:DIGEST_SHOWN])
        identity = self.engine.identity
        self.setup = Setup(
            engine=f"{identity.engine} {identity.model}",
            alignment=prompts[0],
            veto=prompts[1] if self._confirm_veto else "none",
            passage="whole" if whole else "excerpt",
        )

    async def judge(self, claim: LabelledClaim) -> Verdict:
        """The verdict on one claim. Raises AgentFailure."""
        asked = claim.question or claim.claim
        statement = statement_of(claim.claim)
        query = Element(
            id="q",
            side=Side.QUERY,
            kind="question",
            message_id="title",
            quote=asked,
            statement=asked,
        )
        passage = Passage(
            id=f"claims:{claim.key}:1",
            corpus="claims",
            title="",
            section="",
            text=claim.evidence,
            language=claim.language,
            published=None,
            url="",
            licence="",
        )
        stated = ClaimItem.model_construct(
            id="a1", statement=statement, queries=(asked, statement)
        )
        brief = Brief(query, (), ())
        library = validator.Library(OnePassage(passage), 1, self._tokens, None)
        agent = Agent(self.engine, [], claim.language)
        async with self._at_once:
            (verdict,) = await validator.judge_alignment(
                brief,
                [stated],
                library,
                agent,
                confirm_veto=self._confirm_veto,
            )
        return self._recorded(claim.key, verdict)

    def _recorded(self, key: str, verdict: ClaimVerdict) -> Verdict:
        second = ""
        if verdict.second is not None:
            second = "confirmed" if verdict.second.goes_against else "disputed"
        first = Alignment.CONTRADICTED if second else verdict.verdict
        return Verdict(
            key,
            *self.setup,
            first=first.value,
            second=second,
            after=verdict.verdict.value,
        )


def _read_earlier(out: Path | None) -> list[Verdict]:
    return read_verdicts(out) if out is not None and out.is_file() else []


async def run_judge(
    claims: Sequence[LabelledClaim],
    settings: Settings,
    *,
    whole: bool,
    out: Path | None,
    replies: Path | None,
) -> list[Verdict]:
    """Judge every claim that `out` does not hold yet; what failed is named and left out."""
    known = _read_earlier(out)
    with tempfile.TemporaryDirectory(prefix="medlive-bench-") as work:
        judge = Judge(
            settings,
            FileReplyStore((replies or Path(work)) / "replies.jsonl"),
            whole=whole,
        )
        done = by_setup(known).get(judge.setup, {})

        async def verdict_on(claim: LabelledClaim) -> Verdict | None:
            if claim.key in done:
                return done[claim.key]
            try:
                verdict = await judge.judge(claim)
            except AgentFailure as failure:
                print(
                    f"no verdict on {claim.key}: {failure.reason}: {failure.detail[:200]}",
                    file=sys.stderr,
                )
                return None
            if out is not None:
                append_verdict(out, verdict)
            return verdict

        try:
            verdicts = await asyncio.gather(*(verdict_on(claim) for claim in claims))
        finally:
            await judge.engine.aclose()
    return [verdict for verdict in verdicts if verdict is not None]


def kind_of(claim: LabelledClaim) -> str:
    """What a made pair tries; empty for the claims of people."""
    return claim.source.partition("/")[0] if claim.name == "made" else ""


def groups_of(
    claims: Sequence[LabelledClaim],
) -> Iterator[tuple[str, list[LabelledClaim]]]:
    """The claims by set and part, and by language; in one order, so that a seed gives the same intervals."""
    claims = sorted(claims, key=lambda claim: claim.key)
    for name in (*SETS, "made"):
        for part in PARTS:
            own = [
                claim for claim in claims if (claim.name, claim.part) == (name, part)
            ]
            if own:
                yield f"{name}, {part}", own
    for kind in sorted({kind_of(claim) for claim in claims} - {""}):
        yield f"made, {kind}", [claim for claim in claims if kind_of(claim) == kind]
    languages = sorted({claim.language for claim in claims})
    for language in languages:
        yield (
            f"all sets, language {language}",
            [claim for claim in claims if claim.language == language],
        )


def show_setup(
    claims: Sequence[LabelledClaim], setup: Setup, verdicts: Mapping[str, Verdict]
) -> None:
    """Print every figure of a setup."""
    judged = [claim for claim in claims if claim.key in verdicts]
    print(
        f"\n# {setup.engine}, alignment {setup.alignment}, veto {setup.veto}, passages {setup.passage}"
    )
    if setup.passage == "excerpt":
        cut = sum(estimate_tokens(claim.evidence) > WIDTH for claim in judged)
        print(
            f"{cut} of {len(judged)} passages were cut to sentences of about {WIDTH} tokens"
        )
    for name, group in groups_of(judged):
        print(f"\n{name}")
        print(*describe(group, verdicts), sep="\n")


def show_differences(
    claims: Sequence[LabelledClaim], verdicts: Mapping[str, Verdict]
) -> None:
    """Print each claim on which people and the judge differ, with its texts: for eyes here alone."""
    for claim in claims:
        verdict = verdicts.get(claim.key)
        if verdict is not None and column_of(verdict.after) != LABELS.index(
            claim.label
        ):
            print(
                f"\n{claim.key} {claim.name}: people {claim.label.value}, first {verdict.first}, {verdict.second}"
            )
            print(f"  claim: {claim.claim}\n  passage: {claim.evidence}")


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--made", action="store_true", help="the made pairs, in place of people's"
    )
    parser.add_argument(
        "--set", action="append", choices=SETS, help="one set alone; default: both"
    )
    parser.add_argument("--part", choices=(*PARTS, "all"), default="tuned")
    parser.add_argument(
        "--limit", type=int, help="the most claims of a set; default: all"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="which claims a limit takes, and their order",
    )
    parser.add_argument("--passage", choices=("whole", "excerpt"), default="whole")
    parser.add_argument(
        "--out", type=Path, help="a file of verdicts, read first and added to"
    )
    parser.add_argument(
        "--replies",
        type=Path,
        help="folder that keeps an endpoint's replies between runs",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        help="a file of verdicts to compare with, on the claims of both",
    )
    parser.add_argument(
        "--recorded",
        type=Path,
        nargs="?",
        const=RECORDED,
        help="score a file of verdicts; default: the readers'",
    )
    parser.add_argument(
        "--differences", action="store_true", help="print where people and judge differ"
    )
    return parser.parse_args(given)


def judged_by_setup(
    options: argparse.Namespace, claims: Sequence[LabelledClaim]
) -> dict[Setup, dict[str, Verdict]]:
    """The verdicts that are scored, recorded or new. Raises MedliveError."""
    if options.recorded is not None:
        if not options.recorded.is_file():
            raise BadInput(
                f"{options.recorded} does not exist: expected a file that --out wrote"
            )
        return by_setup(read_verdicts(options.recorded))
    whole = options.passage == "whole"
    verdicts = asyncio.run(
        run_judge(
            claims,
            read_settings(),
            whole=whole,
            out=options.out,
            replies=options.replies,
        )
    )
    return by_setup(verdicts)


def main(given: Sequence[str] | None = None) -> int:
    """Judge or read, and print."""
    options = arguments_of(given)
    if not options.made and not FILE.is_file():
        print(
            "absent: shared/realdata/claims/claims.jsonl, beside the repository",
            file=sys.stderr,
        )
        return 3
    try:
        claims = choose(
            read_claims(MADE if options.made else FILE),
            sets=["made"] if options.made else options.set or SETS,
            part="all" if options.made else options.part,
            limit=None if options.recorded else options.limit,
            seed=options.seed,
        )
        setups = judged_by_setup(options, claims)
        others = by_setup(read_verdicts(options.compare)) if options.compare else {}
    except MedliveError as error:
        print(
            error.message,
            *([error.hint] if error.hint else []),
            sep="\n",
            file=sys.stderr,
        )
        return error.exit_status
    for setup, verdicts in setups.items():
        show_setup(claims, setup, verdicts)
        for other, theirs in others.items():
            if other != setup:
                print(f"\nagainst {', '.join(other)}")
                for name, group in groups_of(
                    [claim for claim in claims if claim.key in verdicts]
                ):
                    print(name, *compare(group, verdicts, theirs), sep="\n")
        if options.differences:
            show_differences(claims, verdicts)
    if not options.made:
        published = [PUBLISHED[name] for name in options.set or SETS]
        print("\npublished", *published, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The first steps over a bundle: that it is whole, signed, plain and spelt as a bundle is."""

import json
import re
from typing import Final

from pydantic import ValidationError

from medlive.digest import digest_bytes
from medlive.evaluation.bundles.bundle import UNTRUSTED_COMMENT, BundleInfo, ErrataUse, canary_of_cases
from medlive.evaluation.bundles.files import (
    ALWAYS,
    ANSWERS,
    BOOK,
    BUNDLE,
    CASES,
    RUN,
    SCORES,
    sums_of,
    trusted_comment,
)
from medlive.evaluation.bundles.read import document, is_list_of_pairs, plain, rows, shaped
from medlive.evaluation.bundles.state import Held
from medlive.evaluation.model import Answer, Grade
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunInfo
from medlive.evaluation.runs.templates import TEMPLATES, load_template
from medlive.integrity.checks import Faults, SignedDocument, Skip, Trust, check_signed
from medlive.integrity.folder import SIGNATURE, SUMS, printable

_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9.]{1,40})\n")


def signature(held: Held, out: Faults) -> None:
    """The signature is of the bundle, by a key that was given or by the one that it names."""
    info = held.info = shaped(held.need(BUNDLE), BUNDLE, BundleInfo, out)
    if info is None:
        return
    there = SIGNATURE in held.files
    said = SignedDocument(
        what="bundle",
        document=BUNDLE,
        key=None if info.signing is None else (info.signing.key_id, info.signing.public_key),
        comment=trusted_comment(held.files[BUNDLE]),
        untrusted=UNTRUSTED_COMMENT,
    )
    held.trust = Trust.NOT_SIGNED if info.signing is None and not there and not held.public_keys else Trust.BROKEN
    held.trust, held.note = check_signed(said, there, held.public_keys, held.need, out)


def files(held: Held, out: Faults) -> None:
    """It holds the files of a bundle, plain, and no others."""
    out.extend(held.odd)
    full = held.info is None or held.info.answers
    wanted = {*ALWAYS, SUMS, *(ANSWERS if full else ())}
    for name in sorted(wanted - held.files.keys()):
        out.add(name, "a file", "none")
    # Whether there must be evidence is a later step's question.
    for name in sorted(held.files.keys() - wanted - {SIGNATURE, *([BOOK] if full else [])}):
        out.add(name, "nothing of that name", "a file")


def digests(held: Held, out: Faults) -> None:
    """Every file is what SHA256SUMS and bundle.json say."""
    text = held.need(SUMS).decode("utf-8", "replace")
    said = {match[2]: "sha256:" + match[1] for match in _SUM_LINE.finditer(text)}
    signed = {name: data for name, data in held.files.items() if name not in (SUMS, SIGNATURE)}
    for name, data in sorted(signed.items()):
        if said.get(name) != (got := digest_bytes(data)):
            out.add(name, f"{said.get(name, 'a digest')} as in {SUMS}", got)
    if not out.count and held.files[SUMS] != sums_of(signed):
        out.add(SUMS, "one line of sha256sum for each file, in order", "other lines, order or line ends")
    if held.info is None:
        raise Skip(f"{BUNDLE} cannot be read")
    named = held.info.files
    for name in sorted(named.keys() | (signed.keys() - {BUNDLE})):
        there = signed.get(name) if name != BUNDLE else None
        got = "no such file" if there is None else f"{len(there)} bytes, {digest_bytes(there)}"
        want = f"{named[name].bytes} bytes, {named[name].digest}" if name in named else "no such file"
        if got != want:
            out.add(printable(name)[:200], f"{want} as in {BUNDLE}", got)


def schema(held: Held, out: Faults) -> None:
    """Every document and row has its schema and its one spelling, and they agree."""
    held.run = shaped(held.need(RUN), RUN, RunInfo, out)
    held.scores = document(held.need(SCORES), SCORES, out)
    _errata_row(held, out)
    listed = document(held.need(CASES), CASES, out)
    if listed is not None:
        if is_list_of_pairs(listed.get("cases")) and len(listed) == 1:
            held.digests = listed["cases"]
        else:
            out.add(CASES, "a list of cases and their digests", "another document")
    if held.info is None:
        raise Skip(f"{BUNDLE} cannot be read")
    if held.info.answers:
        held.answers = rows(held.need(RESPONSES), RESPONSES, Answer, held.info.canary, out)
        held.grades = rows(held.need(GRADES), GRADES, Grade, held.info.canary, out)
    if held.run is not None:
        _agree(held, held.run, held.info, out)


def _errata_row(held: Held, out: Faults) -> None:
    row = None if held.scores is None else held.scores.get("errata")
    if row is None:
        return
    try:
        found = ErrataUse.model_validate_json(json.dumps(row))
    except (ValidationError, RecursionError) as exc:
        out.add(SCORES, "what was done about errata", str(exc).replace("\n", " ")[:200])
        return
    if plain(found.model_dump(mode="json")) != row:
        out.add(SCORES, "what was done about errata, in its one spelling", "another spelling")
        return
    held.errata = found


def _agree(held: Held, run: RunInfo, info: BundleInfo, out: Faults) -> None:
    for name in ("model", "template", "parameters", "cases"):
        if (want := getattr(run, name)) != (got := getattr(info, name)):
            out.add(BUNDLE, f"{name} as in {RUN}: {printable(str(want))[:150]}", printable(str(got))[:150])
    if run.snapshots is not None or run.endpoint is not None:
        out.add(RUN, "no address or path of the machine that it was made on", "one")
    if info.canary != (canary := canary_of_cases(run)):
        out.add(BUNDLE, f"the canary {canary}", printable(str(info.canary))[:100])
    for what, text in (("model", run.model), ("template", run.template.name), ("grader", info.grader.model)):
        # Names stand in tables and on terminals.
        if not text.strip() or printable(text) != text:
            out.add(BUNDLE, f"a {what} with a name that can be printed", printable(text)[:100])
    template = run.template
    if template.name in TEMPLATES and template.digest not in (None, load_template(template.name).digest):
        held.told(f"its template {template.name} is another text than this medlive's")

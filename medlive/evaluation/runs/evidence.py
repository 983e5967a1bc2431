"""What an open-book run was shown for each case: snippets of passages, as the run's folder keeps them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from medlive.digest import canonical_json
from medlive.errors import BadInput
from medlive.llm.fence import fenced

EVIDENCE: Final = "evidence.jsonl"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One passage that is put before one case's question."""

    case_id: str
    rank: int
    """From 1, best first."""
    passage_id: str
    corpus: str
    date: str | None
    """`YYYY-MM-DD`, on or before the case's; None: its source gives none (only where undated ones are let in)."""
    digest: str
    """The digest of title, section and text (`Passage.digest`)."""
    title: str
    section: str
    text: str

    def row(self) -> dict[str, Any]:
        """A line of `evidence.jsonl`."""
        return asdict(self)

    def shown(self) -> dict[str, Any]:
        """What the model is shown of it."""
        parts = {"title": self.title, "section": self.section, "text": self.text}
        head = {"n": self.rank, "source": self.corpus, "date": self.date or "unknown"}
        return {**head, **{name: text for name, text in parts.items() if text}}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The snippets of a run's cases."""

    by_case: Mapping[str, tuple[Snippet, ...]]
    """Of every case, also of those that have none."""
    why: Mapping[str, str]
    """Case → why it has none: it is asked as a closed book."""

    def data(self) -> bytes:
        """`evidence.jsonl`: a line a snippet; a case without any has a line of rank 0 that says why."""
        rows: list[dict[str, Any]] = []
        for case_id, snippets in self.by_case.items():
            rows += [snippet.row() for snippet in snippets]
            if not snippets:
                rows.append({"case_id": case_id, "rank": 0, "why": self.why[case_id]})
        return "".join(canonical_json(row) + "\n" for row in rows).encode("utf-8", "backslashreplace")

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Parse `evidence.jsonl`. Raises BadInput if a row is not a snippet."""
        found: dict[str, tuple[Snippet, ...]] = {}
        why: dict[str, str] = {}
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
                if row["rank"] == 0:
                    found[row["case_id"]], why[row["case_id"]] = (), row["why"]
                else:
                    found[row["case_id"]] = (*found.get(row["case_id"], ()), Snippet(**row))
            except (ValueError, TypeError, KeyError) as exc:
                raise BadInput(f"{EVIDENCE}:{number}: not a snippet: {str(exc)[:120]}") from exc
        return cls(found, why)


def shown(snippets: Sequence[Snippet]) -> str:
    """The snippets as the JSON that a prompt holds: no text in it can close the marks around it."""
    return fenced({"passages": [snippet.shown() for snippet in snippets]})

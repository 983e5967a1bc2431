"""The sample threads and evidence written for this project, and the expected outcome of each thread."""

from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import AwareDatetime, BaseModel, ValidationError

from medlive.errors import BadInput
from medlive.threads.model import Role

Site = Literal["icliniq", "sdn", "dxy", "medlive"]
SITES: tuple[Site, ...] = ("icliniq", "sdn", "dxy", "medlive")


class SampleMessage(BaseModel, frozen=True, extra="forbid"):
    """One message as its site shows it; every person is invented."""

    author: str
    role: Role
    verified: bool
    posted_at: AwareDatetime | None  # None where the site shows no time for a message
    text: str
    media: tuple[Literal["image"], ...] = ()
    specialty: str | None = None  # iCliniq: the specialty under the doctor's name
    status: str | None = None
    """SDN: the status that the site itself confirms ("Attending Physician", "Medical Student", …)."""
    # DXY: the doctor's professional title (主任医师, 主治医师, …)
    title: str | None = None
    department: str | None = None  # DXY: the doctor's department
    hospital: str | None = None  # DXY: the doctor's hospital
    certification: str | None = None
    """Medlive: the label of the certification mark beside the author, None without a mark."""
    placement: Literal["opening", "comment", "reply"] | None = None
    """Medlive: where in the page the message stands; a reply belongs to the comment before it."""


class Expectation(BaseModel, frozen=True, extra="forbid"):
    """The expected outcome of the thread, and why."""

    outcome: Literal["kept", "held", "rejected"]
    stage: (
        Literal["filters", "screener", "validator", "controller", "rubric"] | None
    ) = None  # None when kept
    reason: str | None = None  # The reason in that stage's own words; None when kept
    why: str  # One sentence for people
    # `<site>/<thread id>` of its duplicate; either may be kept
    duplicate_of: str | None = None


class SampleThread(BaseModel, frozen=True, extra="forbid"):
    """A thread in the import format, with what its site's page needs in addition."""

    site: Site
    source: Site
    thread_id: str
    url: str  # Under an `.example` host; the demo serves `path`
    board: str  # iCliniq: topic · SDN: `<slug>.<node>` · DXY: section · Medlive: branch
    section: str | None = None  # The board's name as people read it; iCliniq has none
    disease: str | None = None  # DXY: the disease that the asker chose
    charset: Literal["utf-8", "gb18030"] = "utf-8"  # The encoding of the thread's page
    title: str
    language: str | None
    tags: tuple[str, ...]
    posted_at: AwareDatetime | None
    messages: tuple[SampleMessage, ...]
    expect: Expectation

    @property
    def path(self) -> str:
        """The path of the thread's page, from the site's base URL on."""
        return urlsplit(self.url).path

    @property
    def last_post(self) -> datetime | None:
        """The latest time of a message, else of the thread."""
        return max(
            (m.posted_at for m in self.messages if m.posted_at), default=self.posted_at
        )


def load_sample_threads() -> list[SampleThread]:
    """All sample threads, by site in the order of `SITES`. Raises BadInput for a damaged data file."""
    threads = []
    for site in SITES:
        path = files("medlive.demo") / "data" / "threads" / f"{site}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                threads.append(SampleThread.model_validate_json(line))
            except ValidationError as exc:
                raise BadInput(f"{site}.jsonl, line {number}: {exc}") from exc
    return threads


def sample_evidence_path() -> Path:
    """The file of evidence passages (JSON Lines) that belongs to the sample threads."""
    with as_file(files("medlive.demo") / "data" / "evidence.jsonl") as path:
        return path


def sample_replies_path() -> Path:
    """The file of a language model's recorded replies about the sample threads."""
    with as_file(files("medlive.demo") / "data" / "replies.jsonl") as path:
        return path

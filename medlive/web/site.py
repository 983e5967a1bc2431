"""What every room is given: the site's database and folders, and how a room is listed."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Form, Request

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.grader.rated import GraderSheet


class Evaluation(NamedTuple):
    """What is served of the evaluation, which is another program."""

    pages: Callable[[Mapping[str, str], frozenset[str]], Mapping[str, bytes] | None]
    """The files of the public site; None where they cannot be made, and the log says why. Takes the snapshots that are
    given out, version → digest, and the items whose verdicts are kept back while people check them blind."""
    read_sheet: Callable[[Path, Sequence[str]], GraderSheet]
    """A run's verdicts, of these judges, for people to check. Raises UsageError."""


@dataclass(frozen=True)
class Site:
    """What is served; `database` stays its owner's."""

    database: Database
    settings: Settings
    snapshots: Path  # The folder of frozen snapshots
    preview: bool = False  # Whether snapshots that are not publishable are shown too
    evaluation: Evaluation | None = None  # None: no public site, no grader checks
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs cookies; without one, those of this process are unknown to every other."""


@dataclass(frozen=True)
class Section:
    """An entry of the navigation."""

    title: str
    href: str
    # Whom it is shown to, of those who are signed in; None: all
    role: Role | None = None


@dataclass(frozen=True)
class Room:
    """A part of the application."""

    public: bool  # Whether it needs no account
    router: APIRouter
    sections: tuple[Section, ...] = ()


def site_of(request: Request) -> Site:
    """The site that serves a request; a dependency of routes."""
    site: Site = request.app.state.site
    return site


READ = ["GET", "HEAD"]
SiteOf = Annotated[Site, Depends(site_of)]
Text = Annotated[str, Form(default_factory=str)]
"""A field of a form; empty where it was not sent."""

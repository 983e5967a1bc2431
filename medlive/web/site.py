"""`Site`, what the routes of every room get (database, settings, folders), and `Room`, a part of the application."""

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
    """What the web serves of the evaluation, as functions: it does not import that package."""

    pages: Callable[[Mapping[str, str], frozenset[str]], Mapping[str, bytes] | None]
    """The files of the public site; None where they cannot be made, and the log says why. Takes the snapshots that are
    given out, version → digest, and the items whose verdicts are kept back while people check them blind."""
    read_sheet: Callable[[Path, Sequence[str]], GraderSheet]
    """A run's verdicts, of these judges, for people to check. Raises UsageError."""


@dataclass(frozen=True)
class Site:
    """What is served; its owner closes `database`."""

    database: Database
    settings: Settings
    snapshots: Path  # The folder of frozen snapshots
    preview: bool = False  # Whether snapshots that are not publishable are shown too
    evaluation: Evaluation | None = None  # None: no public site, no grader checks
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs cookies; the default is random, so that no other process accepts this one's cookies."""


@dataclass(frozen=True)
class Section:
    """An entry of the navigation."""

    title: str
    href: str
    # The role that a signed-in account needs to see it; None: any
    role: Role | None = None


@dataclass(frozen=True)
class Room:
    """A part of the application."""

    public: bool  # Whether its pages need no account
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

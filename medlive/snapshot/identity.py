"""What a snapshot is known by: its folder's name, its canary, and what its signature says."""

import uuid
from datetime import datetime
from functools import cache
from typing import Final

from medlive.integrity.folder import SUMS

_CANARY_SPACE: Final = uuid.UUID("5c6b1f0e-7d3a-4c5e-9a41-6d65646c6976")


def folder_name(version: str) -> str:
    """The name of a version's folder."""
    return f"medlive-{version}"


@cache
def canary_of(version: str) -> str:
    """The canary GUID of a version: fixed, so that anybody can look for it."""
    return str(uuid.uuid5(_CANARY_SPACE, version))


def trusted_comment(
    version: str,
    created_at: datetime,
    canary: str,
) -> str:
    """What a snapshot's signature vouches for beside SHA256SUMS; made of the manifest, not of a clock."""
    return f"timestamp:{int(created_at.timestamp())}\tfile:{SUMS}\tversion:{version}\tcanary:{canary}"

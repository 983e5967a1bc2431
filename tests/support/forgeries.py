"""Forgeries of snapshots: only what the files mean can betray them, or the key that they were signed with."""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from medlive.integrity.folder import SIGNATURE
from medlive.integrity.signing import SecretKey
from medlive.snapshot.contents import (
    CHANGES,
    SECTIONS,
)
from medlive.snapshot.manifest import pretty_json
from tests.support.forged_manifests import (
    CHAIN_LEDGERS,
    LEDGERS,
    MANIFESTS,
    RAW_MANIFESTS,
)
from tests.support.forged_rows import CHAIN, ONE_FILE, SPELLINGS, WHOLE
from tests.support.forging import (
    MANIFEST,
    Row,
    Rows,
    in_ledger,
    in_rows,
    in_text,
    sealed,
    whole,
)
from tests.support.spoiling import Mutation, Spoil, seal, seal_sums


def forgeries(key: SecretKey) -> Iterable[Mutation]:
    """Each forgery of a snapshot whose parent is not at hand."""
    for label, name, edit, steps in ONE_FILE:
        spoil = sealed(key, in_rows(name, edit))
        yield Mutation(
            f"{name}: {label}", spoil, (name.removeprefix("data/"),), frozenset(steps)
        )
    for label, name, old, new, steps in SPELLINGS:
        spoil = sealed(key, in_text(name, old, new))
        yield Mutation(f"{name}: {label}", spoil, (name,), frozenset(steps))
    for label, name, change, steps in LEDGERS:
        yield Mutation(
            f"{name}: {label}",
            sealed(key, in_ledger(name, change)),
            (name, MANIFEST),
            frozenset(steps),
        )
    for label, alter, steps in MANIFESTS:
        yield Mutation(
            f"{MANIFEST}: {label}",
            _resealed(key, alter),
            (MANIFEST, SIGNATURE),
            frozenset(steps),
        )
    for label, rewrite in RAW_MANIFESTS:
        yield Mutation(
            f"{MANIFEST}: {label}", _raw(key, rewrite), (MANIFEST,), frozenset({5})
        )
    for label, remake, named, steps in WHOLE:
        yield Mutation(f"rows: {label}", whole(key, remake), named, frozenset(steps))
    for name in (
        "README.md",
        "CHANGES.md",
        "LICENSE",
        "croissant.json",
        "figures/axes.svg",
        "figures/months.svg",
    ):
        spoil = sealed(key, _without_canary(name))
        yield Mutation(f"{name}: no canary", spoil, (name,), frozenset({17}))


def chain_forgeries(key: SecretKey) -> Iterable[Mutation]:
    """Those that only the parent beside them betrays."""
    for label, remake, named in CHAIN:
        yield Mutation(
            f"rows: {label}", whole(key, remake), named or (CHANGES,), frozenset({19})
        )
    earlier = _resealed(
        key, lambda manifest: manifest.update(created_at="2020-01-01T00:00:00Z")
    )
    yield Mutation("made before its parent", earlier, (MANIFEST,), frozenset({19}))
    for label, name, change in CHAIN_LEDGERS:
        spoil = sealed(key, in_order(name, change))
        yield Mutation(f"{name}: {label}", spoil, (name,), frozenset({19}))


def in_order(
    name: str, change: Callable[[Row, dict[str, Rows]], object]
) -> Callable[[Path], None]:
    def ordered(head: Row, sections: dict[str, Rows]) -> None:
        change(head, sections)
        keys = SECTIONS[name]
        for section, entries in sections.items():
            entries.sort(key=lambda e: str(e[keys[section]]))

    return in_ledger(name, ordered)


def _without_canary(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        canary = json.loads((folder / MANIFEST).read_bytes())["canary"]
        (folder / name).write_text(
            (folder / name).read_text("utf-8").replace(canary, "nothing"), "utf-8"
        )

    return spoil


def _resealed(key: SecretKey, alter: Callable[[Row], object]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        seal(folder, key)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        alter(manifest)
        (folder / MANIFEST).write_bytes(pretty_json(manifest).encode())
        seal_sums(folder, key)

    return spoil


def _raw(key: SecretKey, rewrite: Callable[[bytes], bytes]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        seal(folder, key)
        (folder / MANIFEST).write_bytes(rewrite((folder / MANIFEST).read_bytes()))
        seal_sums(folder, key)

    return spoil

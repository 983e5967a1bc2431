"""Ways to spoil a snapshot: each a named change to a folder, with what a verification has to say of it."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medlive.integrity.folder import REQUIRED, SIGNATURE, SIGNATURE_COMMENT, SUMS
from medlive.integrity.signing import SecretKey, sign
from medlive.snapshot.manifest import Manifest, pretty_json

NAMES = (*REQUIRED, SUMS, SIGNATURE)
Spoil = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Mutation:
    """One change. `named`: texts of which one must stand in a finding. `steps`: those that must fail, or any."""

    label: str
    spoil: Spoil
    named: tuple[str, ...]
    steps: frozenset[int] = frozenset()
    seed: int = 0

    def apply(self, folder: Path) -> None:
        """Spoil the folder, the same way each time."""
        self.spoil(folder, random.Random(f"{self.label}/{self.seed}"))


@dataclass
class Original:
    """A folder's bytes in memory, to bring it back after each change."""

    folder: Path
    files: Mapping[str, bytes] = field(init=False)
    _stamps: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read them."""
        found = (p for p in sorted(self.folder.rglob("*")) if p.is_file())
        self.files = {str(p.relative_to(self.folder)): p.read_bytes() for p in found}

    def restore(self) -> None:
        """Everything as it was."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            name = str(path.relative_to(self.folder))
            if name in ("data", "figures") and path.is_dir() and not path.is_symlink():
                continue
            if name not in self.files or path.is_symlink() or not path.is_file():
                shutil.rmtree(
                    path
                ) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, data in self.files.items():
            path = self.folder / name
            if self._stamps.get(name) == _stamp(path):
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            os.utime(
                path, (0, 0)
            )  # a clock is too coarse to tell two writings apart; any moves it away from here
            self._stamps[name] = _stamp(path)


def _stamp(path: Path) -> tuple[int, ...]:
    """What no writing leaves as it was; nothing where no file is."""
    if not path.exists():
        return ()
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def seal(
    folder: Path,
    key: SecretKey | None,
    edit: Callable[[dict[str, Any]], object] | None = None,
) -> None:
    """What a careful forger does: manifest and SHA256SUMS fit the files as they are, signed by `key` or not at all."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    _seal_croissant(folder)
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry["size"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    if key is not None:
        manifest["signing"] |= {
            "key_id": key.public.id_text(),
            "public_key": key.public.line(),
        }
    if edit is not None:
        edit(manifest)
    (folder / "manifest.json").write_bytes(pretty_json(manifest).encode())
    seal_sums(folder, key)


def _seal_croissant(folder: Path) -> None:
    """Croissant names the data files' digests as they are; a file that is no Croissant any more stays as it is."""
    path = folder / "croissant.json"
    text = path.read_bytes()
    try:
        listed = {
            x["contentUrl"]: x["sha256"] for x in json.loads(text)["distribution"]
        }
    except (ValueError, KeyError, TypeError):  # no Croissant
        return
    for name, digest in listed.items():
        if not (folder / name).is_file():
            continue
        text = text.replace(
            digest.encode(),
            hashlib.sha256((folder / name).read_bytes()).hexdigest().encode(),
        )
    path.write_bytes(text)


def seal_sums(folder: Path, key: SecretKey | None) -> None:
    """SHA256SUMS fits the files, and its signature fits SHA256SUMS."""
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in REQUIRED
    }
    sums = "".join(f"{digests[name]}  {name}\n" for name in sorted(REQUIRED)).encode()
    (folder / SUMS).write_bytes(sums)
    if key is not None:
        sign_sums(folder, key)


def sign_sums(folder: Path, key: SecretKey) -> None:
    """The signature fits SHA256SUMS as it is."""
    comment = "x"
    try:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        comment = manifest.trusted_comment
    except ValueError:
        pass  # A manifest that was spoilt: any comment will do.
    (folder / SIGNATURE).write_text(
        sign((folder / SUMS).read_bytes(), key, comment, SIGNATURE_COMMENT)
    )


def dump(value: object) -> bytes:
    """Canonical JSON."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    ).encode()


# Changes to bytes


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data))]


def drop_byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + 1 :]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at:]


def append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice((b"\n", b" ", b"\0", b"x"))


def crlf(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n") if b"\n" in data else data + b"\r\n"


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def surrogate(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + b"\xed\xa0\x80" + data[at:]


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip,
    cut,
    drop_byte,
    insert,
    append,
    crlf,
    empty,
    surrogate,
)


def in_file(name: str, change: Callable[[bytes, random.Random], bytes]) -> Spoil:
    """A change to one file's bytes."""

    def spoil(folder: Path, rng: random.Random) -> None:
        good = (folder / name).read_bytes()
        bad = change(good, rng)
        assert bad != good
        (folder / name).write_bytes(bad)

    return spoil


# Changes to what lies in the folder


def remove(name: str) -> Spoil:
    return lambda folder, rng: (folder / name).unlink()


def link(name: str) -> Spoil:
    """The very same bytes, but outside and linked to."""

    def spoil(folder: Path, rng: random.Random) -> None:
        outside = folder.parent / "outside" / name.replace("/", "-")
        (folder / name).unlink()
        (folder / name).symlink_to(outside)

    return spoil


def pipe(name: str) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def directory(name: str) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir(parents=True)

    return spoil


def link_folder(name: str) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        shutil.rmtree(folder / name)
        (folder / name).symlink_to(folder.parent / "outside" / name)

    return spoil


def swap(one: str, other: str) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        a, b = (folder / one).read_bytes(), (folder / other).read_bytes()
        (folder / one).write_bytes(b)
        (folder / other).write_bytes(a)

    return spoil


def extra(name: bytes) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(
            b"x" * rng.randrange(3)
        )

    return spoil


def structural() -> Iterable[Mutation]:
    """Files that are missing, linked, swapped, too many, or no files."""
    for name in NAMES:
        yield Mutation(f"{name} is missing", remove(name), (name,))
        yield Mutation(f"{name} is a link", link(name), (name,))
    for name in NAMES[::3]:
        yield Mutation(f"{name} is a pipe", pipe(name), (name,))
        yield Mutation(f"{name} is a folder", directory(name), (name,))
    for name in ("data", "figures"):
        yield Mutation(f"{name} is a link", link_folder(name), (name,))
    rng = random.Random(5)
    for _ in range(40):
        one, other = rng.sample(NAMES, 2)
        yield Mutation(f"{one} and {other} are swapped", swap(one, other), (one, other))
    odd = (
        b"x",
        b"data/more.jsonl",
        b"figures/x.svg",
        b".hidden",
        b"SHA256SUMS.bak",
        b"\xff",
        b"a\nb",
        b"data/\x1b[2J",
        b"manifest.json ",
        b"Manifest.json",
        b"data/cases.jsonl~",
        "\u202egpj".encode(),
        b"-rf",
        b"x" * 200,
    )
    for odd_name in odd:
        yield Mutation(
            f"an extra file {odd_name!r}", extra(odd_name), ("nothing",), frozenset({2})
        )
    for name in ("attic", "data/data", "a/b/c/d"):
        yield Mutation(
            f"an extra folder {name}",
            directory(name),
            (name.split("/")[0],),
            frozenset({2}),
        )
    yield Mutation("an extra pipe", pipe("pipe"), ("pipe",), frozenset({2}))
    yield Mutation("a thousand files", _thousand, ("more",), frozenset({2}))


def _thousand(folder: Path, rng: random.Random) -> None:
    for number in range(1_001):
        (folder / f"x{number}").touch()


# Changes to the lists of digests, signed again or not


def _sums(
    edit: Callable[[list[str]], object], *, end: str = "\n"
) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        rows = (folder / SUMS).read_text().splitlines()
        edit(rows)
        (folder / SUMS).write_bytes(
            "".join(f"{row}{end}" for row in rows).encode("utf-8", "surrogateescape")
        )

    return spoil


_ZERO = "0" * 64
SUMS_EDITS: Mapping[str, Callable[[Path], object]] = {
    "a way up": _sums(lambda r: r.append(f"{_ZERO}  ../outside/secret")),
    "a longer way up": _sums(lambda r: r.append(f"{_ZERO}  data/../../outside/secret")),
    "an absolute path": _sums(lambda r: r.append(f"{_ZERO}  /etc/hostname")),
    "a dot before": _sums(lambda r: r.__setitem__(0, r[0].replace("  ", "  ./"))),
    "a line twice": _sums(lambda r: r.append(r[0])),
    "a line less": _sums(lambda r: r.pop(3)),
    "another order": _sums(lambda r: r.reverse()),
    "capitals": _sums(lambda r: r.__setitem__(0, r[0][:64].upper() + r[0][64:])),
    "binary marks": _sums(lambda r: r.__setitem__(0, r[0].replace("  ", " *"))),
    "an escaped line": _sums(lambda r: r.__setitem__(0, "\\" + r[0])),
    "one space": _sums(lambda r: r.__setitem__(0, r[0].replace("  ", " "))),
    "line ends of another system": _sums(lambda r: None, end="\r\n"),
    "a comment": _sums(lambda r: r.insert(0, "# checked")),
    "an empty line": _sums(lambda r: r.insert(1, "")),
    "a name with a null": _sums(lambda r: r.append(f"{_ZERO}  a\0b")),
    "no text": lambda folder: (folder / SUMS).write_bytes(b"\xff\xfe" * 40),
    "two digests changed places": _sums(
        lambda r: r.__setitem__(
            slice(0, 2), [r[1][:64] + r[0][64:], r[0][:64] + r[1][64:]]
        )
    ),
    "itself": _sums(lambda r: r.append(f"{_ZERO}  {SUMS}")),
    "its signature": _sums(lambda r: r.append(f"{_ZERO}  {SIGNATURE}")),
}


def sums_mutations(forger: SecretKey) -> Iterable[Mutation]:
    """Each edit of SHA256SUMS, as it is and signed with the forger's key, which the manifest does not name."""
    for label, edit in SUMS_EDITS.items():
        yield Mutation(f"SHA256SUMS: {label}", _alone(edit), (SUMS,), frozenset({1}))
        yield Mutation(
            f"SHA256SUMS: {label}, signed",
            _then_sign(edit, forger),
            (SUMS,),
            frozenset({1}),
        )
        yield Mutation(f"SHA256SUMS: {label}, forged", _forged(edit, forger), (SUMS,))


def _alone(edit: Callable[[Path], object]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        edit(folder)

    return spoil


def _then_sign(edit: Callable[[Path], object], key: SecretKey) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        edit(folder)
        sign_sums(folder, key)

    return spoil


def _forged(edit: Callable[[Path], object], key: SecretKey) -> Spoil:
    """The manifest names the forger's key, so that only the lines themselves are wrong."""

    def spoil(folder: Path, rng: random.Random) -> None:
        seal(folder, key)
        edit(folder)
        sign_sums(folder, key)

    return spoil

"""Programs that are run, and things that are waited for."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
SHOWN = 2000
"""The most characters of a program's output that an error repeats."""


class Broken(Exception):
    """A promise is not kept."""


def run(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 300,
    text: str | None = None,
    errors: bool = False,
) -> str:
    """What a program prints; Broken where it fails.

    Args:
        words: The program and its arguments.
        env: Its environment; None for this process's.
        cwd: Its folder.
        seconds: The longest that it may take.
        text: What it reads.
        errors: Whether what it prints to stderr is wanted too.
    """
    shown = " ".join(words)[:200]
    try:
        done = subprocess.run(
            words,
            env=env,
            cwd=cwd,
            timeout=seconds,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Broken(f"{shown} took more than {seconds:.0f} s") from error
    if done.returncode:
        said = f"{done.stdout or ''}{done.stderr or ''}".strip()[-SHOWN:]
        raise Broken(f"{shown} ended with {done.returncode}: {said}")
    return done.stdout


def try_to(*words: str, seconds: float = 60) -> bool:
    """Whether a program could be run and succeeded."""
    try:
        run(*words, seconds=seconds)
    except (Broken, OSError):
        return False
    return True


def until(find: Callable[[], T | None], what: str, seconds: float) -> T:
    """What `find` gives as soon as it is something; Broken, naming `what`, when it is not in time."""
    limit = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > limit:
            raise Broken(f"after {seconds:.0f} s still not there: {what}")
        time.sleep(0.5)


def say(text: str) -> None:
    """A line for whoever looks on."""
    print(text, file=sys.stdout, flush=True)

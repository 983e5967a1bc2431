"""A group of options is a dataclass: a command takes it whole, the command line its fields."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from medlive.cli.main import COMMANDS, Group, build
from medlive.cli.options import grouped
from medlive.cli.output import Result
from medlive.errors import CheckFailed


@dataclass(frozen=True, kw_only=True)
class Colours:
    front: Annotated[str, typer.Option("--front", help="The letters.")]
    back: Annotated[list[str] | None, typer.Option("--back", help="Behind them.")] = (
        None
    )


def paint(path: Path, twice: bool = False, *, colours: Colours) -> Result:
    """Paint it.

    Args:
        path: What.
        twice: With a second
            coat.
    """
    failure = CheckFailed("too dark") if colours.front == "black" else None
    return Result(colours.back, [f"{path} {colours.front}"], ["dry"], failure)


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(grouped(paint))
    return app


def test_the_fields_of_a_group_are_options_and_the_command_gets_the_group() -> None:
    assert CliRunner().invoke(_app(), ["wall", "--front", "red"]).stdout == "wall red\n"
    found = CliRunner().invoke(
        _app(), ["wall", "--front", "red", "--back", "a", "--back", "b", "--json"]
    )
    assert found.stdout.split() == ["[", '"a",', '"b"', "]"]
    help_ = " ".join(CliRunner().invoke(_app(), ["--help"]).stdout.split())
    assert "--front" in help_
    assert "--twice" in help_
    assert "With a second coat." in help_
    assert "--no-twice" not in help_
    assert "Args:" not in help_
    assert CliRunner().invoke(_app(), ["wall"]).exit_code == 2


def test_a_failure_ends_the_command_after_its_result() -> None:
    found = CliRunner().invoke(_app(), ["wall", "--front", "black"])
    assert found.stdout == "wall black\n"
    assert isinstance(found.exception, CheckFailed)


def _groups(
    groups: Mapping[str, object], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The names of every group that does nothing without a command."""
    for name, group in groups.items():
        if isinstance(group, Group):
            if not group.first:
                yield (*above, name)
            yield from _groups(group.groups, (*above, name))


@pytest.mark.matrix
@pytest.mark.parametrize("words", list(_groups(COMMANDS)), ids=" ".join)
def test_a_group_without_a_command_shows_its_help(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(build(words), words)
    assert result.exit_code == 2
    assert "Commands:" in result.output

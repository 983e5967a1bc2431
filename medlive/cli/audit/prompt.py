"""`medlive prompt`: the prompts, as templates and as they were sent."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from typer import Argument

from medlive.cli.options import Commands
from medlive.cli.output import Lines, Result, with_session

app = Commands()


@app.callback()
def group() -> None:
    """Show prompts."""


@app.command()
def show(
    name: Annotated[str, Argument(metavar="TASK|DIGEST")],
) -> Result:
    """Show a task's prompt; or by its digest a stored prompt, or a request as it was sent, with its reply.

    Args:
        name: E.g. screener.extract, or the digest of a request.
    """
    from medlive.service.audit import show_prompt

    found = with_session(show_prompt, name)
    return Result(found, _lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[Lines]:
    yield Lines(f"{found['task']} {found['digest']}")
    template = {"role": "system", "content": found.get("text")}
    for message in found.get("messages", [template]):
        yield Lines(f"\n--- {message['role']}\n{message['content']}")
    if reply := found.get("reply"):
        sent = f"reply of {reply['model']} ({reply['finish']})"
        yield Lines(f"\n--- {sent}\n{reply['text']}")

"""`medlive prompt`: the prompts, as templates and as they were sent."""

from typing import Annotated, Any

import typer
from typer import Argument

from medlive.cli.options import JsonOption
from medlive.cli.output import echo, echo_lines, print_result, with_session

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Show prompts."""


@app.command()
def show(
    name: Annotated[
        str,
        Argument(
            metavar="TASK|DIGEST",
            help="E.g. screener.extract, or the digest of a request.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a task's prompt; or by its digest a stored prompt, or a request as it was sent, with its reply."""
    from medlive.service.audit import show_prompt

    found: dict[str, Any] = with_session(lambda session: show_prompt(session, name))

    def show() -> None:
        echo(f"{found['task']} {found['digest']}")
        for message in found.get(
            "messages", [{"role": "system", "content": found.get("text")}]
        ):
            echo()
            echo(f"--- {message['role']}")
            echo_lines(f"{message['content']}\n")
        if reply := found.get("reply"):
            echo()
            echo(f"--- reply of {reply['model']} ({reply['finish']})")
            echo_lines(f"{reply['text']}\n")

    print_result(found, as_json, show)

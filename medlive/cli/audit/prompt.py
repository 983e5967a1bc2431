"""`medlive prompt`: the prompts, as templates and as they were sent."""

from typing import Annotated

from rich.text import Text
from typer import Argument

from medlive.cli.options import Commands
from medlive.cli.output import Result, with_session
from medlive.service.prompts import show_prompt

app = Commands()

_OF_EVALUATION = (
    "medlive.evaluation",
    "medlive.evaluation.grading",
    "medlive.evaluation.protocols.checklist",
    "medlive.evaluation.protocols.pairwise",
    "medlive.evaluation.protocols.safety",
)


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
    prompt = with_session(show_prompt, name, _OF_EVALUATION)
    lines = [f"{prompt['task']} {prompt['digest']}"]
    template = {"role": "system", "content": prompt.get("text")}
    for message in prompt.get("messages", [template]):
        lines.append(f"\n--- {message['role']}\n{message['content']}")
    if reply := prompt.get("reply"):
        sent = f"reply of {reply['model']} ({reply['finish']})"
        lines.append(f"\n--- {sent}\n{reply['text']}")
    return Result(prompt, map(Text, lines))

"""`medlive source`: the communities, and what a page of one yields."""

from pathlib import Path
from typing import Annotated, Any

import typer

from medlive.cli.output import JsonOption, print_json, print_table, wait_for
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the communities with their address and boards."""
    from medlive.service.harvesting import chosen
    from medlive.sources.registry import build_site

    settings = load_settings().settings
    sites = {name: build_site(name, overrides).settings for name, overrides in chosen(settings, []).items()}
    if as_json:
        print_json({name: site.model_dump(mode="json") for name, site in sites.items()})
        return
    print_table(
        ["source", "address", "boards", "least interval (s)"],
        [[name, s.base_url, ", ".join(s.boards) or "all", s.min_interval_s] for name, s in sites.items()],
    )


@app.command()
def check(
    source: Annotated[str, typer.Argument(help="The community.")],
    url: Annotated[str, typer.Option("--url", help="The address of a thread.")],
    file: Annotated[
        Path | None, typer.Option("--file", help="Read this saved page instead of fetching it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what one page yields, field by field; exit status 1 with a typed reason when it is no thread."""
    from medlive.service.harvesting import chosen
    from medlive.service.page_check import check_page
    from medlive.sources.source import LayoutError, NotAThread

    settings = load_settings().settings
    (overrides,) = chosen(settings, [source]).values()
    try:
        body = file.read_bytes() if file else None
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
    try:
        found: dict[str, Any] = wait_for(check_page(settings, source, overrides, url, body))
    except (LayoutError, NotAThread) as exc:
        reason = "layout_error" if isinstance(exc, LayoutError) else "not_a_thread"
        if as_json:
            print_json({"thread": None, "reason": reason, "message": exc.message})
        raise CheckFailed(f"{reason}: {exc.message}") from exc
    if as_json:
        print_json(found)
        return
    print_table(["field", "found"], [[name, str(value)[:300]] for name, value in found["fields"].items()])
    print_table(
        ["message", "role", "verified", "text"],
        [[i, m["role"], m["verified"], m["text"][:200]] for i, m in enumerate(found["thread"]["messages"])],
    )

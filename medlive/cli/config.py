"""`medlive config`: what is set, and where each value comes from."""

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table
from medlive.config import config_folder, describe, load_settings

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Print every setting with its origin; a database's password is masked, keys are only named."""
    import os

    rows = describe(load_settings())
    title = f"Settings (files in {config_folder(os.environ)})"
    print_result(
        {key: {"value": value, "origin": origin} for key, value, origin in rows},
        as_json,
        lambda: print_table(["setting", "value", "origin"], rows, title=title),
    )

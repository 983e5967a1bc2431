"""`medlive evidence models`: which models the dense side needs, where they were looked for, and their download."""

from typing import Annotated

import typer

from medlive.cli.evidence.options import ModelsOption, encoder_settings
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say
from medlive.errors import EvidenceUnavailable


def models(
    models: ModelsOption = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download", help="Fetch MedCPT's three models (1.3 GB) at their pinned revisions from the hub."
        ),
    ] = False,
    require: Annotated[
        bool, typer.Option("--require", help="Fail, with exit status 3, unless MedCPT can encode here.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which models MedCPT needs, where they were looked for and what was found; --download fetches them."""
    from medlive.evidence.encoders.folders import (
        INSTALL,
        download_models,
        find_models,
        missing_models,
        missing_packages,
    )

    settings = encoder_settings(models)
    if download:
        for folder in download_models(settings):
            say(f"downloaded {folder}")
    found = find_models(settings)
    problem, packages = missing_models(found), missing_packages()
    value = {
        "usable": problem is None,
        "lacking": problem,
        "missing_packages": packages,
        "models": [
            {"role": f.role.value, "repository": f.role.repository, "purpose": f.role.purpose,
             "folder": f.model and f.model.folder, "digest": f.model and f.model.digest,
             "dimension": f.model and f.model.dimension,
             "places": [
                 {"origin": p.origin, "folder": p.folder, "state": p.state, "problem": p.problem} for p in f.places
             ]}
            for f in found
        ],
    }  # fmt: skip

    def show() -> None:
        print_table(
            ["model", "for", "looked at", "state", "problem"],
            [
                [f.role.repository, f.role.purpose, place.folder, place.state, place.problem]
                for f in found
                for place in f.places
            ],
        )
        if packages:
            say(f"not installed: {', '.join(packages)} ({INSTALL})")
        if problem is None:
            say("MedCPT can be used: medlive evidence build CORPUS... --encoder medcpt")
        else:
            say(f"{problem}. Without it an index is searched by bm25 only")

    failure = None
    if require and problem is not None:
        failure = EvidenceUnavailable(problem, hint="medlive evidence models --download fetches the models")
    print_result(value, as_json, show, failure=failure)

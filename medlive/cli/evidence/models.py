"""`medlive evidence models`: which models the dense side needs, and where they were looked for."""

from typing import Annotated, Any

import typer

from medlive.cli.evidence.options import ModelsOption, encoder_settings
from medlive.cli.options import JsonOption
from medlive.cli.output import print_json, print_table, say
from medlive.errors import EvidenceUnavailable


def models(
    models: ModelsOption = None,
    require: Annotated[
        bool, typer.Option("--require", help="Fail, with exit status 3, unless MedCPT can encode here.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say which models MedCPT needs, where they were looked for and what is there; nothing is downloaded."""
    from medlive.evidence.choice import missing_models
    from medlive.evidence.encoder import find_models
    from medlive.evidence.encoders.folders import INSTALL

    found = find_models(encoder_settings(models))
    lacking = missing_models(found)
    if as_json:
        print_json({"usable": lacking is None, "lacking": lacking, "models": [_model(model) for model in found]})
    else:
        print_table(
            ["model", "for", "looked at", "state", "what"],
            [
                [model.repository, model.role.purpose, place.folder, place.state,
                 place.problem or (f"lacks {', '.join(place.missing)}" if place.missing else None)]
                for model in found
                for place in model.places
            ],
        )  # fmt: skip
        for name in sorted({name for model in found for name in model.missing_packages}):
            say(f"{name} is not installed: {INSTALL}")
        if lacking is None:
            backend = found[0].backend
            say(f"MedCPT can be used, by {backend}: medlive evidence build CORPUS... --encoder medcpt")
        else:
            say(f"{lacking}. Without it an index is searched by bm25 only")
    if require and lacking is not None:
        raise EvidenceUnavailable(lacking, hint="put the models into one of the folders above")


def _model(model: Any) -> dict[str, Any]:
    return {
        "role": model.role.value,
        "repository": model.repository,
        "purpose": model.role.purpose,
        "folder": model.folder,
        "digest": model.digest,
        "dimension": model.dimension,
        "backend": model.backend,
        "missing_packages": list(model.missing_packages),
        "places": [
            {"origin": place.origin, "folder": place.folder, "state": place.state, "found": list(place.found),
             "missing": list(place.missing), "problem": place.problem}
            for place in model.places
        ],
    }  # fmt: skip

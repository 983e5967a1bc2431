"""`medlive config`: what is set, and where each value comes from."""

import os

from medlive.cli.options import Commands
from medlive.cli.output import Grid, Result, dotted
from medlive.config_loading import load_settings, mask_url
from medlive.home import own_folder

app = Commands()


@app.command()
def show() -> Result:
    """Print every setting with its origin; a database's password is masked, keys are only named."""
    loaded = load_settings()
    settings = loaded.settings.model_dump(mode="json")
    url = loaded.settings.database_url
    settings["database_url"] = f"embedded, under {loaded.settings.home}"
    if url is not None:
        settings["database_url"] = mask_url(url.get_secret_value())
    rows = []
    value = {}
    for key, setting in sorted(dotted(settings)):
        origin = loaded.origins.get(key, "default")
        rows.append([key, setting, origin])
        value[key] = {"value": setting, "origin": origin}
    title = f"Settings (your own go into {own_folder(os.environ)})"
    return Result(value, [Grid(["setting", "value", "origin"], rows, title)])

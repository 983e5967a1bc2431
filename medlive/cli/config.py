"""`medlive config show`: every setting, and where its value comes from."""

import os

from medlive.home import own_folder
from medlive.instance.loading import describe, load_settings

from .output import Grid, Result


def show() -> Result:
    """Print every setting with its origin; a database's password is masked, keys are only named."""
    rows = describe(*load_settings())
    title = f"Settings (your own go into {own_folder(os.environ)})"
    value = {}
    for key, setting, origin in rows:
        value[key] = {"value": setting, "origin": origin}
    return Result(value, [Grid(["setting", "value", "origin"], rows, title)])

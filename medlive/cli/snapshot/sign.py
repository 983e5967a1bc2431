"""`medlive snapshot keygen`: the key that releases are signed with."""

import os
from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say
from medlive.config import load_settings
from medlive.errors import ConfigError


def keygen(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where to; default: keys, in medlive's home.")
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(
            "--password-env", metavar="NAME", help="The variable that holds a password to encrypt the key with."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key pair to sign snapshots with, in minisign's format; an existing one is never overwritten."""
    from medlive.integrity.signing import (
        FILE_VARIABLE,
        KEY_VARIABLE,
        PASSWORD_VARIABLE,
        PublicKey,
        generate,
        write_keys,
    )

    password = None
    if password_env is not None and not (password := os.environ.get(password_env)):
        raise ConfigError(f"the variable {password_env} is not set, or is empty")
    folder = out if out is not None else load_settings().settings.home / "keys"
    secret_text, public_text = generate(password)
    secret, public = write_keys(folder, secret_text, public_text)
    key = PublicKey.parse(public_text)
    value = {
        "secret_key": secret, "public_key": public, "key_id": key.id_text(), "line": key.line(),
        "encrypted": password is not None,
    }  # fmt: skip
    text = f"secret key: {secret}\npublic key: {public}\nkey id: {key.id_text()}\n{key.line()}"
    print_result(value, as_json, lambda: print(text))
    say(f"To sign: set {FILE_VARIABLE}={secret}, or put the file's text into {KEY_VARIABLE}.")
    if password is not None:
        say(f"Its password is read from {PASSWORD_VARIABLE}.")
    else:
        say(f"It is not encrypted: whoever can read {secret.name} can sign in your name.")
    say("Keep a copy of it offline. It belongs into no repository, database or configuration.")
    say(
        f"Publish {public.name} where readers find it without a snapshot: a snapshot cannot vouch for its own key."
    )
    say(f"To check: minisign -VHm SHA256SUMS -P {key.line()}")

"""The embedded PostgreSQL as a service of its own, which lives and ends with one process of a service manager."""

import os
import socket
import threading
from pathlib import Path
from typing import Final

from medlive.db import embedded
from medlive.errors import DatabaseUnavailable

LOOK_S: Final = 1.0


def serve(home: Path, stop: threading.Event) -> None:
    """Keep the server of `home` running until `stop` is set, then stop it.

    Meanwhile, and after a kill of this process, no other process starts it: it would live in that one's unit.

    Args:
        home: The instance's home.
        stop: Ends it when set.

    Raises:
        DatabaseUnavailable: when the server does not start, or has ended: the service manager starts this again.
    """
    embedded.start(home, as_service=True)
    _say_ready()
    while not stop.wait(LOOK_S):
        if embedded.status(home) is None:
            raise DatabaseUnavailable(
                "the embedded PostgreSQL has ended",
                hint="`medlive db serve` starts it again; its log is beside its data",
            )
    embedded.stop(home)


def _say_ready() -> None:
    """Tell systemd that the server answers (sd_notify), where it wants to know."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # in the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
        notifying.connect(address)
        notifying.send(b"READY=1")

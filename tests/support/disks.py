"""Small disks of their own, where this user may mount one."""

import os
import shutil
import subprocess
from pathlib import Path


def mount_small_disk(folder: Path, size: int) -> bool:
    """Mount a file system in memory of so many bytes on a folder; False where that cannot be done."""
    program = shutil.which("mount")
    if program is None:
        return False
    options = f"size={size},mode=755"
    command = [program, "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return not subprocess.run(command, capture_output=True).returncode


def unmount(folder: Path) -> None:
    """Undo that, whoever has files open there."""
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(file: Path, room: int = 0) -> None:
    """Fill the disk that a new file lies on but for `room` bytes; others may write at the same time."""
    with file.open("wb") as filler:
        free = shutil.disk_usage(file.parent).free
        os.posix_fallocate(filler.fileno(), 0, max(1, free - room))

"""Run a command, and turn every error into a message and an exit status."""

import gc
import os
import sys

# The exit status of typer after Ctrl-C.
_INTERRUPTED = 130


def collect_less() -> None:
    """Look for cycles of garbage after 100,000 new objects, not 700.

    Modules are kept, and threads, verdicts and rows are trees: a quarter of a filter run was spent on looking, and
    a tenth of the start of `medlive status`.
    """
    gc.set_threshold(100_000)


def main() -> None:
    """Run the command line and exit with a status of docs/operations.md's table."""
    # Raw pages, runs, logs and keys are nobody else's: whatever is made is its owner's alone, and what is to be
    # published gets its rights where it is published.
    os.umask(0o077)
    collect_less()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit status."""
    from . import logs
    from .cli.main import build

    debug = "--debug" in arguments
    logs.configure()
    try:
        rest = [a for a in arguments if a != "--debug"]
        build(rest)(args=rest, prog_name="medlive")
        return 0
    except SystemExit as exc:
        if exc.code == _INTERRUPTED:
            return _interrupted()
        return exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as exc:
        if debug:
            raise
        return _report(exc)


def _report(error: Exception) -> int:
    """Log the error for the user; the exit status."""
    from . import logs
    from .errors import NO_SPACE, DiskFull, MedliveError, describe

    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = error.filename or "a file"
        hint = "make room and run this again"
        error = DiskFull(f"no space is left for {where}", hint=hint)
    if isinstance(error, MedliveError):
        logs.report_error(error.message, error.hint)
        return error.exit_status
    if isinstance(error, ModuleNotFoundError):
        missing = f"this command needs medlive[service] ({error.name} is not installed)"
        logs.report_error(missing, "pip install 'medlive[service]'")
        return 2
    if isinstance(error, PermissionError) and error.filename is not None:
        logs.report_error(
            f"{error.filename}: {error.strerror}",
            "run medlive as the user who owns it, or change its owner",
        )
        return 2
    logs.report_error(
        f"internal error: {describe(error)[:500]}",
        "run it again with --debug for the traceback, and report it",
    )
    return 1


def _interrupted() -> int:
    from . import logs

    logs.REMARKS.warning(
        "interrupted; finished work is kept, and the same command resumes from there"
    )
    return _INTERRUPTED


if __name__ == "__main__":
    main()

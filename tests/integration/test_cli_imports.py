"""`medlive status` answers at once: it imports nothing that only other commands need."""

import subprocess
import sys

import pytest


@pytest.mark.thorough
def test_status_imports_no_engine_queue_or_index() -> None:
    program = (
        "import sys, medlive.service.watch.status, medlive.cli.operations.status\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'openai', 'uvicorn', 'procrastinate', "
        "'alembic', 'pyarrow', 'numpy', 'tantivy', 'rjieba', 'httpx2', 'phonenumbers'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []

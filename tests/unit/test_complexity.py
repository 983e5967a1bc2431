"""`make check` refuses functions with too many branches, however they are written."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import complexity  # noqa: E402

_SIXTEEN = """
async def read(values, limit=0 if __debug__ else 1):
    for value in values:
        while value and limit or value:
            value -= 1
    try:
        if values:
            return [v for v in values if v if v > 1]
        elif limit:
            return lambda: 1 if values else 2
    except ValueError:
        pass
    finally:
        limit = 0
    async for value in values:
        match value:
            case 1:
                pass
"""
_WITHIN = """

    def within():
        return 1 or 2

    class Within:
        def method(self):
            return 1 or 2
"""


def test_every_kind_of_branch_counts_and_a_sixteenth_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "fits.py").write_text(_SIXTEEN.replace(" and limit", ""))
    (folder / "over.py").write_text(_SIXTEEN)
    assert complexity.too_complex(folder) == [("package/over.py:2", "read", 16)]


def test_functions_within_count_on_their_own() -> None:
    measured = complexity.measure(_SIXTEEN + _WITHIN, "m.py")
    names = {function.name: function.complexity for function in measured}
    assert names == {"read": 16, "within": 2, "method": 2}


def test_the_package_has_at_most_twelve_modules_at_its_top() -> None:
    """More belong to a room: who looks for a thing reads this list first."""
    assert len(list((ROOT / "medlive").glob("*.py"))) <= 12

import pytest

from .cases import CASES, FOLDER, answer


@pytest.mark.parametrize("name", CASES)
def test_what_people_see(name):
    assert answer(name) == (FOLDER / name).read_text(encoding="utf-8"), "run `python -m tests.golden.cases`"


def test_no_file_is_left_behind():
    assert {path.name for path in FOLDER.iterdir() if path.suffix in {".txt", ".md", ".csv"}} == set(CASES)

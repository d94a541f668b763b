"""An error's text fits on a screen, whatever number of problems was found."""

import pytest

from dlrmx.errors import InputError, Problem


@pytest.mark.parametrize(
    ("count", "last"), [(1, "hint 0"), (10, "hint 9"), (11, "and 1 more"), (5_000, "and 4,990 more")]
)
def test_the_text_of_many_problems_fits_on_a_screen(count: int, last: str) -> None:
    error = InputError([Problem(f"wrong {n}", where=f"r.yaml:{n}", hint=f"hint {n}") for n in range(count)])
    assert len(error.problems) == count
    lines = str(error).splitlines()
    assert lines[:2] == ["r.yaml:0: wrong 0", "    hint 0"]
    assert last in lines[-1]
    assert len(lines) < 24

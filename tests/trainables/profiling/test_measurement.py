import pytest

from trainables.profiling.measurement import stack_widths


@pytest.mark.parametrize(
    ("members", "widths"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_widths_are_powers_of_two_and_all_members(members: int, widths: list[int]) -> None:
    assert stack_widths(members) == widths

"""Ranges of `--axis`: the numbers that would be typed one by one, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.commands.arguments import parse
from sweeper.definition.ranges import MOST_LISTED, as_typed, is_range, listed
from sweeper.errors import SpecError
from tests.cases import for_each


@for_each(
    ("text", "values"),
    [
        ("0..3", "0 1 2 3"),
        ("-1..1,7", "-1 0 1 7"),
        ("0..100:25", "0 25 50 75 100"),
        ("0.1..0.5:0.1", "0.1 0.2 0.3 0.4 0.5"),
        ("logspace(1e-4,1e-1,4)", "0.0001 0.001 0.01 0.1"),
        ("logspace(0.001,0.1,5)", "0.001 0.00316228 0.01 0.0316228 0.1"),
        ("linspace( 0, 1, 4 ),2", "0 0.333333 0.666667 1 2"),
        ("linspace(1,0,3)", "1 0.5 0"),
        ("vje,../x,a..b", "vje ../x a..b"),
        ("0.5,inf", "0.5 inf"),
    ],
)
def test_a_range_is_what_would_be_typed(text: str, values: str) -> None:
    assert listed(text) == values.split()


@given(st.integers(-(10**6), 10**6), st.integers(1, 300), st.integers(1, 10**4), st.integers(0, 6))
def test_a_range_in_steps_is_numpys_without_its_rounding(first: int, count: int, step: int, places: int) -> None:
    """NumPy counts in whole numbers, whose division by a power of ten is the float nearest to the decimal number."""
    scale = 10**places
    whole = np.arange(first, first + (count + 1) * step, step)
    text = f"{first / scale:.{places}f}..{whole[-1] / scale:.{places}f}:{step / scale:.{places}f}"
    assert [*map(float, listed(text))] == (whole / scale).tolist()


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 50))
def test_spaces_are_numpys_to_six_digits_and_have_both_ends(first: float, last: float, count: int) -> None:
    if first == last:
        return
    for name, of_numpy in (("linspace", np.linspace), ("logspace", np.geomspace)):
        values = [*map(float, listed(f"{name}({first!r},{last!r},{count})"))]
        np.testing.assert_allclose(values, of_numpy(first, last, count), rtol=1e-5)
        assert (values[0], values[-1]) == (first, last)


@for_each(
    ("text", "law"),
    [
        ("0..", r"a range is A\.\.B for whole numbers"),
        ("0..x", r"but got '0\.\.x'"),
        ("0..1..2", r"a range is A\.\.B"),
        ("0..0.5", "is of whole numbers, but got '0..0.5'; others have a step: 0..0.5:STEP"),
        ("9..0", "must ascend, A < B and STEP > 0, but got '9..0'"),
        ("0..9:0", "must ascend"),
        ("0..1:0.3", r"must reach B, but '0..1:0.3' ends at 0\.9"),
        ("0..1000000", "must have at most 10000 values"),
        ("logspace(0,1,3)", "must be above 0"),
        ("logspace(1,10,1)", "a COUNT of at least 2"),
        ("linspace(1,1,3)", "two different ends"),
        ("linspace(0,1,99999999999999)", "must have at most 10000 values"),
        ("logspace(1,10)", "a range is "),
        ("linspace(0,1,3", "a range is "),
        ("1e999999..2e999999:1e-999999", "a range is "),
    ],
)
def test_a_wrong_range_is_one_line(text: str, law: str) -> None:
    with pytest.raises(SpecError, match=law) as refused:
        parse(["grid", "--axis", f"lr={text}"])
    assert "\n" not in str(refused.value)
    assert is_range(text)


def test_the_command_line_takes_ranges_of_axes_and_of_replicates() -> None:
    ranges = parse(
        ["grid", "--axis", "seed=0..3", "--axis", "lr=logspace(0.001,0.1,3)", "--replicates", "held_out=0..2"]
    )
    typed = parse(["grid", "--axis", "seed=0,1,2,3", "--axis", "lr=0.001,0.01,0.1", "--replicates", "held_out=0,1,2"])
    assert ranges == typed


@given(st.integers(0, 10**6), st.integers(1, 400))
def test_many_whole_numbers_in_succession_are_written_as_a_range(first: int, count: int) -> None:
    values = [str(first + index) for index in range(count)]
    text = as_typed(values)
    assert listed(text) == values
    assert text == (f"{values[0]}..{values[-1]}" if count > MOST_LISTED else ",".join(values))
    assert as_typed([*values, "0.5"]) == ",".join([*values, "0.5"])

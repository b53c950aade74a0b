from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.storage.io.files import Files
from sweeper.storage.io.json_records import number, read_record, text, truth, whole


@pytest.mark.parametrize(
    ("check", "value"),
    [(whole, 0), (whole, 2**62), (number, 0), (number, 0.5), (number, 10**9), (text, ""), (truth, False)],
)
def test_a_valid_value_is_returned(check: Callable[[Any], Any], value: Any) -> None:
    assert check(value) == value


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((whole, value) for value in (-1, 2**63, 1.0, True, "1", None)),
        *((number, value) for value in (-0.5, 2e9, float("nan"), float("inf"), True, "1", None)),
        *((text, value) for value in (1, None, ["a"])),
        *((truth, value) for value in (0, 1, "true", None)),
    ],
)
def test_a_value_of_another_type_or_out_of_range_is_refused(check: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        check(value)


def test_bounds_may_be_stricter() -> None:
    assert whole(1, 1) == 1 and number(0.1, positive=True) == 0.1
    with pytest.raises(ValueError, match="at least 1"):
        whole(0, 1)
    with pytest.raises(ValueError, match="above 0"):
        number(0, positive=True)


def test_a_damaged_file_counts_as_absent_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = Files(tmp_path)
    files.write("sound.json", b'{"count": 3}')
    files.write("damaged.json", b'{"count": ')
    files.write("invalid.json", b'{"count": -3}')
    counts = [
        read_record(files, f"{name}.json", lambda plain: whole(plain["count"]))
        for name in ("sound", "damaged", "invalid", "missing")
    ]
    assert counts == [3, None, None, None]
    lines = capsys.readouterr().err.splitlines()
    assert ["'damaged.json'" in line or "'invalid.json'" in line for line in lines] == [True, True]

import sys

import pytest

from trainables.training.measurement import memory_of_process, stack_widths


@pytest.mark.parametrize(
    ("members", "widths"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_widths_are_powers_of_two_and_all_members(members: int, widths: list[int]) -> None:
    assert stack_widths(members) == widths


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_memory_is_in_bytes_and_grows_with_what_is_held() -> None:
    before = memory_of_process("VmData")
    allocated = bytearray(1 << 30)  # untouched, so it costs nothing; other threads may free some MiB meanwhile
    after = memory_of_process("VmData")
    assert before and after and after - before >= len(allocated) // 2
    assert memory_of_process("VmHWM")


def test_an_unknown_field_has_no_value() -> None:
    assert memory_of_process("VmNothing") is None

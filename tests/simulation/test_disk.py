"""A crash at any line of a write leaves the old file or the new one."""

from tests.simulation import disk


def test_a_reader_sees_the_old_file_or_the_new_one_wherever_its_writer_crashes() -> None:
    assert [*disk.broken()] == []

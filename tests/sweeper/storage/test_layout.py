import pytest

from sweeper.storage import layout
from sweeper.storage.layout import checkpoint_path, history_folder, trials_folder


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "../a", "a b"])
@pytest.mark.parametrize("path_of", [trials_folder, history_folder, lambda name: checkpoint_path("grid", name)])
def test_a_name_that_readers_would_not_see_is_refused(path_of, name):
    with pytest.raises(ValueError, match="a name in the store"):
        path_of(name)


def test_a_checkpoint_is_named_by_its_cohort():
    assert checkpoint_path("grid", "c0") == "checkpoints/sweep=grid/c0.pt"


def test_a_request_has_a_file_name_that_every_file_system_takes() -> None:
    assert layout.file_name("digits, epochs=5 nu=0.5,inf") == "digits, epochs=5 nu=0.5,inf"
    odd = [layout.file_name(f"digits, terms={text}") for text in ("a/b:c*", "a\\b:c*")]
    assert all("/" not in name and ":" not in name and "*" not in name for name in odd) and odd[0] != odd[1]
    many = [layout.file_name(f"digits, seed={','.join(map(str, range(count)))}") for count in (200, 201)]
    assert many[0] != many[1] and all(len(name) < 140 for name in many)

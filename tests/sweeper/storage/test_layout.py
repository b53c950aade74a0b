import pytest

from sweeper.storage.layout import checkpoint_path, history_folder, trials_folder


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "../a", "a b"])
@pytest.mark.parametrize("path_of", [trials_folder, history_folder, lambda name: checkpoint_path("grid", name)])
def test_a_name_that_readers_would_not_see_is_refused(path_of, name):
    with pytest.raises(ValueError, match="a name in the store"):
        path_of(name)


def test_a_checkpoint_is_named_by_its_cohort():
    assert checkpoint_path("grid", "c0") == "checkpoints/sweep=grid/c0.pt"

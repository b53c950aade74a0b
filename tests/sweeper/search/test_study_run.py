from pathlib import Path

from sweeper.storage.files import Files
from tests.sweeper.search.toy_waves import study, study_run


def test_the_definition_of_a_study_is_written_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    files, path = Files(tmp_path), tmp_path / "studies/search/s0.json"
    run = study_run(study(trials=8, wave=8))
    run.write_definition(files, "search")
    definition = path.read_text()
    path.write_text(definition.replace("\n", ""))
    run.write_definition(files, "search")
    assert path.read_text() == definition.replace("\n", "")
    path.write_text(definition[:-1])
    run.write_definition(files, "search")
    assert path.read_text() == definition

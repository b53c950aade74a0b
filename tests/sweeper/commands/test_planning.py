"""Planning needs no data: every preset can be planned without data and without a network."""

import json
import urllib.request
from pathlib import Path
from typing import Any, Never
from urllib.error import URLError

import pytest

from sweeper.commands import run
from sweeper.definition import registry
from tests.cases import for_each

PRESETS = [(name, preset) for name in registry.names() for preset in registry.find(name).presets]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Never:
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def planned(folder: Path, capsys: pytest.CaptureFixture[str], name: str, preset: str, *arguments: str) -> Any:
    """Result of `--plan --json`. Asserts that it is valid JSON and that no file was written."""

    def refuse(constant: str) -> Never:
        raise ValueError(f"{constant} is no JSON")

    folders = ["--store", str(folder / "store"), "--data", str(folder / "data")]
    assert run.main([name, "--preset", preset, *folders, "--plan", "--json", *arguments]) == 0
    assert list(folder.iterdir()) == []
    return json.loads(capsys.readouterr().out, parse_constant=refuse)


@pytest.mark.slow
@for_each(("name", "preset"), PRESETS)
def test_every_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, preset: str) -> None:
    outline = planned(tmp_path, capsys, name, preset)
    assert outline["trials"] == outline["to run"] == sum(part.count for part in registry.find(name).parts(preset))
    assert outline["changed"] == {} and (outline["fixed"] or outline["parts"])
    for study in outline.get("studies", {}).values():
        names = [distribution["name"] for distribution in study["space"].values()]
        assert names and all(name.endswith("Distribution") for name in names)
    if "steps" in outline:
        steps, unsized = outline["steps"], outline["unsized"]
        assert (steps, unsized) == (None, ["imagenet"]) or (steps and not unsized)


def test_steps_are_known_from_what_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CIFAR-10 has 5,000 images per class (batches of 64) and 50,000 in all (batches of 256). Untrained: 0 steps."""
    assert planned(tmp_path, capsys, "anomaly_grid", "paper")["steps"] == [800 * (5000 // 64)]
    assert planned(tmp_path, capsys, "ssl_cifar10", "paper")["steps"] == [0, 800 * (50_000 // 256)]


def test_a_requested_value_is_shown_beside_that_of_the_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outline = planned(tmp_path, capsys, "nu_ablation", "digits", "--set", "epochs=5", "--axis", "nu=2,inf")
    assert outline["changed"] == {
        "epochs": {"values": [5], "preset": [80]},
        "nu": {"values": [2.0, "inf"], "preset": [1.0, 3.0, 7.0, 20.0, 50.0, "inf"]},
    }
    assert outline["axes"] == {"nu": [2.0, "inf"], "seed": [0, 1, 2]} and outline["fixed"]["epochs"] == 5


def test_a_plan_as_text_lists_axes_changes_and_unknowns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--store", str(tmp_path / "store"), "--data", str(tmp_path / "data"), "--plan"]
    assert run.main(["imagenet_linear", *folders, "--set", "lr=0.1"]) == 0
    text = capsys.readouterr().out
    for line in (
        "  axes       seed: 0, 1, 2",
        "  changed    lr: 0.1 (preset: 0.05)",
        "  steps      unknown without the images of imagenet",
    ):
        assert line in text.splitlines()


def test_a_plan_says_which_trials_a_change_makes_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--store", str(tmp_path / "store"), "--data", str(tmp_path / "data"), "--plan"]
    line = "note: some trials train longer than in the preset: "
    assert run.main(["nu_ablation", "--preset", "digits", *folders, "--set", "epochs=240"]) == 0
    assert f"{line}18 of vje with epochs=240 3 times\n" in capsys.readouterr().err
    assert run.main(["nu_ablation", "--preset", "digits", *folders, "--set", "epochs=5"]) == 0
    assert line not in capsys.readouterr().err

"""`sweeper export`: the model of a sweep's best trial as a file."""

from dataclasses import replace
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

import sweeper
from sweeper.commands import export
from sweeper.definition import Heatmap, Metric, Table
from sweeper.errors import SpecError, StoreError
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY
from tests.user_files import DENOISE, forget_modules, user_folder

__all__ = ["user_folder"]

OWN_SWEEP = """
from sweeper import Grid, Metric, Sweep, Table

KEYS = {"method": "own_method:Denoise", "dataset": "digits", "epochs": 1, "knn": 5, "encoder": "mlp", "width": 8}
TABLE = Table("knn", ("sigma",), (Metric("knn_z", "maximize"),))
SWEEP = Sweep("mine", {"tiny": Grid(KEYS, {"sigma": (0.1, 0.2)})}, figures=(TABLE,))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    with without_ray(folder):
        sweeper.run(TINY, name="tiny", store=folder / "store", cohort=2)
    return folder / "store"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_best_trial_is_chosen_on_validation_images_and_its_file_loads(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = load("tiny", store)
    means = rows.groupby("beta")[["val_auroc_joint", "auroc_joint"]].mean()
    beta = means["val_auroc_joint"].idxmax()
    own = rows[rows["beta"] == beta]
    best = own.loc[own["val_auroc_joint"].idxmax()]
    assert export.main(["tiny", "--best", "auroc_joint", "--store", str(store)]) == 0
    sentence, place, first, second = capsys.readouterr().out.splitlines()
    assert sentence.startswith(f"best auroc_joint: {means['auroc_joint'][beta]:.3f} (mean over 2 seeds) at beta={beta}")
    validated = f"{means['val_auroc_joint'][beta]:.3f}"
    assert f"; chosen on validation images (val_auroc_joint {validated})" in sentence
    assert place == "trial 1 of its 2, best first"
    path = folder / f"tiny-{best['trial_id']}.safetensors"
    assert first.startswith(f"trial {best['trial_id']}: method=vje dataset=digits seed={best['seed']} auroc_joint=")
    assert second.startswith(f"written: {path.name} (0.0")
    model = sweeper.load_model(path)
    assert model.config == sweeper.config_of(best) and not model.training
    stored = sweeper.load_model(store, best["trial_id"])
    assert all((value == stored.state_dict()[name]).all() for name, value in model.state_dict().items())


def test_a_replicate_of_the_best_setting_is_chosen_by_its_seed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        asked = [
            "tiny",
            "--best",
            "auroc_joint",
            "--seed",
            str(seed),
            "--store",
            str(store),
            "--out",
            f"{seed}.safetensors",
        ]
        assert export.main(asked) == 0
        assert f" seed={seed} auroc_joint=" in capsys.readouterr().out


@pytest.mark.slow
def test_export_says_the_sentence_of_the_terminal_in_its_unit_and_with_its_replicates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures in the store say that beta repeats the experiment here, and that the metric is a share."""
    table = Table("auroc", ("seed",), (Metric("auroc_joint", "maximize", percent=True),))
    heatmap = Heatmap(table.metrics[0], "seed", "lr")
    sweep = replace(TINY, figures=(heatmap, table), breakdown="beta")
    with without_ray(tmp_path):
        sweeper.run(sweep, name="tiny", store=tmp_path / "s", cohort=2)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("best auroc_joint (%): ")]
    assert export.main(["tiny", "--best", "auroc_joint", "--store", str(tmp_path / "s")]) == 0
    assert (
        printed == [capsys.readouterr().out.splitlines()[0]]
        and "over 2 values of beta, each the mean of 2 seeds)" in printed[0]
    )


def test_a_file_has_the_threshold_of_its_rate(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is that of the model in the store at this rate, and needs neither store nor data."""
    words = ["tiny", "--best", "auroc_joint", "--store", str(store), "--out", "flagging.safetensors"]
    assert export.main([*words, "--alarm-rate", "0.05"]) == 0
    *_, trial, line, _ = capsys.readouterr().out.splitlines()
    model = sweeper.load_model("flagging.safetensors")
    trial_id = trial.removeprefix("trial ").partition(":")[0]
    stored = sweeper.load_model(store, trial_id, alarm_rate=0.05)
    assert model.alarm_rate == 0.05 and model.threshold == stored.threshold
    name, held_out = model.chosen_score, len(model.held_out[model.chosen_score])
    assert line == (
        f"score {name} (chosen on validation images, val_auroc_{name}): threshold {model.threshold:.4g} at a "
        f"false-alarm rate of 0.05, from {held_out} held-out normal images"
    )
    normal = load_digits()
    flagged = model.score(normal.images[normal.target == 0] / 16) > model.threshold
    assert 0 <= flagged.float().mean() < 0.2
    with pytest.raises(SpecError, match=f"0.01 needs at least 99 held-out normal images, but there are {held_out}"):
        sweeper.load_model("flagging.safetensors", alarm_rate=0.01)


def test_a_trial_without_a_model_is_trained_again(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {path.stem for path in (store / "models/sweep=tiny").iterdir()}
    trial = next(trial for trial in load("tiny", store)["trial_id"] if trial not in kept)
    assert export.main(["tiny", "--trial", trial, "--store", str(store), "--out", "again.safetensors"]) == 0
    assert capsys.readouterr().err == f"trial {trial} has no model in the store; training it again alone, 1 epochs\n"
    assert sweeper.load_model("again.safetensors").config.flat()["epochs"] == 1
    assert {path.stem for path in (store / "models/sweep=tiny").iterdir()} == kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiny", "--best", "auroc_joint", "--store", "nowhere"], "no trials of sweep 'tiny'; there are: none"),
        (["tini", "--best", "auroc_joint"], "no trials of sweep 'tini'; there are: tiny"),
        (["tiny", "--best", "knn"], "no trial has a value of 'knn' to be ranked by; there are: loss, auroc_joint, "),
        (["tiny", "--best", "posterior_variance"], "no trial has a value of 'posterior_variance' to be ranked by"),
        (["tiny", "--best", "auroc_joint", "--preset", "paper"], "no rows of preset 'paper'; there are: digits"),
        (["tiny", "--trial", "abc"], "no trial 'abc' among 4 trials"),
        (["tiny", "--best", "auroc_joint", "--out", "no/such/file"], "--out must be a file in a folder that exists"),
        (["no/such.py", "--best", "auroc_joint"], "sweep 'no/such.py' cannot be read: no/such.py does not exist"),
        (["a b", "--best", "auroc_joint"], "the name of a sweep must consist of letters"),
        (["tiny", "--best", "auroc_joint", "--out", "x" * 300], "cannot write 'xxx"),
        (["tiny", "--best", "auroc_joint", "--device", "cuda:99"], "the device must be available to torch here"),
        (["tiny", "--trial", "abc", "--seed", "1"], "--seed must come with --best, because --trial names one trial"),
        (
            ["tiny", "--best", "auroc_joint", "--seed", "7"],
            "the best setting has no trial with seed=7; there are: 0, 1",
        ),
        (["tiny"], "one of the arguments --best --trial is required"),
        (["tiny", "--best", "auroc_joint", "--trial", "abc"], "not allowed with argument"),
        (["tiny", "--best", "auroc_joint", "--device", "tpu9"], "--device"),
        (["tiny", "--best", "auroc_joint", "--alarm-rate", "1"], "`0 < alarm-rate < 1` must hold, but got "),
        (["tiny", "--best", "auroc_joint", "--alarm-rate", "0.01"], "choose --alarm-rate 0.04 or more, or hold out"),
        (["tiny", "--best", "auroc_joint", "--store", ""], "--store must name a folder"),
    ],
)
def test_a_wrong_request_is_one_line(
    words: list[str], message: str, store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--store" in words else ["--store", str(store)]
    assert export.main([*words, *where]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and message in err and err.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_sweep_is_named_by_its_file(store: Path, user_folder: Path) -> None:
    (user_folder / "tiny.py").write_text("from tests.sweeper.small_sweeps import TINY as SWEEP")
    assert export.main(["tiny.py", "--best", "auroc_joint", "--store", str(store), "--out", "tiny.safetensors"]) == 0
    assert (user_folder / "tiny.safetensors").exists()


@pytest.mark.slow
def test_a_method_of_the_user_is_imported_by_its_sweep_or_by_its_name_alone(
    user_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_folder / "own_method.py").write_text(DENOISE)
    (user_folder / "own_sweep.py").write_text(OWN_SWEEP)
    with without_ray(tmp_path):
        rows = sweeper.run("own_sweep.py", store=tmp_path / "s", cohort=2, keep="none")
    asked = ["--trial", rows["trial_id"][0], "--store", str(tmp_path / "s"), "--out", "own.safetensors"]
    for name, *named in (["own_sweep"], ["own_sweep.py"], ["own_sweep", "--method", "own_method:Denoise"]):
        forget_modules(user_folder)
        (user_folder / "own.safetensors").unlink(missing_ok=True)
        known = bool(named) or name.endswith(".py")
        assert export.main([name, *named, *asked]) == (0 if known else 2)
        assert (user_folder / "own.safetensors").exists() == known
        law = "names the method 'own_method:Denoise', which neither ships nor is installed; it is imported only if you"
        assert (law in capsys.readouterr().err) != known
    forget_modules(user_folder)
    assert sweeper.load_model("own.safetensors", methods=["own_method:Denoise"]).config == sweeper.config_of(
        rows.iloc[0]
    )


def test_only_a_file_that_cannot_be_written_is_said_to_be_one(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(export, "load", fail)
    with pytest.raises(PermissionError):
        export.main(["tiny", "--best", "auroc_joint", "--store", str(store)])


def test_trials_that_have_no_final_weights_are_refused(store: Path, tmp_path: Path) -> None:
    with without_ray(tmp_path):
        rows = sweeper.run(TINY, name="tiny", store=tmp_path / "s", cohort=2, set={"lr": 1e30}, axis={"seed": [0]})
    assert set(rows["status"]) == {"diverged"}
    with pytest.raises(StoreError, match="has no final weights, because it is diverged: loss was not"):
        sweeper.load_model(tmp_path / "s", rows["trial_id"][0])
    with pytest.raises(SpecError, match="a trial_id is required, or a file that ends in"):
        sweeper.load_model(store)

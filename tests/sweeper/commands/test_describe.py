"""`--describe` describes methods, data sets and metrics from the source."""

import re
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10, CIFAR100, MNIST, STL10, SVHN, CelebA, FashionMNIST

from sweeper.commands import run
from sweeper.commands.descriptions import LISTS, describe
from sweeper.definition import Heatmap, Ranking, registry
from sweeper.errors import SpecError
from sweeper.storage.rows import FIXED
from tests.cases import for_each
from tests.trainables.small import IMAGE_METHODS
from trainables.catalog import METHODS
from trainables.config import describe_keys
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.own_data import SOURCES
from trainables.data.pairs import BRANCHES
from trainables.metrics.meanings import FAMILIES, SCORES
from trainables.training.metric_names import methods_by_metric

KEYS = {method: describe_keys(method) for method in METHODS}
LAWS = {key.law for method in METHODS for key in KEYS[method]}
USABLE = {
    *(key.name for method in METHODS for key in KEYS[method]),
    *(word for law in LAWS for word in re.findall(r"\w+", law)),
    *METHODS,
    *DATASETS,
    *FAMILIES,
    *methods_by_metric(),
    "inf",
    "val_METRIC",
}
"""Names that the user can use, and values of options."""
OWN_SWEEP = '''
"""Asks a question."""
from sweeper import Grid, Heatmap, Metric, Sweep, Table

TABLE = Table("losses", ("seed",), (Metric("loss", "minimize"),))
SWEEP = Sweep("of the user", {"tiny": Grid({"method": "vje"}, {"seed": (0, 1)})}, figures=(TABLE,))
'''


def test_a_method_has_its_keys_with_ranges_defaults_and_fusibility() -> None:
    lines = describe("vje").splitlines()
    assert lines[0].startswith("vje: Variational Joint Embedding (VJE)")
    assert (
        "* nu=3  (nu > 0)" in lines
        and "  bottleneck=128  (bottleneck >= 1)" in lines
        and "* seed=0  (seed >= 0)" in lines
    )
    assert (
        "      Width of the inference network." in lines and "  small_stem=true" in lines and "  held_out=''" in lines
    )
    metrics = " ".join(lines[lines.index("metrics that it can report (--describe METRIC):") :])
    assert "posterior_entropy" in metrics and "knn_weighted" in metrics


@for_each("method", METHODS)
def test_no_key_is_left_out(method: str) -> None:
    text = describe(method)
    for key in KEYS[method]:
        assert f"\n{'*' if key.fusible else ' '} {key.name}=" in text
    assert max(map(len, text.splitlines()[1:])) <= 110


@for_each("dataset", DATASETS)
def test_a_data_set_has_its_shape_classes_sizes_and_files(dataset: str) -> None:
    lines = [line for line in describe(dataset).split("\n\n")[1].splitlines() if not line.startswith(" " * 3)]
    facts = dict(line.split(maxsplit=1) for line in lines)
    assert list(facts) == ["images", "classes", "training", "test", "attributes", "files"]
    assert int(facts["classes"]) == DATASETS[dataset].declaration.classes and " x " in facts["images"]
    assert max(map(len, describe(dataset).splitlines())) <= 110
    assert facts["files"].startswith("DATA/") or dataset.startswith("digits")


def test_a_data_set_has_its_attributes_with_their_numbers_of_values() -> None:
    assert "\n  attributes ink (5), slant (5), hue (5)\n" in describe("digits_tint")
    assert "\n  attributes hair (5), 5_o_clock_shadow (2), " in describe("celeba")
    assert "\n  attributes none\n" in describe("svhn")


def test_sizes_and_files_are_the_published_ones() -> None:
    text = describe("stl10")
    assert (
        "3 x 96 x 96 (channels x rows x columns), pixels 0 to 255" in text and "8,000 images, 800 of each class" in text
    )
    assert "5,000 images, 500 of each class, and 100,000 without a label" in text
    for name, source in {"cifar10": CIFAR10, "cifar100": CIFAR100, "stl10": STL10}.items():
        assert (
            f"DATA/{source.base_folder}/, " in DATASETS[name].files
            and f"DATA/{source.filename} " in DATASETS[name].files
        )
    for name, files in {"mnist": MNIST, "fashion_mnist": FashionMNIST}.items():
        assert f"DATA/{files.__name__}/raw/*.gz" in DATASETS[name].files and files.resources[0][0].endswith(".gz")
    assert (
        f"DATA/{CelebA.base_folder}/, " in DATASETS["celeba"].files
        and CelebA.file_list[0][2] in DATASETS["celeba"].files
    )
    assert all(f"DATA/{SVHN.split_list[part][1]}" in DATASETS["svhn"].files for part in ("train", "test"))


@for_each("metric", [*FAMILIES, "knn_z", "fpr95_joint_held_out", "loss_kl"])
def test_a_metric_has_its_meaning_range_and_direction(metric: str) -> None:
    text = describe(metric)
    assert all(f"\n  {fact} " in text for fact in ("range", "direction", "reported"))


@pytest.mark.parametrize("name", BRANCHES)
def test_a_data_set_of_pairs_has_its_branches_and_needs_no_files(name: str) -> None:
    text = describe(name)
    assert text.startswith(f"{name}:\n  {BRANCHES[name].about}\n") and "\n  files " in text


def test_descriptions_of_metrics() -> None:
    text = describe("probe_z")
    assert "higher is better" in text and "a share in [0, 1]" in text and "at the end of training" in text
    assert " ".join(text.split()).endswith(f"by {', '.join(IMAGE_METHODS)}")
    assert methods_by_metric()["probe_z"] == tuple(IMAGE_METHODS)
    assert "lower is better" in describe("fpr95") and re.search(r"and \d+ more$", describe("fpr95"))
    assert "null where it is undefined" in describe("var_cv") and "\nmetrics of this family" not in describe("var_cv")


@pytest.mark.parametrize(("name", "hint"), [("vej", " (did you mean 'vje'?)"), ("?", "")])
def test_another_name_is_refused_with_the_nearest_and_how_to_list_all(name: str, hint: str) -> None:
    with pytest.raises(SpecError) as refused:
        describe(name)
    assert str(refused.value) == (
        f"no method, data set, key, metric, column or sweep '{name}'{hint}; --list shows the sweeps, and --describe "
        "lists all of a kind: keys, methods, datasets, metrics, scores, columns"
    )


def test_every_key_has_its_type_bounds_default_and_the_methods_that_have_it() -> None:
    for name in {key.name for method in METHODS for key in KEYS[method]}:
        text = describe(name).partition(f"\n{name}: an anomaly score")[0]
        named = set(re.findall(r"\w+", " ".join(re.findall(r"^  methods +((?:.|\n {12})+)", text, re.M))))
        assert named == {method for method in METHODS if name in {key.name for key in KEYS[method]}}
        assert all(f"\n  {fact} " in text for fact in ("type", "bounds", "default", "fusible"))
        assert max(map(len, text.splitlines())) <= 110
    text = describe("lr")
    assert "Peak learning rate" in text and "  bounds     lr > 0\n  default    0.05\n  fusible    yes" in text
    assert "  type       a whole number, or none\n" in describe("normal_class")
    assert "simvae, smc_gmje" in describe("method")


@for_each("name", registry.names())
def test_a_sweep_has_its_question_presets_and_figures(name: str) -> None:
    text, sweep = describe(name), registry.find(name)
    for preset in sweep.presets:
        count = sum(part.count for part in sweep.parts(preset))
        assert f"\n  {preset}: {count} trials, ranked by {sweep.headline(preset).name} " in text
    for figure in sweep.figures:
        of = figure.axes[0] if isinstance(figure, Heatmap | Ranking) else figure.shown[0].name
        assert f"\n  {figure.title} {'over' if isinstance(figure, Heatmap) else 'of'} {of}" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_sweep_says_what_varies_and_is_searched() -> None:
    assert "    nu: 0.25, 0.5, 1, 2, 3, 5, 10, 20\n" in describe("anomaly_grid")
    assert "    lr (searched): 1e-06 to 0.001, log\n" in describe("vje_search")
    assert "One-class anomaly detection with VJE over beta x nu x class" in describe("anomaly_grid")


def test_files_of_the_user_are_described(tmp_path: Path) -> None:
    file = tmp_path / "described_sweep.py"
    file.write_text(OWN_SWEEP)
    text = describe(str(file))
    assert text.startswith("described_sweep: of the user\n\n  Asks a question.\n") and "  tiny: 2 trials, " in text
    with pytest.raises(SpecError, match=r"^sweep 'README.md' cannot be read: "):
        describe("README.md")


def test_scores_and_validation_metrics_are_explained() -> None:
    scores = {score for method in METHODS.values() for score in getattr(method, "scores", ())}
    assert scores == set(SCORES)
    joint = describe("joint")
    assert "sum of `dir` and" in joint and "auroc_joint" in joint
    assert "\n  score      joint: the negative log likelihood" in describe("auroc_joint")
    assert "val_auroc_joint is the same of the validation images" in describe("auroc_joint")
    text = " ".join(describe("val_auroc_joint_svhn").split())
    assert "images the validation images, which the key `validation` holds out" in text and "outliers svhn, " in text


@pytest.mark.parametrize("kind", LISTS)
def test_all_of_a_kind_are_listed(kind: str) -> None:
    names = {
        "keys": {key.name for method in METHODS for key in KEYS[method]},
        "methods": set(METHODS),
        "datasets": {*DATASETS, *SOURCES, "folder", *BRANCHES},
        "metrics": {*FAMILIES, "val_METRIC"},
        "scores": set(SCORES),
        "columns": set(FIXED),
    }
    assert set(re.findall(r"^  (\w+) ", describe(kind), re.M)) == names[kind]


def test_lists_show_defaults_ranges_and_directions() -> None:
    listed = {kind: " ".join(describe(kind).split()) for kind in LISTS}
    assert "lr Peak learning rate (default 0.05, lr > 0) " in listed["keys"]
    assert re.search(r" ema [^(]*\(default and range by method\)", listed["keys"])
    assert "fpr95 Share of outliers accepted as inliers at the threshold" in listed["metrics"]
    assert "accepts 95 % of the inliers (a share in [0, 1], lower is better) " in listed["metrics"]
    assert "deep_svdd Deep SVDD: " in listed["methods"] and "(Ruff et al. 2018)" in listed["methods"]


def test_a_column_is_explained_beside_the_metric_of_its_name() -> None:
    assert describe("device_seconds").startswith("device_seconds: a column of every row\n  `seconds` times the GPUs")
    text = describe("seconds")
    assert "an objective for searches" in text and text.endswith("share of its cohort's training time")


@for_each("name", [*METHODS, *DATASETS])
def test_no_name_of_the_code_is_shown_as_if_it_were_a_key(name: str) -> None:
    """What stands alone between backquotes is a name that the user can use, or an option's value."""
    shown = {word for word in re.findall(r"`(\w+)`", describe(name)) if len(word) > 1}
    assert shown <= USABLE and "root/" not in describe(name)


def test_the_command_line_describes_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--describe", "digits"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("digits:\n  scikit-learn's 1,797 real digits") and err == ""
    assert run.main(["--describe", "digit"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: no method, data set, key, metric, column or sweep 'digit' (did you mean "
    )

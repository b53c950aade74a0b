"""`--describe` describes methods, data sets and metrics from the source."""

import re

import pytest
from torchvision.datasets import CIFAR10, CIFAR100, MNIST, STL10, SVHN, CelebA, FashionMNIST

import sweeper.run as run
from sweeper.cli.describe import FILES, describe
from sweeper.errors import SpecError
from tests.trainables.small import IMAGE_METHODS
from trainables.catalog import METHODS
from trainables.config.key_docs import key_docs
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.declarations import DECLARATIONS
from trainables.data.pairs import BRANCHES
from trainables.evaluation.metrics import FAMILIES
from trainables.training.metric_names import methods_by_metric


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


@pytest.mark.parametrize("method", METHODS)
def test_no_key_is_left_out(method: str) -> None:
    text = describe(method)
    for key in key_docs(method):
        assert f"\n{'*' if key.fusible else ' '} {key.name}=" in text
    assert max(map(len, text.splitlines()[1:])) <= 110


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_data_set_has_its_shape_classes_sizes_and_files(dataset: str) -> None:
    lines = [line for line in describe(dataset).split("\n\n")[1].splitlines() if not line.startswith(" " * 3)]
    facts = dict(line.split(maxsplit=1) for line in lines)
    assert list(facts) == ["images", "classes", "training", "test", "attributes", "files"]
    assert int(facts["classes"]) == DECLARATIONS[dataset].classes and " x " in facts["images"]
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
        assert f"DATA/{source.base_folder}/, " in FILES[name] and f"DATA/{source.filename} " in FILES[name]
    for name, files in {"mnist": MNIST, "fashion_mnist": FashionMNIST}.items():
        assert f"DATA/{files.__name__}/raw/*.gz" in FILES[name] and files.resources[0][0].endswith(".gz")
    assert f"DATA/{CelebA.base_folder}/, " in FILES["celeba"] and CelebA.file_list[0][2] in FILES["celeba"]
    assert all(f"DATA/{SVHN.split_list[part][1]}" in FILES["svhn"] for part in ("train", "test"))


@pytest.mark.parametrize("metric", [*FAMILIES, "knn_z", "fpr95_joint_held_out", "loss_kl"])
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
    assert text.endswith(f"by        {', '.join(IMAGE_METHODS)}")
    assert methods_by_metric()["probe_z"] == tuple(IMAGE_METHODS)
    assert "lower is better" in describe("fpr95") and re.search(r"and \d+ more$", describe("fpr95"))
    assert "null where it is undefined" in describe("var_cv") and "\nmetrics of this family" not in describe("var_cv")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("vej", r" \(did you mean 'vje'\?\)"), ("nu", r" \('nu' is a key; see --describe vje\)"), ("?", "")],
)
def test_another_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    law = rf"^no method, data set or metric '{name}'{hint}; there are: barlow_twins, ".replace("'?'", r"'\?'")
    with pytest.raises(SpecError, match=law) as refused:
        describe(name)
    assert "\n" not in str(refused.value)


def test_the_command_line_describes_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--describe", "digits"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("digits:\n  scikit-learn's 1,797 real digits") and err == ""
    assert run.main(["--describe", "digit"]) == 2
    assert capsys.readouterr().err.startswith("error: no method, data set or metric 'digit' (did you mean 'digits'?)")

"""Text of `--describe` for a method, a data set or a metric, taken from docstrings and declarations."""

import inspect
import itertools
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from sweeper.errors import SpecError
from sweeper.spec.grid import Value
from sweeper.spec.user_code import search_folder
from trainables.catalog import METHODS, import_method
from trainables.config.key_docs import KeyDoc, key_docs
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.declarations import DECLARATIONS
from trainables.data.datasets.loaders.folder import FOLDER, load_folder
from trainables.data.pairs import BRANCHES, NOISE
from trainables.evaluation.metric_families.family import MetricFamily
from trainables.evaluation.metrics import FAMILIES, VALIDATION, family_of
from trainables.method_loading import installed_methods
from trainables.training.metric_names import methods_by_metric
from trainables.validation import nearest

WIDTH = 110
"""Characters per line."""
HEADINGS: Mapping[str, str] = {"options": "its own", "views": "augmented views"}
"""Section of a config -> its heading, where that is not its name."""

FILES: Mapping[str, str] = {
    "celeba": "DATA/celeba/, never fetched: img_align_celeba.zip (or the folder in it) and the .txt files beside it",
    "cifar10": "DATA/cifar-10-batches-py/, fetched if absent, from DATA/cifar-10-python.tar.gz if that is there",
    "cifar100": "DATA/cifar-100-python/, fetched if absent, from DATA/cifar-100-python.tar.gz if that is there",
    "fashion_mnist": "DATA/FashionMNIST/raw/*.gz, fetched if absent",
    "imagenet": "DATA/imagenet/train/CLASS/ and DATA/imagenet/val/CLASS/, never fetched",
    "mnist": "DATA/MNIST/raw/*.gz, fetched if absent",
    "mnist32": "DATA/MNIST/raw/*.gz, fetched if absent",
    "stl10": "DATA/stl10_binary/, fetched if absent, from DATA/stl10_binary.tar.gz if that is there",
    "svhn": "DATA/train_32x32.mat and DATA/test_32x32.mat, fetched if absent",
}
"""Data set -> where its files are expected; DATA stands for the folder of `--data`."""
MOST = 12
"""Most metrics of a family that are listed by name."""


def describe(name: str) -> str:
    """Describe a method, a data set or a metric. Raises SpecError, with one line, for any other name."""
    if name in METHODS or name in installed_methods() or ":" in name:
        if ":" in name:
            search_folder(Path.cwd())
        try:
            return _method(name)
        except ValueError as error:
            raise SpecError(str(error)) from error
    if name in DATASETS:
        return _dataset(name)
    if name == FOLDER:
        return _folder()
    if name in BRANCHES:
        return _pairs(name)
    if name in methods_by_metric() or name in FAMILIES:
        return _metric(name)
    datasets = [*DATASETS, FOLDER, *BRANCHES]
    known = [*METHODS, *datasets, *FAMILIES, *methods_by_metric()]
    owners = [method for method in METHODS if name in {key.name for key in key_docs(method)}]
    hint = f" ('{name}' is a key; see --describe {owners[0]})" if owners else nearest(name, known)
    raise SpecError(
        f"no method, data set or metric '{name}'{hint}; there are: {', '.join(METHODS)}; {', '.join(datasets)}; "
        f"{', '.join(FAMILIES)}"
    )


def _method(name: str) -> str:
    cls = import_method(name)
    keys, module = key_docs(name), inspect.getdoc(sys.modules[cls.__module__]) or ""
    reported = [metric for metric, methods in methods_by_metric().items() if name in methods]
    summary = " ".join(module.split("\n\n")[0].split())
    lines = [f"{name}: {summary}", "", *_wrapped(inspect.getdoc(cls) or "", "  "), ""]
    lines += ["Keys, their defaults and ranges. * is fusible: the trials of one cohort may differ in it."]
    for section, section_keys in itertools.groupby(keys, lambda key: key.section):
        lines += [
            "",
            f"{HEADINGS.get(section, section.replace('_', ' '))}:",
            *(line for key in section_keys for line in _key(key)),
        ]
    lines += ["", "metrics that it can report (--describe METRIC):"]
    lines += _wrapped(", ".join(dict.fromkeys(_family_name(metric) for metric in reported)), "  ")
    return "\n".join(lines)


def _key(key: KeyDoc) -> list[str]:
    head = f"{'*' if key.fusible else ' '} {key.name}={_shown(key.default)}"
    if key.law:
        head += f"  ({key.law.strip('`')})"
    return [*textwrap.wrap(head, WIDTH, subsequent_indent=" " * 4), *_wrapped(key.doc, "      ")]


def _dataset(name: str) -> str:
    lines = [f"{name}:", *_wrapped(inspect.getdoc(DATASETS[name]) or "", "  "), ""]
    declared = DECLARATIONS[name]
    channels, height, width = declared.shape
    facts = {
        "images": f"{channels} x {height} x {width} (channels x rows x columns), pixels 0 to {declared.levels}",
        "classes": str(declared.classes),
        "training": _count(declared.train, declared.unlabelled),
        "test": _count(declared.test),
        "attributes": ", ".join(f"{attribute} ({count})" for attribute, count in declared.attributes.items()) or "none",
        "files": FILES.get(name, "none: it comes with scikit-learn"),
    }
    return "\n".join([*lines, *(line for fact, text in facts.items() for line in _fact(fact, text))])


def _pairs(name: str) -> str:
    branches = BRANCHES[name]
    facts = {
        "pairs": "x uniform on [-1, 1]; y one of the branches, all equally likely, plus normal noise of standard "
        f"deviation {NOISE}",
        "training": "as many pairs as `examples` says, drawn anew for each seed",
        "files": "none: they are drawn",
    }
    return "\n".join(
        [f"{name}:", f"  {branches.about}", "", *(line for key in facts for line in _fact(key, facts[key]))]
    )


def _folder() -> str:
    facts = {
        "images": "image_channels x image_size x image_size, 3 x 32 x 32 by default, from files of any size and shape",
        "classes": "the names of the folders, of both parts; a class may be in the test images alone",
        "files": "DATA/train/CLASS/ and DATA/test/CLASS/",
    }
    lines = [f"{FOLDER}:", *_wrapped((inspect.getdoc(load_folder) or "").split("\n\n")[0], "  "), ""]
    return "\n".join([*lines, *(line for fact, text in facts.items() for line in _fact(fact, text))])


def _fact(fact: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {fact:<10} ", subsequent_indent=" " * 13)


def _count(per_class: tuple[int, ...] | None, unlabelled: int = 0) -> str:
    """Number of images as text. `per_class` holds the images of each class, None where the files decide."""
    if per_class is None:
        return "as many images as there are files"
    low, high = min(per_class), max(per_class)
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    more = f", and {unlabelled:,} without a label" if unlabelled else ""
    return f"{sum(per_class):,} images, {each} of each class{more}"


def _metric(name: str) -> str:
    family = family_of(name) or FAMILIES[name]
    better = {"maximize": "higher is better", "minimize": "lower is better", None: "neither higher nor lower is better"}
    when = "at the end of training" if family.at_end else "at every report"
    missing = "; null where it is undefined" if family.may_be_undefined else ""
    lines = [f"{name}:", *_wrapped(family.meaning, "  "), ""]
    lines += [f"  range     {family.unit}", f"  direction {better[family.direction]}", f"  reported  {when}{missing}"]
    if methods := methods_by_metric().get(name):
        lines += [f"  by        {', '.join(methods)}"]
    members = _members(family)
    if name in FAMILIES and members not in ([name], []):
        more = [f"and {len(members) - MOST} more"] if len(members) > MOST else []
        lines += ["", "metrics of this family:", *_wrapped(", ".join([*members[:MOST], *more]), "  ")]
    return "\n".join(lines)


def _members(family: MetricFamily) -> list[str]:
    """Names of the family's metrics, without the `val_` metrics of validation images."""
    return [
        metric for metric in methods_by_metric() if family_of(metric) is family and not metric.startswith(VALIDATION)
    ]


def _family_name(metric: str) -> str:
    return next(name for name, family in FAMILIES.items() if family is family_of(metric))


def _shown(default: Value) -> str:
    """Default value as it is typed on a command line."""
    if isinstance(default, bool | None):
        return str(default).lower()
    if isinstance(default, float):
        short = f"{default:.6g}"
        return short if float(short) == default else repr(default)
    return str(default) or "''"


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of the text, each paragraph wrapped to `WIDTH` characters."""
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent=indent, subsequent_indent=indent)
    return [line for part in text.split("\n\n") for line in wrapper.wrap(" ".join(part.split()))]

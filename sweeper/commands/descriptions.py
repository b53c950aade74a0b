"""Text of `sweeper describe` for a name or a kind of names, from docstrings and declarations.

Of a sweep it says the question, the presets, which of their settings are ours and not the paper's, and what is drawn.
`--describe ours` lists such settings of all sweeps.
"""

import contextlib
import functools
import inspect
import itertools
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from sweeper.commands.preview import distribution_text, outline_distribution
from sweeper.definition import Assumption, Sweep, Value, registry
from sweeper.definition.function_sweep import FunctionSweep
from sweeper.definition.space import Part
from sweeper.definition.user_code import search_folder
from sweeper.errors import SpecError
from sweeper.planning.changes import format_value
from sweeper.storage.rows import FIXED
from trainables import config
from trainables.catalog import METHODS, import_method, installed_methods, is_function, known_methods, method_of
from trainables.config import KeyDoc, describe_keys
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER, load_folder
from trainables.data.datasets.own_data import SOURCES, own_function
from trainables.data.pairs import BRANCHES, NOISE
from trainables.metrics.families import MetricFamily
from trainables.metrics.meanings import FAMILIES, SCORED, SCORES, VALIDATION, family_of
from trainables.own_code import import_own
from trainables.training.metric_names import methods_by_metric
from trainables.validation import nearest

WIDTH = 110
"""Characters per line."""
HEADINGS: Mapping[str, str] = {"options": "its own", "views": "augmented views"}
"""Section of a config -> its heading, where that is not its name."""

TYPES: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
"""Type of a key -> its name."""
FUSIBLE = "yes: the trials of one cohort may differ in it"
MOST = 12
"""Most metrics of a family that are listed by name."""
MOST_VALUES = 12
"""Most values of an axis that are shown."""
OURS = "ours"
"""The name by which `--describe` lists the settings of all sweeps that are no settings of a paper."""


OWN_DATA = "my_data:MyDataset"
"""An example of the name of a data set that is code of the user's own."""
LISTS = {
    "keys": "key, with its default and range",
    "methods": "method",
    "datasets": "data set",
    "metrics": "family of metrics, with its range",
    "scores": "anomaly score",
    "columns": "column that all rows have beside hyperparameters and metrics",
}
"""What describes all of a kind, one a line -> the kind."""


def describe(name: str) -> str:
    """Describe whatever has this name (method, data set, key, sweep, metric, score or column), or list all of a kind.

    Raises SpecError, with one line, for any other name.
    """
    if name in LISTS:
        return _listed(name)
    if name == OURS:
        return describe_ours()
    if ":" in name or "." in name or "/" in name:
        return _own(name)
    describers: Mapping[Callable[[str], str], Collection[str]] = {
        _method: (*METHODS, *installed_methods()),
        _dataset: DATASETS,
        _folder: (FOLDER,),
        _own_folder: SOURCES,
        _pairs: BRANCHES,
        _key_of_methods: ("method", *_keys()),
        _metric: (*FAMILIES, *methods_by_metric()),
        _score: SCORES,
        _column: FIXED,
        describe_sweep: registry.names(),
    }
    if texts := [describer(name) for describer, names in describers.items() if name in names]:
        return "\n\n".join(texts)
    known = [known for names in describers.values() for known in names]
    lists = ", ".join(LISTS)
    raise SpecError(
        f"no method, data set, key, metric, column or sweep '{name}'{nearest(name, [*known, *LISTS])}; --list shows "
        f"the sweeps, and --describe lists all of a kind: {lists}"
    )


def _own(name: str) -> str:
    """Describe a method or a sweep of the user's: `package.module:NAME`, or the file of a sweep."""
    search_folder(Path.cwd())
    if registry.is_command_line(name):
        return _method(str(registry.find_command(name).parts(FunctionSweep.PRESET)[0].values("method")[0]))
    if ".py" in name or ":" not in name:
        return describe_sweep(name)
    try:
        return _method(name)
    except ValueError as error:
        with contextlib.suppress(SpecError):
            if not isinstance(registry.find(name), FunctionSweep):  # as a function that no method can be
                return describe_sweep(name)
        with contextlib.suppress(ValueError):
            if text := _own_part(name):
                return text
        raise SpecError(str(error)) from None


def _own_part(name: str) -> str:
    """Describe a data set or an encoder of the user's own by its docstring; empty for anything else."""
    own = import_own("object", name)
    parameters = inspect.signature(own).parameters if callable(own) else {}
    if "train" in parameters:
        key, kind = "dataset", "a data set"
    elif "image_shape" in parameters:
        key, kind = "encoder", "an encoder"
    else:
        return ""
    lines = [f"{name}: {kind} of your own", "", *_wrapped(inspect.getdoc(own) or "", "  ")]
    return "\n".join([*lines, "", f"  --set {key}={name}"])


def _listed(kind: str) -> str:
    """All names of a kind, each with its meaning."""
    meanings: Mapping[str, str] = {
        "keys": {name: _in_short(list(forms)) for name, forms in _keys().items()},
        "methods": {name: _summary(name) for name in METHODS},
        "datasets": {
            **{name: _first_sentence(source.about) for name, source in DATASETS.items()},
            FOLDER: _first_sentence(inspect.getdoc(load_folder) or ""),
            **{name: _first_sentence(inspect.getdoc(source) or "") for name, source in SOURCES.items()},
            OWN_DATA: _first_sentence(inspect.getdoc(own_function) or ""),
            **{name: branches.about for name, branches in BRANCHES.items()},
        },
        "metrics": {
            **{name: f"{_first_sentence(family.meaning)} ({_scale(family)})" for name, family in FAMILIES.items()},
            f"{VALIDATION}METRIC": "The same metric on validation images, which the key `validation` holds out",
        },
        "scores": SCORES,
        "columns": {name: column.meaning for name, column in FIXED.items()},
    }[kind]
    width = max(map(len, meanings)) + 2
    lines = [f"Each {LISTS[kind]}; --describe NAME says more:"]
    for name, meaning in sorted(meanings.items()):
        indent = " " * (width + 2)
        lines += textwrap.wrap(
            meaning.rstrip("."), WIDTH, initial_indent=f"  {name:<{width}}", subsequent_indent=indent
        )
    return "\n".join(lines)


def _in_short(forms: Sequence[KeyDoc]) -> str:
    """Text such as `Peak learning rate (default 0.05, lr > 0)`."""
    texts = {", ".join(filter(None, (f"default {_shown(key.default)}", key.law))) for key in forms}
    return f"{_first_sentence(forms[0].doc)} ({texts.pop() if len(texts) == 1 else 'default and range by method'})"


def _first_sentence(text: str) -> str:
    """The first sentence of a text, without its full stop."""
    return re.split(r"\.\s+(?=[A-Z0-9`])", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".")


def _scale(family: MetricFamily) -> str:
    better = {"maximize": ", higher is better", "minimize": ", lower is better", None: ""}
    return f"{family.unit}{better[family.direction]}"


@functools.cache
def _keys() -> Mapping[str, Mapping[KeyDoc, Sequence[str]]]:
    """Name of a key -> its forms, which differ in default, range or meaning -> the methods that have it so."""
    forms: dict[str, dict[KeyDoc, list[str]]] = {}
    for method in known_methods():
        for key in describe_keys(method):
            forms.setdefault(key.name, {}).setdefault(key, []).append(method)
    return forms


def _key_of_methods(name: str) -> str:
    """What a key is in each of the methods that have it; most have the same."""
    if name == "method":
        return f"method: the method of a trial, a key that every trial has. There are:\n{_names(list(known_methods()))}"
    forms = sorted(_keys()[name].items(), key=lambda form: -len(form[1]))
    lines = [f"{name}: a key of {sum(len(methods) for _, methods in forms)} of {len(known_methods())} methods"]
    for key, methods in forms:
        kind = config.keys(methods[0])[name]
        optional = name in config.optional_keys(methods[0])
        facts = {
            "type": f"{TYPES[kind]}{', or none' if optional else ''}",
            "bounds": key.law or ("none" if kind is bool else "as the text above says"),
            "default": _shown(key.default),
            "fusible": FUSIBLE if key.fusible else "no: trials that differ in it do not train in one stack",
            "methods": ", ".join(methods),
        }
        lines += [
            "",
            *_wrapped(key.doc, "  "),
            "",
            *(line for fact, text in facts.items() for line in _fact(fact, text)),
        ]
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    return "\n".join(_wrapped(", ".join(names), "  "))


def _score(name: str) -> str:
    methods = [method for method in METHODS if name in getattr(method_of(method), "scores", ())]
    lines = [f"{name}: an anomaly score, by which images are ranked: the higher, the less normal", ""]
    facts = {
        "score": SCORES[name],
        "metrics": ", ".join(f"{family}_{name}" for family in SCORED),
        "methods": ", ".join(methods),
    }
    return "\n".join([*lines, *(line for fact, text in facts.items() for line in _fact(fact, text))])


def _column(name: str) -> str:
    return f"{name}: a column of every row\n" + "\n".join(_wrapped(FIXED[name].meaning, "  "))


def _summary(method: str) -> str:
    """The first paragraph of what the module of a method says."""
    module = inspect.getdoc(sys.modules[method_of(method).__module__]) or ""
    return " ".join(module.split("\n\n")[0].split())


def _method(name: str) -> str:
    cls = import_method(name)
    keys = describe_keys(name)
    reported = [metric for metric, methods in methods_by_metric().items() if name in methods]
    lines = [f"{name}: {_summary(name)}".rstrip(), "", *_wrapped(inspect.getdoc(cls) or "", "  "), ""]
    lines += ["Keys, their defaults and ranges. * is fusible: the trials of one cohort may differ in it."]
    for section, section_keys in itertools.groupby(keys, lambda key: key.section):
        lines += [
            "",
            f"{HEADINGS.get(section, section.replace('_', ' '))}:",
            *(line for key in section_keys for line in _key(key)),
        ]
    if not is_function(name):  # nobody knows what a function reports before it does
        lines += ["", "metrics that it can report (--describe METRIC):"]
        lines += _wrapped(", ".join(dict.fromkeys(_family_name(metric) for metric in reported)), "  ")
    return "\n".join(lines)


def _key(key: KeyDoc) -> list[str]:
    head = f"{'*' if key.fusible else ' '} {key.name}={_shown(key.default)}"
    if key.law:
        head += f"  ({key.law})"
    return [*textwrap.wrap(head, WIDTH, subsequent_indent=" " * 4), *_wrapped(key.doc, "      ")]


def _dataset(name: str) -> str:
    source = DATASETS[name]
    lines, declared = [f"{name}:", *_wrapped(source.about, "  "), ""], source.declaration
    channels, height, width = declared.shape
    facts = {
        "images": f"{channels} x {height} x {width} (channels x rows x columns), pixels 0 to {declared.levels}",
        "classes": str(declared.classes),
        "training": _count(declared.train, declared.unlabelled),
        "test": _count(declared.test),
        "attributes": ", ".join(f"{attribute} ({count})" for attribute, count in declared.attributes.items()) or "none",
        "files": source.files,
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


def _folder(name: str) -> str:
    facts = {
        "images": "image_channels x image_size x image_size, 3 x 32 x 32 by default, from files of any size and shape",
        "classes": "the names of the folders, of both parts; a class may be in the test images alone",
        "files": "DATA/train/CLASS/ and DATA/test/CLASS/",
    }
    lines = [f"{name}:", *_wrapped((inspect.getdoc(load_folder) or "").split("\n\n")[0], "  "), ""]
    return "\n".join([*lines, *(line for fact, text in facts.items() for line in _fact(fact, text))])


def _own_folder(name: str) -> str:
    lines = [f"{name}:", *_wrapped(inspect.getdoc(SOURCES[name]) or "", "  "), ""]
    facts = {
        "images": "1 to 16 channels of any size; image_channels, image_size and image_width are filled in from them",
        "classes": "whole numbers from 0 on; without labels there are none",
        "memory": "all images, up to 4 GiB a split; more are read when they are needed",
    }
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
    facts = {"range": family.unit, "direction": better[family.direction], "reported": f"{when}{missing}"}
    plain = name.removeprefix(VALIDATION)
    if plain != name:
        held_out = "the validation images, which the key `validation` holds out of the training images, to choose by"
        facts["images"] = f"{held_out}; {plain} is the same of the test images"
    elif f"{VALIDATION}{name}" in methods_by_metric():
        facts["images"] = f"the test images; {VALIDATION}{name} is the same of the validation images"
    score, _, outliers = plain.partition("_")[2].partition("_")
    if family in map(FAMILIES.get, SCORED) and score in SCORES:
        others = f"{outliers}, one of the key `outliers`" if outliers else "images of all classes but `normal_class`"
        facts |= {"score": f"{score}: {SCORES[score]}", "outliers": others}
    if methods := methods_by_metric().get(name):
        facts["by"] = ", ".join(methods)
    lines += [line for fact, text in facts.items() for line in _fact(fact, text)]
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


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    """Lines of the text, each paragraph wrapped to `WIDTH` characters. `first` is the indent of its first line, `rest`
    that of the others where it differs."""
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest)
    return [line for part in text.split("\n\n") for line in wrapper.wrap(" ".join(part.split()))]


def describe_sweep(reference: str) -> str:
    """Describe a sweep. Raises SpecError, with one line, if there is none."""
    sweep, module = registry.definition(reference)
    lines = [*_wrapped(f"{sweep.name}: {sweep.about}", "", "  "), ""]
    for paragraph in (inspect.getdoc(module) or "").split("\n\n"):
        lines += [*_wrapped(paragraph, "  ", "  "), ""]
    lines += ["presets, the first by default, and what varies in them:"]
    shown: dict[str, str] = {}
    for name in sweep.presets:
        parts, metric = sweep.parts(name), sweep.headline(name)
        varied = dict(_varied(parts))
        size = f"{sweep.trial_count(name)} trials"
        lines += _wrapped(f"{name}: {size}, ranked by {metric.name} ({metric.direction})", "  ", "    ")
        earlier = shown.setdefault(str(varied), name)
        for key, text in varied.items() if earlier == name else [("varied", f"as in {earlier}")]:
            lines += _wrapped(f"{key}: {text}", "    ", "      ")
    assumed = {preset: sweep.assumptions[preset] for preset in sweep.presets if preset in sweep.assumptions}
    for preset, assumptions in assumed.items():
        lines += ["", f"settings of {preset} that are ours, and not those of {sweep.paper or 'the paper'}:"]
        for assumption in assumptions:
            lines += _wrapped(assumption.text(""), "  ", "    ")
    if assumed and (others := [preset for preset in sweep.presets if preset not in assumed]):
        lines += ["", *_wrapped(f"all settings of {' and '.join(others)} are ours", "", "  ")]
    lines += ["", "figures and tables:"]
    for text in _figures(sweep):
        lines += _wrapped(text, "  ", "    ")
    plan = shlex.join(["sweeper", "plan", reference, "--preset", next(iter(sweep.presets))])
    return "\n".join([*lines, "", f"`{plan}` shows what is fixed, too."])


def describe_ours() -> str:
    """List the settings of all sweeps that ship which are not those of their papers, as Markdown."""
    by_paper: dict[str, list[Sweep]] = {}
    for sweep in map(registry.find, registry.names()):
        if sweep.assumptions:
            by_paper.setdefault(sweep.paper, []).append(sweep)
    parts = []
    for paper, sweeps in by_paper.items():
        found: dict[Assumption, list[str]] = {}
        for sweep in sweeps:
            for preset, assumptions in sweep.assumptions.items():
                name = sweep.name if preset == next(iter(sweep.presets)) else f"{sweep.name}:{preset}"
                for assumption in assumptions:
                    found.setdefault(assumption, []).append(name)
        items = [f"{assumption.text()} ({_all(names, sweeps)})" for assumption, names in found.items()]
        parts.append("\n".join([f"{paper}:", "", *(line for item in items for line in _wrapped(item, "- ", "  "))]))
    return "\n\n".join(parts)


def _all(names: Sequence[str], sweeps: Sequence[Sweep]) -> str:
    """The sweeps, or "all but ..." where few are missing."""
    missing = [sweep.name for sweep in sweeps if sweep.name not in names]
    others = [name for name in names if ":" in name]
    if len(missing) > 1 or len(sweeps) < 4:
        return ", ".join(names)
    return "; ".join([f"all but {missing[0]}" if missing else "all", *others])


def _varied(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield each key in which trials of these parts of a preset differ, and its values."""
    for key in dict.fromkeys(key for part in parts for key in ("method", *part.axes)):
        values = tuple(dict.fromkeys(value for part in parts for value in part.values(key)))
        if len(values) > 1:
            yield key, _joined(values)
    for key in dict.fromkeys(key for part in parts for key in part.searched):
        texts = [distribution_text(outline_distribution(part.searched[key])) for part in parts if key in part.searched]
        conditions = dict.fromkeys(on.text for part in parts for on in part.conditions if key in on.space)
        yield f"{key} ({', '.join(['searched', *conditions])})", "; or ".join(dict.fromkeys(texts))
    if bounds := dict.fromkeys(constraint.text for part in parts for constraint in part.constraints):
        yield "constraints", ", ".join(bounds)


def _joined(values: tuple[Value, ...]) -> str:
    shown = ", ".join(map(format_value, values[:MOST_VALUES]))
    return f"{shown} and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else shown


def _figures(sweep: Sweep) -> Iterator[str]:
    """Yield a line for each figure, and the presets that alone have it."""
    for figure in sweep.figures:
        alone = f" (preset {' and '.join(figure.presets)} alone)" if figure.presets else ""
        yield f"{figure.title} {figure.shows(sweep.over)}{alone}"
    if sweep.breakdown:
        yield f"table of the best cell for each {sweep.breakdown}"
    for pair in sweep.correlations:
        yield f"correlation of {' and '.join(pair)} over the cells"
    for keys in sweep.contours:
        yield f"contour plot of a search's objective over {' and '.join(keys)}"
    if any(sweep.objectives(preset) for preset in sweep.presets):
        yield "of each study of a search its history and the importance of its hyperparameters"

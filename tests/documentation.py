"""The tables of the READMEs that say what the code says already: of options, columns, methods, keys, data sets and
metrics. `make docs` writes them, each between two markers; `test_readme` says when one is old."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sweeper.planning.changes import format_value
from sweeper.request import options as known_options
from sweeper.storage.rows import FIXED
from trainables.catalog import METHODS, method_of
from trainables.config import KeyDoc, describe_keys
from trainables.data.datasets.catalog import DATASETS
from trainables.data.pairs import BRANCHES
from trainables.metrics.meanings import FAMILIES, SCORES

ROOT = Path(__file__).parents[1]
COMMAND = "make docs"


def options() -> list[str]:
    rows = [(f"`{f'{option.flag} {option.metavar}'.strip()}`", option.text) for option in known_options().values()]
    return markdown(("option", "meaning"), rows)


def columns() -> list[str]:
    rows = [(f"`{name}`", column.meaning) for name, column in FIXED.items()]
    return markdown(("column", "meaning"), rows)


def methods() -> list[str]:
    rows = []
    for name in METHODS:
        own = [key for key in describe_keys(name) if key.section == "options"]
        keys = ", ".join(f"`{key.name}={format_value(key.default)}`{'*' if key.fusible else ''}" for key in own)
        rows.append((f"`{name}`", paragraph(sys.modules[method_of(name).__module__]), keys))
    return markdown(("method", "what it is", "its own keys and their defaults; * is fusible"), rows)


def keys() -> list[str]:
    """The keys that several methods share, each as most methods have it."""
    forms: dict[str, dict[KeyDoc, int]] = {}
    for method in METHODS:
        for key in describe_keys(method):
            if key.section != "options":
                count = forms.setdefault(key.name, {})
                count[key] = count.get(key, 0) + 1
    most = [max(count, key=lambda key: count[key]) for count in forms.values()]
    sections = dict.fromkeys(key.section for key in most)
    rows = [
        (f"`{key.name}={format_value(key.default)}`", key.law, sentence(key.doc))
        for section in sections
        for key in most
        if key.section == section
    ]
    return markdown(("key and its default", "range", "meaning"), rows)


def datasets() -> list[str]:
    rows = []
    for name, source in DATASETS.items():
        declared = source.declaration
        attributes = ", ".join(declared.attributes) if len(declared.attributes) < 5 else str(len(declared.attributes))
        shape = "x".join(map(str, declared.shape))
        rows.append((f"`{name}`", shape, str(declared.classes), attributes, sentence(source.about), source.files))
    rows += [(f"`{name}`", "pairs", "", "", branches.about, "") for name, branches in BRANCHES.items()]
    return markdown(("data set", "shape", "classes", "attributes", "what it is", "files"), rows)


def metrics() -> list[str]:
    better = {"maximize": "higher", "minimize": "lower", None: ""}
    rows = [
        (f"`{name}`", better[family.direction], family.unit, "end" if family.at_end else "", family.meaning.rstrip("."))
        for name, family in FAMILIES.items()
    ]
    return markdown(("metric", "better", "range", "when", "what it is"), rows)


def scores() -> list[str]:
    return markdown(("score", "what it is"), [(f"`{name}`", meaning) for name, meaning in SCORES.items()])


TABLES: Mapping[str, Mapping[str, Callable[[], list[str]]]] = {
    "sweeper/README.md": {"options": options, "columns": columns},
    "trainables/README.md": {
        "methods": methods,
        "keys": keys,
        "datasets": datasets,
        "metrics": metrics,
        "scores": scores,
    },
}
"""File -> name of each table in it -> what renders it as lines of Markdown."""


def markdown(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [header, ("---",) * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def paragraph(described: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(described) or "").split("\n\n")[0].split())


def sentence(text: str) -> str:
    """The first sentence of a text, without its full stop."""
    return re.split(r"\.\s+(?=[A-Z0-9`])", " ".join(text.split()))[0].rstrip(".")


def updated(file: str, text: str) -> str:
    """The text of a README with its tables as the code is now. Raises ValueError if a marker is missing."""
    for name, table in TABLES[file].items():
        begin, end = f"<!-- {name}: written by {COMMAND} -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{file} must have the lines {begin} and {end}")
        before, rest = text.split(begin, 1)
        text = "\n".join([f"{before}{begin}", "", *table(), "", end + rest.split(end, 1)[1]])
    return text


if __name__ == "__main__":
    for file in TABLES:
        path = ROOT / file
        path.write_text(updated(file, path.read_text()))

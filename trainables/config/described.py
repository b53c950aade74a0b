"""What the source says of a method's keys: their docstrings, ranges and defaults. Nothing is trained or loaded."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainables.catalog import METHODS
from trainables.config import trial as config
from trainables.config.trial import Value
from trainables.validation import laws


@dataclass(frozen=True)
class Key:
    """A hyperparameter of a method's trials."""

    name: str
    section: str
    """`options` for the method's own."""
    default: Value
    says: str
    """Its docstring."""
    law: str
    """The range that it is checked for, such as "`nu > 0`"; empty where its docstring alone says what is legal."""
    fusible: bool
    """Members of one cohort may differ in it."""


def keys_of(method: str) -> tuple[Key, ...]:
    """All keys of a method's trials but `method`, its own first. KeyError for an unknown method."""
    sections = {"options": METHODS[method].Config, **config.SECTIONS}
    return tuple(key for section, cls in sections.items() for key in _keys(section, cls, config.fusible(method)))


def _keys(section: str, cls: type, fusible: Collection[str]) -> Iterator[Key]:
    docs, ranges, defaults = field_docs(cls), laws(cls), vars(cls())
    for name, default in defaults.items():
        law = ranges.get(name, "")
        if law.startswith("one of ") and str(default) not in law.removeprefix("one of ").split(", "):
            law = ""  # of the parts of a value such as dir+rad
        yield Key(name, section, default, docs[name], law, name in fusible)


def field_docs(cls: type) -> Mapping[str, str]:
    """Field of a dataclass -> the docstring beneath it, in one line; empty where there is none."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {field.name: "" for field in dataclasses.fields(cls)}
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and _text(after):
            docs[statement.target.id] = " ".join(_text(after).split())
    return docs


def _text(statement: ast.stmt) -> str:
    """What a statement that is a docstring says."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""

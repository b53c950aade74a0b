"""Describe the keys of a method from the source code: docstrings, ranges and defaults. Nothing is trained or loaded."""

import ast
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainables.catalog import method_of
from trainables.config import trial as config
from trainables.config.trial_config import Value
from trainables.validation import laws


@dataclass(frozen=True)
class KeyDoc:
    """A hyperparameter of a method's trials."""

    name: str
    section: str
    """Name of the config section that has it; `options` for the method's own keys."""
    default: Value
    doc: str
    """The docstring of the field, in one line."""
    law: str
    """The range that is checked, such as "`nu > 0`"; empty where only the docstring says what is legal."""
    fusible: bool
    """Whether members of one cohort may differ in it."""


def key_docs(method: str) -> tuple[KeyDoc, ...]:
    """All keys of a method's trials except `method`, its own keys first. Raises ValueError for an unknown method."""
    sections = {"options": method_of(method).Config, **config.sections(method)}
    return tuple(key for section, cls in sections.items() for key in _keys(section, cls, config.fusible_keys(method)))


def _keys(section: str, cls: type, fusible: Collection[str]) -> Iterator[KeyDoc]:
    docs, ranges, defaults = field_docs(cls), laws(cls), vars(cls())
    for name, default in defaults.items():
        law = ranges.get(name, "")
        if law.startswith("one of ") and str(default) not in law.removeprefix("one of ").split(", "):
            law = ""  # the law is about the parts of a value, such as dir+rad
        yield KeyDoc(name, section, default, docs[name], law, name in fusible)


def field_docs(cls: type) -> Mapping[str, str]:
    """Map each field of a dataclass, inherited ones included, to the docstring beneath it, in one line; empty if there
    is none."""
    docs = {field.name: "" for field in dataclasses.fields(cls)}
    for owner in reversed(cls.__mro__):
        if dataclasses.is_dataclass(owner):
            docs |= _own_field_docs(owner)
    return docs


@functools.cache  # reading the source takes milliseconds, and methods share most classes
def _own_field_docs(cls: type) -> Mapping[str, str]:
    """The docstrings in the body of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs

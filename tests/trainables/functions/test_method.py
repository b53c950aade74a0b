"""A function's parameters are the keys of its trials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.definition import Grid, SpecError
from sweeper.planning.cohorts import trial_id
from tests.cases import for_each
from tests.trainables.functions import own
from trainables import catalog, config
from trainables.config import describe_keys, resolve
from trainables.functions.method import FunctionError, method_of_function
from trainables.own_code import NotImportedError

NAME = "tests.trainables.functions.own"


def keys_of(function: str) -> dict[str, type]:
    catalog.import_method(f"{NAME}:{function}")
    return dict(config.keys(f"{NAME}:{function}"))


def test_parameters_are_keys_with_their_types() -> None:
    of_engine = {"method": str, "patience": int, "workers": int}
    own_keys = {"rate": float, "width": int, "kind": str, "bias": bool, "decay": float, "epochs": int, "seed": int}
    assert keys_of("train") == of_engine | own_keys  # and no `layers`, which keeps its default
    assert config.optional_keys(f"{NAME}:train") == {"decay"}


def test_bounds_defaults_and_texts_are_described() -> None:
    keys_of("train")
    keys = {key.name: key for key in describe_keys(f"{NAME}:train")}
    assert (keys["rate"].law, keys["rate"].doc, keys["rate"].default) == ("rate > 0", "size of a step", 0.1)
    assert keys["kind"].law == "one of wide, deep"
    assert keys["patience"].default == 0 and keys["patience"].doc


@for_each(("key", "value", "law"), [
    ("rate", 0, "`rate > 0` must hold, but got rate=0"),
    ("kind", "narrow", "no kind 'narrow'; there are: wide, deep"),
    ("width", 1.5, "width must be a whole number, but got width=1.5"),
    ("bias", 1, "bias must be true or false, but got bias=1"),
    ("layers", 3, "no key 'layers'"),
    ("momentum", 0.9, "no key 'momentum'"),
    ("workers", 0, "`workers >= 1` must hold"),
])  # fmt: skip
def test_an_illegal_value_is_refused_by_name(key: str, value: object, law: str) -> None:
    keys_of("train")
    with pytest.raises(ValueError, match=law.replace("(", r"\(")):
        resolve({"method": f"{NAME}:train", key: value})  # type: ignore[dict-item]


def test_a_parameter_without_a_default_must_be_set() -> None:
    keys_of("needs")
    with pytest.raises(ValueError, match="needs a value of rate, which has no default; set rate=VALUE"):
        resolve({"method": f"{NAME}:needs"})
    assert resolve({"method": f"{NAME}:needs", "rate": 2}).flat()["rate"] == 2.0
    assert describe_keys(f"{NAME}:needs")[0].law == "required, rate > 0"


def test_a_dataclass_as_the_only_parameter_stands_for_its_fields() -> None:
    assert keys_of("by_settings").keys() >= {"rate", "name"} and "settings" not in keys_of("by_settings")


@for_each(("function", "law"), [
    ("with_all", "must name all parameters, which are the keys of its trials, but got "),
    ("with_several", "must name all parameters"),
    ("with_position", "must name all parameters"),
    ("without_type", "must give each parameter the type bool, int, float or str, as in `rate: float`, but got rate"),
    ("with_workers", "must not have a parameter with the name of a key of every trial, but got workers"),
    ("asynchronous", "must be a plain function, but got an async one"),
])  # fmt: skip
def test_a_function_that_cannot_be_a_method_is_refused_by_name(function: str, law: str) -> None:
    with pytest.raises(FunctionError, match=law):
        method_of_function(function, getattr(own, function))


def test_a_class_is_no_function() -> None:
    with pytest.raises(ValueError, match="it must be a function, or a subclass of"):
        catalog.import_method(f"{NAME}:Settings")


@for_each("function", ["short", "bound"])
def test_what_can_be_called_by_its_name_is_a_method(function: str) -> None:
    assert keys_of(function)["rate"] is float


@for_each("function", [own.Trainer().train, lambda: {}])
def test_a_value_that_no_worker_could_import_is_refused(function: object) -> None:
    with pytest.raises(SpecError, match="must be at the top level of a module that can be imported"):
        Grid({"method": function}, {})  # type: ignore[dict-item]


def test_a_function_in_a_grid_is_its_name() -> None:
    assert Grid({"method": own.train}, {}).fixed["method"] == f"{NAME}:train"  # type: ignore[dict-item]


def test_a_name_that_a_store_holds_imports_and_runs_nothing() -> None:
    for name in ("antigravity:fly", "command: rm -rf {folder}"):
        with pytest.raises(NotImportedError):
            catalog.method_of(name)


@given(st.permutations(["rate", "width", "seed"]), st.floats(1e-3, 1), st.integers(1, 9), st.integers(0, 9))
def test_the_id_of_a_trial_depends_on_its_values_alone(order: list[str], rate: float, width: int, seed: int) -> None:
    keys_of("train")
    values = {"rate": rate, "width": width, "seed": seed}
    ordered = resolve({"method": f"{NAME}:train", **{key: values[key] for key in order}})
    assert trial_id(ordered) == trial_id(resolve({"method": f"{NAME}:train", **values}))
    assert trial_id(ordered) != trial_id(resolve({"method": f"{NAME}:train", **values, "width": width + 1}))

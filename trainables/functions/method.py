"""The user's own function as a method: its parameters are the keys of its trials.

A function has one of three forms. It returns a dict of numbers; it yields dicts, each of which is a report; or its
first parameter is `trial`, with which it reports, saves and resumes (`trainables.functions.trial`).
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from trainables.contract import Method
from trainables.sections import KEY_TYPES, TrialConfig, Value
from trainables.validation import Choices, Interval, added, at_least, checked, one_of

TRIAL = "trial"
"""Name of the first parameter of a function that itself reports, saves and resumes."""
DEVICE = "device"
"""Name of a parameter that is not a key but receives the name of the trial's device, such as `cuda` or `cpu`."""
LOOP = ("seed", "epochs")
"""Parameters that other parts of a sweep read from any trial, if a function has them."""


class FunctionError(ValueError):
    """A function cannot be used as a method. The message is one line: the law and the offender."""

    def __init__(self, name: str, law: str, got: str) -> None:
        super().__init__(f"the function {name} {law}, but got {got}")


@dataclasses.dataclass(frozen=True)
class FunctionKey:
    """A key of the trials of a function."""

    name: str
    hint: Any
    """The key's type with its bounds, as in `Annotated[float, above(0)]`."""
    default: Any = dataclasses.field(default_factory=lambda: dataclasses.MISSING)
    """MISSING for a key that each trial must set."""
    doc: str = ""


class FunctionTraining:
    """Base class of the training sections of functions.

    A section contains the keys of `ENGINE`, and `seed` and `epochs` if these are parameters of the function. A
    parameter replaces the key of `ENGINE` with the same name.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    """The keys that are parameters of the function."""
    report_every: ClassVar[int] = 1
    patience_metric: ClassVar[str] = ""
    _absent: ClassVar[Mapping[str, int]] = {"seed": 0, "epochs": 0, "patience": 0, "workers": 1}

    def __getattr__(self, name: str) -> int:
        """The default of a key that these trials do not have."""
        try:
            return self._absent[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def processes(self) -> int:
        """Number of processes that train the trial together."""
        return int(self.workers)


ENGINE = (
    FunctionKey(
        "patience",
        Annotated[int, at_least(0)],
        added(0),
        "Epochs without a better value of the ranking metric after which a trial ends. 0 trains to the end.",
    ),
    FunctionKey(
        "workers",
        Annotated[int, at_least(1)],
        added(1),
        "Processes that call the function together, each with its own device, in a torch.distributed process group.",
    ),
)
"""Keys that the trials of every function have."""


class FunctionMethod(Method):
    """Base class of the methods that `method_of_function` makes. They are never instantiated; their function is
    called."""

    task = "function"
    per_example = True
    Training: ClassVar[type]
    Config: ClassVar[type]
    call: ClassVar[Callable[..., Any]]
    """The function."""
    takes_trial: ClassVar[bool] = False
    """Whether the first parameter is the trial."""
    wants_device: ClassVar[bool] = False
    """Whether there is a parameter `DEVICE`."""

    @classmethod
    def trains(cls) -> bool:
        return True

    @classmethod
    def called(cls, config: TrialConfig, trial: Any, changes: Mapping[str, Value] = MappingProxyType({})) -> Any:
        """Call the function for a trial, with `changes` to the values of some keys."""
        training: Any = config.training
        values = {**{key: getattr(training, key) for key in training.keys}, **vars(config.options), **changes}
        device = {DEVICE: str(trial.device)} if cls.wants_device else {}
        return cls.call(*([trial] if cls.takes_trial else []), **values, **device)


def is_plain_function(value: object) -> bool:
    """Whether a value is a function or another callable that is not a class."""
    return inspect.isroutine(value) or (callable(value) and not inspect.isclass(value))


def method_of_function(name: str, function: Callable[..., Any]) -> type[FunctionMethod]:
    """The method that calls a function. Raises FunctionError, with one line, if the function cannot be used as a
    method."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise FunctionError(name, "must be a plain function", "an async one")
    try:
        given = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # a text annotation may raise anything
        raise FunctionError(name, "must have an inspectable signature", " ".join(str(error).split())) from error
    hints = {each.name: each.annotation for each in given if each.annotation is not each.empty}
    takes_trial = bool(given) and given[0].name == TRIAL and given[0].default is given[0].empty
    given = given[1:] if takes_trial else given
    wants_device = DEVICE in (each.name for each in given)
    given = [each for each in given if each.name != DEVICE]
    if len(given) == 1 and dataclasses.is_dataclass(section := hints.get(given[0].name)):
        parameters, call = _of_dataclass(name, section), _with_section(function, given[0].name, section)
    else:
        parameters, call = [_parameter(name, each, hints) for each in given], function
    known = [each for each in parameters if each is not None]
    plain: Any = getattr(function, "func", function)  # for functools.partial
    about = inspect.getdoc(plain) or ""
    return _method(name, call, known, about, plain.__module__, takes_trial=takes_trial, wants_device=wants_device)


def command_method(name: str, call: Callable[..., Any], types: Mapping[str, type], about: str) -> type[FunctionMethod]:
    """The method that runs a command, whose keys have these types."""
    parameters = [FunctionKey(key, kind if kind is object else kind | None) for key, kind in types.items()]
    return _method(name, call, parameters, about, __name__, takes_trial=True)


def _method(
    name: str,
    call: Callable[..., Any],
    parameters: list[FunctionKey],
    about: str,
    module: str,
    *,
    takes_trial: bool,
    wants_device: bool = False,
) -> type[FunctionMethod]:
    """Make the class of a method with these keys and the docstring `about`. Raises FunctionError if a parameter has the
    name of a key that only the engine can set."""
    names = [each.name for each in parameters]
    if taken := [key for key in names if key in ("method", "workers")]:
        raise FunctionError(name, "must not have a parameter with the name of a key of every trial", ", ".join(taken))
    loop = [each for each in parameters if each.name in LOOP]
    own = [each for each in parameters if each.name not in LOOP]
    training = _section("Training", FunctionTraining, [*loop, *(each for each in ENGINE if each.name not in names)])
    training.keys = tuple(each.name for each in loop)
    content = {
        "__module__": module,
        "__doc__": about,
        "Training": training,
        "Config": _section("Config", object, own),
        "call": staticmethod(call),
        "takes_trial": takes_trial,
        "wants_device": wants_device,
        "fusible": frozenset([*names, "patience"]),
    }
    return type("Function", (FunctionMethod,), content)


def _section(name: str, base: type, parameters: list[FunctionKey]) -> Any:
    """A frozen dataclass of these keys, keys without a default first."""
    parameters = sorted(parameters, key=lambda each: each.default is not dataclasses.MISSING)
    content: dict[str, Any] = {"__annotations__": {each.name: each.hint for each in parameters}, "__module__": __name__}
    content |= {each.name: each.default for each in parameters if each.default is not dataclasses.MISSING}
    content["key_docs"] = {each.name: each.doc for each in parameters}
    return checked(type(name, (base,), content))


def _parameter(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> FunctionKey | None:
    """The key of a parameter; None for a parameter that keeps its default because this is not a number, text or
    boolean."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise FunctionError(name, "must name all parameters, which are the keys of its trials", str(parameter))
    default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
    return _key(name, parameter.name, hints.get(parameter.name), default)


def _of_dataclass(name: str, section: Any) -> list[FunctionKey | None]:
    """The keys of a function whose only parameter is of a dataclass."""
    hints = typing.get_type_hints(section, include_extras=True)
    keys = []
    for each in dataclasses.fields(section):
        made = each.default is dataclasses.MISSING and each.default_factory is not dataclasses.MISSING
        if each.init and not made:  # a factory does not make a single value
            keys.append(_key(name, each.name, hints[each.name], each.default))
    return keys


def _with_section(function: Callable[..., Any], parameter: str, section: Any) -> Callable[..., Any]:
    names = {each.name for each in dataclasses.fields(section)}

    def call(*trial: Any, **values: Any) -> Any:
        others = {key: value for key, value in values.items() if key not in names}  # the device
        own = {key: value for key, value in values.items() if key in names}
        return function(*trial, **others, **{parameter: section(**own)})

    return call


def _key(name: str, key: str, hint: Any, default: Any) -> FunctionKey | None:
    """The key of one parameter with this hint; None if it is not a key."""
    metadata = getattr(hint, "__metadata__", ())
    plain = typing.get_args(hint)[0] if metadata else hint
    bounds = [bound for each in metadata if (bound := _bound(each))]
    if typing.get_origin(plain) is typing.Literal:
        bounds.append(one_of(*typing.get_args(plain)))
        plain = type(typing.get_args(plain)[0])
    known = default is not dataclasses.MISSING and default is not None
    is_union = typing.get_origin(plain) in (typing.Union, types.UnionType)
    listed = typing.get_args(plain) if is_union else (plain,)
    kinds = {each for each in listed if each is not type(None)} - {None, Any}
    kinds = kinds or ({type(default)} if known else set())
    kind = next(iter(kinds), None)
    if len(kinds) != 1 or kind not in KEY_TYPES:
        if default is not dataclasses.MISSING and kinds:
            return None
        law = f"must give each parameter the type bool, int, float or str, as in `{key}: float`"
        raise FunctionError(name, law, f"{key} without one" if not kinds else f"{key} of type {plain}")
    optional = default is None or type(None) in typing.get_args(plain)
    full = kind | None if optional else kind
    doc = " ".join(each for each in metadata if isinstance(each, str))
    if kind is float and type(default) is int:
        default = float(default)
    return FunctionKey(key, Annotated[full, *bounds] if bounds else full, default, " ".join(doc.split()))


def _bound(metadata: Any) -> Interval | Choices | None:
    """A bound from this project's types, or from objects with the attributes `gt`, `ge`, `lt` or `le` (annotated_types,
    pydantic)."""
    if isinstance(metadata, Interval | Choices):
        return metadata
    low, high = (
        next(((getattr(metadata, each), each) for each in names if getattr(metadata, each, None) is not None), None)
        for names in (("gt", "ge"), ("lt", "le"))
    )
    if low is None and high is None:
        return None
    return Interval(
        *(float(low[0]) if low else -float("inf"), float(high[0]) if high else float("inf")),
        above=bool(low and low[1] == "gt"),
        below=bool(high and high[1] == "lt"),
    )

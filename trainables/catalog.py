"""METHODS and TASKS, the only lists of them. A new method is one file in `trainables/methods/` and one entry here.

The user's own methods are not listed: `import_method` imports them by `package.module:Class`, and methods of installed
packages are found by their entry points (see `own_code`). A class that breaks the contract is refused;
`trainables.training.checks` checks what it computes.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from trainables.contract import ENTRIES, Capability, ImageMethod, Method, PairsMethod
from trainables.functions.command import Command, is_command
from trainables.functions.method import FunctionMethod, is_plain_function, method_of_function
from trainables.functions.run_command import method_of_command
from trainables.functions.task import Functions
from trainables.methods.baselines.barlow_twins import BarlowTwins
from trainables.methods.baselines.byol import BYOL
from trainables.methods.baselines.classifier import Classifier
from trainables.methods.baselines.jepa import JEPA
from trainables.methods.baselines.moco import MoCo
from trainables.methods.baselines.simclr import SimCLR
from trainables.methods.baselines.simsiam import SimSiam
from trainables.methods.baselines.swav import SwAV
from trainables.methods.baselines.untrained import Pixels, RandomEncoder
from trainables.methods.baselines.vicreg import VICReg
from trainables.methods.gaussian.dam_gmje import DaMGMJE
from trainables.methods.gaussian.gje import GJE
from trainables.methods.gaussian.gmje_mdn import MDNGMJE
from trainables.methods.gaussian.gmje_parametric import ParametricGMJE
from trainables.methods.gaussian.gpje import GPJE
from trainables.methods.gaussian.hsic import HSIC
from trainables.methods.gaussian.smc_gmje import SMCGMJE
from trainables.methods.gaussian.smc_joint_gmje import JointSMCGMJE
from trainables.methods.one_class.autoencoder import Autoencoder
from trainables.methods.one_class.csi import CSI
from trainables.methods.one_class.deep_svdd import DeepSVDD
from trainables.methods.one_class.geom import GEOM
from trainables.methods.one_class.goad import GOAD
from trainables.methods.one_class.patchcore import PatchCore
from trainables.methods.one_class.rotation import Rotation
from trainables.methods.pairs.gaussian_process import GaussianProcess
from trainables.methods.pairs.gmje_em import EM
from trainables.methods.pairs.gmje_gng import GNG
from trainables.methods.pairs.gmje_mdn_pairs import MDNPairs
from trainables.methods.pairs.jepa_pairs import JEPAPairs
from trainables.methods.variational.beta_vae import BetaVAE
from trainables.methods.variational.cr_vae import CRVAE
from trainables.methods.variational.simvae import SimVAE
from trainables.methods.variational.vae import VAE
from trainables.methods.variational.vje import VJE
from trainables.own_code import NotImportedError, import_own
from trainables.sections import KEY_TYPES, GradientTraining, Training, Value
from trainables.tasks.images.task import Images
from trainables.tasks.pairs import SyntheticPairs
from trainables.tasks.task import Task
from trainables.validation import choices

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "autoencoder": Autoencoder,
        "barlow_twins": BarlowTwins,
        "beta_vae": BetaVAE,
        "byol": BYOL,
        "classifier": Classifier,
        "cr_vae": CRVAE,
        "csi": CSI,
        "dam_gmje": DaMGMJE,
        "deep_svdd": DeepSVDD,
        "gaussian_process": GaussianProcess,
        "geom": GEOM,
        "gje": GJE,
        "gmje_em": EM,
        "gmje_gng": GNG,
        "gmje_mdn": MDNGMJE,
        "gmje_mdn_pairs": MDNPairs,
        "gmje_parametric": ParametricGMJE,
        "goad": GOAD,
        "gpje": GPJE,
        "hsic": HSIC,
        "jepa": JEPA,
        "jepa_pairs": JEPAPairs,
        "moco_v2": MoCo,
        "patchcore": PatchCore,
        "pixels": Pixels,
        "random": RandomEncoder,
        "rotation_prediction": Rotation,
        "simclr": SimCLR,
        "simsiam": SimSiam,
        "simvae": SimVAE,
        "smc_gmje": SMCGMJE,
        "smc_joint_gmje": JointSMCGMJE,
        "swav": SwAV,
        "vae": VAE,
        "vicreg": VICReg,
        "vje": VJE,
    }
)

TASKS: Mapping[str, Task] = MappingProxyType(
    {"images": Images(), "pairs": SyntheticPairs(), FunctionMethod.task: Functions()}
)


_own_methods: dict[str, type[Method]] = {}


def method_of(name: str) -> type[Method]:
    """The method with this name: one in METHODS, of an entry point, or imported by `import_method`.

    The name may come from data (a row or a model's file), so nothing else is imported; otherwise data could execute any
    module. Raises ValueError, with one line, if no method has this name, and NotImportedError if the user's own method
    was not imported.
    """
    if name in METHODS:
        return METHODS[name]
    if name not in _own_methods and name not in installed_methods() and ":" in name:
        raise NotImportedError("method", name)
    return import_method(name)


def import_method(name: str, values: Mapping[str, Sequence[Value]] = MappingProxyType({})) -> type[Method]:
    """Import the method with this name and make it known to `method_of`. The user's own method is named
    `package.module:NAME`, where NAME is a class or a function. A command is named by its text, and the types of its
    keys are inferred from `values`.

    This executes a module, so the name must come from the user (a sweep file, an option or an argument), never from
    data. A module is imported once. Raises ValueError, with one line, if the method does not exist or cannot be used.
    """
    if name in METHODS:
        return METHODS[name]
    if is_command(name) and (values or name not in _own_methods):
        _own_methods[name] = method_of_command(name, values)
    if name not in _own_methods:
        if ":" not in name and name not in installed_methods():
            _refuse(name)
        _own_methods[name] = load_method(name)
    return _own_methods[name]


def known_methods() -> Mapping[str, type[Method]]:
    """Name -> method: METHODS, and the user's own methods imported in this process."""
    return MappingProxyType({**METHODS, **_own_methods})


def is_function(method: str) -> bool:
    """Whether a method is an imported function or command of the user."""
    return issubclass(_own_methods.get(method, Method), FunctionMethod)


def ships(name: str) -> bool:
    """Whether a method is in METHODS, whose contract the tests check."""
    return name in METHODS


def task_of(method: str) -> Task:
    """The task that a method learns from."""
    return TASKS[method_of(method).task]


def sections_of(method: type[Method]) -> Mapping[str, type]:
    """Name of each section of a method's trials -> its dataclass."""
    if issubclass(method, FunctionMethod):
        return {"training": method.Training, "options": method.Config}
    own = dict(TASKS[method.task].Trial.sections())
    if method.fitted():
        del own["optimiser"]
    return {"training": Training if method.fitted() else GradientTraining, **own, "options": method.Config}


def _refuse(name: str) -> None:
    """Raise ValueError if no method has this name."""
    if "." in name:
        raise ValueError(f"no method {name!r}; a method of your own is written package.module:Class, with a colon")
    choices("method", name, [*METHODS, *installed_methods()], "--describe methods lists all")


# Loading the user's own method.

GROUP = "sweeper.methods"
"""Entry point group of installed methods."""


class ContractError(ValueError):
    """A method breaks the contract (`trainables.contract`). The message states the law and the offender."""

    def __init__(self, name: str, law: str, got: str, choices: Collection[object] = ()) -> None:
        there_are = f"; there are: {', '.join(map(str, choices))}" if choices else ""
        super().__init__(f"the method {name} breaks the contract of methods: {law}, but got {got}{there_are}")


@functools.cache
def installed_methods() -> Mapping[str, EntryPoint]:
    """Entry points of installed packages in the group `sweeper.methods`, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_method(name: str) -> type[Method]:
    """The method that `package.module:NAME` or an entry point refers to. Raises ValueError, with one line, if it cannot
    be imported or is not a method."""
    point = installed_methods().get(name)
    cls: Any = import_own("method", point.value if point else name)
    if isinstance(cls, Command):
        return method_of_command(str(cls), {})
    if is_plain_function(cls):
        return method_of_function(name, cls)
    check_class(name, cls)
    method: type[Method] = cls
    return method


def check_class(name: str, cls: Any) -> None:
    """Raise ContractError if a class breaks the contract (see `trainables.contract`), and ValueError if its task does
    not exist."""
    if not (inspect.isclass(cls) and issubclass(cls, Method)):
        kind = f"the class {cls.__name__}" if inspect.isclass(cls) else f"a value of type {type(cls).__name__}"
        law = "it must be a function, or a subclass of sweeper.ImageMethod or sweeper.PairsMethod"
        raise ContractError(name, law, kind)
    if cls.task == "images" and not issubclass(cls, ImageMethod):
        raise ContractError(
            name, "a method of the task images must be a subclass of ImageMethod", "a subclass of Method only"
        )
    choices("task", cls.task, TASKS)
    _check_config(name, getattr(cls, "Config", None))
    _check_keys(name, cls)
    fields = {field.name: field.default for field in dataclasses.fields(cls.Config)}
    for key in sorted(cls.fusible):
        if key not in fields:
            raise ContractError(name, "every name in fusible must be a field of Config", repr(key), fields)
        if isinstance(fields[key], bool) or not isinstance(fields[key], int | float):
            raise ContractError(name, "a fusible hyperparameter must be a number", f"{key}={fields[key]!r}")
    known = typing.get_args(Capability)
    for capability in sorted(cls.capabilities):
        if capability not in known:
            raise ContractError(name, "a capability must be a known one", repr(capability), known)
        undefined = (None, *(getattr(base, capability, None) for base in (ImageMethod, PairsMethod)))
        inherits = getattr(cls, capability, None) in undefined
        if inherits and capability != "embed":
            raise ContractError(name, f"a method with the capability {capability!r} must define it", "none")
    if issubclass(cls, ImageMethod) and (unknown := sorted(cls.reads - ENTRIES)):
        raise ContractError(name, "reads must name entries of a batch", repr(unknown[0]), sorted(ENTRIES))
    if issubclass(cls, ImageMethod) and bool(cls.scores) != ("score" in cls.capabilities):
        law = "scores must list the names that score() returns, and be empty without the capability 'score'"
        raise ContractError(name, law, f"scores={cls.scores!r}")


def _check_config(name: str, config: object) -> None:
    """Raise ContractError unless `config` is a frozen dataclass of plain hyperparameters with defaults."""
    if not (inspect.isclass(config) and dataclasses.is_dataclass(config)):
        raise ContractError(name, "Config must be a frozen dataclass of its hyperparameters", f"Config={config!r}")
    if not vars(config)["__dataclass_params__"].frozen:
        raise ContractError(name, "Config must be frozen: write @dataclass(frozen=True)", "@dataclass")
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        kinds = set(typing.get_args(hints[field.name]) or (hints[field.name],)) - {type(None)}
        if len(kinds) != 1 or not kinds <= set(KEY_TYPES):
            law = "a hyperparameter must be a bool, int, float or str"
            raise ContractError(name, law, f"{field.name} of type {field.type}")
        if field.default is dataclasses.MISSING:
            raise ContractError(name, "every field of Config must have a default", f"{field.name} without one")


def _check_keys(name: str, method: type[Method]) -> None:
    """Raise ContractError for a key of `Config` that all trials already have: one value cannot be two
    hyperparameters."""
    *others, own = sections_of(method).values()
    taken = {"method", *(field.name for section in others for field in dataclasses.fields(section))}
    if twice := [field.name for field in dataclasses.fields(own) if field.name in taken]:
        law = "a key of Config must not be one that all methods have (--describe keys lists them); rename it"
        raise ContractError(name, law, ", ".join(twice))

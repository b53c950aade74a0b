"""METHODS and TASKS, the only lists of them. A new method is one file in `trainables/methods/` and one entry here.

Methods of the user are not listed: `import_method` imports them by `package.module:Class`, and those of installed
packages are found by their entry points.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainables.contract import Method
from trainables.method_loading import installed_methods, load_method
from trainables.methods.baselines.barlow_twins import BarlowTwins
from trainables.methods.baselines.byol import BYOL
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
from trainables.tasks.images.task import Images
from trainables.tasks.pairs.task import SyntheticPairs
from trainables.tasks.task import Task
from trainables.validation import choices

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "barlow_twins": BarlowTwins,
        "beta_vae": BetaVAE,
        "byol": BYOL,
        "cr_vae": CRVAE,
        "dam_gmje": DaMGMJE,
        "gaussian_process": GaussianProcess,
        "gje": GJE,
        "gmje_em": EM,
        "gmje_gng": GNG,
        "gmje_mdn": MDNGMJE,
        "gmje_mdn_pairs": MDNPairs,
        "gmje_parametric": ParametricGMJE,
        "gpje": GPJE,
        "hsic": HSIC,
        "jepa": JEPA,
        "jepa_pairs": JEPAPairs,
        "moco_v2": MoCo,
        "pixels": Pixels,
        "random": RandomEncoder,
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

TASKS: Mapping[str, Task] = MappingProxyType({"images": Images(), "pairs": SyntheticPairs()})


_own_methods: dict[str, type[Method]] = {}


class NotImportedError(ValueError):
    """A name `package.module:Class` that was not given to `import_method`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the method {name!r:.80} neither ships nor is installed; trainables.catalog.import_method imports it, "
            "which runs its code"
        )
        self.name = name


def method_of(name: str) -> type[Method]:
    """The method with this name: in METHODS, of an entry point, or one that `import_method` has imported.

    The name may be data, from a row or from a model's file, so nothing else is imported: that would execute any module
    that the data choose. Raises ValueError, with one line, if there is no such method, and NotImportedError for one of
    the user that was not imported.
    """
    if name in METHODS:
        return METHODS[name]
    if name not in _own_methods and name not in installed_methods() and ":" in name:
        raise NotImportedError(name)
    return import_method(name)


def import_method(name: str) -> type[Method]:
    """Import the method with this name, of the user by `package.module:Class`, and make it known to `method_of`.

    This executes a module, so the name must come from the user: from a sweep's file, an option or an argument, never
    from data. A module is imported once. Raises ValueError, with one line, if there is no such method, or if it cannot
    be used.
    """
    if name in METHODS:
        return METHODS[name]
    if name not in _own_methods:
        if ":" not in name and name not in installed_methods():
            _refuse(name)
        method = load_method(name)
        choices("task", method.task, TASKS)
        _own_methods[name] = method
    return _own_methods[name]


def known_methods() -> Mapping[str, type[Method]]:
    """Name -> method, of METHODS and of the user's that have been imported in this process."""
    return MappingProxyType({**METHODS, **_own_methods})


def ships(name: str) -> bool:
    """Whether a method is one of METHODS, which tests hold to the contract."""
    return name in METHODS


def task_of(method: str) -> Task:
    """The task that a method learns from."""
    return TASKS[method_of(method).task]


def _refuse(name: str) -> None:
    """Raise ValueError for the name of no method."""
    if "." in name:
        raise ValueError(f"no method {name!r}; a method of your own is written package.module:Class, with a colon")
    choices("method", name, [*METHODS, *installed_methods()], "--describe methods lists all")

"""The sections of a trial on pairs: data and evaluation."""

from dataclasses import dataclass
from typing import Annotated

from trainables.data.pairs import BRANCHES
from trainables.sections import GradientTraining, TrialConfig
from trainables.validation import at_least, checked, one_of


@checked
class PairsData:
    """The training pairs. Every seed draws its own."""

    dataset: Annotated[str, one_of(*sorted(BRANCHES))] = "synthetic_a"
    """Name of the data set."""
    examples: Annotated[int, at_least(2)] = 3000
    """Number of training pairs."""


@checked
class PairsEvaluation:
    """What is kept of an evaluation beside its metrics."""

    sheets: bool = False
    """Keep the predicted density on a grid of x, of which the sweep's panels are drawn."""


@dataclass(frozen=True, kw_only=True)
class PairsTrial(TrialConfig):
    """Everything that one training run on pairs depends on."""

    data: PairsData
    evaluation: PairsEvaluation

    @property
    def batch_size(self) -> int:
        """Examples of a step: all of them for a method that is fitted to them at once."""
        return self.training.batch_size if isinstance(self.training, GradientTraining) else self.data.examples

    @property
    def steps(self) -> int:
        """Steps of an epoch; 0 if a batch has more examples than there are."""
        return self.data.examples // self.batch_size

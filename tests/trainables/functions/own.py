"""Functions as a user writes them."""

import dataclasses
from typing import Annotated, Any, Literal


@dataclasses.dataclass
class Above:
    """A bound as of annotated_types."""

    gt: float


def train(
    rate: Annotated[float, Above(0), "size of a step"] = 0.1,
    width: int = 64,
    kind: Literal["wide", "deep"] = "wide",
    bias: bool = True,
    decay: float | None = None,
    layers: tuple[int, ...] = (1, 2),
    epochs: int = 3,
    seed: int = 0,
) -> Any:
    """Values that depend on nothing but its parameters."""
    for epoch in range(epochs):
        yield {"loss": (epoch + 1) * rate + seed, "width": None}


def needs(rate: Annotated[float, Above(0)]) -> dict[str, float]:
    return {"loss": rate}


@dataclasses.dataclass
class Settings:
    """The settings of `by_settings`."""

    rate: float = 0.5
    """Size of a step."""
    name: str = "x"


def by_settings(trial: Any, settings: Settings) -> None:
    trial.report(loss=settings.rate, length=len(settings.name))


def on_device(rate: float = 1.0, device: str = "cuda:7") -> dict[str, float]:
    return {"loss": rate, "on_cpu": device == "cpu"}


def with_all(rate: float = 1.0, **others: float) -> None: ...


def with_several(*rates: float) -> None: ...


def with_position(rate: float, /) -> None: ...


def without_type(rate=None) -> None: ...


def with_workers(workers: int = 1) -> None: ...


async def asynchronous(rate: float = 1.0) -> None: ...


short = lambda rate=1.0: {"loss": rate}  # noqa: E731


class Trainer:
    def train(self, rate: float = 1.0) -> dict[str, float]:
        return {"loss": rate}


bound = Trainer().train

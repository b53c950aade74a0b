"""Which trials of a request the claims and figures of a paper are about: those of the preset itself."""

from collections.abc import Callable, Collection, Mapping, Sequence

from sweeper.definition.space import EPOCHS, SEED, Grid, Search, Value, part_keys

JUDGING = "a claim is judged by trials with the preset's own settings, any seeds and at least its epochs"
"""The rule of `judging`, in words."""


def judging(parts: Sequence[Grid | Search], changed: Collection[str]) -> Callable[[Mapping[str, Value]], bool]:
    """Return a function from the keys of a trial to whether the trial can judge claims about a preset with these
    `parts`, where its request changes the keys `changed` of the preset.

    A claim is about the data, methods and settings of its preset, and so are the paper's figures. A trial of a changed
    request can judge them if it differs from some trial of the preset in nothing but its seed and more epochs.
    """
    if not changed:
        return lambda trial: True

    def is_own(key: str, value: Value, part: Grid | Search) -> bool:
        own = part.values(key)
        if key == SEED or key in part.searched:
            return True
        if not own:
            return value is None or key not in changed
        if value is None:  # a key that the method of the trial lacks
            return None in own or key not in changed
        if key == EPOCHS and isinstance(value, int | float):
            most = max((each for each in own if isinstance(each, int)), default=0)
            return value in own or value > most > 0  # with 0 epochs the network is untrained
        return any(equal(value, each) for each in own)

    keys = [dict.fromkeys((*part_keys(part), *changed)) for part in parts]

    def judges(trial: Mapping[str, Value]) -> bool:
        return any(all(is_own(key, trial.get(key), part) for key in own) for part, own in zip(parts, keys, strict=True))

    return judges


def equal(value: object, wanted: object) -> bool:
    """Whether a value of a trial is the wanted one. Null equals None alone, and true is no number."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)

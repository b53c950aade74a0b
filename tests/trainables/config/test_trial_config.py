"""Optional sections: their keys are part of a trial only if one of them differs from its default."""

import dataclasses

import pytest

from trainables.catalog import METHODS
from trainables.config import column_types, defaults, keys, resolve, sections
from trainables.sections import Training, TrialConfig, Value
from trainables.validation import added

OPTIMISER = {"optimiser", "lr_schedule", "adam_epsilon"}
OTHER: dict[str, dict[str, Value]] = {
    **{"layers": {"hidden": "7"}, "pixel_views": {"binarise": True}, "batches": {"batch_unit": "views"}},
    **{"content": {"content_knn": 2}, "generation": {"adhoc_epochs": 3}, "optimiser": {"lr_schedule": "constant"}},
    **{"embeddings": {"few_labels": 5}, "folder": {"dataset": "folder", "image_size": 16}},
    **{"latent_density": {"density_steps": 3}},
}
"""Optional section -> a key of it with a value that is not the default, and what that needs."""


def _trial(**values: Value) -> dict[str, Value]:
    return resolve({"method": "vje", **values}).flat()


def test_an_adam_trial_has_the_keys_of_the_optimiser_and_an_sgd_trial_has_none() -> None:
    sgd, adam = _trial(optimiser="sgd"), _trial(optimiser="adam")
    assert sgd == _trial() and not OPTIMISER & set(sgd)
    assert adam == {**sgd, "optimiser": "adam", "lr_schedule": "cosine", "adam_epsilon": 1e-8}


@pytest.mark.parametrize("section", sorted(resolve({"method": "vje"}).optional))
def test_a_changed_key_brings_all_of_its_section(section: str) -> None:
    plain, changed = _trial(), _trial(**OTHER[section])
    names = {field.name for field in dataclasses.fields(sections("vje")[section])}
    assert set(changed) - set(plain) == names and changed.items() >= {**plain, **OTHER[section]}.items()
    assert changed == {**{key: value for key, value in defaults("vje").items() if key in changed}, **OTHER[section]}


@pytest.mark.parametrize(
    "changes", [{}, *OTHER.values(), {key: value for part in OTHER.values() for key, value in part.items()}]
)
def test_flat_and_resolve_are_inverse(changes: dict[str, Value]) -> None:
    config = resolve({"method": "vje", **changes})
    assert resolve(config.flat()) == config and resolve(config.flat()).flat() == config.flat()


@pytest.mark.parametrize("method", METHODS)
def test_every_section_has_a_name_and_its_keys_a_default(method: str) -> None:
    config = resolve({"method": method, "epochs": 0})
    assert config.optional & set(sections(method)) <= set(OTHER) and {"training", "options"} <= set(sections(method))
    assert set(defaults(method)) == set(keys(method))


def test_columns_are_the_keys_of_the_trials_alone() -> None:
    """So a sweep whose trials all use SGD has no columns of optimisers."""
    plain, adam = resolve({"method": "vje"}), resolve({"method": "vje", "optimiser": "adam"})
    assert list(column_types([plain])) == list(plain.flat()) and column_types([]) == {}
    both = column_types([plain, adam])
    assert set(both) == set(plain.flat()) | OPTIMISER and both == column_types([adam, plain])
    assert (both["optimiser"], both["adam_epsilon"], both["normal_class"]) == (str, float, int)


def test_a_key_that_was_added_later_is_part_of_a_trial_only_beside_its_default() -> None:
    @dataclasses.dataclass(frozen=True)
    class Later:
        width: int = 3
        steps: int = added(0)

    trials = [TrialConfig(method="vje", training=Training(), options=Later(steps=steps)).flat() for steps in (0, 2)]
    assert "steps" not in trials[0] and trials[1] == {**trials[0], "steps": 2} and trials[0]["width"] == 3

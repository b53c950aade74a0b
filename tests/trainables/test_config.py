"""Flat names and values to a complete configuration and back, sections, and the documentation of keys.

Errors state the law, the offender and the choices.
"""

import dataclasses
import math
from dataclasses import dataclass, fields

import pytest

from tests.cases import for_each
from tests.trainables.small import IMAGE_METHODS, image_trial
from trainables import config
from trainables.catalog import METHODS
from trainables.config import (
    column_types,
    defaults,
    describe_keys,
    field_docs,
    fusible_keys,
    keys,
    left_out_defaults,
    left_out_of,
    parse,
    resolve,
    sections,
)
from trainables.image_trial import Folder, ImageTrial
from trainables.networks.encoders import ENCODERS
from trainables.networks.pretrained import TORCHVISION
from trainables.sections import GradientTraining, Optimiser, Training, TrialConfig, Value
from trainables.validation import added, added_keys


def _resolve(**values: Value) -> ImageTrial:
    return image_trial({"method": "vje", **values})


def _error(**values: Value) -> str:
    with pytest.raises(ValueError) as error:
        _resolve(**values)
    return str(error.value)


def test_defaults_are_complete_and_come_back() -> None:
    """Keys of optional sections are left out: see `test_trial_config`. So are keys that were added later."""
    config = _resolve()
    optional = {field.name for name in config.optional for field in dataclasses.fields(sections("vje")[name])}
    later = {key for section in sections("vje").values() for key in added_keys(section)}
    assert set(config.flat()) == set(keys("vje")) - optional - later
    assert resolve(config.flat()) == config


def test_given_values_are_in_the_config() -> None:
    values: dict[str, Value] = {
        "dataset": "cifar10", "normal_class": 7, "encoder": "resnet18", "small_stem": False, "seed": 3, "epochs": 9,
        "lr": 5e-6, "precision": "bfloat16", "channels_last": True, "crop_scale": 0.2, "nu": math.inf, "terms": "kl",
    }  # fmt: skip
    config = _resolve(**values)
    assert config.flat().items() >= values.items()
    assert (config.data.normal_class, config.training.epochs, config.views.crop_scale) == (7, 9, 0.2)
    assert (config.encoder.small_stem, config.options.nu) == (False, math.inf)
    assert resolve(config.flat()) == config


def test_integers_become_floats_for_keys_that_are_floats() -> None:
    """So that `nu=1` and `nu=1.0` are one trial."""
    whole, real = _resolve(nu=1, lr=1, crop_scale=1, weight_decay=0), _resolve(nu=1.0, lr=1.0, weight_decay=0.0)
    assert repr(whole.flat()) == repr(real.flat())
    assert [type(whole.flat()[key]) for key in ("nu", "lr", "crop_scale", "epochs")] == [float, float, float, int]


@for_each("method", METHODS)
def test_no_key_is_in_two_sections(method: str) -> None:
    names = [field.name for section in sections(method).values() for field in dataclasses.fields(section)]
    assert sorted(names) == sorted(set(names)) and "method" not in names
    assert set(keys(method)) == {"method", *names} and set(keys(method).values()) <= {bool, int, float, str}


@for_each("method", IMAGE_METHODS)
def test_fusible_keys_are_keys(method: str) -> None:
    of_all = {"seed", "patience", "normal_class", "normal_images", "contamination"}
    of_all |= set() if METHODS[method].fitted() else {"lr", "weight_decay", "clip_grad_norm", "lr_gamma"}
    assert of_all | METHODS[method].fusible == fusible_keys(method) <= set(keys(method))


def test_a_trial_needs_a_known_method() -> None:
    for values, message in (
        ({}, f"a trial needs a method; there are: {', '.join(METHODS)}"),
        ({"method": "vjee"}, "no method 'vjee' (did you mean 'vje'?); --describe methods lists all"),
    ):
        with pytest.raises(ValueError) as error:
            resolve(values)
        assert str(error.value) == message


def test_unknown_key_names_the_nearest_and_how_to_list_all() -> None:
    assert _error(epoch=3) == "no key 'epoch' (did you mean 'epochs'?); --describe vje lists its keys"
    assert _error(qqqq=1) == "no key 'qqqq'; --describe vje lists its keys"


@for_each(
    ("key", "value", "message"),
    [
        (
            "dataset",
            "digit",
            "no dataset 'digit' (did you mean 'digits'?); --describe datasets lists all; or your own, as "
            "my_data:MyDataset",
        ),
        ("dataset", 3, "dataset must be text, but got dataset=3"),
        ("normal_class", -1, "`normal_class >= 0` must hold, but got normal_class=-1"),
        ("normal_class", 1.0, "normal_class must be a whole number, but got normal_class=1.0"),
        ("normal_images", 10, "normal_images needs a normal_class, but got normal_images=10 with normal_class=None"),
        ("contamination", 0.5, "`contamination < 0.5` must hold, but got contamination=0.5"),
        (
            "encoder",
            "resnet",
            f"no encoder 'resnet' (did you mean 'resnet50'?); there are: {', '.join([*ENCODERS, *TORCHVISION])}; or "
            "your own, as my_nets:TinyViT",
        ),
        ("width", 0, "`width >= 1` must hold, but got width=0"),
        ("features", "9", "features must be a whole number, but got features='9'"),
        ("small_stem", 1, "small_stem must be true or false, but got small_stem=1"),
        ("seed", -1, "`seed >= 0` must hold, but got seed=-1"),
        ("epochs", -1, "`epochs >= 0` must hold, but got epochs=-1"),
        ("epochs", 2.0, "epochs must be a whole number, but got epochs=2.0"),
        ("epochs", True, "epochs must be a whole number, but got epochs=True"),
        ("epochs", None, "epochs must be a whole number, but got epochs=None"),
        ("batch_size", 1, "`batch_size >= 2` must hold, but got batch_size=1"),
        ("lr", 0, "`lr > 0` must hold, but got lr=0.0"),
        ("lr", math.inf, "lr must be finite, but got lr=inf"),
        ("lr", "fast", "lr must be a number, but got lr='fast'"),
        ("momentum", 1.0, "`momentum < 1` must hold, but got momentum=1.0"),
        ("momentum", -0.1, "`momentum >= 0` must hold, but got momentum=-0.1"),
        ("weight_decay", -1, "`weight_decay >= 0` must hold, but got weight_decay=-1.0"),
        ("weight_decay", math.nan, "weight_decay must be a number, but got weight_decay=nan"),
        ("warmup_epochs", 100, "`warmup_epochs < epochs` must hold, but got warmup_epochs=100, epochs=100"),
        (
            "precision",
            "float16",
            "no precision 'float16' (did you mean 'bfloat16'?); there are: float32, tf32, bfloat16",
        ),
        ("channels_last", None, "channels_last must be true or false, but got channels_last=None"),
        ("report_every", 0, "`report_every >= 1` must hold, but got report_every=0"),
        ("clip_grad_norm", 0, "`clip_grad_norm > 0` must hold, but got clip_grad_norm=0.0"),
        ("lr_gamma", 2, "`lr_gamma <= 1` must hold, but got lr_gamma=2.0"),
        ("lr_drop_every", 0, "`lr_drop_every >= 1` must hold, but got lr_drop_every=0"),
        (
            "accumulate",
            3,
            "batch_size must be a multiple of workers * accumulate, at least 2 for each, but got batch_size=64, "
            "workers=1, accumulate=3",
        ),
        ("crop_scale", 0, "`0 < crop_scale <= 1` must hold, but got crop_scale=0.0"),
        ("hue", 0.6, "`0 <= hue <= 0.5` must hold, but got hue=0.6"),
        ("flip", True, "flip must be a number, but got flip=True"),
        ("beta", -1, "`beta >= 0` must hold, but got beta=-1.0"),
        ("nu", 0, "`nu > 0` must hold, but got nu=0.0"),
    ],
)
def test_errors_state_the_law_and_the_offender(key: str, value: Value, message: str) -> None:
    assert _error(**{key: value}) == message


def test_one_cycle_takes_no_other_warm_up() -> None:
    assert _error(lr_schedule="one_cycle", warmup_epochs=2, epochs=10) == (
        "one_cycle includes a warm-up, so warmup_epochs must be 0, but got warmup_epochs=2"
    )


@for_each(
    ("key", "text", "value"),
    [
        ("nu", "3", 3.0), ("nu", "inf", math.inf), ("lr", "5e-6", 5e-6), ("epochs", "40", 40),
        ("normal_class", "None", None), ("normal_class", "null", None), ("normal_class", "4", 4),
        ("small_stem", "False", False), ("channels_last", "true", True), ("terms", "kl+dir", "kl+dir"),
        ("precision", "none", "none"), ("method", "vje", "vje"),
    ],
)  # fmt: skip
def test_parse(key: str, text: str, value: Value) -> None:
    assert repr(parse(key, text)) == repr(value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("epochs", "4.0", "epochs must be a whole number, but got epochs=4.0"),
        ("epochs", "none", "epochs must be a whole number, but got epochs=none"),
        ("lr", "", "lr must be a number, but got lr="),
        ("small_stem", "1", "small_stem must be true or false, but got small_stem=1"),
    ],
)
def test_parse_refuses_text_that_is_no_value_of_the_type(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(key, text)
    assert str(error.value) == message


def test_indices_of_classes_alone_can_be_their_names() -> None:
    assert parse("normal_class", "cat", ("dog", "cat")) == 1 and parse("seed", "1", ("dog", "cat")) == 1
    with pytest.raises(ValueError, match=r"no normal_class 'cot' \(did you mean 'cat'\?\); there are: dog, cat"):
        parse("normal_class", "cot", ("dog", "cat"))


def test_parse_refuses_an_unknown_key() -> None:
    with pytest.raises(ValueError, match=r"^no key 'bata' \(did you mean 'beta'\?\); --describe keys lists all$"):
        parse("bata", "1")


@for_each("method", METHODS)
def test_methods_that_do_not_train_need_zero_epochs(method: str) -> None:
    assert resolve({"method": method, "epochs": 0}).training.epochs == 0
    if METHODS[method].trains():
        assert resolve({"method": method, "epochs": 5}).training.epochs == 5
    else:
        with pytest.raises(ValueError) as error:
            resolve({"method": method, "epochs": 5})
        assert str(error.value) == f"{method} does not train, so epochs must be 0, but got epochs=5"


@for_each("method", [name for name, method in IMAGE_METHODS.items() if not method.fitted()])
def test_only_a_loss_of_single_images_is_split_over_workers(method: str) -> None:
    epochs: dict[str, Value] = {} if METHODS[method].trains() else {"epochs": 0}
    assert resolve({"method": method, "workers": 1, **epochs}).training.processes == 1
    if METHODS[method].per_example:
        assert resolve({"method": method, "workers": 2}).training.processes == 2
    else:
        with pytest.raises(ValueError) as error:
            resolve({"method": method, "workers": 2, **epochs})
        message, _, able = str(error.value).partition("; a batch can be split for: ")
        assert message == f"{method} compares the examples of a batch, so workers must be 1, but got workers=2"
        assert "vje" in able.split(", ") and method not in able.split(", ")


def test_equal_sections_are_one_object_but_1_and_true_are_different_values() -> None:
    first, second = _resolve(width=1, seed=1), _resolve(width=1, seed=2)
    assert first.encoder is second.encoder and first.training != second.training
    assert "got width=True" in _error(width=True) and "got width=1.0" in _error(width=1.0)
    for zero in (-0.0, 0.0):  # the two are one trial
        assert math.copysign(1.0, float(str(_resolve(weight_decay=zero).flat()["weight_decay"]))) == 1.0


FOLDER = {field.name for field in fields(Folder)}
OPTIMISER = {"optimiser", "lr_schedule", "adam_epsilon"}
OTHER: dict[str, dict[str, Value]] = {
    **{"layers": {"hidden": "7"}, "pixel_views": {"binarise": True}, "batches": {"batch_unit": "views"}},
    **{"content": {"content_knn": 2}, "generation": {"adhoc_epochs": 3}, "optimiser": {"lr_schedule": "constant"}},
    **{"embeddings": {"few_labels": 5}, "folder": {"dataset": "folder", "image_size": 16}},
    **{"latent_density": {"density_steps": 3}},
}
"""Optional section -> a key of it with a value that is not the default, and what that needs."""
OF_FILES = {"pretrained"}
"""Optional sections that need a file, which other tests have."""


def _trial(**values: Value) -> dict[str, Value]:
    return resolve({"method": "vje", **values}).flat()


def test_an_adam_trial_has_the_keys_of_the_optimiser_and_an_sgd_trial_has_none() -> None:
    sgd, adam = _trial(optimiser="sgd"), _trial(optimiser="adam")
    assert sgd == _trial() and not OPTIMISER & set(sgd)
    assert adam == {**sgd, "optimiser": "adam", "lr_schedule": "cosine", "adam_epsilon": 1e-8}


@for_each("section", sorted(resolve({"method": "vje"}).optional - OF_FILES))
def test_a_changed_key_brings_all_of_its_section(section: str) -> None:
    plain, changed = _trial(), _trial(**OTHER[section])
    names = {field.name for field in dataclasses.fields(sections("vje")[section])}
    names -= added_keys(sections("vje")[section]).keys() - OTHER[section].keys()
    assert set(changed) - set(plain) == names and changed.items() >= {**plain, **OTHER[section]}.items()
    assert changed == {**{key: value for key, value in defaults("vje").items() if key in changed}, **OTHER[section]}


@for_each("changes", [{}, *OTHER.values(), {key: value for part in OTHER.values() for key, value in part.items()}])
def test_flat_and_resolve_are_inverse(changes: dict[str, Value]) -> None:
    config = resolve({"method": "vje", **changes})
    assert resolve(config.flat()) == config and resolve(config.flat()).flat() == config.flat()


@for_each("method", METHODS)
def test_every_section_has_a_name_and_its_keys_a_default(method: str) -> None:
    config = resolve({"method": method, "epochs": 0})
    assert config.optional & set(sections(method)) <= {*OTHER, *OF_FILES} and {"training", "options"} <= set(
        sections(method)
    )
    assert set(defaults(method)) == set(keys(method))


@for_each("method", METHODS)
def test_a_row_has_every_key_of_its_method_with_its_value(method: str) -> None:
    """But for those of images of the user's own, of which a trial on other images says nothing."""
    config = resolve({"method": method, "epochs": 0})
    assert column_types([config]) == {key: kind for key, kind in keys(method).items() if key not in FOLDER}
    assert config.complete() == {**{key: defaults(method)[key] for key in column_types([config])}, "epochs": 0}
    assert config.flat().items() <= config.complete().items() and resolve(config.complete()) == config
    missing = {key: config.complete()[key] for key in config.complete().keys() - config.flat().keys()}
    assert missing == left_out_defaults(method) == left_out_of(method, ())
    assert not any(value is None for value in missing.values()), "a null in a row is no value of such a key"


def test_columns_are_the_keys_of_the_methods_of_the_trials() -> None:
    vje, simclr = resolve({"method": "vje"}), resolve({"method": "simclr", "optimiser": "adam"})
    both = column_types([vje, simclr])
    assert set(both) == set(column_types([vje])) | set(column_types([simclr])) and column_types([]) == {}
    assert (both["optimiser"], both["adam_epsilon"], both["normal_class"]) == (str, float, int)


def test_a_method_that_is_not_imported_has_the_keys_that_all_methods_of_its_task_share() -> None:
    shared = left_out_of("theirs:Method", ["batch_size", "encoder"])
    assert {"optimiser", "clip_grad_norm", "augmentation"} <= shared.keys() and not left_out_of("theirs:Method", [])
    assert shared.items() <= left_out_defaults("vje").items()


def test_a_key_that_was_added_later_is_part_of_a_trial_only_beside_its_default() -> None:
    @dataclasses.dataclass(frozen=True)
    class Later:
        width: int = 3
        steps: int = added(0)

    trials = [TrialConfig(method="vje", training=Training(), options=Later(steps=steps)).flat() for steps in (0, 2)]
    assert "steps" not in trials[0] and trials[1] == {**trials[0], "steps": 2} and trials[0]["width"] == 3


def test_zero_epochs_allow_no_warm_up() -> None:
    assert GradientTraining(epochs=0).warmup_epochs == 0
    with pytest.raises(ValueError, match=r"^`warmup_epochs < epochs` must hold, but got warmup_epochs=1, epochs=0$"):
        GradientTraining(epochs=0, warmup_epochs=1)
    assert GradientTraining(epochs=2, warmup_epochs=1).epochs == 2


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 1), (2, 1), (64, 32), (6, 3)])
def test_a_batch_is_split_into_equal_parts(batch_size: int, workers: int) -> None:
    assert GradientTraining(batch_size=batch_size, workers=workers).workers == workers


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 3), (64, 64), (4, 8), (6, 4)])
def test_a_batch_that_cannot_be_split_is_refused(batch_size: int, workers: int) -> None:
    with pytest.raises(ValueError) as error:
        GradientTraining(batch_size=batch_size, workers=workers)
    assert str(error.value) == (
        f"batch_size must be a multiple of workers, at least 2 for each, but got batch_size={batch_size}, "
        f"workers={workers}"
    )


@pytest.mark.parametrize("workers", [0, -2, 1.0, True])
def test_workers_must_be_a_positive_integer(workers: int) -> None:
    with pytest.raises(ValueError, match=r"workers must be a whole number|`workers >= 1` must hold"):
        GradientTraining(workers=workers)


def test_a_training_without_gradients_has_one_process() -> None:
    assert Training().processes == 1 and GradientTraining(batch_size=6, workers=3).processes == 3
    assert (
        not {"lr", "batch_size", "workers"} & set(vars(Training()))
        and vars(Training()).items() <= vars(GradientTraining()).items()
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("optimiser", "adan", "no optimiser 'adan' (did you mean 'adam'?); there are: sgd, adam, adamw, lars"),
        ("lr_schedule", "linear", "no lr_schedule 'linear'; there are: cosine, constant, step, exponential, one_cycle"),
        ("adam_epsilon", 0.0, "`adam_epsilon > 0` must hold, but got adam_epsilon=0.0"),
    ],
)
def test_an_optimiser_out_of_range_is_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Optimiser(**{field: value})  # type: ignore[arg-type]
    assert str(error.value) == message


@for_each("method", METHODS)
def test_every_key_is_there_with_its_default_and_a_docstring(method: str) -> None:
    keys = {key.name: key for key in describe_keys(method)}
    assert {"method": method, **{name: key.default for name, key in keys.items()}} == config.defaults(method)
    assert set(keys) | {"method"} == set(config.keys(method)) and len(keys) == len(describe_keys(method))
    assert not [key.name for key in keys.values() if not key.doc]
    assert {key.name for key in keys.values() if key.fusible} == config.fusible_keys(method) & set(keys)


def test_ranges_are_those_that_are_checked() -> None:
    laws = {key.name: key.law for key in describe_keys("vje")}
    assert (laws["nu"], laws["beta"], laws["bottleneck"]) == ("nu > 0", "beta >= 0", "bottleneck >= 1")
    assert (laws["flip"], laws["crop_scale"]) == ("0 <= flip <= 1", "0 < crop_scale <= 1")
    assert laws["momentum"] == "momentum >= 0, momentum < 1"
    assert laws["precision"] == "one of float32, tf32, bfloat16" and laws["terms"] == laws["small_stem"] == ""


@dataclass(frozen=True)
class Example:
    rate: float = 0.5
    """Of two
    lines."""
    count: int = 2
    kind: str = "a"
    """One of two kinds."""


def test_docstrings_of_fields_are_one_line_and_may_be_absent() -> None:
    assert field_docs(Example) == {"rate": "Of two lines.", "count": "", "kind": "One of two kinds."}
    assert list(field_docs(Example)) == [field.name for field in fields(Example)]


@dataclass(frozen=True)
class Longer(Example):
    count: int = 3
    """How many."""
    share: float = 0.5
    """Of the whole."""


def test_docstrings_of_inherited_fields_are_those_of_the_section_that_has_them() -> None:
    docs = {"rate": "Of two lines.", "count": "How many.", "kind": "One of two kinds.", "share": "Of the whole."}
    assert field_docs(Longer) == docs and list(field_docs(Longer)) == [field.name for field in fields(Longer)]

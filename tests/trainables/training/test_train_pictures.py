"""Pictures of members, which their last report has and their checkpoints do not."""

import io
from functools import cache

import pytest
from PIL import Image

from tests.trainables.small import HERE
from tests.trainables.training.judged import without_seconds
from trainables.config import resolve
from trainables.reports import Report, Verdict
from trainables.sections import TrialConfig, Value
from trainables.training.train import train

PNG = b"\x89PNG"


def members(**changes: Value) -> list[TrialConfig]:
    """Three VAEs with two seeds."""
    given: dict[str, Value] = {
        "method": "vae", "encoder": "relu_mlp", "hidden": "16", "decoder_hidden": "16", "features": 4,
        "batch_size": 512, "epochs": 2, "report_every": 1, "reconstructions": True, "sheets": True,
    }  # fmt: skip
    return [resolve({**given, "seed": seed, "lr": lr, **changes}) for seed, lr in ((0, 0.01), (1, 0.01), (0, 0.05))]


@cache
def whole() -> tuple[list[Report], list[bytes]]:
    """The reports of a training, and all its checkpoints."""
    saved: list[bytes] = []
    return list(train(members(), HERE, save=saved.append, save_every=0.0)), saved


def pictures_of(report: Report) -> list[dict[str, bytes]]:
    return [dict(member.pictures) for member in report.members]


def test_each_member_of_the_last_report_has_pictures_of_its_own() -> None:
    *earlier, last = whole()[0]
    assert [pictures_of(report) for report in earlier] == [[{}, {}, {}]]
    sheets = [pictures["reconstructions.png"] for pictures in pictures_of(last)]
    assert len(set(sheets)) == 3 and all(Image.open(io.BytesIO(sheet)).format == "PNG" for sheet in sheets)


@pytest.mark.parametrize("width", [1, 2])
def test_a_member_has_the_same_pictures_whatever_is_stacked_with_it(width: int) -> None:
    """Grey levels may differ by the rounding of another stack."""
    (*_, last), (*_, expected) = train(members(), HERE, width=width), whole()[0]
    for pictures, others in zip(pictures_of(last), pictures_of(expected), strict=True):
        own, other = (Image.open(io.BytesIO(sheets["reconstructions.png"])) for sheets in (pictures, others))
        assert own.size == other.size
        assert max(abs(a - b) for a, b in zip(own.tobytes(), other.tobytes(), strict=True)) <= 1


def test_no_checkpoint_has_pictures_and_a_resume_makes_them_again() -> None:
    reports, saved = whole()
    assert len(saved) > 2 and not any(PNG in checkpoint for checkpoint in saved)
    for checkpoint in (saved[0], saved[-1]):
        again = list(train(members(), HERE, resume=checkpoint))
        assert without_seconds(again) == without_seconds(reports) and again[-1].members[0].pictures


def test_members_that_were_not_trained_have_pictures() -> None:
    (report,) = train(members(epochs=0), HERE)
    assert all(pictures.keys() == {"reconstructions.png"} for pictures in pictures_of(report))


def test_neither_a_pruned_member_nor_one_that_diverged_has_pictures_and_the_others_keep_their_own() -> None:
    configs = [*members(), *members(lr=1e30)[:1]]
    *_, last = train(configs, HERE, judge=lambda report: Verdict(pruned={0: "bad luck"}))
    assert [member.status for member in last.members] == ["pruned", "finished", "finished", "diverged"]
    assert [bool(pictures) for pictures in pictures_of(last)] == [False, True, True, False]
    assert pictures_of(last)[1:3] == pictures_of(whole()[0][-1])[1:]


def test_trials_that_ask_for_none_have_none() -> None:
    *_, last = train(members(sheets=False), HERE)
    assert pictures_of(last) == [{}, {}, {}]

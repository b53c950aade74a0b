"""Tasks and messages as they are sent."""

import pickle

from tests.trainables.small import config_of
from trainables.worker.messages import CohortSpec


def test_a_cohort_is_sent_with_shared_values_once_and_arrives_whole() -> None:
    configs = [config_of(seed=seed, lr=0.1) for seed in range(3)]
    spec = CohortSpec.of([config.flat() for config in configs], 2, "c.pt")
    assert spec.own == tuple({"seed": seed} for seed in range(3)) and spec.shared["lr"] == 0.1
    assert pickle.loads(pickle.dumps(spec)).configs() == configs


def test_a_cohort_of_one_shares_all() -> None:
    spec = CohortSpec.of([config_of(seed=7).flat()], 1, "c.pt")
    assert spec.own == ({},) and spec.configs() == [config_of(seed=7)]

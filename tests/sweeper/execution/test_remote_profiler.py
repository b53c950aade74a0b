from sweeper.execution.remote_profiler import announcement
from sweeper.packing.cluster import ProbeRequest
from tests.sweeper.packing.fake_cluster import CORES

CONFIGS = [{"method": "vje"}]


def test_a_measurement_is_announced_with_the_seconds_it_may_take() -> None:
    timed = ProbeRequest(CORES, CONFIGS, seconds=3.0)
    assert announcement([timed]) == "measuring speed and memory of one shape of cohort, for up to 3 s"
    assert announcement([timed, timed]) == "measuring speed and memory of 2 shapes of cohort, for up to 6 s"


def test_sharing_is_announced_and_a_look_at_devices_is_not() -> None:
    assert "share a device" in announcement([ProbeRequest(CORES, CONFIGS, processes=4, widths=[1])])
    assert announcement([ProbeRequest(CORES)]) == ""

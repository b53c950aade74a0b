import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sweeper import cluster
from sweeper.cluster import ClusterError, Slots, check_address


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on this machine that somebody answers at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on this machine that is taken, but nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("address", [None, "local", "auto"])
def test_what_is_no_place_is_not_asked(address: str | None) -> None:
    check_address(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_answers_is_good(scheme: str, listening: int) -> None:
    check_address(f"{scheme}127.0.0.1:{listening}")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_nobody_answers_at_is_refused(scheme: str, closed: int) -> None:
    address = f"{scheme}127.0.0.1:{closed}"
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}: .*refused"):
        check_address(address)


@pytest.mark.parametrize("address", ["", "head", "head:", ":6379", "head:port", "http://head:6379/x", "ray://head"])
def test_a_malformed_address_is_refused_with_the_forms(address: str) -> None:
    with pytest.raises(ClusterError, match="--address must be host:port, ray://host:port, auto or local, but got"):
        check_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "no.such.host.invalid:6379", "a..b:1", f"{'x' * 70}:1"])
def test_an_address_that_cannot_be_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(ClusterError, match="no Ray cluster answers at") as refused:
        check_address(address)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("home", "expected"), [("/tmp", None), ("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T", "/tmp")]
)
def test_rays_sockets_find_room(home: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", home)
    assert cluster._scratch_home() == expected


HERE, AWAY = Slots({"CPU": 1.0}, 4, here=True), Slots({"GPU": 1.0, "CPU": 2.0}, 4, here=False, grows=True)


@pytest.mark.parametrize(("workers", "count"), [(1, 4), (2, 2), (3, 1), (4, 1)])
def test_workers_share_the_places_there_are(workers: int, count: int) -> None:
    for slots in (HERE, AWAY):
        found = slots.of(workers)
        assert (found.count, found.workers) == (count, workers)
        assert (found.resources, found.here) == (slots.resources, slots.here)
    assert (HERE.workers, HERE.count) == (1, 4)


@pytest.mark.parametrize("slots", [HERE, replace(AWAY, grows=False)])
def test_more_workers_than_this_machine_has_room_for_are_refused(slots: Slots) -> None:
    with pytest.raises(ClusterError) as refused:
        slots.of(5)
    assert str(refused.value) == (
        "workers must not exceed the 4 that this machine has GPUs or else cores for, but got workers=5; choose fewer "
        "with --set workers=N, or give a cluster's --address"
    )


def test_workers_have_a_gpu_of_their_own_each() -> None:
    """NCCL connects no two processes on one GPU."""
    shared = replace(AWAY, resources={"GPU": 0.5, "CPU": 1.0})
    assert shared.of(1).workers == 1
    with pytest.raises(ClusterError, match="each of several workers must have a GPU of its own, but got workers=2"):
        shared.of(2)


def test_a_cluster_may_grow_for_one_cohort_of_many_workers() -> None:
    assert (AWAY.of(8).count, AWAY.of(8).workers) == (1, 8)


@pytest.mark.parametrize(
    ("there", "address", "resources", "count"),
    [
        ({"CPU": 0.0}, "host:1", {"GPU": 0.5, "CPU": 0.5}, 2),
        ({"memory": 1e9}, "host:1", {"GPU": 0.5, "CPU": 0.5}, 2),
        ({"CPU": 4.0}, "host:1", {"CPU": 0.5}, 8),
        ({"CPU": 4.0, "GPU": 2.0}, "host:1", {"GPU": 0.5, "CPU": 1.0}, 4),
        ({"CPU": 4.0}, None, {"CPU": 0.5}, 8),
    ],
)
def test_a_cohort_takes_what_the_nodes_have_and_gpus_where_none_has_come_yet(
    there: dict[str, float],
    address: str | None,
    resources: dict[str, float],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    found = cluster.slots(0.5, address)
    assert (found.resources, found.count) == (resources, count)
    assert (found.grows, found.here) == (address is not None, address is None)


def test_asking_imports_no_ray() -> None:
    """Its environment is set when it is used, which is too late once it has been imported."""
    code = "import sys, sweeper.run, sweeper.cluster; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

from __future__ import annotations

import json
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import shared_work
from shared_work import Dying, DyingWorker, Squares, helpers_for_workers, launcher

from cxrlab.core.egress import EgressData
from cxrlab.core.environment import usable_cores
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.workers import Engine, Process, RayWorkers, open_workers


class Unpicklable(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


class Failing:
    def fail(self) -> None:
        raise Unpicklable("a", "b")


def test_a_process_returns_results_and_errors_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    process = Process(Squares)
    assert process.attempt("square", (3,)) == (True, 9)
    done, error = process.attempt("square", (-1,))
    assert not done and isinstance(error, DataError) and "-1" in str(error)
    assert capsys.readouterr().out == ""


def test_an_error_that_cannot_be_sent_keeps_its_message() -> None:
    done, error = Process(Failing).attempt("fail", ())
    assert not done and type(error) is RuntimeError and str(error) == "Unpicklable: ab"


def test_a_worker_that_cannot_be_made_is_an_error_of_its_task() -> None:
    def make() -> None:
        raise ConfigError("no such model")

    done, error = Process(make).attempt("square", (3,))
    assert not done and isinstance(error, ConfigError)


@pytest.mark.parametrize("settings", [{"workers": 2}, {"gpus_per_worker": 1.0}, {"ray_address": "auto"}])
def test_settings_of_ray_need_ray(settings: dict) -> None:
    with pytest.raises(ConfigError, match="--engine ray"):
        Engine(**settings)
    Engine("ray", **settings)


@pytest.mark.parametrize("settings", [{"workers": -1}, {"gpus_per_worker": -0.5}, {"gpus_per_worker": float("nan")}])
def test_impossible_numbers_are_refused(settings: dict) -> None:
    with pytest.raises(ConfigError, match="not usable"):
        Engine("ray", **settings)


def test_models_behind_an_address_need_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://127.0.0.1:8000/v1#m"
    Engine().check_local(address)
    with pytest.raises(ConfigError, match="concurrency"):
        Engine("ray").check_local(address)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="concurrency"):
        Engine().check_local(address)
    with pytest.raises(ConfigError, match="accelerate launch"), open_workers(Squares, Engine("ray")):
        pass


def test_without_an_engine_a_launcher_is_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with open_workers(Squares, None) as workers:
        assert workers is None


def cluster(monkeypatch: pytest.MonkeyPatch, hosts: list[str], **resources: float) -> None:
    """A stand-in for Ray with these machines."""
    nodes = [{"Alive": True, "NodeManagerAddress": host} for host in hosts]
    stand_in = SimpleNamespace(
        is_initialized=lambda: True, nodes=lambda: nodes, cluster_resources=lambda: resources,
        util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1"),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", stand_in)


@pytest.mark.parametrize(
    ("settings", "resources", "workers", "gpus"),
    [
        ({}, {"CPU": 16.0}, 8, 0),
        ({}, {"CPU": 1.0}, 1, 0),
        ({}, {"CPU": 16.0, "GPU": 4.0}, 4, 1),
        ({"gpus_per_worker": 0.5}, {"CPU": 16.0, "GPU": 4.0}, 8, 0.5),
        ({"gpus_per_worker": 2.0}, {"CPU": 16.0, "GPU": 5.0}, 2, 2),
        ({"workers": 3}, {"CPU": 16.0, "GPU": 4.0}, 3, 1),
        ({"workers": 3, "gpus_per_worker": 0.0}, {"CPU": 16.0, "GPU": 1.0}, 3, 0),
    ],
)
def test_there_is_a_worker_per_gpu_or_per_two_cores(
    settings: dict, resources: dict, workers: int, gpus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(monkeypatch, ["10.0.0.1"], **resources)
    started = RayWorkers(Squares, Engine("ray", **settings))
    started.start([], None)
    assert (started.count, started.gpus) == (workers, gpus)


@pytest.mark.parametrize(
    ("settings", "named"), [({"workers": 3}, "3 GPUs"), ({"workers": 17, "gpus_per_worker": 0.0}, "16 cores")]
)
def test_more_workers_than_there_are_gpus_or_cores_are_refused(
    settings: dict, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(monkeypatch, ["10.0.0.1"], CPU=16.0, GPU=2.0)
    with pytest.raises(ConfigError, match=named):
        RayWorkers(Squares, Engine("ray", **settings)).start([], None)


def test_what_ray_would_try_for_minutes_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each of too many workers, and an address at which nothing listens."""
    never = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: pytest.fail("Ray was started"))
    monkeypatch.setitem(sys.modules, "ray", never)
    with pytest.raises(ConfigError, match=f"workers=999 is more than the {usable_cores()} cores"):
        RayWorkers(Squares, Engine("ray", workers=999)).start([], None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(RunError, match=closed):
        RayWorkers(Squares, Engine("ray", ray_address=closed)).start([], None)
    for port in ("99999", "0"):
        with pytest.raises(RunError, match=f"127.0.0.1:{port}"):
            RayWorkers(Squares, Engine("ray", ray_address=f"127.0.0.1:{port}")).start([], None)


def test_patients_data_go_to_other_machines_of_a_cluster_with_a_permission_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster(monkeypatch, ["10.0.0.1", "10.0.0.2"], CPU=16.0)
    workers = RayWorkers(Squares, Engine("ray", ray_address="auto"))
    with pytest.raises(ConfigError, match="10.0.0.2"):
        workers.start([EgressData("patients", synthetic=False)], None)
    workers.start([EgressData("phantom", synthetic=True)], None)
    workers.start([EgressData("patients", synthetic=False)], "Dr. A. Example, data protection officer, protocol 12")


@pytest.mark.full
def test_launched_processes_take_turns_and_the_first_alone_goes_on() -> None:
    script = [*launcher(), shared_work.__file__, "pids"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=200, check=True)
    found = json.loads(done.stdout)
    assert [number for number, _ in found] == [0, 1, 2, 3, 4]
    processes = [pid for _, pid in found]
    assert len(set(processes)) == 2 and processes[0] == processes[2] == processes[4] and processes[1] == processes[3]


@pytest.mark.full
def test_ray_returns_in_order_restarts_workers_and_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    helpers_for_workers(monkeypatch)
    dying = partial(DyingWorker, Squares, tmp_path / "killed", 3)
    with open_workers(dying, Engine("ray", workers=2)) as workers:
        assert isinstance(workers, RayWorkers)
        workers.start([], None)
        assert list(workers.map("square", ((n,) for n in range(20)))) == [n * n for n in range(20)]
        assert (tmp_path / "killed").exists()
        found = workers.map("square", ((n,) for n in (1, 2, -3, 4)))
        assert [next(found), next(found)] == [1, 4]
        with pytest.raises(DataError, match="-3"):
            next(found)
        assert workers.call("square", 5) == 25
    with open_workers(Dying, Engine("ray", workers=1)) as workers:
        assert workers is not None
        workers.start([], None)
        with pytest.raises(RunError, match="4 times"):
            workers.call("square", 5)
    assert capsys.readouterr().out == ""  # where a command prints its result

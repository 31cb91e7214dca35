"""Workers that share the work of one command: actors of Ray, or the processes that Accelerate's launcher started.

The first process plans the tasks, receives the results in order and writes every file; workers write none. A task is what
a run of one process computes together (a batch), so that its result is the same wherever it is computed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pickle
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.egress import EgressData, check_egress
from cxrlab.core.environment import require, usable_cores
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.out_of_memory import exhausted_memory

RESTARTS = 3  # of each worker that dies, before the command gives up
AHEAD = 4  # tasks per worker that are begun before the result whose turn it is
CORES = 2  # per worker on a machine without GPUs
_STORE = 1 << 28  # bytes of Ray's object store on this machine; tasks are names, results are texts
_PATIENCE = 10.0  # seconds until a cluster answers
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Engine:
    """Where the work of a command is done; the settings of the flags of the same names."""

    engine: Literal["local", "ray"] = "local"
    workers: int = 0  # 0: one per GPU, or one per two cores
    gpus_per_worker: float | None = None
    ray_address: str | None = None

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ConfigError(f"workers={self.workers} is not usable; give a whole number of at least 0.")
        if self.gpus_per_worker is not None and not 0 <= self.gpus_per_worker < float("inf"):
            raise ConfigError(f"gpus_per_worker={self.gpus_per_worker} is not usable; give 0, 0.5, 1, 2 …")
        given = [
            f"--{name.replace('_', '-')}"
            for name in ("workers", "gpus_per_worker", "ray_address")
            if getattr(self, name)
        ]
        if self.engine == "local" and given:
            raise ConfigError(f"{' and '.join(given)} need --engine ray; without it one process does all the work.")

    def check_local(self, model: str) -> None:
        """Refuse a model behind an address: its requests are sent side by side without workers."""
        if model.startswith(("http://", "https://")) and (self.engine != "local" or launched_processes() > 1):
            raise ConfigError(
                f"'{model.partition('?')[0]}' is behind an address, and workers are for models on this machine; leave out "
                "--engine and the launcher, and set --loading.connection.concurrency."
            )


def launched_processes() -> int:
    """Processes that a launcher such as `accelerate launch` started together; 1 without one."""
    return int(os.environ.get("WORLD_SIZE") or 1)


class Workers(ABC):
    """Processes with one worker each, which `make` returns in them when the first task arrives."""

    @abstractmethod
    def start(self, data: Iterable[EgressData], permission: str | None) -> None:
        """Start the processes; a `ConfigError` where these data may not be sent to their machines."""

    @abstractmethod
    def map(self, method: str, tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What `worker.method(*task)` returns for each task, in order; tasks are read as they are needed.

        An error of the worker is raised at the turn of its task.
        """

    @abstractmethod
    def close(self) -> None:
        """End the processes."""

    def call(self, method: str, *task: Any) -> Any:
        """What one worker returns for one task."""
        return list(self.map(method, [task]))[0]


@contextmanager
def open_workers(make: Callable[[], Any], engine: Engine | None) -> Iterator[Workers | None]:
    """The workers of a command; None where this process does all the work.

    In a launched process other than the first, this serves the first process and then ends the process.

    Args:
        make: Returns the worker; it must be importable by name in another process.
        engine: None where neither flags nor a launcher are heeded.
    """
    workers: Workers
    if engine is not None and engine.engine == "ray":
        if launched_processes() > 1:
            raise ConfigError("--engine ray starts its workers itself; run the command without 'accelerate launch'.")
        require("scale")
        workers = RayWorkers(make, engine)
    elif engine is not None and launched_processes() > 1:
        workers = LaunchedWorkers(make)
    else:
        yield None
        return
    # Ray reports workers that die on the standard output, which belongs to the result.
    shown, hidden = (sys.stderr, io.StringIO()) if isinstance(workers, RayWorkers) else (sys.stdout, sys.stdout)
    with contextlib.redirect_stdout(shown):
        try:
            yield workers
        finally:
            with contextlib.redirect_stdout(hidden):  # those that end here are no news
                workers.close()


class Process:
    """One process with its worker."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._worker = make, None

    def attempt(self, method: str, task: tuple[Any, ...]) -> tuple[bool, Any]:
        """(True, result) or (False, error) of `worker.method(*task)`; the first process alone prints."""
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                if self._worker is None:
                    self._worker = self._make()
                return True, getattr(self._worker, method)(*task)
            except Exception as error:
                failed = _portable(error)
            # Only outside `except` are the error and the frames that hold its tensors gone.
            if exhausted_memory(failed):
                gc.collect()
                if torch := sys.modules.get("torch"):
                    torch.cuda.empty_cache()
            return False, failed


def _portable(error: Exception) -> Exception:
    """The error, or one with the same message where it cannot be sent to another process."""
    try:
        copied: Exception = pickle.loads(pickle.dumps(error))
        return copied
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _result(outcome: tuple[bool, Any]) -> Any:
    done, value = outcome
    if done:
        return value
    raise value


class RayWorkers(Workers):
    """Actors of Ray, on this machine or in a running cluster; Ray starts those that die again and repeats their task."""

    def __init__(self, make: Callable[[], Any], engine: Engine) -> None:
        self._make, self._engine = make, engine
        self._actors: list[Any] = []
        self._abandoned = False
        self._started = False  # whether Ray was started here
        self._ray: Any = None

    def start(self, data: Iterable[EgressData], permission: str | None) -> None:
        """Connect to Ray, and start the actors."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
        self._ray = ray = importlib.import_module("ray")
        address, asked = self._engine.ray_address, self._engine.workers
        if not ray.is_initialized():
            more: dict[str, Any] = {"address": address}
            if address is None:
                # Before Ray starts a process for each.
                if asked > usable_cores():
                    raise ConfigError(f"workers={asked} is more than the {usable_cores()} cores of this machine.")
                more = {
                    "address": "local", "num_cpus": usable_cores(), "include_dashboard": False,
                    "object_store_memory": _STORE, "_node_ip_address": "127.0.0.1",
                }  # fmt: skip
            try:
                _check_reachable(address)
                ray.init(log_to_driver=False, logging_level="ERROR", **more)
            except (OSError, ValueError, RuntimeError) as error:
                where = "on this machine" if address is None else f"at --ray-address {address}"
                raise RunError(f"Ray cannot be started or reached {where} ({_short(error)}).") from error
            self._started = True
        own = ray.util.get_node_ip_address()
        for node in ray.nodes():
            if node["Alive"] and (host := node["NodeManagerAddress"]) not in (own, "127.0.0.1"):
                check_egress(f"http://{host}", data, permission)
        resources = ray.cluster_resources()
        gpus = resources.get("GPU", 0.0)
        share = self._engine.gpus_per_worker
        self.gpus = share = min(1.0, gpus) if share is None else share
        self.count = asked or int(gpus // share if share else (resources.get("CPU", 1) // CORES)) or 1
        if self.count * share > gpus:
            raise ConfigError(
                f"workers={self.count} with gpus_per_worker={share:g} need {self.count * share:g} GPUs, and Ray has "
                f"{gpus:g}; give fewer --workers, or --gpus-per-worker 0 for the CPU."
            )
        if self.count > resources.get("CPU", 0):
            raise ConfigError(f"workers={self.count} is more than the {resources.get('CPU', 0):g} cores of Ray.")

    def map(self, method: str, tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """By a pool of actors, each with one task at a time."""
        pool = importlib.import_module("ray.util").ActorPool(self._start_actors())
        waiting, outcomes = iter(tasks), dict[int, tuple[bool, Any]]()
        begun = turn = 0
        more = True
        try:
            while True:
                while more and begun - turn < AHEAD * self.count:
                    if (task := next(waiting, None)) is None:
                        more = False
                        break
                    pool.submit(lambda actor, order: actor.attempt.remote(*order), (begun, method, task))
                    begun += 1
                if turn in outcomes:
                    turn += 1
                    yield _result(outcomes.pop(turn - 1))
                elif turn == begun:
                    return
                else:
                    number, *outcome = self._next(pool)
                    outcomes[number] = (outcome[0], outcome[1])
        finally:
            self._abandoned = turn < begun  # tasks are under way that nobody waits for

    def _next(self, pool: Any) -> tuple[int, bool, Any]:
        try:
            found: tuple[int, bool, Any] = pool.get_next_unordered()
            return found
        except self._ray.exceptions.RayError as error:
            raise RunError(
                f"a worker of Ray ended {RESTARTS + 1} times at the same work ({_short(error)}); everything finished so far "
                "is kept. Give fewer --workers if memory ran out, and run the command again to continue."
            ) from error

    def _start_actors(self) -> list[Any]:
        if self._abandoned:
            self._end_actors()
        if not self._actors:
            kind = self._ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS)(
                _RayActor
            )
            threads = os.environ.get(_THREADS) or str(usable_cores())
            self._actors = [kind.remote(self._make, threads, str(Path.cwd())) for _ in range(self.count)]
        return self._actors

    def _end_actors(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._abandoned = [], False

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        if self._ray is not None and self._ray.is_initialized():
            self._end_actors()
            if self._started:
                self._ray.shutdown()


class _RayActor:
    """What an actor of Ray runs."""

    def __init__(self, make: Callable[[], Any], threads: str, folder: str) -> None:
        os.environ[_THREADS] = threads  # as in a run of one process: their number may change the last bit of a sum
        os.chdir(folder)  # paths of settings may be relative
        self._process = Process(make)

    def attempt(self, number: int, method: str, task: tuple[Any, ...]) -> tuple[int, bool, Any]:
        """The number of the task, and its outcome."""
        return number, *self._process.attempt(method, task)


def _check_reachable(address: str | None) -> None:
    """An `OSError` where nothing answers at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}{' …' if len(text) > 200 else ''}"


class LaunchedWorkers(Workers):
    """The processes of `accelerate launch`: in each round every process does one task, the first one included."""

    def __init__(self, make: Callable[[], Any]) -> None:
        require("models")
        import torch
        from torch import distributed

        self._process, self._distributed = Process(make), distributed
        self._together = True  # whether all processes are at the same round
        # A task may take hours.
        distributed.init_process_group("gloo", timeout=timedelta(days=2))
        self._count = distributed.get_world_size()
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if distributed.get_rank():
            self._serve()

    def start(self, data: Iterable[EgressData], permission: str | None) -> None:
        """They run already; those on other machines are checked."""
        if int(os.environ.get("LOCAL_WORLD_SIZE") or self._count) < self._count:
            check_egress(f"http://{os.environ['MASTER_ADDR']}", data, permission)

    def map(self, method: str, tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """In rounds."""
        waiting = iter(tasks)
        while some := list(islice(waiting, self._count)):
            self._together = False
            outcomes = self._round([*((method, task) for task in some), *[None] * (self._count - len(some))])
            self._together = True
            yield from map(_result, outcomes[: len(some)])

    def close(self) -> None:
        """Let the other processes end; those that a failed round left behind are ended by the launcher."""
        if self._together:
            self._scatter([False] * self._count)
            self._distributed.destroy_process_group()

    def _round(self, orders: list[Any]) -> list[Any]:
        outcome, found = self._attempt(self._scatter(orders)), [None] * self._count
        self._distributed.gather_object(outcome, found)
        return found

    def _serve(self) -> None:
        """Do tasks until there are no more, and end the process."""
        while (order := self._scatter(None)) is not False:
            self._distributed.gather_object(self._attempt(order))
        self._distributed.destroy_process_group()
        raise SystemExit(0)

    def _scatter(self, orders: list[Any] | None) -> Any:
        """The order of this process: a method with its task, None for nothing in this round, False for the end."""
        own: list[Any] = [None]
        self._distributed.scatter_object_list(own, orders)
        return own[0]

    def _attempt(self, order: tuple[str, tuple[Any, ...]] | None) -> tuple[bool, Any] | None:
        return None if order is None else self._process.attempt(*order)

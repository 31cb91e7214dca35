"""Plans: time, memory, disk and cost of a run on this machine, found before the run writes anything."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cxrlab.core.environment import usable_cores
from cxrlab.core.json_values import plain
from cxrlab.core.jsonl import read_jsonl


@dataclass(frozen=True)
class Work:
    """One kind of item that a run works through.

    Args:
        count: Items of the whole run.
        done: Of these, those that RUN already has.
        seconds_each: Per item; None where no time is known.
        once_s: What happens once, beside the items: kernels are chosen, graphs captured.
        measured: Items that were timed; 0 where `seconds_each` is an estimate, or None.
        prompt_tokens: Of all requests to a language model that are left; estimated from their texts.
        answer_tokens: At most, of the answers to these requests.
        price: Of these tokens, by the prices of the settings; None without prices.
        at_once: Items that run at the same time.
    """

    name: str
    unit: str
    count: int
    seconds_each: float | None = None
    done: int = 0
    once_s: float = 0.0
    measured: int = 0
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    price: float | None = None
    at_once: int = 1

    @property
    def left(self) -> int:
        """Items that the run still has to do."""
        return max(0, self.count - self.done)

    @property
    def seconds(self) -> float | None:
        """Of the items that are left; None where no time is known."""
        if not self.left:
            return 0.0
        if self.seconds_each is None:
            return None
        return self.once_s + self.seconds_each * self.left / self.at_once

    def times(self, runs: int, prefix: str = "") -> Work:
        """The same in so many runs."""

        def all_runs(value: int | None) -> int | None:
            return None if value is None else value * runs

        return replace(
            self,
            name=f"{prefix}{self.name}",
            count=self.count * runs,
            done=self.done * runs,
            once_s=self.once_s * runs,
            prompt_tokens=all_runs(self.prompt_tokens),
            answer_tokens=all_runs(self.answer_tokens),
            price=None if self.price is None else self.price * runs,
        )


@dataclass(frozen=True)
class Hardware:
    """Where a plan was measured, and the peak memory of the measurement; sizes in GB, None where not known."""

    device: str
    cores: int
    memory_gb: float | None = None  # peak of this process
    gpu_memory_gb: float | None = None  # peak of torch on the GPU
    gpu_gb: float | None = None  # memory of that GPU

    @classmethod
    def now(cls) -> Hardware:
        """This machine, with the peaks of this process so far."""
        cores, torch = usable_cores(), sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return cls("CPU", cores, _peak_memory_gb())
        peak, whole = torch.cuda.max_memory_reserved() / 1e9, torch.cuda.mem_get_info()[1] / 1e9
        return cls(torch.cuda.get_device_name(), cores, _peak_memory_gb(), peak, whole)


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Args:
        command: Without `cxrlab`.
        hardware: Where it was measured; None for a plan that is estimated from sizes alone.
        estimated_gb: Memory by the estimate that the run checks before it starts, where it has one.
        disk_gb: What the run writes; None where not known.
        facts: Other numbers worth knowing, by name.
        left_out: What the numbers do not include, one sentence each.
    """

    command: str
    work: tuple[Work, ...]
    hardware: Hardware | None = field(default_factory=Hardware.now)
    estimated_gb: float | None = None
    disk_gb: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all work whose time is known."""
        return sum(one.seconds or 0.0 for one in self.work)

    @property
    def untimed(self) -> tuple[str, ...]:
        """Work whose time is not known."""
        return tuple(one.name for one in self.work if one.seconds is None)

    @property
    def requests(self) -> int:
        """Requests to language models and to models behind an address that are left."""
        return sum(one.left for one in self.work if one.unit == "request")

    @property
    def price(self) -> float | None:
        """Of all requests at most; None where no price is given."""
        prices = [one.price for one in self.work if one.price is not None]
        return sum(prices) if prices else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, sums included."""
        work = [{**vars(one), "left": one.left, "seconds": one.seconds} for one in self.work]
        sums = {"seconds": self.seconds, "requests": self.requests, "price": self.price, "untimed": self.untimed}
        found: dict[str, Any] = plain({**vars(self), "work": work, **sums})
        return found


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for the files of a measurement, so that nothing is written to RUN."""
    with tempfile.TemporaryDirectory(prefix="cxrlab-plan-") as folder:
        yield Path(folder)


def from_two_sizes(seconds: Callable[[int], float], few: int, more: int, count: int) -> tuple[float, float, int]:
    """Seconds per item, what does not grow with the items, and items measured; by `seconds` of so many items."""
    few, more = min(few, count), min(more, count)
    if more == few:
        return seconds(more) / max(more, 1), 0.0, more
    first, longer = seconds(few), seconds(more)
    each = max(0.0, longer - first) / (more - few)
    return each, max(0.0, longer - each * more), more


def count_lines(run: Path | None, name: str) -> int:
    """Records of a `.jsonl` file that a begun run has."""
    file = None if run is None else run / name
    return sum(1 for _ in read_jsonl(file)) if file is not None and file.is_file() else 0


def _peak_memory_gb() -> float | None:
    """Peak resident memory of this process; None where the system does not report it."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = status.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM:")), None)

"""Plan a run of `generate`: its time and memory on this machine, measured on a few of its studies before anything is written."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.records import Prediction
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import MissingReport, plan_batches, prepare, read_cache, sample_ids


@dataclass(frozen=True)
class GenerationPlan:
    """What a run of `generate` will take.

    Args:
        seconds: Of the whole run; the first batch at its own time, the others at that of the second.
        studies_per_second: Of the second batch.
    """

    model: str
    studies: int  # images where `unit` is image
    control_reports: int  # reports of control images, at most
    measured: int  # studies of both batches
    batch_size: int  # the largest that fits in memory, up to the requested one
    first_batch_s: float  # with what happens once: kernels are chosen, graphs captured
    studies_per_second: float
    seconds: float
    mean_tokens: float | None  # per report measured; None where the model does not report them
    memory_gb: float | None  # peak of this process; None where the system does not report it
    gpu_memory_gb: float | None  # peak of torch on the GPU; None without one
    gpu_gb: float | None  # memory of that GPU
    gpu: str | None
    cache: str | None  # as in `Generation`


def plan_generation(config: GenerateConfig) -> GenerationPlan:
    """Generate two batches of the run and discard them.

    A model behind an address is refused: every request may cost money.
    """
    ready = prepare(config)
    model, images = ready.generator.model, ready.images
    if model.capabilities.black_box:
        controls = min(len(ready.ids), config.control_studies) * len(config.controls)
        raise ConfigError(
            f"--plan measures, and every request to '{model.name}' may cost money; without it {len(ready.ids):,} requests "
            f"are sent for the studies and up to {controls:,} for control images. Try --n 20 first."
        )
    answers: list[Prediction] = []
    missing: list[MissingReport] = []

    def measure(size: int) -> list[tuple[int, float]]:
        """Studies and seconds of two batches, from all over the run."""
        answers.clear()
        missing.clear()
        found = []
        some = sample_ids(ready.ids, 2 * size, config.seed)
        for batch, _ in plan_batches(images, some, size, window=size):
            start = time.perf_counter()
            outcomes = [outcome for _, outcome in next(ready.generator.outcomes(images, [batch]))]
            found.append((len(batch), time.perf_counter() - start))
            answers.extend(one for one in outcomes if isinstance(one, Prediction))
            missing.extend(one for one in outcomes if isinstance(one, MissingReport))
        return found

    size = BatchSize(config.batch_size)
    batches = size.retry(measure, len(ready.ids))
    if not answers:
        raise DataError(
            f"no time can be measured: none of {len(missing)} studies got a report (for example: {missing[0].reason})"
        )
    control_reports = min(len(ready.ids), config.control_studies) * len(config.controls)
    (first, first_s), (last, last_s) = batches[0], batches[-1]
    left = len(ready.ids) + control_reports - first
    tokens = [count for one in answers if (count := one.confidence.get("tokens")) is not None]
    gpu_memory_gb, gpu_gb, gpu = _gpu()
    return GenerationPlan(
        model=config.model,
        studies=len(ready.ids),
        control_reports=control_reports,
        measured=sum(count for count, _ in batches),
        batch_size=size.current,
        first_batch_s=first_s,
        studies_per_second=last / last_s,
        seconds=first_s + left * last_s / last,
        mean_tokens=sum(tokens) / len(tokens) if tokens else None,
        memory_gb=_peak_memory_gb(),
        gpu_memory_gb=gpu_memory_gb,
        gpu_gb=gpu_gb,
        gpu=gpu,
        cache=read_cache(model),
    )


def _peak_memory_gb() -> float | None:
    """Peak resident memory of this process; None where the system does not report it."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = status.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM:")), None)


def _gpu() -> tuple[float | None, float | None, str | None]:
    """Peak memory on the current GPU, its memory, both in GB, and its name; None without one, or without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None, None, None
    return torch.cuda.max_memory_reserved() / 1e9, torch.cuda.mem_get_info()[1] / 1e9, torch.cuda.get_device_name()

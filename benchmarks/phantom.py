"""Phantom images per second, rendered only and written to disk; the cost of a lateral image; memory by corpus size.

    python benchmarks/phantom.py [--n 1000] [--size 224] [--grow 500 2000]

For comparison, Pillow writes the same images as PNG with its default settings. If rendering an image costs only a few
times as much as storing it, images need not be stored.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from cxrlab.core.vocabulary import View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.parallel import ordered_map, worker_count
from cxrlab.data.phantom.corpus import PatientVisits, make_phantom, patients_with_visits
from cxrlab.data.phantom.render import PhantomPatient, render, render_lateral
from cxrlab.findings.simulated_patients import draw_patient

FLOOR = 100.0  # target: studies per second on two cores


def draw(config: PhantomConfig, order: PatientVisits) -> int:
    """Render one patient's images and masks without keeping them; returns the number of studies."""
    case = draw_patient(config.seed, order.patient)
    for visit in case.visits[: order.visits]:
        phantom_patient = PhantomPatient(config.seed, case.patient, visit.sex, case.visits[0].age)
        render(phantom_patient, visit.number, visit.view, visit.findings, config.size, config.preset, config.masks)
    return order.visits


def drawing_rate(config: PhantomConfig) -> float:
    """Studies per second, with images and masks, on all cores."""
    start = time.perf_counter()
    count = sum(ordered_map(partial(draw, config), patients_with_visits(config), config.workers, ahead=64))
    return count / (time.perf_counter() - start)


@dataclass(frozen=True)
class Cost:
    """Cost of one corpus: wall seconds, CPU seconds of all processes, peak MiB of the process that writes the corpus."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def lateral_ratio(size: int, visits: int = 100) -> float:
    """Seconds to render lateral images over seconds to render the frontal ones of the same visits, without masks."""
    seconds = [0.0, 0.0]
    for number in range(visits):
        case = draw_patient(7, f"p{number:06d}")
        visit = case.visits[0]
        patient = PhantomPatient(7, case.patient, visit.sex, visit.age)
        start = time.process_time()
        render(patient, 1, visit.view, visit.findings, size, masks=False)
        middle = time.process_time()
        render_lateral(patient, 1, visit.findings, size)
        seconds[0] += middle - start
        seconds[1] += time.process_time() - middle
    return seconds[1] / seconds[0]


def writing(config: PhantomConfig) -> Cost:
    """Make a corpus on disk in a separate process, to measure its memory alone."""
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_make, config, Path(folder) / "corpus").result()


def _make(config: PhantomConfig, folder: Path) -> Cost:
    start = time.perf_counter()
    make_phantom(config, folder)
    wall = time.perf_counter() - start
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(wall, sum(u.ru_utime + u.ru_stime for u in use), use[0].ru_maxrss / 1024)


def pillow_rate(size: int, seconds: float = 2.0) -> float:
    """Images per second that one core writes as PNG with Pillow's defaults."""
    image = render(PhantomPatient(1, "p", "M", 60.0), 1, View.PA, [], size, masks=False).image
    pil_image = Image.fromarray(np.rint(image * 255).astype(np.uint8))
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        pil_image.save(io.BytesIO(), "PNG")
        count += 1
    return count / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--grow", type=int, nargs="*", default=[500, 2000])
    args = parser.parse_args()
    config = PhantomConfig(n=args.n, size=args.size, seed=7)
    cores = worker_count(0)
    rendered = drawing_rate(config)
    pillow = pillow_rate(args.size) * cores
    print(f"{args.n} studies of {args.size} px with masks on {cores} cores")
    print(f"rendered: {rendered:7.1f} studies per second, {rendered / FLOOR:.2f} x the target of {FLOOR:.0f}")
    print(
        f"Pillow:   {pillow:7.1f} images per second written as PNG; rendering costs {pillow / rendered:.2f} x writing"
    )
    print(f"lateral:  rendering costs {lateral_ratio(args.size):.2f} x that of the frontal image of the same visit")
    print(f"{'studies':>9s} {'per second':>11s} {'CPU ms per study':>17s} {'peak MiB':>9s}")
    for n in sorted({args.n, *args.grow}):
        cost = writing(PhantomConfig(n=n, size=args.size, seed=7))
        print(f"{n:9d} {n / cost.wall_s:11.1f} {1000 * cost.cpu_s / n:17.2f} {cost.peak_mib:9.0f}", flush=True)
    cost = writing(PhantomConfig(n=args.n, size=args.size, seed=7, lateral=True))
    print(f"with a lateral image of each of {args.n} studies:")
    print(f"{args.n:9d} {args.n / cost.wall_s:11.1f} {1000 * cost.cpu_s / args.n:17.2f} {cost.peak_mib:9.0f}")


if __name__ == "__main__":
    main()

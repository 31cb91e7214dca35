"""Phantom films a second: drawn only, and written to disk; memory and cost as the corpus grows.

    python benchmarks/phantom.py [--n 1000] [--size 224] [--grow 500 2000]

The peer is Pillow, which writes the same films as PNG at its default settings in the same run: a
film that is drawn for less than a few times the price of storing it never needs to be stored.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import resource
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from cxrlab.data.config import PhantomConfig
from cxrlab.data.parallel import ordered_map, worker_count
from cxrlab.data.phantom.corpus import Order, make_phantom, orders
from cxrlab.data.phantom.render import Sitter, render
from cxrlab.findings.cases import draw_patient

FLOOR = 100.0  # studies a second on two cores that the project promises


def draw(config: PhantomConfig, order: Order) -> int:
    """Render one patient's films and masks and keep nothing."""
    case = draw_patient(config.seed, order.patient)
    for visit in case.visits[: order.visits]:
        sitter = Sitter(config.seed, case.patient, visit.sex, case.visits[0].age)
        render(sitter, visit.number, visit.view, visit.findings, config.size, config.preset, config.masks)
    return order.visits


def drawing_rate(config: PhantomConfig) -> float:
    """Studies a second, films and masks, all cores."""
    start = time.perf_counter()
    count = sum(ordered_map(partial(draw, config), orders(config), config.workers, ahead=64))
    return count / (time.perf_counter() - start)


def writing(config: PhantomConfig) -> tuple[float, float]:
    """Studies a second with everything on disk, and the peak memory of the process in MiB.

    In a process of its own, so that the peak is this corpus's alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            peak = pool.apply(_make, (config, folder))
        return config.n / (time.perf_counter() - start), peak


def _make(config: PhantomConfig, folder: str) -> float:
    # A pool's worker may not have children of its own unless it says that it is no daemon.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    make_phantom(config, Path(folder) / "corpus")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pillow_rate(size: int, seconds: float = 2.0) -> float:
    """Films a second that one core writes as PNG with Pillow's defaults."""
    film = render(Sitter(1, "p", "M", 60.0), 1, _view(), [], size, masks=False).image
    picture = Image.fromarray(np.rint(film * 255).astype(np.uint8))
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        picture.save(io.BytesIO(), "PNG")
        count += 1
    return count / (time.perf_counter() - start)


def _view():  # noqa: ANN202
    from cxrlab.core.vocabulary import View

    return View.PA


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--grow", type=int, nargs="*", default=[500, 2000])
    args = parser.parse_args()
    config = PhantomConfig(n=args.n, size=args.size, seed=7)
    cores = worker_count(0)
    drawn = drawing_rate(config)
    peer = pillow_rate(args.size) * cores
    print(f"{args.n} studies of {args.size} px with masks, {cores} cores; free disk {shutil.disk_usage('/').free >> 30} GiB")
    print(f"drawn:    {drawn:7.1f} studies a second, {drawn / FLOOR:.2f} x the promised {FLOOR:.0f}")
    print(f"Pillow:   {peer:7.1f} films a second written as PNG; drawing takes {peer / drawn:.2f} x as long")
    print(f"{'studies':>9s} {'a second':>9s} {'peak MiB':>9s}   written: films, masks, reports")
    for n in sorted({args.n, *args.grow}):
        rate, peak = writing(PhantomConfig(n=n, size=args.size, seed=7))
        print(f"{n:9d} {rate:9.1f} {peak:9.0f}", flush=True)


if __name__ == "__main__":
    main()

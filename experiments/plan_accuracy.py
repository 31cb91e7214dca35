"""Predicted and real processor seconds of small runs on a CPU: fine-tuning, an audit, an extraction.

    python experiments/plan_accuracy.py [--n 80] [--size 128] [--out FOLDER] [--only finetune,robustness,extract,score]

On N phantoms. One thread, and processor seconds in place of the clock, so that other work on the machine does not count; memory
is the peak of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "score": "score --references {data} --predictions {out}/normal",
    "finetune": "train finetune --start builtin:reporter --data {data} --optimisation.batch-size 4 "
    "--optimisation.steps 16 --validation.n 0 --optimisation.workers 0",
    "robustness": "robustness --model builtin:reporter --data {data} --split test --n 8 --attacks pgd --eps 2/255 "
    "--aims report --attack.steps 8 --batch-size 4 --control-studies 4 --triptychs 0 --trials 100",
    "extract": "extract --victim builtin:reporter --data {data} --n 12 --method ada-steal --pool scenes --budget 32 "
    "--rounds 2 --batch-size 8 --fitting.steps 16 --fitting.batch-size 8 --alignment.steps 4 --map-sentences 0 "
    "--victim-decoding.strategy greedy --surrogate-decoding.strategy greedy --victim-decoding.max-new-tokens 128 "
    "--surrogate-decoding.max-new-tokens 128",
}
INNER = """
import json, resource, sys, time

def spent():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
time.perf_counter = spent
from cxrlab.cli.main import main
start = spent()
code = main(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
json.dump({"seconds": spent() - start, "memory_gb": peak, "code": code}, open(sys.argv[1], "w"))
"""


def run(words: list[str], note: Path) -> tuple[dict[str, float], str]:
    """Processor seconds and peak memory of one command, and what it printed."""
    limits = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-c", INNER, str(note), *words], env={**os.environ, **limits}, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    found = json.loads(note.read_text())
    if found["code"]:
        raise SystemExit(f"cxrlab {' '.join(words)} ended with {found['code']}")
    return found, done.stdout


def main() -> None:
    """Plan and run each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=80)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("plan_accuracy"))
    parser.add_argument("--only", default=",".join(COMMANDS))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data, note = given.out / "data", given.out / "note"
    run(["data", "make", "phantom", "--n", str(given.n), "--size", str(given.size), "--workers", "1", "--no-masks",
         "--out", str(data), "--quiet"], note)  # fmt: skip
    if "score" in given.only:
        run(["generate", "--model", "stub:normal", "--data", str(data), "--split", "train", "--control-studies", "0",
             "--out", str(given.out / "normal"), "--quiet"], note)  # fmt: skip
    for name in given.only.split(","):
        words = COMMANDS[name].format(data=data, out=given.out).split()
        stamp = given.out / f"{name}_{time.time_ns()}"
        planning, text = run([*words, "--plan", "--json", "--quiet"], stamp.with_suffix(".plan"))
        plan = json.loads(text)
        real, _ = run([*words, "--out", str(stamp), "--quiet"], stamp.with_suffix(".real"))
        print(
            f"{name}: planned {plan['seconds']:.0f} s, took {real['seconds']:.0f} s (ratio "
            f"{plan['seconds'] / real['seconds']:.2f}); memory {plan['hardware']['memory_gb']:.2f} GB planned, "
            f"{real['memory_gb']:.2f} GB taken; the plan took {planning['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

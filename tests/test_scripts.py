"""Every experiment and benchmark runs on a small size."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "experiments/case_study_iu.py": ("--rehearse",),
    "experiments/burned_in_text.py": ("--n", "3", "--sizes", "192"),
    "experiments/image_hashes.py": ("--n", "6"),
    "experiments/guarded_server.py": ("--rehearse", "--out", "guarded"),
    "experiments/input_defence_cost.py": ("--phantoms", "80", "--n", "2", "--data", "drawn"),
    "experiments/interval_coverage.py": ("--pool", "40", "--runs", "4", "--patients", "5", "10", "--trials", "50"),
    "experiments/lateral_information.py": ("--n", "80", "--size", "32", "--epochs", "1", "--seeds", "1"),
    "experiments/learnability.py": ("--n", "60", "--size", "32", "--epochs", "1", "--batch", "32", "--shifted"),
    "experiments/openi_agreement.py": ("--root", str(ROOT / "tests/findings/cases/openi"), "--disagreements", "5"),
    "experiments/plan_accuracy.py": ("--n", "24", "--size", "32", "--only", "score"),
    "experiments/pointing_game.py": (
        "--model",
        "untrained",
        "--report",
        "reference",
        "--n",
        "40",
        "--trials",
        "20",
        "--kinds",
    ),  # fmt: skip
    "experiments/prior_and_lateral.py": (
        "--n",
        "60",
        "--start-steps",
        "1",
        "--steps",
        "1",
        "--seeds",
        "1",
        "--arms",
        "frontal + prior report",
        "--out",
        "prior",
    ),  # fmt: skip
    "experiments/radpref_reader.py": ("--root", str(ROOT / "tests/evaluation/cases/radpref"), "--trials", "20"),
    "experiments/radpref_weights.py": ("--root", str(ROOT / "tests/evaluation/cases/radpref"), "--folds", "2"),
    "experiments/readback.py": ("--n", "30", "--lexicon", "A"),
    "experiments/retrieval_features.py": ("--n", "60"),
    "experiments/robustness_figures.py": ("--rehearse", "--out", "images"),
    "experiments/scale_arithmetic.py": (),
    "experiments/structuring_rules.py": ("--n", "20", "--show", "3"),
    "experiments/view_from_image.py": ("--phantoms", "4"),
    "experiments/sections_roundtrip.py": ("--root", str(ROOT / "tests/data/sections/openi")),
    "experiments/builtin_scores.py": ("--rehearse", "--out", "scores"),
    "experiments/build_builtin.py": ("general", "encoder", "reporter", "--rehearse", "--weights", "weights"),
    "experiments/localisation.py": ("--rehearse", "--vision-encoder", "fresh:tiny", "--out", "localisation"),
    "experiments/iu_xray.py": (
        "--rehearse",
        "--encoder",
        "fresh:phantom",
        "--language-model",
        "fresh:phantom",
        "--before",
        "stub:empty",
    ),  # fmt: skip
    "benchmarks/attack_memory.py": ("--tiny",),
    "benchmarks/attack_speed.py": ("--tiny", "--steps", "3"),
    "benchmarks/family_speed.py": ("--tiny",),
    "benchmarks/finetune_speed.py": ("--tiny",),
    "benchmarks/generation_speed.py": ("--tiny",),
    "benchmarks/imports.py": ("--n", "20"),
    "benchmarks/llava_rad_7b.py": ("--tiny",),
    "benchmarks/install.py": ("--plan",),
    "benchmarks/phantom.py": ("--n", "8", "--size", "32", "--grow"),
    "benchmarks/preference_speed.py": ("--tiny",),
    "benchmarks/reader.py": ("--n", "10"),
    "benchmarks/rouge.py": ("--n", "20"),
    "benchmarks/scale.py": ("--largest", "100", "--work", "score,adaptive,shards"),
    "benchmarks/scoring.py": ("--n", "6"),
    "benchmarks/sections.py": ("--n", "5"),
    "benchmarks/serving.py": ("--rehearse",),
    "benchmarks/structuring.py": ("--n", "40", "--median-s", "0.02"),
    "benchmarks/significance.py": (
        "--n",
        "30",
        "--trials",
        "500",
        "--recounted",
        "5",
        "--metrics",
        "3",
        "--pairs",
        "40",
    ),
}
EXPECTED = {
    "experiments/case_study_iu.py": "| one normal report | severe | constant | 1 |",
    "experiments/burned_in_text.py": "| shifted | 192 |",
    "experiments/image_hashes.py": "| cxrlab (waves, 256 bits) |",
    "experiments/guarded_server.py": "| knockoff | 20 | 16 |",
    "experiments/input_defence_cost.py": "random-resample:0.5 | ",
    "experiments/interval_coverage.py": "| 10 | ",
    "experiments/lateral_information.py": "| opacity of the lower zone, hidden there | ",
    "experiments/learnability.py": "pleural effusion (left)",
    "experiments/openi_agreement.py": "coded as normal: 2 reports; nothing read as present in 2 (100.0%)",
    "experiments/plan_accuracy.py": "score: planned ",
    "experiments/pointing_game.py": "by kind of finding",
    "experiments/prior_and_lateral.py": "  frontal + prior ",
    "experiments/radpref_reader.py": "two readers who both prefer one prefer the same in 6 of 6",
    "experiments/radpref_weights.py": "12 pairs of 6 studies",
    "experiments/readback.py": "certainty of those found",
    "experiments/retrieval_features.py": "32 x 32, equal variance",
    "experiments/robustness_figures.py": "robustness_rehearsal_drops.svg",
    "experiments/scale_arithmetic.py": "| CXR-697K: `generate` | 697,435 |",
    "experiments/structuring_rules.py": "| narrated, lexicon B | 20 | 100.0 % |",
    "experiments/view_from_image.py": "| phantoms | 40 pixels high | 8 |",
    "experiments/sections_roundtrip.py": "report 3: indication (holds 'indication:'; 2 styles)",
    "experiments/builtin_scores.py": "| untrained | text_to_image |",
    "experiments/build_builtin.py": "all built-in weights: 2",
    "experiments/iu_xray.py": "retrieval after stage 1",
    "experiments/localisation.py": "held-out images: F1 ",
    "benchmarks/attack_memory.py": "| 13 questions | cxrlab | 2 | ",
    "benchmarks/attack_speed.py": "identical reports 2 of 2",
    "benchmarks/family_speed.py": "target 1.3 times the plain Trainer",
    "benchmarks/finetune_speed.py": "target 1.2 times the plain Trainer",
    "benchmarks/generation_speed.py": "times; target at least 2.5 times",
    "benchmarks/imports.py": "20 images: import",
    "benchmarks/llava_rad_7b.py": "| open again, generate | ",
    "benchmarks/install.py": "under 35 packages",
    "benchmarks/phantom.py": "CPU ms per study",
    "benchmarks/preference_speed.py": "target at most 0.7 times TRL",
    "benchmarks/reader.py": "target: at most 1.0 ms per report",
    "benchmarks/rouge.py": "values equal to the last digit",
    "benchmarks/scale.py": "MB at 100 (target: under 2048 MB)",
    "benchmarks/scoring.py": "the metrics per second of rouge-score",
    "benchmarks/sections.py": "times the text",
    "benchmarks/serving.py": "times the responses per second of one client; target 3 times",
    "benchmarks/structuring.py": "the corpora are equal",
    "benchmarks/significance.py": "intervals of 3 metrics over 40 pairs",
}
# Importing torch takes seconds, so these run in this process, which has imported it already.
HERE = {
    "experiments/build_builtin.py",
    "experiments/builtin_scores.py",
    "experiments/guarded_server.py",
    "experiments/iu_xray.py",
    "experiments/pointing_game.py",
    "experiments/localisation.py",
    "benchmarks/attack_memory.py",
    "benchmarks/attack_speed.py",
    "benchmarks/family_speed.py",
    "benchmarks/finetune_speed.py",
    "benchmarks/generation_speed.py",
    "benchmarks/llava_rad_7b.py",
    "benchmarks/preference_speed.py",
    "benchmarks/serving.py",
}
HEAVY_AT_THE_TOP = {
    "experiments/guarded_server.py",
    "experiments/localisation.py",
    "benchmarks/attack_memory.py",
    "benchmarks/attack_speed.py",
    "benchmarks/family_speed.py",
    "benchmarks/finetune_speed.py",
    "benchmarks/generation_speed.py",
    "benchmarks/llava_rad_7b.py",
}


def test_every_script_has_its_small_run() -> None:
    """A new script needs a row in both tables."""
    there = {
        str(path.relative_to(ROOT)) for folder in ("experiments", "benchmarks") for path in (ROOT / folder).glob("*.py")
    }
    assert there == set(SMALL) == set(EXPECTED) and there > HERE


@pytest.mark.parametrize("script", sorted(set(SMALL) - HERE))
def test_the_script_runs_and_prints_its_table(script: str, tmp_path: Path) -> None:
    """The script exits with 0 and prints the expected row or heading of its table."""
    if script.endswith(("learnability.py", "lateral_information.py")):
        pytest.importorskip("torch")
    assert EXPECTED[script] in started(script, *SMALL[script], folder=tmp_path)


@pytest.mark.parametrize("script", sorted(HERE))
def test_the_script_runs_here_and_prints_its_table(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same, within this process."""
    pytest.importorskip("torch")
    with as_program(ROOT / script, SMALL[script], tmp_path, monkeypatch):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert EXPECTED[script] in capsys.readouterr().out


@pytest.mark.parametrize("script", sorted(HERE - HEAVY_AT_THE_TOP))
def test_the_script_starts_in_a_process_of_its_own(script: str, tmp_path: Path) -> None:
    assert f"usage: {Path(script).name}" in started(script, "--help", folder=tmp_path)


def started(script: str, *words: str, folder: Path) -> str:
    """Output of the script, run in a process that must exit with 0."""
    run = subprocess.run(
        [sys.executable, ROOT / script, *words], capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@contextmanager
def as_program(script: Path, words: Sequence[str], folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the command line, import path and working folder of a script; global state is restored afterwards."""
    import torch

    patch.chdir(folder)
    patch.setattr(sys, "argv", [str(script), *words])
    patch.syspath_prepend(script.parent)
    environment, modules = dict(os.environ), set(sys.modules)
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        os.environ.clear()
        os.environ.update(environment)
        for name in set(sys.modules) - modules:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(script.parent)):
                del sys.modules[name]

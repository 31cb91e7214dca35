"""Every command of README.md runs, in its order; what trains or attacks runs on fewer images and steps."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from cxrlab import load_corpus
from cxrlab.cli.main import main

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[1]
# Beginning of a command → flags with their values, which replace those of README.
SHORTER = {
    "data make phantom": "--n 90",
    "train encoder": "--optimisation.batch-size 8 --optimisation.steps 1",
    "train align": "--optimisation.steps 1",
    "train finetune": "--optimisation.steps 1",
    "generate": "--n 4",
    "robustness": "--n 6 --control-studies 1 --eps 1/255",
    "harden": "--n 8 --steps 1 --measure-n 2",
    "extract": "--budget 9 --n 4 --fitting.steps 1 --fitting.round-steps 1",
    "detect": "--detectors chest-gate,perturbation --detector.image-bound 0.3",
}


def commands(heading: str) -> list[list[str]]:
    """The words of each command under a heading, without the server, which does not end."""
    block = re.search(rf"^## {heading}.*?```\n(.*?)```", (ROOT / "README.md").read_text(), re.S | re.M)
    assert block is not None
    found = [shlex.split(line)[1:] for line in block[1].splitlines()]
    return [words for words in found if words[0] != "serve"]


def run(words: list[str]) -> None:
    shorter = next(
        (flags for start, flags in SHORTER.items() if words[: len(start.split())] == start.split()), ""
    ).split()
    replaced = {at + place for at, word in enumerate(words) if word in shorter[::2] for place in (0, 1)}
    kept = [word for at, word in enumerate(words) if at not in replaced]
    assert main([*kept, *shorter]) == 0, " ".join(words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, beside the repository's configs."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_score_reports(folder: Path) -> None:
    assert main(["data", "make", "phantom", "--n", "240", "--size", "32", "--out", "corpora/openi"]) == 0
    studies = [study for study in load_corpus(folder / "corpora" / "openi").studies() if study.sections]
    reports = [" ".join((study.sections.findings or "").split()) for study in studies if study.sections]
    (folder / "references.txt").write_text("\n".join(reports))
    (folder / "predictions.txt").write_text("\n".join(reports[::-1]))
    rows = [(study.id, text, text) for study, text in zip(studies, reports, strict=True)]
    for name, head, width in (("both", ("id", "reference", "candidate"), 3), ("predictions", ("id", "report"), 2)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *(row[:width] for row in rows)])
    scored = "score both.csv --metrics clinical:rules,rougeL:google --out runs/scored_before"
    assert main(scored.split()) == 0
    for words in commands("Score reports"):
        # Predictions that are the references are not what they claim to be.
        if words[0] == "certify":
            assert main(words) == 1
        else:
            run(words)
    assert (folder / "page.html").stat().st_size > 10_000


def test_train_and_audit(folder: Path) -> None:
    for words in [*commands("Train and serve a model"), *commands("Audit a model")]:
        run(words)
    assert (folder / "audit.html").stat().st_size > 10_000

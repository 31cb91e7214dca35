"""The tour as a user takes it: through the command line, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cxrlab.studies.tour import missing_models

pytestmark = pytest.mark.slow

MODELS = missing_models() is None  # else the steps that need them are left out


def cxrlab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cxrlab", *words], capture_output=True, text=True, timeout=180, check=False, umask=0o022
    )


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str], float]:
    out = tmp_path_factory.mktemp("tour") / "out"
    start = time.monotonic()
    done = cxrlab("tour", "--quick", "--out", str(out))
    return out, done, time.monotonic() - start


def test_it_ends_well_with_the_path_of_the_page(toured) -> None:
    out, done, _ = toured
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out / "page.html")


def test_it_is_quick(toured) -> None:
    """Half a minute on two idle cores; beside other tests, on slower ones, it must still be of that order."""
    assert toured[2] < 120


def test_everything_is_for_its_owner_alone(toured) -> None:
    """Reports of patients would stand in these files: no library that writes some of them goes by the umask."""
    found = {str(path.relative_to(toured[0])): path.stat().st_mode & 0o777 for path in toured[0].rglob("*")}
    assert {name for name, mode in found.items() if mode & 0o077} == set() and len(found) > 50


def test_the_page_holds_everything_it_shows(toured) -> None:
    """No address, no script, no file beside it: it can be sent by mail and opened without a network."""
    page = (toured[0] / "page.html").read_text()
    assert "http://" not in page and "https://" not in page and "<script" not in page and "url(" not in page
    sources = re.findall(r'src="([^"]*)"', page)
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    maps = list((toured[0] / "explained").rglob("*.png"))
    assert (len(sources) > 6 and maps) if MODELS else (len(sources) == 6 and not maps)
    for said in (
        "stub:normal",
        "retrieval:",
        "reference",
        "Findings",
        "Export and import",
        "The chain",
        "How it was run",
    ):
        assert said in page
    for said in ("Scores", "Comparison", "Errors by kind", "By view, sex, age and device", "Reports with their errors"):
        assert f"<h2>{said}</h2>" in page


def test_models_are_trained_written_with_and_looked_into_or_it_is_said_why_not(toured) -> None:
    out, done, _ = toured
    page = (out / "page.html").read_text()
    sections = (
        "Do images find their reports?",
        "Do the maps point at the finding?",
        "Where the model looked",
        "Guarded server",
    )
    assert all((f"<h2>{name}</h2>" in page) is MODELS for name in sections)
    assert ("left out: " in done.stderr) is not MODELS
    if MODELS:
        assert json.loads((out / "finetune" / "summary.json").read_text())["stage"] == "finetune"
        compared = json.loads((out / "scores" / "comparison" / "comparison.json").read_text())
        assert set(compared["runs"]) == {"normal", "retrieval", "trained", "reporter"}


def test_the_run_folders_can_be_read_without_the_program(toured) -> None:
    out, _, _ = toured
    tests = [json.loads(line) for line in (out / "corpus/studies.jsonl").read_text().splitlines()]
    ids = [study["id"] for study in tests if study["split"] == "test"]
    for run in ("normal", "retrieval"):
        lines = [json.loads(line) for line in (out / run / "predictions.jsonl").read_text().splitlines()]
        assert [line["id"] for line in lines] == ids and ids
        assert json.loads((out / run / "status.json").read_text())["state"] == "finished"
        scores = json.loads((out / "scores" / run / "scores.json").read_text())
        assert scores["n"] == len(ids) and scores["metrics"]["bleu4:coco"]["n"] == len(ids)
    round_trip = json.loads((out / "round_trip.json").read_text())
    assert round_trip and all(row["same"] == row["of"] == len(tests) for row in round_trip)
    assert json.loads((out / "card" / "check.json").read_text())["ok"]
    compared = json.loads((out / "scores" / "comparison" / "comparison.json").read_text())
    assert compared["baseline"] == "normal" and compared["n"] == len(ids)
    check = json.loads((out / "check.json").read_text())
    assert check["ok"] and check["studies"] == len(tests)


def test_a_second_tour_shows_the_first(toured) -> None:
    out, _, _ = toured
    before = (out / "page.html").stat().st_mtime_ns
    again = cxrlab("tour", "--quick", "--out", str(out))
    assert again.returncode == 0 and again.stdout.splitlines()[-1] == str(out / "page.html")
    assert "finished" in again.stderr and (out / "page.html").stat().st_mtime_ns == before


def test_other_commands_work_on_what_it_left(toured, tmp_path: Path) -> None:
    out, _, _ = toured
    run = str(tmp_path / "run")
    made = cxrlab(
        "generate", "--model", "stub:empty", "--data", str(out / "corpus"), "--split", "val", "--out", run, "--json"
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["mean_words"] == 0
    page = cxrlab("page", run, str(out / "normal"))
    assert page.returncode == 0 and Path(page.stdout.strip()).is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("generate", "--model", "gpt:a/b", "--data", "CORPUS", "--out", "OUT"), "this version has no"),
        (("generate", "--model", "stub:normal", "--data", "nowhere", "--out", "OUT"), "nowhere does not exist"),
        (("generate", "--model", "stub:normal", "--data", "CORPUS", "--split", "tset", "--out", "OUT"), "'test'"),
        (("page", "nowhere"), "nowhere does not exist"),
        (("page",), "RUN"),
        (("tour", "--quikc"), "--quick"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_one(toured, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    places = {"CORPUS": str(toured[0] / "corpus"), "OUT": str(tmp_path / "out")}
    done = cxrlab(*(places.get(word, word) for word in words))
    assert done.returncode == 1 and said in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()

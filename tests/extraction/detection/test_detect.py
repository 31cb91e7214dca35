"""A whole run: benign images in a corpus, questions in a ledger, the table that a user reads; and the same live."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpora import image, toy_corpus

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import Command
from cxrlab.cli.extraction import detect as command
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import write_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.evaluation.load_model import load_model
from cxrlab.extraction.detection import detect as watch
from cxrlab.extraction.detection.base import StreamResult
from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
from cxrlab.extraction.detection.detect import HELD_OUT, LiveMonitor, Verdict, calibrated, detect, stream_names
from cxrlab.extraction.query_ledger import Ledger
from cxrlab.extraction.records import AuditScope, QueryImage
from cxrlab.extraction.victim_client import VictimClient

LOOSE = DetectorSettings(
    image_bound=0.05, account_bound=0.1, account_queries=20, accounts=19, window=6, reference=40, least=8, planes=4
)


def pictures(n: int, seed: int) -> list[np.ndarray]:
    """A bright ramp with a little noise: nothing like the even noise of the corpus."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(40, 250, 24)[None, :] * np.ones((24, 1))
    return [np.clip(ramp + rng.integers(-5, 5, ramp.shape), 0, 255).astype(np.uint8) for _ in range(n)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benign") / "corpus"
    toy_corpus(folder, 180)
    return folder


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty questions as an extraction leaves them; the first ten show benign images, the eleventh is asked twice."""
    folder = tmp_path_factory.mktemp("attack") / "knockoff"
    folder.mkdir()
    asked = [*(image(3 * number + 2) for number in range(60, 70)), *pictures(40, 1)]
    keyed = [QueryImage(str(place), pixels) for place, pixels in enumerate(asked)]
    with Ledger.open(folder / "ledger.sqlite", AuditScope("stub:normal", 60)) as ledger:
        client = VictimClient(load_model("stub:normal"), ledger, folder)
        client.query([*keyed[:11], keyed[10], *keyed[11:]], round=0, first=0)
    write_json(folder / "extraction.json", {"curve": {"10": {"findings.f1": 0.25}, "40": {"findings.f1": 0.5}}})
    return folder


@pytest.fixture(scope="module")
def config(corpus: Path, attack: Path) -> DetectConfig:
    return DetectConfig(benign=corpus, stream=(attack,), encoder="pixels", detector=LOOSE)


@pytest.fixture(scope="module")
def run(config: DetectConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "detected"
    detect(config, out)
    return out


def test_the_conclusions_hold_what_they_promise(run: Path) -> None:
    found = json.loads((run / "detection.json").read_text())
    assert set(found["detectors"]) == {"prada", "mmd", "coverage", "chest-gate", "perturbation"}
    assert found["benign"]["held_out_images"] == 60
    for row in found["detectors"].values():
        rate = row["false_positives"]["account"]
        # 60 held-out images fill three accounts of 20.
        assert rate["n"] == 3 and rate["within"] and rate["low"] <= rate["value"] <= rate["high"]
        assert row["per_image"] == ("image" in row["false_positives"])
    stream = found["streams"]["knockoff"]
    assert (stream["queries"], stream["accounts"]) == (50, 1)  # the repeated question was answered by the cache
    gate = stream["detectors"]["chest-gate"]
    count = found["detectors"]["chest-gate"]["alarm_count"]
    assert gate["detected"] and 10 < gate["queries_to_detect"] <= 10 + count
    assert gate["share_flagged"]["value"] == pytest.approx(0.8, abs=0.04) and gate["share_flagged"]["n"] == 50
    assert gate["detection_rate"]["n"] == 2 and gate["detection_rate"]["value"] == 1
    assert (gate["quality"]["budget"], gate["quality"]["value"]) == (10, 0.25)
    mmd = stream["detectors"]["mmd"]
    assert 10 < mmd["queries_to_detect"] <= 16 and mmd["share_flagged"] is None


def test_every_question_has_a_line(run: Path, attack: Path) -> None:
    lines = [line for _, line in read_jsonl(run / "detection.jsonl")]
    asked = [line for line in lines if line["stream"] == "knockoff"]
    assert [line["number"] for line in asked] == list(range(50))
    assert all((attack / "pictures" / f"{line['key']}.png").is_file() for line in asked)
    assert asked[0]["scores"]["mmd"] is None and asked[49]["scores"]["mmd"] > 0
    held = [line for line in lines if line["stream"] == HELD_OUT]
    assert len(held) == 60 and set(held[0]["scores"]) == {"chest-gate", "perturbation"}


def test_a_finished_run_is_read_and_measured_numbers_are_kept(run: Path, config: DetectConfig, tmp_path: Path) -> None:
    before = (run / "detection.json").stat().st_mtime_ns
    assert detect(config, run) == json.loads((run / "detection.json").read_text())
    assert (run / "detection.json").stat().st_mtime_ns == before
    assert len(list((run / "features").glob("*.npy"))) == 6
    again = detect(config, tmp_path / "again")
    assert again == detect(config, run)


def test_live_verdicts_are_those_of_the_run(run: Path, config: DetectConfig, attack: Path) -> None:
    detectors, encoder = calibrated(config, run / "features")
    live = LiveMonitor(detectors, encoder)
    lines = [line for _, line in read_jsonl(run / "detection.jsonl") if line["stream"] == "knockoff"]
    from cxrlab.extraction.detection.features import ledger_images

    def passes(verdict: Verdict) -> bool:
        return not verdict.flagged and not verdict.alarms

    verdicts = [live.update(shot.load(), "attacker") for shot in ledger_images(attack)]
    for verdict, line in zip(verdicts, lines, strict=True):
        assert list(verdict.flagged) == line["flagged"]
        assert verdict.scores == pytest.approx(
            {name: np.nan if score is None else score for name, score in line["scores"].items()}, nan_ok=True, abs=1e-6
        )
    found = json.loads((run / "detection.json").read_text())["streams"]["knockoff"]["detectors"]
    first = next(place for place, verdict in enumerate(verdicts, 1) if verdict.alarms)
    assert first == min(row["queries_to_detect"] for row in found.values() if row["detected"])
    assert not passes(verdicts[-1])
    # The first benign image was asked by somebody else: alarms belong to an account, and end when it is forgiven.
    benign = next(shot.load() for shot in ledger_images(attack))
    assert passes(live.update(benign, "another"))
    assert not passes(live.update(benign, "attacker"))
    live.reset("attacker")
    assert passes(live.update(benign, "attacker"))


def test_a_corpus_can_be_a_stream_and_none_need_be(config: DetectConfig, corpus: Path, tmp_path: Path) -> None:
    found = detect(replace(config, stream=(corpus,), detectors=("chest-gate",), encoder="none"), tmp_path / "self")
    row = found["streams"]["corpus"]["detectors"]["chest-gate"]
    # The corpus as a stream is asked about its held-out images, which are those that false alarms are measured on.
    assert row["share_flagged"]["value"] == found["detectors"]["chest-gate"]["false_positives"]["image"]["value"]
    assert "no extraction.json" in row["quality"]["reason"] or not row["detected"]
    alone = detect(replace(config, stream=(), detectors=("chest-gate",), encoder="none"), tmp_path / "alone")
    assert alone["streams"] == {} and alone["detectors"] == found["detectors"]


def test_too_few_queries_are_not_a_miss(tmp_path: Path) -> None:
    few = watch.stream_summary(tmp_path, StreamResult(np.full(5, np.nan), None, None, (None,)), "findings.f1")
    assert few["detection_rate"] == {"value": None, "low": None, "high": None, "n": 0}
    assert few["quality"]["reason"] == "5 queries are too few for a score" and not few["detected"]
    quiet = watch.stream_summary(tmp_path, StreamResult(np.full(5, 0.1), None, None, (None,)), "findings.f1")
    assert quiet["detection_rate"]["value"] == 0 and quiet["quality"]["reason"] == "there was no alarm"


def test_the_table_that_a_user_reads(
    run: Path, config: DetectConfig, attack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = command(replace(config, stream=()), run, (attack,)).text.splitlines()
    assert printed[0].split() == ["detector", "judges", "bound", "false", "alarms", "measured", "n"]
    rows = {line.split()[0]: line for line in printed if line}
    assert "0.250 (fitted to 10)" in rows["chest-gate"] and "knockoff (50 queries)" in "\n".join(printed)
    assert "do not fill" not in "\n".join(printed)
    found = {"detectors": {}, "benign": {"held_out_images": 79}, "settings": {"account_queries": 100}}
    found |= {"warnings": [], "streams": {}}
    monkeypatch.setattr("cxrlab.extraction.detection.detect.detect", lambda config, out: found)
    assert "79 held-out images do not fill one account of 100" in command(config, run).text


def test_the_command_line_takes_streams_without_a_flag(tmp_path: Path) -> None:
    row = Command("x", "cxrlab.cli.extraction:detect", "cxrlab detect a --benign b --out c", ("streams",))
    parsed = CommandLine("detect", row, command).parse(
        ["a", "b", "--benign", "corpus", "--detectors", "mmd,chest-gate", "--detector.window", "8", "--out", "run"]
    )
    assert [str(one) for one in parsed.arguments["streams"]] == ["a", "b"]
    assert parsed.arguments["config"].detectors == ("mmd", "chest-gate")
    assert parsed.arguments["config"].detector.window == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"detectors": ("pradda",)}, "Did you mean 'prada'"),
        ({"held_out": "val"}, "sets thresholds on the split held_out="),
        ({"detectors": ()}, "is empty"),
        ({"n": 0}, "at least 1"),
    ],
)
def test_mistakes_are_reported_at_once(config: DetectConfig, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)  # type: ignore[arg-type]


def test_streams_that_are_none(config: DetectConfig, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither the ledger.sqlite of an extraction"):
        detect(replace(config, stream=(tmp_path,)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="named twice"):
        stream_names((tmp_path, tmp_path))
    assert set(stream_names((Path("a/run"), Path("b/run")))) == {"a/run", "b/run"}

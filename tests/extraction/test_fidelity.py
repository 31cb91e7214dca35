from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from prediction_runs import CHANGED, CLEAR, EFFUSION, effusions, prediction_run

from cxrlab.core.errors import ConfigError, RunError
from cxrlab.evaluation.config import MetricResources
from cxrlab.extraction.config import FidelityConfig
from cxrlab.extraction.fidelity import compare_surrogates, extra_names, measure_fidelity

FEW = FidelityConfig(metrics=("findings.f1", "errors.significant", "crimson:rules"), swaps=200)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Eight studies with an effusion, of four patients."""
    return effusions(tmp_path / "corpus", 8, images_a_patient=2)


def test_values_ratio_and_fidelity_worked_out_by_hand(corpus: Path, tmp_path: Path) -> None:
    """The victim names 6 of 8 effusions: F1 = 12/14. The copy names 3 of them: 6/11, and against the victim 6/9."""
    victim = prediction_run(tmp_path / "victim", [EFFUSION] * 6 + [CLEAR] * 2)
    copy = prediction_run(tmp_path / "copy", [EFFUSION] * 3 + [CLEAR] * 5)
    found = measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW, victim_in=tmp_path / "shared")
    assert (found["n"], found["patients"]) == (8, 4)
    assert found["victim"]["findings.f1"]["value"] == pytest.approx(12 / 14)
    assert found["surrogate"]["findings.f1"]["value"] == pytest.approx(6 / 11)
    assert found["fidelity"]["findings.f1"]["value"] == pytest.approx(6 / 9)
    ratio = found["ratio"]["findings.f1"]
    assert ratio["value"] == pytest.approx((6 / 11) / (12 / 14)) and ratio["n"] == 8
    assert ratio["low"] < ratio["value"] < ratio["high"] and ratio["natural_zero"]
    assert not found["ratio"]["crimson:rules"]["natural_zero"]
    # Five omissions against two; all or none of a patient are drawn.
    assert found["ratio"]["errors.significant"]["value"] == pytest.approx(5 / 2)
    assert found["difference"]["findings.f1"]["difference"] == pytest.approx(6 / 11 - 12 / 14)
    assert found["difference"]["findings.f1"]["by_study"] == {"win": 0, "tie": 5, "lose": 3}
    by_label = found["observations"]["chexpert"]
    counts = {
        who: (by_label[who]["Pleural Effusion"]["support"], by_label[who]["Pleural Effusion"]["claimed"])
        for who in by_label
    }
    assert counts == {"victim": (8, 6), "surrogate": (8, 3), "fidelity": (6, 3)}
    assert by_label["victim"]["Fracture"]["value"] is None  # positive on neither side
    assert "encoder" in found["left_out"]["bertscore"] and "graphs" in found["left_out"]["radgraph.simple"]
    assert (tmp_path / "shared" / "victim_scored" / "scores.json").is_file()
    rows = [json.loads(line) for line in (tmp_path / "out" / "victim_reports.jsonl").read_text().splitlines()]
    assert [row["patient"] for row in rows] == ["p0", "p0", "p1", "p1", "p2", "p2", "p3", "p3"]
    assert rows[7] == {"id": "s7", "patient": "p3", "report": CLEAR, "age": 67.0}


def test_the_ratio_is_drawn_in_pairs(corpus: Path, tmp_path: Path) -> None:
    """A copy that writes the victim's own words is its equal in every resample, though both vary much."""
    said = [EFFUSION, CLEAR] * 4
    runs = [prediction_run(tmp_path / name, said) for name in ("victim", "copy")]
    found = measure_fidelity(*runs, corpus, tmp_path / "out", FEW)
    one = found["ratio"]["findings.f1"]
    share = 1 - 0.025 ** (1 / 4)  # nothing varies: the exact bound of four patients
    assert (one["value"], one["low"], one["high"]) == pytest.approx((1, 1 - share, 1 + share))
    assert found["fidelity"]["findings.f1"]["value"] == 1 and found["difference"]["findings.f1"]["verdict"] == "equal"


def test_no_ratio_to_a_victim_at_zero(corpus: Path, tmp_path: Path) -> None:
    victim = prediction_run(tmp_path / "victim", [CHANGED] * 8)
    copy = prediction_run(tmp_path / "copy", [EFFUSION] * 8)
    one = measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW)["ratio"]["findings.f1"]
    assert one["value"] is None and one["low"] is None and one["left_out"] == 1000


def test_a_finished_measurement_is_kept_and_other_reports_are_refused(corpus: Path, tmp_path: Path) -> None:
    victim, copy = (prediction_run(tmp_path / name, [EFFUSION] * 8) for name in ("victim", "copy"))
    first = measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW)
    before = (tmp_path / "out" / "fidelity.json").stat().st_mtime_ns
    assert measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW) == first
    assert (tmp_path / "out" / "fidelity.json").stat().st_mtime_ns == before
    file = copy / "predictions.jsonl"
    file.write_text(file.read_text().replace("small", "large"))
    with pytest.raises(RunError, match="other settings"):
        measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW)


def test_surrogates_side_by_side_the_first_is_the_baseline(corpus: Path, tmp_path: Path) -> None:
    """Knockoff finds 1 of 8 (F1 2/9), ADA-Steal 7 of 8 (14/15); scores that are there already are used."""
    knockoff = prediction_run(tmp_path / "k", [EFFUSION] + [CLEAR] * 7)
    ada = prediction_run(tmp_path / "a", [EFFUSION] * 7 + [CLEAR])
    runs = {"knockoff": knockoff, "ada-steal": ada}
    found = compare_surrogates(runs, corpus, tmp_path / "out", FEW)
    gap = found["difference"]["ada-steal"]["findings.f1"]
    assert gap["difference"] == pytest.approx(14 / 15 - 2 / 9) and 0 < gap["low"] < gap["high"] and "p" in gap
    assert found["baseline"] == "knockoff" and list(found["values"]) == ["knockoff", "ada-steal"]
    again = compare_surrogates({name: tmp_path / "out" / name for name in runs}, corpus, tmp_path / "again", FEW)
    assert again["difference"] == found["difference"]
    with pytest.raises(ConfigError, match="at least 2"):
        compare_surrogates({"knockoff": knockoff}, corpus, tmp_path / "no", FEW)
    with pytest.raises(ConfigError, match="cannot be the name of a folder"):
        compare_surrogates({"a/b": knockoff, "c": ada}, corpus, tmp_path / "no", FEW)


def test_what_the_user_has_decides_what_is_counted(tmp_path: Path) -> None:
    assert extra_names(MetricResources()) == []
    assert extra_names(MetricResources(encoder=tmp_path)) == ["bertscore"]
    assert "chexbert14.micro.f1:uncertain-positive" in extra_names(MetricResources(chexbert=tmp_path, bert=tmp_path))
    for wrong in ({"metrics": ()}, {"swaps": 0}, {"seed": -1}):
        with pytest.raises(ConfigError):
            FidelityConfig(**wrong)


def test_measuring_needs_no_deep_learning() -> None:
    code = "import sys, cxrlab.extraction.fidelity, cxrlab.extraction.control_texts, cxrlab.extraction.fidelity, "
    code += "cxrlab.extraction.query_pools; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_empty_reports_of_the_victim_are_no_reference(corpus: Path, tmp_path: Path) -> None:
    victim = prediction_run(tmp_path / "victim", [EFFUSION] * 6 + [""] * 2)
    copy = prediction_run(tmp_path / "copy", [EFFUSION] * 8)
    one = measure_fidelity(victim, copy, corpus, tmp_path / "out", FEW)["fidelity"]["findings.f1"]
    assert (one["value"], one["n"], one["undefined"]) == (1, 6, 2)
    assert np.isfinite([one["low"], one["high"]]).all()

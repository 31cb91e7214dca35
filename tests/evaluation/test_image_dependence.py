from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json
from cxrlab.evaluation.config import GenerateConfig, ScoreConfig
from cxrlab.evaluation.generate import generate
from cxrlab.evaluation.image_dependence import METRIC, ImageDependence, measure_image_dependence
from cxrlab.evaluation.score import run_score, score
from cxrlab.metrics.report_pairs import Batch, Pair

EFFUSION, NODULE, NONE = "Small left pleural effusion.", "Nodule in the right upper lobe.", "The lungs are clear."


def measured(
    right: list[str], wrong: Mapping[str, list[str]], patients: int | None = None, metrics: tuple[str, ...] = ()
) -> ImageDependence:
    """Even studies have an effusion, odd ones a nodule; each its own patient unless there are fewer."""
    count = len(right)
    pairs = [Pair(f"s{n}", (EFFUSION, NODULE)[n % 2], right[n], f"p{n % (patients or count)}") for n in range(count)]
    answers = {kind: {f"s{n}": text for n, text in enumerate(texts)} for kind, texts in wrong.items()}
    found = measure_image_dependence(Batch(pairs), answers, metrics, trials=200, rng=np.random.default_rng(7))
    assert found is not None
    return found


def test_a_constant_report_is_called_blind_in_every_word() -> None:
    """Few patients will do, since not one report changed; that they are few is said."""
    found = measured([EFFUSION] * 4, {"noise": [EFFUSION] * 4, "swapped": [EFFUSION] * 4})
    assert found.verdict == "ignores_image" and "word for word the same with noise and swapped images" in found.sentence
    assert "few patients (4)" in found.sentence
    assert [image.unchanged for image in found.wrong.values()] == [1.0, 1.0]
    assert {image.difference.value for image in found.wrong.values()} == {0.0}


def test_a_perfect_reader_is_seen_to_look() -> None:
    """Right images: every finding. Swapped: those of the other half, so nothing fits. F1 falls from 1 to 0."""
    right = [EFFUSION, NODULE] * 20
    found = measured(right, {"blank": [NONE] * 40, "swapped": [NODULE, EFFUSION] * 20})
    share = 1 - 0.025 ** (1 / 40)  # of patients unlike these forty, at most
    assert found.right[METRIC] == pytest.approx((1.0, 1.0 - share, 1.0))
    for image in found.wrong.values():
        assert image.metrics[METRIC] == 0.0 and image.difference.value == 1.0
        assert image.difference.ends == pytest.approx((1.0 - 2 * share, 1.0))
        assert image.unchanged == 0.0 and image.beaten is True
    assert found.verdict == "uses_image" and "few" not in found.sentence
    assert "1.000 against 0.000 with blank images and 0.000 with swapped images" in found.sentence


def test_words_that_change_without_meaning_anything_do_not_deceive() -> None:
    """A model that writes one of two reports by chance, whatever the image, is no better with the right one."""
    rng = np.random.default_rng(1)
    right, swapped = ([(EFFUSION, NODULE)[n] for n in rng.integers(2, size=60)] for _ in range(2))
    found = measured(right, {"swapped": swapped})
    assert 0 < found.wrong["swapped"].unchanged < 1
    assert found.verdict == "ignores_image" and "no better than" in found.sentence


def test_a_model_that_gets_nothing_right_is_not_judged_by_what_it_gets_right() -> None:
    """Its words change with the image, so it may well look; a score of 0 against 0 cannot tell."""
    found = measured([NONE] * 40, {"swapped": [NONE, "Normal chest."] * 20})
    assert found.verdict == "unclear" and "50% with swapped images" in found.sentence


def test_from_few_patients_a_difference_that_is_not_there_cannot_be_told() -> None:
    right = [EFFUSION, EFFUSION, NODULE, NODULE]
    found = measured(right, {"swapped": [NODULE, NODULE, EFFUSION, EFFUSION]}, patients=2)
    assert found.verdict == "unclear" and "4 studies of 2 patients" in found.sentence


def test_few_patients_are_said_where_the_image_seems_to_matter() -> None:
    found = measured([EFFUSION, NODULE] * 5, {"swapped": [NODULE, EFFUSION] * 5})
    assert found.verdict == "uses_image" and "few patients (10)" in found.sentence


def test_a_model_that_knows_a_chest_but_not_whose_is_not_said_to_look() -> None:
    """On noise it is silent, on any chest it tells of an effusion: the swapped image decides."""
    found = measured([EFFUSION] * 40, {"noise": [NONE] * 40, "swapped": [EFFUSION, EFFUSION + " No nodule."] * 20})
    assert found.wrong["noise"].beaten is True and found.verdict == "ignores_image"


def test_a_image_that_does_no_harm_is_named() -> None:
    right = [EFFUSION, NODULE] * 20
    found = measured(right, {"noise": right, "swapped": [NODULE, EFFUSION] * 20})
    assert found.verdict == "uses_image" and "no worse with noise images" in found.sentence


def test_only_studies_that_have_every_answer_count() -> None:
    pairs = [Pair(f"s{n}", EFFUSION, None if n == 3 else EFFUSION, f"p{n}") for n in range(4)]
    answers = {"noise": {"s0": NONE, "s1": NONE, "s3": NONE}, "blank": {"s1": NONE, "s2": NONE, "s3": NONE}}
    found = measure_image_dependence(Batch(pairs), answers, (), trials=10, rng=np.random.default_rng(7))
    assert found is not None and found.n == 1
    assert measure_image_dependence(Batch(pairs), {}, (), rng=np.random.default_rng(7)) is None
    assert measure_image_dependence(Batch(pairs), {"noise": {}}, (), rng=np.random.default_rng(7)) is None
    assert measure_image_dependence(Batch(pairs), {"noise": {"other": NONE}}, (), rng=np.random.default_rng(7)) is None


def test_one_patient_gives_no_interval_and_no_verdict() -> None:
    found = measured([EFFUSION], {"swapped": [NODULE]})
    assert found.wrong["swapped"].beaten is None and found.verdict == "unclear"
    same = measured([NONE], {"noise": [NONE], "blank": [NONE]})  # a normal image, and a reader who is silent on noise
    assert same.verdict == "unclear" and "1 study of 1 patient." in same.sentence


def test_the_first_metrics_that_were_chosen_are_shown_too() -> None:
    found = measured([EFFUSION, NODULE], {"blank": [NONE, NONE]}, metrics=("bleu1:coco", "rouge1:google"))
    assert list(found.right) == [METRIC, "bleu1:coco"] == list(found.wrong["blank"].metrics)


@pytest.fixture(scope="module")
def runs(phantom: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for name, model in (("normal", "stub:normal"), ("nearest", f"retrieval:{phantom}")):
        generate(GenerateConfig(model, phantom, "val"), out / name)
    generate(GenerateConfig("stub:normal", phantom, "val", control_studies=0), out / "without")
    return out


def test_it_stands_in_the_scores_of_a_run(phantom: Path, runs: Path, tmp_path: Path) -> None:
    verdicts = {}
    for name in ("normal", "nearest"):
        asked = ScoreConfig(phantom, runs / name, metrics=("findings.f1",), trials=50)
        reported = run_score(asked, tmp_path / name)["controls"]["image_dependence"]
        assert read_json(tmp_path / name / "scores.json")["controls"]["image_dependence"] == reported
        assert set(reported["wrong"]) == {"noise", "blank", "swapped"} and set(reported["right"]) == {
            METRIC,
            "findings.f1",
        }
        assert reported["n"] == len((runs / name / "predictions.jsonl").read_text().splitlines())
        verdicts[name] = reported["verdict"]
    assert verdicts["normal"] == "ignores_image" != verdicts["nearest"]


def test_a_run_without_controls_or_a_file_has_none(phantom: Path, runs: Path) -> None:
    for source in (runs / "without", runs / "normal" / "predictions.jsonl"):
        sheet = score(phantom, source, metrics=["findings.f1"], trials=10)
        assert sheet.image_dependence is None and sheet.to_json()["controls"] == {"image_dependence": {}}


def test_other_answers_to_wrong_images_are_other_inputs(phantom: Path, runs: Path, tmp_path: Path) -> None:
    """A finished scoring is not taken for one of texts that have changed since."""
    asked = ScoreConfig(phantom, runs / "nearest", metrics=("findings.f1",), trials=10)
    run_score(asked, tmp_path / "scored")
    assert run_score(asked, tmp_path / "scored")  # left as it is
    file = runs / "nearest" / "predictions_noise.jsonl"
    before = file.read_text()
    try:
        file.write_text(before.replace("the", "a"))
        with pytest.raises(RunError, match="other texts"):
            run_score(asked, tmp_path / "scored")
    finally:
        file.write_text(before)

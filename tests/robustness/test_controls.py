"""Control images show which model ignores the image: by reports, and by closed answers alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
from torch import Tensor

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.robustness.audited_studies import Case, Cases
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.robustness.validity_checks import CONTROLS, examine_control_images, image_dependence


class Answers(planted.PatternTarget):
    """Writes no reports: an encoder."""

    generates_reports = False

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        return [ImageAnswer(label_probs=one.label_probs) for one in super().examine(images, cases)]


class BlindAnswers(Answers, planted.BlindTarget):
    """Does not look either."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return planted.pattern_corpus(tmp_path_factory.mktemp("leaning") / "corpus", 40)


def verdict(corpus: Corpus, out: Path, kind: type[planted.PatternTarget], **changes: Any) -> tuple[dict[str, Any], Run]:
    settings: dict[str, Any] = {"only_labels": (planted.NAME,), "trials": 50, **changes}
    config = RobustnessConfig(model="planted", data=corpus.path, **settings)
    cases = Cases(corpus, list(corpus.ids("test")), config)
    target = kind("a", "planted", cases.labels)
    clean = {("a", case.id): target.examine(_image(cases, case), [case])[0] for case in cases.all}
    with Run.open(out, config) as run:
        examine_control_images(run, cases, [target], config)
        examine_control_images(run, cases, [target], config)  # what is on file is not asked again
        return image_dependence(run, cases, clean, [target], config)["a"], run


def _image(cases: Cases, case: Case) -> Tensor:
    from cxrlab.robustness.sweep import image_tensor

    return image_tensor(cases.image(case))[None]


def test_answers_alone_tell_who_looks(corpus: Corpus, tmp_path: Path) -> None:
    found, run = verdict(corpus, tmp_path / "run", Answers)
    assert found["verdict"] == "uses_image" and "reports" not in found and found["closed_questions"]["right"] == 1.0
    swapped = found["closed_questions"]["wrong"]["swapped"]
    # Another patient's image has the finding as often as not.
    assert 0.3 < swapped["value"] < 0.7 and swapped["difference"] == pytest.approx(1 - swapped["value"])
    assert 0 < swapped["low"] <= swapped["difference"] <= swapped["high"]
    lines = [record for _, record in read_jsonl(run.path(CONTROLS))]
    assert len(lines) == len({line["id"] for line in lines}) == 3 * 40


def test_answers_that_ignore_the_image_are_blind(corpus: Corpus, tmp_path: Path) -> None:
    """Half of them are right, with any image: always the same answer."""
    found, _ = verdict(corpus, tmp_path / "run", BlindAnswers)
    assert found["verdict"] == "ignores_image" and found["closed_questions"]["right"] == 0.5
    assert {row["value"] for row in found["closed_questions"]["wrong"].values()} == {0.5}
    assert "0.500 with swapped images" in found["sentence"]


def test_blind_reports_beside_blind_answers_make_one_verdict(corpus: Corpus, tmp_path: Path) -> None:
    found, _ = verdict(corpus, tmp_path / "run", planted.BlindTarget)
    assert found["verdict"] == "ignores_image" and found["reports"]["verdict"] == "ignores_image"
    assert found["sentence"].startswith("Reports: ") and "Closed answers: " in found["sentence"]


def test_few_patients_are_no_proof_of_blindness(corpus: Corpus, tmp_path: Path) -> None:
    found, _ = verdict(corpus, tmp_path / "run", BlindAnswers, control_studies=4)
    assert found["verdict"] == "unclear" and found["closed_questions"]["verdict"] == "unclear"


def test_without_controls_nothing_is_claimed(corpus: Corpus, tmp_path: Path) -> None:
    found, _ = verdict(corpus, tmp_path / "run", Answers, control_studies=0)
    assert found["verdict"] == "unclear" and set(found) == {"verdict", "sentence"}

"""Black boxes in an audit: what is tried on a model that gives words alone, and what a refusal counts for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import planted_targets as planted
import pytest

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated
from cxrlab.data.corpus import Corpus
from cxrlab.robustness import audited_models as loading
from cxrlab.robustness.audit import audit
from cxrlab.robustness.config import RobustnessConfig

HERE = "http://127.0.0.1:9/v1#planted"  # nobody is asked there: the model is put in its place
SAID = "No pleural effusion. Picture refused."


class Served:
    """Sees the lean of the planted corpus; gives words, no scores, no gradients and no choice of words.

    Args:
        guard: Whether an image [H, W] is refused.
    """

    name, capabilities = HERE, Capabilities(batch=True, black_box=True)

    def __init__(self, guard: Callable[[Any], bool] = lambda image: False) -> None:
        self.guard = guard
        self.shown = 0

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        self.shown += len(images)
        return [
            Generated(SAID, extra={REFUSED: True})
            if self.guard(image)
            else Generated(planted.PRESENT if (image * planted.SIGN).mean() > 0 else planted.ABSENT)
            for image in images
        ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return planted.pattern_corpus(tmp_path_factory.mktemp("leaning") / "corpus", 24)


def audited(
    corpus: Corpus, out: Path, model: Served, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> dict[str, Any]:
    monkeypatch.setattr(loading, "open_model", lambda name, settings, shown: model)
    plain: dict[str, Any] = {
        "model": HERE,
        "data": corpus.path,
        "attacks": ("pgd", "square", "square-report", "random-report", "noise"),
        "eps": ("96/255",),
        "aims": ("report",),
        "only_labels": (planted.NAME,),
        "trials": 50,
        "triptychs": 1,
        "control_studies": 24,
        "attack": AttackSettings(steps=5, queries=20),
    }
    return audit(RobustnessConfig(**{**plain, **changes}), out)


def lean(image: Any) -> float:
    return float((image * planted.SIGN).mean())


def was_changed(image: Any) -> bool:
    """Images of the corpus lean by 10/255 and hold whole grey levels; perturbed and wrong ones do not."""
    whole = np.abs(image * 255 - np.round(image * 255)).max() < 1e-3
    return not whole or abs(abs(lean(image)) - planted.MARK) > 2 / 255


def test_black_box_attacks_reach_a_model_that_gives_words_alone(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = audited(corpus, tmp_path / "run", Served(), monkeypatch)
    model = found["models"][HERE]
    assert {name.partition("@")[0] for name in model["attacks"]} == {"square-report", "random-report", "noise"}
    assert model["clean"]["findings.f1"]["value"] == 1 and model["clean"]["closed_questions.accuracy"]["n"] == 0
    assert model["attacks"]["random-report@96/255"]["flip_rate"]["value"] > 0
    assert model["attacks"]["noise@96/255"]["flip_rate"]["value"] == 0
    warning = " ".join(found["warnings"])
    assert "provides no gradients, so that pgd is left out" in warning
    assert "returns only text, so that square is left out" in warning and "refused" not in warning


def test_a_refused_attack_is_no_success_and_no_report(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard that knows every image that is not the corpus's own: clean images are answered, nothing else is.

    Its sentence denies an effusion; read as a report it would turn half of the images round.
    """
    found = audited(corpus, tmp_path / "run", Served(was_changed), monkeypatch)
    model = found["models"][HERE]
    assert model["clean"]["findings.f1"]["value"] == 1 and model["clean"]["findings.f1"]["n"] == 24
    for name in ("square-report@96/255", "random-report@96/255"):
        row = model["attacks"][name]
        assert not row["broken"] and row["flip_rate"]["n"] == row["findings.f1"]["n"] < 24
        assert not row["flip_rate"]["value"]
    lines = [record for _, record in read_jsonl(tmp_path / "run" / "answers.jsonl")]
    refused = [one for one in lines if one["image"].get("refused")]
    assert refused and all("report" not in one["image"] and "labels" not in one["image"] for one in refused)
    assert SAID not in (tmp_path / "run" / "answers.jsonl").read_text()
    assert f"refused to generate a report for {len(refused)} of {len(lines)} images (0 of them clean)" in " ".join(
        found["warnings"]
    )


def test_a_clean_image_that_is_refused_leaves_nothing_to_compare_with(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image with the finding is refused, changed or not: twelve are left, and no attack on the others counts."""
    found = audited(corpus, tmp_path / "run", Served(lambda image: lean(image) > 0), monkeypatch, control_studies=0)
    model = found["models"][HERE]
    assert model["clean"]["findings.f1"]["n"] == 12
    assert model["attacks"]["square-report@96/255"]["broken"] == 0, "an image that was turned round is refused"
    assert "(12 of them clean)" in " ".join(found["warnings"])


def test_wrong_images_that_are_refused_do_not_hide_what_the_others_tell(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise and grey are refused by a gate; images of other patients pass and tell that the model looks."""
    gate = Served(lambda image: not 0.05 < float(image.std()) < 0.2)
    found = audited(corpus, tmp_path / "run", gate, monkeypatch, attacks=("noise",))
    looks = found["controls"]["image_dependence"]["a"]
    assert set(looks["reports"]["wrong"]) == {"swapped"} and looks["reports"]["n"] == 24

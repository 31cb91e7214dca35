"""A contrastive encoder under audit answers as zero-shot classification does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from toy_objectives import images

from cxrlab.evaluation.retrieve import load_sentences, margins
from cxrlab.metrics.classification import auroc
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import load_encoder
from cxrlab.robustness.audited_models import AuditedEncoder
from cxrlab.robustness.audited_studies import Case, labels_of_kind

CHEXPERT = [one for one in labels_of_kind("chexpert", "own") if one.name in ("Edema", "Pneumothorax", "Fracture")]


@pytest.fixture(scope="module")
def target(encoder_folder: Path) -> AuditedEncoder:
    encoder = load_encoder(f"hf:{encoder_folder}", LoadSettings(device="cpu"))
    return AuditedEncoder("a", "tiny", CHEXPERT, encoder, "report/1")


def case(name: str, **truth: int) -> Case:
    return Case(name, f"p-{name}", None, None, None, truth)


def test_probabilities_agree_with_zero_shot_classification(target: AuditedEncoder) -> None:
    """The logistic of the scaled margin: the same sign against one half, and the same area under the curve."""
    shown, names = images(24, 32), [label.name for label in CHEXPERT]
    said = target.examine(shown, [case(str(number)) for number in range(24)])
    probs = np.array([[one.label_probs[name] for name in names] for one in said])
    vectors = np.concatenate([target.encoder.image_vectors(image[None]).numpy() for image in shown])
    known = margins(vectors, names, load_sentences("report/1"), target.encoder.embed_texts)
    assert ((probs > 0.5) == (known > 0)).all()
    assert probs == pytest.approx(1 / (1 + np.exp(-target.encoder.scale * known)), abs=1e-5)
    truth = np.arange(24) % 2 == 0
    for column in range(len(names)):
        assert auroc(probs[:, column], truth) == pytest.approx(auroc(known[:, column], truth), abs=1e-9)
    assert said[0].report is None and said[0].labels == {} and not target.generates_reports


def test_a_label_of_several_names_is_as_near_as_the_nearest(encoder_folder: Path) -> None:
    label = next(one for one in labels_of_kind("nih", "own") if len(one.sentences) > 1)
    encoder = load_encoder(f"hf:{encoder_folder}", LoadSettings(device="cpu"))
    found = AuditedEncoder("a", "tiny", [label], encoder, "report/1").margins(images(3, 32), range(3))
    vectors = encoder.image_vectors(images(3, 32)).numpy()
    known = margins(vectors, label.sentences, load_sentences("report/1"), encoder.embed_texts).max(axis=1)
    assert found[:, 0].tolist() == pytest.approx((encoder.scale * known).tolist(), abs=1e-4)


def test_both_aims_have_gradients_and_know_their_images(target: AuditedEncoder) -> None:
    shown, cases = images(2, 32), [case("s1", Edema=1), case("s2", Edema=0)]
    clean = target.examine(shown, cases)
    answers = target.objective("answers", cases, clean, shown)
    moved = target.objective("embedding", cases, clean, shown)
    assert (
        moved.losses(shown, [0, 1]).tolist() == pytest.approx([-1.0, -1.0], abs=1e-5) and moved.zero_gradient_at_clean
    )
    for aim in (answers, moved):
        asked = (shown * 0.9).requires_grad_()
        (slope,) = torch.autograd.grad(aim.losses(asked, [0, 1]).sum(), asked)
        assert bool(slope.isfinite().all()) and float(slope.abs().max()) > 0
        assert not aim.succeeded(shown, [0, 1]).any()
    assert target.aims == ("answers", "embedding") and target.gradients

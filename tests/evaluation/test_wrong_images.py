from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import toy_corpus

from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import frontal_index
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import GREY, ControlImages, control_file, generate


def predictions(run: Path, control: str) -> dict[str, dict[str, Any]]:
    lines = (run / control_file(control)).read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def right(corpus: Corpus, key: str) -> np.ndarray:
    return corpus.image(corpus[key], frontal_index(corpus[key]))


def test_wrong_images_are_made_as_they_are_called(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "corpus")
    noise = ControlImages(corpus, "noise", 7, {})
    image = noise.image("s1")
    assert image.shape == right(corpus, "s1").shape and image.dtype == np.float32
    assert 0 <= image.min() < 0.05 and 0.95 < image.max() < 1 and abs(image.mean() - 0.5) < 0.05
    assert np.array_equal(image, noise.image("s1")), "the same every time"
    assert not np.array_equal(image, noise.image("s2")) and not np.array_equal(
        image, ControlImages(corpus, "noise", 8, {}).image("s1")
    )
    blank = ControlImages(corpus, "blank", 7, {}).image("s1")
    assert blank.shape == image.shape and blank.dtype == np.float32 and set(blank.ravel()) == {np.float32(GREY)}
    swapped = ControlImages(corpus, "swapped", 7, {"s1": "s2"})
    assert np.array_equal(swapped.image("s1"), right(corpus, "s2"))
    assert swapped.indication("s1") == noise.indication("s1"), "the question stays the study's own"


@pytest.fixture(scope="module")
def done(phantom: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    generate(GenerateConfig(f"retrieval:{phantom}", phantom, "val", batch_size=4), out)
    return out


def test_swapped_answers_are_those_of_other_patients_images(phantom: Path, done: Path) -> None:
    """Retrieval answers a swapped image with what it answered for that image in its own place."""
    corpus = load_corpus(phantom)
    lines = (done / "predictions.jsonl").read_text().splitlines()
    own = {record["id"]: record for record in map(json.loads, lines)}
    swapped = predictions(done, "swapped")
    assert list(swapped) == list(own)
    assert sorted(item["neighbour"] for item in swapped.values()) == sorted(item["neighbour"] for item in own.values())
    similar = {(item["neighbour"], item["similarity"]): corpus[key].patient for key, item in own.items()}
    for key, item in swapped.items():
        assert similar[item["neighbour"], item["similarity"]] != corpus[key].patient


def test_the_summary_counts_them_and_blank_images_are_all_answered_alike(done: Path) -> None:
    count = len((done / "predictions.jsonl").read_text().splitlines())
    assert json.loads((done / "summary.json").read_text())["controls"] == dict.fromkeys(
        ("noise", "blank", "swapped"), count
    )
    assert len({item["report"] for item in predictions(done, "blank").values()}) == 1


def test_a_sample_of_studies_and_of_controls_can_be_chosen(phantom: Path, tmp_path: Path) -> None:
    asked = GenerateConfig("stub:normal", phantom, "train", controls=("blank",), control_studies=5)
    assert generate(asked, tmp_path / "run").controls == {"blank": 5}
    chosen = list(predictions(tmp_path / "run", "blank"))
    order = load_corpus(phantom).ids("train")
    assert chosen == sorted(chosen, key=order.index) and not (tmp_path / "run" / control_file("noise")).exists()
    none = GenerateConfig("stub:normal", phantom, "train", control_studies=0)
    assert generate(none, tmp_path / "none").controls == {"noise": 0, "blank": 0, "swapped": 0}
    assert not list((tmp_path / "none").glob("predictions_*.jsonl"))


def test_one_patient_alone_has_nobody_to_swap_with(phantom: Path, tmp_path: Path) -> None:
    found = generate(GenerateConfig("stub:normal", phantom, "train", n=1), tmp_path / "run")
    assert found.controls == {"noise": 1, "blank": 1, "swapped": 0}


def test_an_unreadable_image_is_asked_for_by_no_control(own_phantom: Path, tmp_path: Path) -> None:
    corpus = load_corpus(own_phantom)
    lost, *others = corpus.ids("val")
    (own_phantom / corpus[lost].images[0].path).unlink()
    generate(GenerateConfig("stub:normal", own_phantom, "val", allow_missing=True), tmp_path / "run")
    for control in ("noise", "blank", "swapped"):
        assert list(predictions(tmp_path / "run", control)) == others

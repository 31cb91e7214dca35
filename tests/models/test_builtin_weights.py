"""What the shipped weights can do: little enough to be quick, enough that wrong weights fail."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cxrlab.core.atomic_folders import find_damage
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.synthetic_scenes import WORDS, draw_scene
from cxrlab.evaluation.load_model import load_model
from cxrlab.findings.finding_sentences import present_sentences
from cxrlab.findings.reader import read
from cxrlab.models.builtin import NAMES, WEIGHTS, has_weights
from cxrlab.models.model_card import read_model_card
from cxrlab.models.model_registry import load_encoder

pytestmark = pytest.mark.slow

IMAGES = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Images of patients whom no recipe has drawn."""
    config = PhantomConfig(n=IMAGES, size=128, seed=777, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("held_out") / "corpus")


def test_all_are_here_and_small() -> None:
    assert all(has_weights(name) for name in NAMES)
    assert sum(bytes_of(name) for name in NAMES) <= 36_000_000


def test_they_are_as_they_were_written() -> None:
    """A folder that is changed by hand needs new checksums: `core.atomic_folders.write_checksums`."""
    assert {name: find_damage(WEIGHTS / name) for name in NAMES} == dict.fromkeys(NAMES)


def bytes_of(name: str) -> int:
    return sum(file.stat().st_size for file in (WEIGHTS / name).glob("*"))


def test_they_say_what_they_come_from_by_names_that_a_user_has() -> None:
    for name in NAMES:
        card = read_model_card(WEIGHTS / name)
        assert card is not None and set(card.collections) == {"scenes", "phantom"}
        for file in (WEIGHTS / name).glob("*.json"):
            if not file.name.startswith("tokenizer"):
                assert "runs/" not in file.read_text() and "/checkpoint" not in file.read_text(), file


def test_the_reporter_names_what_is_there_and_its_side(corpus: Corpus) -> None:
    studies = list(corpus.studies())
    reasons = [study.sections.indication if study.sections else None for study in studies]
    answers = load_model("builtin:reporter").generate([corpus.image(study) for study in studies], reasons)
    hits = both = 0
    for study, answer in zip(studies, answers, strict=True):
        truth = Counter((one.observation, one.side) for one in study.findings or () if one.present)
        said = Counter((one.observation, one.side) for one in read(answer.text) if one.present)
        hits, both = hits + (truth & said).total(), both + (truth + said).total()
    assert both > 2 * IMAGES and 2 * hits / both > 0.7


def test_the_encoder_puts_a_image_beside_its_report(corpus: Corpus) -> None:
    studies = [study for study in corpus.studies() if any(one.present for one in study.findings or ())]
    encoder = load_encoder("builtin:encoder")
    images = encoder.embed_images([corpus.image(study) for study in studies])
    reports = [(study.sections.findings if study.sections else None) or "" for study in studies]
    texts = encoder.embed_texts([present_sentences(report) for report in reports])
    best = np.argsort(-images @ texts.T, axis=1)[:, :5]
    assert (best == np.arange(len(studies))[:, None]).any(1).mean() > 0.8


def test_the_outsider_describes_what_it_was_taught_to_see() -> None:
    """Colour and height of one object, seven by three of them; it stands for a model with general pretraining."""
    scenes = [draw_scene(777, number, 128) for number in range(IMAGES)]
    single = [(scene.image, scene.objects[0]) for scene in scenes if len(scene.objects) == 1]
    model = load_model("builtin:outsider")
    answers = model.generate([image.astype(np.float32) / 255 for image, _ in single])
    reported = [(answer.text.lower(), one) for answer, (_, one) in zip(answers, single, strict=True)]
    hits = [
        any(word in text for word in WORDS.colours[one.colour])
        and any(word in text for word in WORDS.heights[one.height])
        for text, one in reported
    ]
    assert len(hits) > 15 and sum(hits) / len(hits) > 0.6

"""Scenes: the same from the same seed, and every word of a caption is so."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from corpora import content

from cxrlab.core.randomness import generator
from cxrlab.data.check import check_corpus
from cxrlab.data.config import ScenesConfig
from cxrlab.data.synthetic_scenes import (
    BRIGHTNESSES,
    COLOURS,
    GROUNDS,
    HEIGHTS,
    SHAPES,
    SIDES,
    SIZES,
    WORDS,
    Scene,
    Words,
    coverage,
    draw_scene,
    make_scenes,
    noise,
)

pytestmark = pytest.mark.slow

MANY = range(120)
LUMINANCE = np.array([0.299, 0.587, 0.114])
FIELDS: dict[str, Words] = {
    "shape": WORDS.shapes,
    "colour": WORDS.colours,
    "brightness": WORDS.brightnesses,
    "size": WORDS.sizes,
    "side": WORDS.sides,
    "height": WORDS.heights,
}


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [draw_scene(7, number, 48) for number in MANY]


def said(caption: str, words: Words) -> set[str]:
    """The values of a field that a caption names, longest phrases first so that no part of one counts."""
    text = f" {caption.lower().replace(',', '').replace('.', '').replace(';', '')} "
    found = set()
    for phrase, value in sorted(((p, v) for v, ps in words.items() for p in ps), key=lambda pair: -len(pair[0])):
        if f" {phrase} " in text:
            found.add(value)
            text = text.replace(f" {phrase} ", " ")
    return found


def test_a_caption_states_the_whole_truth_and_nothing_else(scenes: list[Scene]) -> None:
    """For each field the words found in the caption are exactly the values of the objects."""
    for scene in scenes:
        for field, words in FIELDS.items():
            truth = {getattr(one, field) for one in scene.objects}
            # Words for the ground are taken out first: "under a sky", "coloured scraps" are not objects.
            text = scene.caption
            for phrase in WORDS.grounds[scene.ground]:
                text = text.replace(phrase, "").replace(phrase.capitalize(), "")
            assert said(text, words) == truth, (scene.caption, field)


def test_the_words_of_fields_do_not_overlap() -> None:
    """A word that meant two things would make a caption ambiguous."""
    phrases = [phrase for words in FIELDS.values() for options in words.values() for phrase in options]
    assert len(phrases) == len(set(phrases))
    known = (SHAPES, COLOURS, BRIGHTNESSES, SIZES, SIDES, HEIGHTS)
    for words, names in zip(FIELDS.values(), known, strict=True):
        assert set(words) == set(names)


def test_objects_are_where_and_as_large_as_stated(scenes: list[Scene]) -> None:
    """The middle lies in the stated third, with a margin; large ones are over twice as high as small ones."""
    thirds = {"left": 0, "centre": 1, "right": 2, "top": 0, "middle": 1, "bottom": 2}
    for scene in scenes:
        for one in scene.objects:
            assert int(one.x * 3) == thirds[one.side] and int(one.y * 3) == thirds[one.height]
            rows = np.where(coverage(one, 96).max(axis=1) > 0.5)[0]
            height = (np.ptp(rows) + 1) / 96
            assert (0.25 if one.shape != "bar" else 0.1) < height < 0.55 if one.size == "large" else height < 0.25


def test_objects_are_as_bright_as_stated(scenes: list[Scene]) -> None:
    """Mean luminance inside the mask: every bright object is lighter than every dark one."""
    seen: dict[str, list[float]] = {"bright": [], "dark": []}
    for scene in scenes:
        for one in scene.objects:
            inside = coverage(one, 48) > 0.99
            seen[one.brightness].append(float((scene.image[inside] / 255 @ LUMINANCE).mean()))
    assert len(seen["bright"]) > 30 and len(seen["dark"]) > 30
    assert min(seen["bright"]) > 0.45 > 0.35 > max(seen["dark"])


def test_objects_stand_out_from_the_ground(scenes: list[Scene]) -> None:
    """What a caption names can be seen: its colour differs from the pixels around it by 0.12 (root mean square)."""
    for scene in scenes:
        for one in scene.objects:
            inside, grown = coverage(one, 48) > 0.9, coverage(one, 48, softness=12) > 0.05
            around = grown & ~(coverage(one, 48, softness=4) > 0)
            difference = scene.image[inside].mean(0) / 255 - scene.image[around].mean(0) / 255
            assert np.sqrt((difference**2).mean()) > 0.12, (one, scene.ground)


def test_two_objects_do_not_touch(scenes: list[Scene]) -> None:
    """A covered object would make its words untrue."""
    pairs = [scene.objects for scene in scenes if len(scene.objects) == 2]
    assert pairs
    for first, second in pairs:
        assert not ((coverage(first, 96) > 0) & (coverage(second, 96) > 0)).any()


def test_the_collection_is_varied(scenes: list[Scene]) -> None:
    """Every ground, every value of every field, and hardly a caption twice."""
    assert {scene.ground for scene in scenes} == set(GROUNDS)
    for field, words in FIELDS.items():
        assert {getattr(one, field) for scene in scenes for one in scene.objects} == set(words)
    assert {len(scene.objects) for scene in scenes} == {0, 1, 2}
    assert len({scene.caption for scene in scenes}) > 0.95 * len(scenes)


def test_a_scene_depends_on_seed_and_number_alone() -> None:
    """The order of drawing does not matter; the size changes the pixels, not the truth."""
    first = draw_scene(7, 3, 64)
    draw_scene(7, 4, 64)
    again, other, large = draw_scene(7, 3, 64), draw_scene(8, 3, 64), draw_scene(7, 3, 96)
    assert np.array_equal(first.image, again.image) and first.caption == again.caption
    assert not np.array_equal(first.image, other.image)
    assert large.image.shape == (96, 96, 3) and large.caption == first.caption and large.objects == first.objects


def test_the_noise_has_a_natural_spectrum() -> None:
    """Amplitude falls as one over frequency: a log-log slope of -1 in the mean over 20 fields."""
    power = np.mean([np.abs(np.fft.rfft2(noise(generator(n), 128, 1.0))) ** 2 for n in range(20)], axis=0)
    frequency = np.hypot(np.fft.fftfreq(128)[:, None], np.fft.rfftfreq(128)[None, :])
    inside = (frequency > 0.02) & (frequency < 0.4)
    slope = np.polyfit(np.log(frequency[inside]), np.log(power[inside]) / 2, 1)[0]
    assert abs(slope + 1.0) < 0.05


def test_a_corpus_of_scenes(tmp_path: Path) -> None:
    """Sound, captioned, without sections; the same bytes with one worker and with two."""
    corpus = make_scenes(ScenesConfig(n=20, size=32, workers=2), tmp_path / "a")
    make_scenes(ScenesConfig(n=20, size=32, workers=1), tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert check_corpus(tmp_path / "a", workers=1).ok and len(corpus) == 20
    study = corpus["scene000001"]
    scene = draw_scene(7, 1, 32)
    assert study.caption == scene.caption and study.sections is None and study.split in ("train", "val", "test")
    assert study.extra["objects"] == [one.to_json() for one in scene.objects]
    assert np.array_equal(np.rint(corpus.rgb(study) * 255), scene.image)


PROGRAM = """
import sys
from cxrlab.data.config import ScenesConfig
from cxrlab.data.synthetic_scenes import make_scenes
make_scenes(ScenesConfig(n=200, size=64, workers=2), sys.argv[1])
"""


def test_a_corpus_survives_a_kill(tmp_path: Path) -> None:
    """Killed in the middle and started again: byte for byte what an undisturbed run gives."""
    out = tmp_path / "killed"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(out)], stderr=subprocess.DEVNULL)
    lines = out / "studies.jsonl"
    limit = time.monotonic() + 20
    while time.monotonic() < limit and not (lines.exists() and lines.stat().st_size > 2000):
        time.sleep(0.005)
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert not (out / "card.yaml").exists()
    config = ScenesConfig(n=200, size=64, workers=1)
    make_scenes(config, out)
    make_scenes(config, tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")

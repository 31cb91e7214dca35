from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from composition_members import study
from corpora import CARD
from PIL import Image

from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Report
from cxrlab.data.check import check_corpus
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.duplicates import image_groups, report_groups, study_text
from cxrlab.data.phantom.corpus import make_phantom

LONG = [f"word{k}" for k in range(60)]


def text(*changes: int) -> str:
    return " ".join("other" if k in changes else word for k, word in enumerate(LONG))


def test_case_punctuation_and_spacing_do_not_make_another_report() -> None:
    found = report_groups(
        [("a", "Heart normal."), ("b", "Lungs clear."), ("c", "heart  NORMAL"), ("d", "Heart, normal!")]
    )
    assert found.exact == (("a", "c", "d"),) and found.near == () and found.seen == 4


def test_a_report_with_a_changed_word_is_alike_and_with_many_is_not() -> None:
    """One word of 60 touches 3 of 58 phrases (55 / 61 = 0.90); every fourth word leaves no phrase whole."""
    found = report_groups([("a", text()), ("b", text(30)), ("c", text(*range(0, 60, 3))), ("d", text())])
    assert found.near == (("a", "b"),), "a repeated text stands there once, by its first name"
    assert found.exact == (("a", "d"),)


def test_nothing_to_compare() -> None:
    assert report_groups([]).seen == 0
    assert report_groups([("a", ""), ("b", " ... ")]).seen == 0, "a text without a word says nothing"
    assert image_groups([]).near == ()


def test_near_duplicates_are_found_among_very_many() -> None:
    """200 planted pairs among 4,000 unrelated reports: all found, nothing else."""
    rng = np.random.default_rng(3)
    vocabulary = [f"w{k}" for k in range(2000)]
    texts = [rng.choice(vocabulary, 60).tolist() for _ in range(4000)]
    planted = [(f"twin{k}", [*texts[k][:20], "changed", *texts[k][21:]]) for k in range(200)]
    named = [(f"t{k}", " ".join(one)) for k, one in enumerate(texts)] + [(name, " ".join(one)) for name, one in planted]
    found = report_groups(named)
    assert sorted(found.near) == sorted((f"t{k}", f"twin{k}") for k in range(200))


def test_hashes_a_few_bits_apart_are_joined() -> None:
    """Planted at known distances among random hashes, which are about 128 bits apart."""
    rng = np.random.default_rng(5)
    base = [int.from_bytes(rng.bytes(32), "big") for _ in range(2000)]

    def flipped(value: int, bits: int) -> int:
        for bit in rng.choice(256, bits, replace=False).tolist():
            value ^= 1 << bit
        return value

    near = [(f"n{k}", flipped(base[k], 20)) for k in range(200)]
    far = [(f"f{k}", flipped(base[1000 + k], 40)) for k in range(200)]
    named = [*((f"b{k}", value) for k, value in enumerate(base)), *near, *far]
    found = image_groups((name, name.encode(), value) for name, value in named)
    assert sorted(found.near) == sorted((f"b{k}", f"n{k}") for k in range(200))


def test_one_name_stands_for_images_of_the_same_pixels() -> None:
    found = image_groups([("a", b"1", 0), ("b", b"1", 0), ("c", b"2", 1), ("d", b"3", (1 << 200) - 1)])
    assert found.exact == (("a", "b"),) and found.near == (("a", "c"),)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"sections": Report(findings="A.", impression="B.")}, "A.\nB."),
        ({"sections": Report(findings=" ", indication="C."), "report": "Whole."}, "Whole."),
        ({"sections": None, "report": "Entero."}, "Entero."),
        ({"sections": None, "report": " "}, None),
    ],
)
def test_the_text_of_a_study_is_the_source_s(changes: dict[str, object], wanted: str | None) -> None:
    assert study_text(study(0, structured={"gpt": {"findings": "Never."}}, **changes)) == wanted


@pytest.fixture
def repeated(tmp_path: Path) -> Corpus:
    """Four phantom images; s4 is s0 with another compression, s5 is s1 as a JPEG, s6 repeats the words of s2."""
    phantom = make_phantom(PhantomConfig(n=4, size=128, seed=5, masks=False, workers=1), tmp_path / "phantom")
    images = [np.rint(phantom.image(one) * 255).astype(np.uint8) for one in phantom]
    data = [encode_png(image) for image in images]
    png, jpeg = io.BytesIO(), io.BytesIO()
    Image.fromarray(images[0]).save(png, "PNG", compress_level=0)
    Image.fromarray(images[1]).save(jpeg, "JPEG", quality=80)
    noise = encode_png(np.random.default_rng(1).integers(0, 256, (64, 64), dtype=np.uint8))
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        for k, image in enumerate([*data, png.getvalue(), jpeg.getvalue(), noise]):
            words = Report(findings=f"Wholly other words {' '.join(f'{k}x{n}' for n in range(9))}")
            changes = {"sections": Report(findings="The same.")} if k in (2, 6) else {"sections": words}
            writer.add(study(k, **changes), {f"images/s{k}_0.png": image})
    return writer.finish()


def test_a_corpus_states_its_repeated_reports_and_images(repeated: Corpus) -> None:
    """Through the check, which reads each image once; the same with any number of workers."""
    found = check_corpus(repeated.path, 1, duplicates=True).duplicates
    assert found is not None
    assert found.reports.exact == (("s2", "s6"),) and found.reports.near == ()
    assert found.images.exact == (("s0#0", "s4#0"),) and found.images.near == (("s1#0", "s5#0"),)
    assert check_corpus(repeated.path, 2, duplicates=True).duplicates == found
    assert check_corpus(repeated.path, 1).duplicates is None

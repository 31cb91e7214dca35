"""The phantom corpus on disk: same seed same bytes, exact counts, truth that agrees with itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from phantom_fingerprint import fingerprint

from cxrlab.core.errors import RunError
from cxrlab.core.records import chexpert_labels
from cxrlab.data.check import check_corpus
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom import corpus as phantom
from cxrlab.data.phantom.corpus import make_phantom, patients_with_visits, study_id
from cxrlab.data.phantom.render import PhantomPatient, render
from cxrlab.findings.simulated_patients import draw_patient

pytestmark = pytest.mark.slow

SMALL = PhantomConfig(n=24, size=48, seed=3, workers=1)


def digest(folder: Path) -> dict[str, str]:
    """Every file below a folder with its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    """Order and content depend on the seed alone."""
    make_phantom(SMALL, tmp_path / "one")
    make_phantom(PhantomConfig(n=24, size=48, seed=3, workers=2), tmp_path / "two")
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_exactly_n_studies_and_a_longer_corpus_begins_with_the_shorter(tmp_path: Path) -> None:
    """Study k does not depend on n."""
    short = make_phantom(SMALL, tmp_path / "short")
    long = make_phantom(PhantomConfig(n=40, size=48, seed=3, workers=1), tmp_path / "long")
    assert (len(short), len(long)) == (24, 40)
    assert [s.to_json() for s in short] == [s.to_json() for s in long][:24]
    assert sum(order.visits for order in patients_with_visits(PhantomConfig(n=997))) == 997


def test_the_corpus_passes_its_own_check(tmp_path: Path) -> None:
    """Readable images and masks, known words, priors that exist, no patient in two splits."""
    make_phantom(SMALL, tmp_path / "c")
    report = check_corpus(tmp_path / "c")
    assert report.ok, report.to_json()


def test_labels_masks_and_spans_agree_with_the_findings(tmp_path: Path) -> None:
    """One truth in four forms."""
    corpus = make_phantom(SMALL, tmp_path / "c")
    seen = 0
    for study in corpus:
        findings = study.findings or ()
        assert study.labels == chexpert_labels(findings, complete=True)
        assert set(study.masks) == {str(k) for k, finding in enumerate(findings) if finding.present}
        text = study.sections.findings if study.sections else None
        assert text
        for finding in findings:
            assert finding.span is not None
            start, end = finding.span
            assert 0 <= start < end <= len(text)
        for index in study.masks:
            mask = corpus.mask(study, int(index))
            assert mask is not None and mask.any()
            seen += 1
    assert seen > 20


def test_stored_images_and_masks_are_the_rendered_ones(tmp_path: Path) -> None:
    """Every image within half a grey level, every mask bit for bit, in their own orientation."""
    corpus = make_phantom(SMALL, tmp_path / "c")
    for order in patients_with_visits(SMALL):
        case = draw_patient(SMALL.seed, order.patient)
        phantom_patient = PhantomPatient(SMALL.seed, order.patient, case.visits[0].sex, case.visits[0].age)
        for visit in case.visits[: order.visits]:
            study = corpus[study_id(order.patient, visit.number)]
            image = render(phantom_patient, visit.number, visit.view, visit.findings, SMALL.size)
            assert np.abs(corpus.image(study) - image.image).max() <= 0.51 / 255
            assert set(study.masks) == {str(index) for index in image.masks}
            for index, mask in image.masks.items():
                stored = corpus.mask(study, index)
                assert stored is not None and np.array_equal(stored, mask)


def test_who_and_when_agree_with_the_case(tmp_path: Path) -> None:
    """Age, sex, view and prior of each study are those of the visit."""
    corpus = make_phantom(SMALL, tmp_path / "c")
    for order in patients_with_visits(SMALL):
        before = None
        for visit in draw_patient(SMALL.seed, order.patient).visits[: order.visits]:
            study = corpus[study_id(order.patient, visit.number)]
            assert (study.age, study.sex, study.images[0].view) == (visit.age, visit.sex, visit.view)
            assert study.prior == before
            before = study.id


def test_a_changed_drawing_raises_its_number() -> None:
    """The mean grey of quarter images, to a hundredth, and the words of reports, as they were for this number.

    When this fails because images or words were changed on purpose, raise `DRAWING` and renew both
    lines with `python tests/data/phantom/renew_drawing.py`.
    """
    assert fingerprint() == json.loads(Path(__file__).with_name("drawing.json").read_text())


def test_an_interrupted_corpus_continues_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure midway keeps what is there; the next call finishes it as if nothing had happened."""
    make_phantom(SMALL, tmp_path / "whole")
    real, calls = phantom.render, 0

    def stops(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 9:
            raise KeyboardInterrupt
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(phantom, "render", stops)
    with pytest.raises(KeyboardInterrupt):
        make_phantom(SMALL, tmp_path / "cut")
    monkeypatch.undo()
    assert not (tmp_path / "cut" / "card.yaml").exists()
    make_phantom(SMALL, tmp_path / "cut")
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def test_a_finished_corpus_is_left_alone_and_other_settings_are_refused(tmp_path: Path) -> None:
    """Same settings: nothing happens. Other settings: a sentence, and the old bytes."""
    make_phantom(SMALL, tmp_path / "c")
    before = digest(tmp_path / "c")
    make_phantom(SMALL, tmp_path / "c")
    with pytest.raises(RunError, match="seed"):
        make_phantom(PhantomConfig(n=24, size=48, seed=4, workers=1), tmp_path / "c")
    assert digest(tmp_path / "c") == before
    assert len(load_corpus(tmp_path / "c")) == 24


def test_shares_of_normal_and_faint_follow_the_settings() -> None:
    """All normal, or none; faint findings are possible ones."""
    normal = PhantomConfig(n=60, size=32, normal=1.0)
    assert all(
        not drawn.study.masks for order in patients_with_visits(normal) for drawn in phantom.draw_studies(normal, order)
    )
    faint = PhantomConfig(n=40, size=32, normal=0.0, faint=1.0)
    studies = [drawn.study for order in patients_with_visits(faint) for drawn in phantom.draw_studies(faint, order)]
    assert all(study.masks for study in studies)
    assert any(-1 in study.labels.values() for study in studies)


def test_a_second_text_with_mistakes_stands_beside_train_studies_alone(tmp_path: Path) -> None:
    from cxrlab.core.records import SPLITS
    from cxrlab.findings.reader import read

    plain = make_phantom(PhantomConfig(n=60, size=32, seed=5, masks=False, workers=1), tmp_path / "plain")
    corpus = make_phantom(
        PhantomConfig(n=60, size=32, seed=5, masks=False, mistakes=4, workers=1), tmp_path / "mistaken"
    )
    studies = list(corpus.studies())
    assert {study.split for study in studies} == set(SPLITS)
    assert all(bool(study.structured) == (study.split == "train") for study in studies)
    # Images, truth and the report itself are those of the corpus without a second text.
    for study, other in zip(studies, plain.studies(), strict=True):
        assert (study.findings, study.sections, study.images) == (other.findings, other.sections, other.images)
    kinds = [
        (
            {finding.observation for finding in read(text) if finding.present},
            {f.observation for f in truth if f.present},
        )
        for study in studies
        if (text := study.structured.get("mistaken", {}).get("findings")) and (truth := study.findings) is not None
    ]
    wrong = sum(said != reported for said, reported in kinds)
    assert 0.2 < wrong / len(kinds) < 0.95  # some plans make no mistake, or one about a side or a size

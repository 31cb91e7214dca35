"""A corpus in another data set's layout comes back through that data set's importer."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import composition_members as members
import numpy as np
import pytest
from corpora import CARD, content, drawn, toy_corpus

from cxrlab.core.errors import DataError, RunError, UnknownName
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import Report, Study
from cxrlab.core.tables import plain_cell, safe_cell
from cxrlab.data.config import ImportConfig, PhantomConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.export import EXPORTERS, export_corpus, numbered, printed
from cxrlab.data.importing import import_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.sections import parse


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_phantom(PhantomConfig(n=40, size=64, seed=5), tmp_path_factory.mktemp("phantoms") / "c")


def names(folder: Path, key: str) -> dict[str, str]:
    """Name in the layout → id in the corpus."""
    with (folder / "ids.csv").open() as stream:
        return {row[key]: row["id"] for row in csv.DictReader(stream)}


def words(report: Report | None) -> dict[str, list[str]]:
    """The words of each section: where a printed line ends is not known, so an item of a list may begin a line."""
    return {name: text.split() for name, text in (report or Report()).to_json().items() if text is not None}


def test_mimic_and_back(phantoms: Corpus, tmp_path: Path) -> None:
    """Words, labels, views, splits, priors survive; pixels come near, since the images are JPEG there."""
    folder = export_corpus("mimic-cxr", phantoms, tmp_path / "m")
    back = import_corpus("mimic-cxr", ImportConfig(folder), tmp_path / "c")
    ids = names(folder, "study_id")
    ours = {study.id.lstrip("s"): study for study in back}
    assert ours.keys() == ids.keys()
    for name, study in ours.items():
        source = phantoms[ids[name]]
        assert words(study.sections) == words(source.sections) and study.labels == source.labels
        assert study.split == source.split and study.sex == source.sex and study.age == source.age
        assert [image.view for image in study.images] == [image.view for image in source.images]
        assert (study.prior is None) == (source.prior is None)
        assert np.abs(back.image(study) - phantoms.image(source)).mean() < 0.02


def test_nih_and_back(phantoms: Corpus, tmp_path: Path) -> None:
    """Labels are those of the exact findings; the images are the same to the pixel."""
    folder = export_corpus("nih-cxr14", phantoms, tmp_path / "n")
    back = import_corpus("nih-cxr14", ImportConfig(folder), tmp_path / "c")
    ids = names(folder, "Image Index")
    for study in back:
        source = phantoms[ids[f"{study.id}.png"]]
        there = {finding.observation for finding in source.findings or () if finding.present}
        wanted = {name for name, row in NIH_CXR14.items() if there & set(row.observations)}
        assert {name for name, value in study.own_labels.items() if value == 1} == wanted
        assert (study.split == "test") == (source.split == "test") and study.sex == source.sex
        assert (back.image(study) == phantoms.image(source)).all()
        for box in study.boxes or ():
            left, top, right, bottom = box.corners
            assert 0 <= left < right <= 64 and 0 <= top < bottom <= 64 and box.label in wanted


@pytest.mark.parametrize("name", EXPORTERS)
def test_the_same_corpus_gives_the_same_bytes_also_after_a_stop(phantoms: Corpus, tmp_path: Path, name: str) -> None:
    """The tables come last; until they are there the folder may be written again."""
    whole = content(export_corpus(name, phantoms, tmp_path / "a"))
    stopped = export_corpus(name, phantoms, tmp_path / "b", workers=1)
    for path in sorted(stopped.rglob("*"))[::2]:
        if path.is_file():
            path.unlink()
    (stopped / ".export").write_text("")
    assert content(export_corpus(name, phantoms, stopped)) == whole


def test_a_folder_with_other_files_and_an_unknown_layout_are_refused(phantoms: Corpus, tmp_path: Path) -> None:
    export_corpus("nih-cxr14", phantoms, tmp_path / "n")
    with pytest.raises(RunError, match="holds other files"):
        export_corpus("nih-cxr14", phantoms, tmp_path / "n")
    with pytest.raises(UnknownName):
        export_corpus("nih", phantoms, tmp_path / "x")


def test_visits_are_counted_by_patient(tmp_path: Path) -> None:
    """Three studies, two of one patient: visits 0 and 1, and 0 of the other."""
    toy_corpus(tmp_path / "c", 3, {1: {"patient": "p0", "prior": "s0"}})
    found = numbered(load_corpus(tmp_path / "c").studies())
    assert [(one.study.id, one.patient, one.visit) for one in found] == [("s0", 0, 0), ("s1", 0, 1), ("s2", 1, 0)]


def test_a_printed_report_is_wrapped_and_can_be_parsed() -> None:
    report = Report(indication="Cough.", findings="The lungs are clear. " * 9 + "End.", impression="Normal.")
    text = printed(report)
    assert max(map(len, text.splitlines())) <= 79 and " \n INDICATION:  Cough." in text
    assert parse(text).report == report


def test_a_corpus_without_splits_comes_back_without(tmp_path: Path) -> None:
    """A study in no split is in no row of the table of splits, which has no word for it."""
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        one = drawn(0)
        writer.add(dataclasses.replace(one.study, split=None), one.files)
    export_corpus("mimic-cxr", load_corpus(tmp_path / "c"), tmp_path / "out", 1)
    back = import_corpus("mimic-cxr", ImportConfig(tmp_path / "out", workers=1), tmp_path / "back")
    assert [study.split for study in back] == [None]


def test_patients_of_unknown_age_and_sex_come_back(tmp_path: Path) -> None:
    """Neither is known in most real corpora; the rest of the table must not be lost over it."""
    source = members.corpus(tmp_path / "c", [members.study(0), members.study(1, age=50, sex="F")])
    folder = export_corpus("mimic-cxr", source, tmp_path / "m")
    back = import_corpus("mimic-cxr", ImportConfig(folder), tmp_path / "back")
    assert sorted((one.age or 0, one.sex or "") for one in back) == [(0, ""), (50, "F")]


def test_a_corpus_of_which_nothing_fits_the_layout_is_refused(tmp_path: Path) -> None:
    """An empty export that passes for a good one would be found out much later."""
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        writer.add(Study("s", "p"))
    for name in EXPORTERS:
        with pytest.raises(DataError, match=f"can be written as {name}"):
            export_corpus(name, load_corpus(tmp_path / "c"), tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


def test_no_cell_begins_like_a_formula_and_ids_lead_back(tmp_path: Path) -> None:
    """A spreadsheet would run `=HYPERLINK(…)`; numbers below zero stay numbers."""
    ids = ["=1+2", "+x", "-x", "@SUM(A1)", "'=already", "'plain", "-0.12", "s0"]
    source = toy_corpus(tmp_path / "c", len(ids), {place: {"id": key} for place, key in enumerate(ids)})
    folder = export_corpus("nih-cxr14", source, tmp_path / "n")
    with (folder / "ids.csv").open(newline="") as stream:
        head, *rows = csv.reader(stream)
    cells = [row[head.index("id")] for row in rows]
    assert cells == ["'=1+2", "'+x", "'-x", "'@SUM(A1)", "''=already", "'plain", "-0.12", "s0"]
    assert [plain_cell(cell) for cell in cells] == ids
    assert [safe_cell(cell) for cell in ("\tx", "\rx", "-1.5e-3", -0.12, None)] == [
        "'\tx",
        "'\rx",
        "-1.5e-3",
        -0.12,
        "",
    ]

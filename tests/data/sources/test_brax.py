"""BRAX: columns by name, ages in groups, odd views, several images a study."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from importing import expected, study_lines

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import NOT_IN_FOLDER, import_corpus
from cxrlab.data.sources.brax import plan

FIXTURE = Path(__file__).parent / "fixtures" / "brax"
TABLE = "master_spreadsheet_update.csv"


def test_the_studies_are_as_written_by_hand() -> None:
    """Sixteen rows: five ways to write an age, seven views, two images that disagree, rows without ids."""
    assert study_lines("brax", FIXTURE) == expected(FIXTURE)


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    """Copies differ in their first columns; the older name of the file is found too."""
    with (FIXTURE / TABLE).open(newline="") as file:
        rows = list(csv.reader(file))
    with (tmp_path / "master_spreadsheet.csv").open("w", newline="") as file:
        csv.writer(file).writerows([row[::-1][:-1] for row in rows])  # reversed, and without the index
    assert study_lines("brax", tmp_path) == expected(FIXTURE)


def test_dicom_images_are_used_when_the_png_folder_is_absent_or_when_requested(tmp_path: Path) -> None:
    (tmp_path / TABLE).write_bytes((FIXTURE / TABLE).read_bytes())
    (tmp_path / "Anonymized_DICOMs").mkdir()
    assert plan(ImportConfig(tmp_path)).layout == "dicom"
    first = study_lines("brax", tmp_path)[0]["study"]["images"][0]
    assert first == {"path": "Anonymized_DICOMs/id_aa/Study_1.11/Series_1.1/image-1.dcm", "view": "PA"}
    (tmp_path / "images").mkdir()
    assert plan(ImportConfig(tmp_path)).layout == "png"
    assert plan(ImportConfig(tmp_path, layout="dicom")).layout == "dicom"
    with pytest.raises(ConfigError, match=r"layout='pmg' is unknown here\. Did you mean 'png'"):
        plan(ImportConfig(tmp_path, layout="pmg"))


def test_the_corpus_has_text_from_labels_and_counts_what_is_missing(tmp_path: Path) -> None:
    """None of the nine studies' images lies in the fixture; three rows lead to no study."""
    corpus = import_corpus("brax", ImportConfig(FIXTURE, workers=1), tmp_path / "corpus")
    assert corpus.card.counts == {"studies": 9, "patients": 6, "images": 0}
    assert corpus.card.remarks[NOT_IN_FOLDER] == 9
    assert corpus.card.dropped == {
        "row without a patient id": 1,
        "row without an accession number": 1,
        "row without the path of its image": 1,
    }
    study = corpus["A10"]
    assert study.sections is None and study.structured["labels"]["findings"]
    assert [image.view for image in corpus["A11"].absent_images or ()] == ["PA", "lateral"]


@pytest.mark.parametrize(
    ("before", "after", "told_of"),
    [
        ("Lung Lesion", "Lung Lesions", r"no column 'Lung Lesion'\. Did you mean 'Lung Lesions'"),
        ("AccessionNumber", "Accession", "no column 'AccessionNumber'"),
        ("PngPath", "Png", "no column 'PngPath'"),
        ("1.0,,,,,,,,,,,,,,PA", "yes,,,,,,,,,,,,,,PA", r"csv:2: 'No Finding' is 'yes'"),
    ],
)
def test_a_broken_table_is_a_sentence(tmp_path: Path, before: str, after: str, told_of: str) -> None:
    text = (FIXTURE / TABLE).read_text()
    assert before in text
    (tmp_path / TABLE).write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=told_of):
        plan(ImportConfig(tmp_path))


def test_a_folder_without_the_table_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold the table of images"):
        plan(ImportConfig(tmp_path))

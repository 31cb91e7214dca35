"""PadChest: lists written as Python writes them, Spanish reports, projections, ages from years of birth."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from importing import expected, study_lines
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.label_maps import PADCHEST
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.padchest import listed, plan

FIXTURE = Path(__file__).parent / "fixtures" / "padchest"
TABLE = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"


def test_the_studies_are_as_written_by_hand() -> None:
    """Twenty rows in the 36 columns of the published table."""
    assert study_lines("padchest", FIXTURE) == expected(FIXTURE)


def test_the_packed_table_is_read_too(tmp_path: Path) -> None:
    (tmp_path / f"{TABLE}.gz").write_bytes(gzip.compress((FIXTURE / TABLE).read_bytes()))
    assert study_lines("padchest", tmp_path) == expected(FIXTURE)


@every_row(
    ("cell", "words"),
    [
        ("['normal']", ("normal",)),
        ("[]", ()),
        ("", ()),
        ("nan", ()),
        ("[nan]", ()),
        ("['a', nan, ' b  c ']", ("a", "b c")),
        ("""["'bone metastasis'", 'nan', '']""", ("bone metastasis",)),
        ("['normal', 'nanny, nan']", ("normal", "nanny, nan")),
        ("['normal'", None),
        ("normal", None),
        ("'normal'", None),
        ("{'normal'}", None),
        ("['normal', 3]", None),
        ("[['normal']]", None),
        ("[print('x')]", None),
        ("__import__('os').abort()", None),
        ("[" * 5000, None),
        ("['" + "a" * 200_000 + "']", None),
    ],
)
def test_a_cell_is_read_as_data_and_nothing_is_run(cell: str, words: tuple[str, ...] | None) -> None:
    assert listed(cell) == words


def test_all_193_published_labels_have_a_row() -> None:
    """174 findings and 19 diagnoses, by the authors' count; each row leads somewhere or says why not."""
    assert len(PADCHEST) == 193


def test_images_are_found_in_their_folder_or_flat(tmp_path: Path) -> None:
    shutil.copy(FIXTURE / TABLE, tmp_path)
    for name in ("a1.png", "0/a1_l.png", "images/b1.png", "images/3/c1.png", "7.zip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    lines = [line["study"] for line in study_lines("padchest", tmp_path) if "study" in line]
    paths = {study["id"]: [image["path"] for image in study["images"]] for study in lines}
    assert paths["s-a1"] == ["a1.png", "0/a1_l.png"]
    assert paths["s-b1"] == ["images/b1.png"] and paths["s-c1"] == ["images/3/c1.png"]
    assert paths["s-g1"] == ["7/g1.png"], "an image in a packed folder is absent under its usual path"


def test_a_path_that_leaves_the_folder_is_left_out(tmp_path: Path) -> None:
    text = (FIXTURE / TABLE).read_text().replace("a0.png", "../../secret.png", 1)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / TABLE).write_text(text)
    corpus = import_corpus("padchest", ImportConfig(tmp_path / "root", workers=1), tmp_path / "corpus")
    assert corpus.card.dropped["the path of an image leaves the source folder"] == 1


def test_the_corpus_keeps_spanish_whole_and_makes_no_sections(tmp_path: Path) -> None:
    corpus = import_corpus("padchest", ImportConfig(FIXTURE, workers=1), tmp_path / "corpus")
    study = corpus["s-a0"]
    assert study.report == "derram pleural izquierd ." and study.sections is None and not study.structured
    assert study.extra["language"] == "es"
    assert corpus.card.remarks["label without a row in the map"] == 1


@pytest.mark.parametrize("column", ["ImageID", "StudyID", "PatientID", "Projection", "Report", "Labels"])
def test_a_missing_column_is_a_sentence(tmp_path: Path, column: str) -> None:
    (tmp_path / TABLE).write_text((FIXTURE / TABLE).read_text().replace(f",{column},", ",other,", 1))
    with pytest.raises(DataError, match=f"no column '{column}'"):
        plan(ImportConfig(tmp_path))

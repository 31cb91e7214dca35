"""MIMIC-CXR: every odd row of its tables, reports in a folder or a zip file, and the DICOM form."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, import_corpus
from cxrlab.data.sources import mimic_cxr
from cxrlab.data.sources import mimic_cxr as mimic_tables
from cxrlab.data.sources import mimic_cxr as mimic_visits
from cxrlab.data.sources.mimic_cxr import plan

FIXTURE = Path(__file__).parent / "fixtures" / "mimic_cxr"
METADATA = "mimic-cxr-2.0.0-metadata.csv"
FIRST_IMAGE = "files/p10/p10990001/s50990002/a0000000-00000000-00000000-00000000-00000001"


def answers(config: ImportConfig) -> list[Imported | Dropped]:
    found = plan(config)
    return [found.read(item) for item in found.items]


def studies(config: ImportConfig) -> dict[str, Imported]:
    return {one.study.id: one for one in answers(config) if isinstance(one, Imported)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the fixture that a test may change."""
    return shutil.copytree(FIXTURE, tmp_path / "mimic")


def test_the_nineteen_rows_are_as_written_by_hand() -> None:
    """Each expected study was derived from the rows and texts by a person, not by the importer."""
    expected = [json.loads(line) for line in (FIXTURE / "expected.jsonl").read_text().splitlines()]
    for one, wanted in zip(answers(ImportConfig(FIXTURE)), expected, strict=True):
        assert isinstance(one, Imported)
        reported = one.study.to_json()
        file = FIXTURE / "files" / reported["patient"][:3] / reported["patient"] / f"{reported['id']}.txt"
        text = file.read_text() if file.exists() else ""
        assert reported.pop("report", "") == (text if text.strip() else "")
        assert (reported, list(one.remarks)) == (wanted["study"], wanted["remarks"])


def test_what_belongs_to_no_study_is_counted() -> None:
    """One image stands twice in the metadata; one study is in the labels and the split, and has no image."""
    found = plan(ImportConfig(FIXTURE))
    assert found.remarks == {
        mimic_visits.LISTED_TWICE: 1,
        mimic_visits.SPLIT_WITHOUT_IMAGE: 1,
        mimic_visits.LABELS_WITHOUT_STUDY: 1,
    }
    assert (found.total, found.layout, found.collections) == (11, "jpg 2.1.0, patients of MIMIC-IV", ("beth-israel",))


def test_packed_tables_and_a_zip_of_reports_give_the_same_studies(root: Path, tmp_path: Path) -> None:
    """The host ships tables as gzip and the reports as one zip file; the fixture is the same, unpacked."""
    before = answers(ImportConfig(root))
    archive = tmp_path / "elsewhere" / "mimic-cxr-reports.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(root.rglob("*.txt")):
            packed.write(file, file.relative_to(root))
    shutil.rmtree(root / "files")
    for table in root.glob("*.csv"):
        (table.parent / f"{table.name}.gz").write_bytes(gzip.compress(table.read_bytes()))
        table.unlink()
    assert answers(ImportConfig(root, reports=archive)) == before
    assert answers(ImportConfig(root, reports=archive.parent)) == before
    shutil.copy(archive, root)
    assert answers(ImportConfig(root)) == before
    assert plan(ImportConfig(root, reports=archive)).layout.endswith("reports apart, patients of MIMIC-IV")


def test_reports_and_patients_may_lie_apart(root: Path, tmp_path: Path) -> None:
    """The reports are another download than the images; MIMIC-IV's patients are a third."""
    before = answers(ImportConfig(root))
    apart = tmp_path / "reports"
    shutil.move(root / "files", apart / "mimic-cxr-reports" / "files")
    shutil.move(root / "patients.csv", tmp_path)
    assert answers(ImportConfig(root, reports=apart)) == before
    without = studies(ImportConfig(root))["s50990001"]
    assert (without.study.age, without.study.sex, without.study.sections) == (None, None, None)
    assert mimic_cxr.NO_REPORT in without.remarks


def test_without_the_other_tables_nothing_is_made_up(root: Path) -> None:
    """No split, no label: unknown, and said of each of the eleven studies."""
    for table in root.glob("*.csv"):
        if table.name != METADATA:
            table.unlink()
    found = studies(ImportConfig(root))
    assert {one.study.split for one in found.values()} == {None}
    assert all(not one.study.labels for one in found.values())
    reported = [remark for one in found.values() for remark in one.remarks]
    assert reported.count(mimic_cxr.NO_SPLIT) == reported.count(mimic_cxr.NO_LABELS) == 11


def test_a_study_that_is_labelled_twice_keeps_the_stronger_label(root: Path) -> None:
    """A presence outweighs a doubt, and a blank says nothing."""
    table = root / "mimic-cxr-2.0.0-chexpert.csv"
    table.write_text(table.read_text() + "10990002,50990004,,0.0,,1.0,,,1.0,,,,,,,\n")
    found = plan(ImportConfig(root))
    assert found.remarks[mimic_tables.LABELLED_TWICE] == 1
    assert studies(ImportConfig(root))["s50990004"].study.labels == {"Cardiomegaly": 1, "Edema": 1, "Lung Lesion": 1}


def test_a_report_that_is_not_utf8_is_read_and_remarked(root: Path) -> None:
    (root / "files/p10/p10990002/s50990005.txt").write_bytes(b" FINDINGS: Caf\xe9 phantom.\n")
    one = studies(ImportConfig(root))["s50990005"]
    assert one.study.report == " FINDINGS: Café phantom.\n"
    assert "report is not UTF-8 text, read as Latin-1" in one.remarks


def test_a_report_in_which_nothing_is_found_has_no_sections(root: Path) -> None:
    (root / "files/p10/p10990002/s50990005.txt").write_text("FINAL REPORT\n")
    one = studies(ImportConfig(root))["s50990005"]
    assert one.study.sections is None and one.study.report == "FINAL REPORT\n" and mimic_cxr.NO_SECTION in one.remarks


def test_workers_that_share_a_zip_file_do_not_disturb_each_other(root: Path, tmp_path: Path) -> None:
    """A handle that came with a fork has one place in the file for everybody: texts would get mixed up or torn."""
    table, reports = (root / METADATA).read_text().splitlines()[:2], tmp_path / "mimic-cxr-reports.zip"
    header, row = table
    for file in root.glob("*.csv"):
        file.unlink()
    numbers = range(51000000, 51000400)
    (root / METADATA).write_text("\n".join([header, *(row.replace("50990002", str(one)) for one in numbers)]) + "\n")
    with zipfile.ZipFile(reports, "w", zipfile.ZIP_DEFLATED) as packed:
        for one in numbers:
            packed.writestr(f"files/p10/p10990001/s{one}.txt", f" FINDINGS: Phantom {one}. " * 50)
    corpus = import_corpus("mimic-cxr", ImportConfig(root, reports=reports, workers=4), tmp_path / "corpus")
    reported = {study.id: study.report for study in corpus}
    assert reported == {f"s{one}": f" FINDINGS: Phantom {one}. " * 50 for one in numbers}


def test_images_may_lie_in_the_root_itself(root: Path) -> None:
    """Some keep p10 to p19 without the folder above."""
    (root / "files").rename(root / "old")
    (root / "p10").mkdir()
    assert studies(ImportConfig(root))["s50990001"].study.images[0].path.startswith("p10/p10990001/s50990001/a0")


@pytest.mark.parametrize(
    ("table", "before", "after", "reported"),
    [
        (METADATA, "ViewPosition", "View", "no column 'ViewPosition'"),
        (METADATA, "-00000003,10990001", "-00000003,x", r"metadata\.csv:4: 'subject_id' is 'x'"),
        (METADATA, "-00000002,10990001", "-00000002,10990002", "under the subjects"),
        (METADATA, "a0000000-00000000-00000000-00000000-00000003", "", r":4: 'dicom_id' is empty"),
        ("mimic-cxr-2.0.0-split.csv", ",validate", ",validation", "Did you mean 'validate'"),
        ("mimic-cxr-2.0.0-chexpert.csv", ",-1.0", ",-2.0", r"chexpert\.csv:3: 'Pneumonia' is '-2\.0'"),
        ("mimic-cxr-2.0.0-chexpert.csv", ",Edema", ",Oedema", "no column 'Edema'"),
        ("patients.csv", "F,52", "F,old", r"patients\.csv:2: 'anchor_age'"),
    ],
)
def test_a_broken_table_is_a_sentence(root: Path, table: str, before: str, after: str, reported: str) -> None:
    text = (root / table).read_text()
    assert before in text
    (root / table).write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=reported):
        plan(ImportConfig(root))


def test_a_image_in_two_splits_keeps_the_first(root: Path) -> None:
    table = root / "mimic-cxr-2.0.0-split.csv"
    first = table.read_text().splitlines()[1]
    table.write_text(table.read_text() + first.replace("train", "test") + "\n")
    assert plan(ImportConfig(root)).remarks[mimic_tables.IN_TWO_SPLITS] == 1
    assert studies(ImportConfig(root))["s50990002"].study.split == "train"


def test_a_folder_without_the_table_and_an_unknown_layout_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold the table of images of MIMIC-CXR-JPG"):
        plan(ImportConfig(tmp_path))
    with pytest.raises(ConfigError, match="Choose one of jpg, dicom"):
        plan(ImportConfig(tmp_path, layout="png"))
    with pytest.raises(DataError, match="does not exist"):
        plan(ImportConfig(tmp_path / "nowhere"))


def dicom_root(root: Path) -> Path:
    """The same images as DICOM files, listed as MIMIC-CXR lists them; one study of the list has no image."""
    rows = [line.split(",") for line in (root / METADATA).read_text().splitlines()[1:]]
    images = dict.fromkeys((row[1], row[2], row[0]) for row in rows)
    (root / "cxr-record-list.csv").write_text(
        "subject_id,study_id,dicom_id,path\n"
        + "".join(f"{p},{s},{d},files/p{p[:2]}/p{p}/s{s}/{d}.dcm\n" for p, s, d in images)
    )
    listed = dict.fromkeys((row[1], row[2]) for row in rows)
    (root / "cxr-study-list.csv").write_text(
        "subject_id,study_id,path\n"
        + "".join(f"{p},{s},files/p{p[:2]}/p{p}/s{s}.txt\n" for p, s in (*listed, ("13990005", "50990012")))
    )
    return root


def write_dicom(path: Path, view: str) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.Rows, image.Columns, image.ViewPosition = "1.2.840.10008.5.1.4.1.1.1.1", 1, 1, view
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save_as(path)


def test_dicom_with_the_tables_of_jpg_is_the_same_but_for_the_images(root: Path) -> None:
    """Reports, splits, labels and dates do not depend on the form of the images."""
    jpg = studies(ImportConfig(root))
    found = plan(ImportConfig(dicom_root(root), layout="dicom"))
    dicom = {answer.study.id: answer for item in found.items if isinstance(answer := found.read(item), Imported)}
    assert found.layout.startswith("dicom 2.1.0")
    for name, one in jpg.items():
        expected = json.dumps(one.study.to_json()).replace(".jpg", ".dcm")
        assert json.loads(expected) == dicom[name].study.to_json()


def test_a_listed_study_without_images_is_left_out(root: Path) -> None:
    dropped = [one for one in answers(ImportConfig(dicom_root(root), layout="dicom")) if isinstance(one, Dropped)]
    assert dropped == [Dropped("s50990012", mimic_cxr.NO_IMAGE)]


def test_dicom_headers_state_the_view_where_no_table_does(root: Path) -> None:
    """Without the metadata of JPG there are no dates either, so that priors are unknown."""
    dicom_root(root)
    (root / METADATA).unlink()
    write_dicom(root / f"{FIRST_IMAGE}.dcm", "PA")
    second = root / f"{FIRST_IMAGE[:-1]}2.dcm"
    write_dicom(second, "")
    third = root / f"files/p10/p10990001/s50990001/{Path(FIRST_IMAGE).name[:-1]}3.dcm"
    third.parent.mkdir(parents=True)
    third.write_bytes(b"\0" * 128 + b"DICM and then nothing of use")
    found = studies(ImportConfig(root))
    one = found["s50990002"]
    assert [image.view.value for image in one.study.images] == ["PA", "other"]
    assert "view not stated by the source; the image is kept as other" in one.remarks
    assert mimic_cxr.NO_DATE in one.remarks and one.study.prior is None
    assert any("header not readable" in remark for remark in found["s50990001"].remarks)


def test_the_layout_is_found_by_the_images_where_both_tables_are_there(root: Path) -> None:
    dicom_root(root)
    assert plan(ImportConfig(root)).layout.startswith("jpg"), "no image at all: the form that has more tables"
    write_dicom(root / f"{FIRST_IMAGE}.dcm", "PA")
    assert plan(ImportConfig(root)).layout.startswith("dicom")
    (root / f"{FIRST_IMAGE}.jpg").write_bytes(b"x")
    assert plan(ImportConfig(root)).layout.startswith("jpg")


def test_an_import_links_the_images_that_are_there_and_counts_the_others(root: Path, tmp_path: Path) -> None:
    (root / FIRST_IMAGE).parent.mkdir(parents=True)
    (root / f"{FIRST_IMAGE}.jpg").write_bytes(b"x")
    corpus = import_corpus("mimic-cxr", ImportConfig(root, workers=2), tmp_path / "corpus")
    assert corpus.card.counts == {
        "studies": 11, "patients": 5, "images": 1, "train": 5, "val": 3, "test": 2,
    }  # fmt: skip
    assert corpus["s50990002"].images[0].path == f"images/{FIRST_IMAGE}.jpg"
    assert corpus.card.remarks["image listed, but not in the folder"] == 11

"""Open-I as XML in a folder, XML in an archive and CSV: one and the same studies, images in any form, traps counted."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from chest_images import frontal_images, png, side_image
from dicom_images import write_image
from importing import expected, study_lines

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.records import SECTIONS
from cxrlab.data import bounded_reading
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.sources.openi import FROM_PICTURE, SPREADSHEET_ERROR, ImageName, image_name, plan
from cxrlab.data.views import FRONTAL

FIXTURES = Path(__file__).parent / "fixtures"
XML, CSV = FIXTURES / "openi", FIXTURES / "openi_csv"


def packed(archive: Path, folder: Path = XML / "ecgen-radiology") -> None:
    """The reports as the download has them: in the order of their names, below a folder."""
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(folder, "ecgen-radiology")


def test_the_twelve_files_are_as_written_by_hand() -> None:
    """In the order of their numbers; two are left out as broken, one for declaring entities."""
    assert study_lines("openi", XML) == expected(XML)


def test_the_archive_gives_the_same_without_being_unpacked(tmp_path: Path) -> None:
    """One folder more or less, .tgz or .tar.gz, must not change a study or the order."""
    shutil.copy(XML / "indiana_projections.csv", tmp_path)
    packed(tmp_path / "NLMCXR_reports.tar.gz")
    assert study_lines("openi", tmp_path) == expected(XML)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["NLMCXR_reports.tar.gz", "indiana_projections.csv"]


def test_the_csv_form_gives_the_same_studies() -> None:
    """Ids, sections and codes are those of the XML, #NAME? apart; images stand in the order of the table of views."""
    from_xml = {line["study"]["id"]: line["study"] for line in expected(XML) if "study" in line}
    lines = study_lines("openi", CSV)
    assert [line["study"]["id"] for line in lines] == ["CXR1", "CXR2", "CXR3", "CXR4", "CXR9", "CXR10", "CXR12"]
    for line in lines:
        study, other = line["study"], from_xml[line["study"]["id"]]
        if study["id"] == "CXR10":
            assert study["sections"].pop("indication") is None and other["sections"].pop("indication") == "+PPD"
            assert line["remarks"] == [SPREADSHEET_ERROR]
        assert (study["sections"], study["mesh"]) == (other["sections"], other["mesh"])
    assert lines[0]["study"]["images"][0] == {
        "path": "images/images_normalized/1_IM-0001-4001.dcm.png",
        "view": "frontal",
        "view_from": "projections",
    }
    assert lines[2]["study"]["problems"] == ["Pleural Effusion", "Cardiomegaly"]
    assert lines[2]["remarks"] == ["report without images"], "number 3 is not in the table of views"


def test_xml_is_preferred_and_the_layout_can_be_chosen(tmp_path: Path) -> None:
    shutil.copytree(XML, tmp_path / "both")
    shutil.copy(CSV / "indiana_reports.csv", tmp_path / "both")
    assert plan(ImportConfig(tmp_path / "both")).layout == "xml with projections"
    assert plan(ImportConfig(tmp_path / "both", layout="csv")).layout == "csv with projections"
    with pytest.raises(ConfigError, match="Did you mean 'xml'"):
        plan(ImportConfig(tmp_path / "both", layout="xmls"))
    with pytest.raises(DataError, match=r"looked for indiana_reports\.csv"):
        plan(ImportConfig(XML, layout="csv"))
    with pytest.raises(DataError, match=r"looked for ecgen-radiology/\*\.xml or NLMCXR_reports\.tgz"):
        plan(ImportConfig(CSV, layout="xml"))


@pytest.mark.parametrize(
    "path",
    [
        "NLMCXR_png/CXR1_1_IM-0001-3001.png",
        "CXR1_1_IM-0001-3001.png",
        "images/images_normalized/1_IM-0001-3001.dcm.png",
        "NLMCXR_dcm/1/1_IM-0001-3001.dcm",
    ],
)
def test_images_are_found_under_each_of_their_names(tmp_path: Path, path: str) -> None:
    """Two forms of the id, a flat folder, the CSV form's folder and the DICOM tree."""
    shutil.copytree(XML, tmp_path / "openi")
    radiograph = tmp_path / "openi" / path
    radiograph.parent.mkdir(parents=True, exist_ok=True)
    radiograph.write_bytes(png(side_image()))
    corpus = import_corpus("openi", ImportConfig(tmp_path / "openi", workers=1), tmp_path / "out")
    (image,) = corpus["CXR1"].images
    assert image.path == f"images/{path}"
    assert [one.path for one in corpus["CXR1"].absent_images or ()] == ["images/NLMCXR_png/CXR1_1_IM-0001-4001.png"]


def test_a_image_in_two_forms_is_taken_once_as_png(tmp_path: Path) -> None:
    shutil.copytree(XML / "ecgen-radiology", tmp_path / "ecgen-radiology")
    for name in ("3/3_IM-1384-1001.dcm", "z/CXR3_IM-1384-1001.png", "z/deep/er/and/CXR3_IM-1384-1001.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(png(frontal_images()[0]))
    study = study_lines("openi", tmp_path)[2]["study"]
    assert [image["path"] for image in study["images"]] == ["z/CXR3_IM-1384-1001.png"]


def test_without_a_table_the_header_states_the_view_and_else_the_picture(tmp_path: Path) -> None:
    """A DICOM image may say how it was taken; a PNG cannot."""
    shutil.copytree(XML / "ecgen-radiology", tmp_path / "ecgen-radiology")
    write_image(tmp_path / "1" / "1_IM-0001-3001.dcm", ViewPosition="LL")
    (tmp_path / "1" / "CXR1_1_IM-0001-4001.png").write_bytes(png(frontal_images()[0]))
    one = study_lines("openi", tmp_path)[0]
    first, second = one["study"]["images"]
    assert (first["view"], first["view_from"]) == ("lateral", "header")
    assert (second["view"], second["view_from"]) == ("frontal", "image") and second["view_confidence"] > 0.5
    assert one["remarks"] == [FROM_PICTURE]


def test_csv_without_a_table_of_views_takes_the_images_that_are_there(tmp_path: Path) -> None:
    shutil.copy(CSV / "indiana_reports.csv", tmp_path)
    (tmp_path / "images").mkdir()
    for name, radiograph in (("2_IM-0652-2001", side_image()), ("2_IM-0652-1001", frontal_images()[0])):
        (tmp_path / "images" / f"{name}.dcm.png").write_bytes(png(radiograph))
    second = study_lines("openi", tmp_path)[1]["study"]
    assert [(image["path"], image["view"]) for image in second["images"]] == [
        ("images/2_IM-0652-1001.dcm.png", "frontal"),
        ("images/2_IM-0652-2001.dcm.png", "lateral"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("uid,MeSH", "id,MeSH", "no column 'uid'"),
        ("\n2,", "\ntwo,", r"indiana_reports\.csv:3: 'uid' is 'two', not a whole number"),
        ("\n2,", "\n1,", r":3: uid 1 is listed twice"),
    ],
)
def test_a_broken_table_is_a_sentence(tmp_path: Path, before: str, after: str, sentence: str) -> None:
    text = (CSV / "indiana_reports.csv").read_text()
    (tmp_path / "indiana_reports.csv").write_text(text.replace(before, after, 1))
    with pytest.raises(DataError, match=sentence):
        plan(ImportConfig(tmp_path))


def test_a_table_without_rows_and_a_folder_without_reports_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold the reports of Open-I"):
        plan(ImportConfig(tmp_path))
    (tmp_path / "indiana_reports.csv").write_text((CSV / "indiana_reports.csv").read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="lists no report"):
        plan(ImportConfig(tmp_path))


def archived(archive: Path, *members: tuple[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as stream:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            stream.addfile(entry, io.BytesIO(data))


def test_a_bad_archive_is_a_sentence(tmp_path: Path) -> None:
    """Cut short, no archive at all, empty, a report twice, a report of a size that none has."""
    archive = tmp_path / "NLMCXR_reports.tgz"
    packed(archive)
    whole = archive.read_bytes()
    for data in (whole[: len(whole) // 2], b"not packed at all", whole[:200] + b"\0" * 50 + whole[250:]):
        archive.write_bytes(data)
        with pytest.raises(DataError, match=r"NLMCXR_reports\.tgz is damaged"):
            plan(ImportConfig(tmp_path))
    for members, sentence in (
        ((("readme.txt", b"x"),), "holds no report"),
        ((("a/1.xml", b"x"), ("b/1.xml", b"y")), "holds 1.xml twice"),
        ((("1.xml", bytes(5 << 20)),), "not a report"),
    ):
        archived(archive, *members)
        with pytest.raises(DataError, match=sentence):
            plan(ImportConfig(tmp_path))


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By many small reports, by a file that is no report, by an entry's own header; the last is not even unpacked."""
    monkeypatch.setattr(bounded_reading, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(bounded_reading, "MAX_UNPACKING_RATIO", 2)
    archive = tmp_path / "NLMCXR_reports.tgz"
    archived(archive, *((f"{number}.xml", bytes(100_000)) for number in range(20)))
    with pytest.raises(DataError, match=r"NLMCXR_reports\.tgz unpacks to more than"):
        plan(ImportConfig(tmp_path))
    archived(archive, ("images.bin", bytes(2 << 20)), ("1.xml", b"x"))
    with pytest.raises(DataError, match=r"NLMCXR_reports\.tgz unpacks to more than"):
        plan(ImportConfig(tmp_path))
    entry = tarfile.TarInfo("name")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 6 << 30
    archive.write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    with pytest.raises(DataError, match=r"NLMCXR_reports\.tgz holds an entry of 6,442,450,944 bytes"):
        plan(ImportConfig(tmp_path))


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("CXR1_1_IM-0001-3001", ImageName("1", "IM-0001-3001")),
        ("CXR2_IM-0652-1001.png", ImageName("2", "IM-0652-1001")),
        ("1_IM-0001-3001.dcm.png", ImageName("1", "IM-0001-3001")),
        ("3468_IM-1684-0001-0002.dcm", ImageName("3468", "IM-1684-0001-0002")),
        ("scan of a letter.png", None),
        ("IM-0001-3001.png", None),
    ],
)
def test_every_spelling_of_a_image_is_one_name(text: str, image: ImageName | None) -> None:
    assert image_name(text) == image


def test_an_encoding_that_nobody_knows_and_an_empty_file_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "ecgen-radiology"
    folder.mkdir()
    (folder / "1.xml").write_text('<?xml version="1.0" encoding="klingon"?><eCitation/>')
    (folder / "2.xml").write_bytes(b"")
    (folder / "3.xml").write_text('<eCitation><uId id="CXR3"/></eCitation>', encoding="utf-16")
    assert [sorted(line) for line in study_lines("openi", tmp_path)][:2] == [["dropped", "reason"]] * 2
    assert study_lines("openi", tmp_path)[2]["study"]["id"] == "CXR3"


@pytest.mark.real_data
def test_all_reports_and_their_agreement_with_the_csv_form(real_data: Path, tmp_path: Path) -> None:
    """3,955 reports by XML; the 3,851 of the CSV agree on every section and code but three #NAME? indications."""
    root = real_data / "openi"
    by_xml = import_corpus("openi", ImportConfig(root), tmp_path / "xml")
    by_csv = import_corpus("openi", ImportConfig(root, layout="csv"), tmp_path / "csv")
    assert (len(by_xml), len(by_csv)) == (3955, 3851)
    assert by_xml.card.counts["patients"] == 3955 and not by_xml.card.dropped
    assert by_csv.card.remarks[SPREADSHEET_ERROR] == 3
    different = []
    for study in by_csv:
        other = by_xml[study.id]
        assert study.sections is not None and other.sections is not None
        different += [name for name in SECTIONS if study.sections.section(name) != other.sections.section(name)]
        assert study.extra["mesh"] == other.extra["mesh"]
        named = {image_name(Path(one.path).name): one.view for one in study.absent_images or ()}
        also = {image_name(Path(one.path).name): one.view for one in other.absent_images or ()}
        assert named.items() <= also.items()
    assert different == ["indication"] * 3


@pytest.mark.real_data
def test_the_frontal_images_with_findings_are_more_than_the_papers_2163(real_data: Path, tmp_path: Path) -> None:
    """What configs/data/external_openi.yaml takes where the images are there, by the table of views."""
    corpus = import_corpus("openi", ImportConfig(real_data / "openi"), tmp_path / "xml")
    frontal = [
        sum(image.view in FRONTAL for image in study.absent_images or ())
        for study in corpus
        if study.sections is not None and study.sections.findings
    ]
    assert (sum(count > 0 for count in frontal), sum(frontal)) == (3199, 3307)


@pytest.mark.real_data
def test_both_forms_of_the_collection_name_the_same_people(real_data: Path, tmp_path: Path) -> None:
    """The findings of a person are the same text in both; else a leak between them could not be found."""
    whole = import_corpus("openi", ImportConfig(real_data / "openi"), tmp_path / "openi")
    table = real_data / "openi" / "indiana_projections.csv"
    some = import_corpus("iu-xray", ImportConfig(real_data / "iu_xray", projections=table), tmp_path / "iu")
    texts = {study.patient: study.sections.findings for study in whole if study.sections}
    same = [texts[study.patient] == study.sections.findings for study in some if study.sections]
    assert len(same) == 2365 and np.all(same)
    assert whole.card.collections == some.card.collections == ("indiana",)
    assert json.loads(json.dumps(whole.card.collections)) == ["indiana"]

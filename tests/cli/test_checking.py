"""`data check` with its page, and `data scrub`, as they are typed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import composition_members as members
import numpy as np
import pytest
from burned_text import burn
from corpora import toy_corpus
from dicom_images import write_image

from cxrlab.cli.main import main
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import ImageFile
from cxrlab.core.runs import state

GROUND = np.rint(60 + 40 * np.outer(np.hanning(160), np.hanning(200))).astype(np.uint8)


def test_check_prints_numbers_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run folder with evidence, conclusions, a sheet and a page."""
    corpus, out = toy_corpus(tmp_path / "c").path, tmp_path / "run"
    assert main(["data", "check", str(corpus), "--duplicates", "--out", str(out), "--workers", "1", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "no problems" in text and "same report" in text and "image width" in text and "page.html" in text
    assert state(out) == "finished"
    assert json.loads((out / "statistics.json").read_text())["splits"] == {"train": 2, "val": 2, "test": 2}
    assert json.loads((out / "check.json").read_text())["ok"] is True
    # The six toy reports have the same words; every image is another.
    found = json.loads((out / "duplicates.json").read_text())
    assert found["reports"]["exact"] == [[f"s{k}" for k in range(6)]] and found["images"]["exact"] == []
    page = (out / "page.html").read_text()
    assert "Data card: c" in page and "Views, sex and age" in page and "data:image/png" in page


def test_check_as_json_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Defects and numbers in one object."""
    toy_corpus(tmp_path / "c")
    assert main(["data", "check", str(tmp_path / "c"), "--json", "--workers", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problems"] == {} and data["statistics"]["labels"]["Pleural Effusion"]["all"]["present"] == 6


def test_missing_text_splits_and_views_fail_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 with each on its line and on the page; stated on the card they are listed and exit 0."""
    images = (ImageFile("images/s0.png"),)
    changes: dict[int, dict[str, object]] = {0: {"images": images}, 1: {"split": None}, 2: {"sections": None}}
    corpus, out = toy_corpus(tmp_path / "c", changes=changes).path, tmp_path / "run"
    assert main(["data", "check", str(corpus), "--out", str(out), "--quiet", "--workers", "1"]) == 1
    reported, page = capsys.readouterr().out, (out / "page.html").read_text()
    for kind in ("study without report text", "study without a split", "image without a view"):
        assert kind in reported and kind in page
    assert "train 1 of 2 (no frontal image 1)" in reported
    with (corpus / "card.yaml").open("a") as card:
        card.write("absent: {text: 1, split: 1, view: 1}\n")
    assert main(["data", "check", str(corpus), "--out", str(tmp_path / "b"), "--quiet", "--workers", "1"]) == 0
    assert "image without a view" in capsys.readouterr().out
    assert "image without a view" in (tmp_path / "b" / "page.html").read_text()


def test_a_broken_corpus_gets_its_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, the defect on the page with an example, and no sheet where the corpus cannot be opened."""
    corpus, out = toy_corpus(tmp_path / "c").path, tmp_path / "run"
    (corpus / "card.yaml").unlink()
    shutil.rmtree(corpus / "images")
    assert main(["data", "check", str(corpus), "--out", str(out), "--quiet", "--workers", "1"]) == 1
    page = (out / "page.html").read_text()
    assert "missing image" in page and "no card" in page and not (out / "sheet.png").exists()
    assert "missing image" in capsys.readouterr().out


def test_an_id_colours_nothing_and_adds_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A patient called so that his defect is hidden and another line says that there is none."""
    name = "\x1b[8mp\nno problems"
    members.corpus(tmp_path / "c", [members.study(k, patient=name, split=s) for k, s in enumerate(("train", "test"))])
    assert main(["data", "check", str(tmp_path / "c"), "--quiet", "--workers", "1"]) == 1
    text = capsys.readouterr().out
    assert "patient in two splits" in text and "\x1b" not in text and "no problems" not in text.splitlines()


def test_an_empty_corpus_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to count is a problem of the corpus, and no reason to stumble: the page is written."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "studies.jsonl").write_text("")
    (tmp_path / "c" / "card.yaml").write_text("name: nothing\n")
    assert main(["data", "check", str(tmp_path / "c"), "--out", str(tmp_path / "run"), "--quiet"]) == 1
    assert "no study" in capsys.readouterr().out and (tmp_path / "run" / "page.html").is_file()


def test_a_finished_run_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit 1."""
    toy_corpus(tmp_path / "c")
    words = ["data", "check", str(tmp_path / "c"), "--out", str(tmp_path / "run"), "--quiet", "--workers", "1"]
    assert main(words) == 0 and main(words) == 1
    assert "finished run" in capsys.readouterr().err


def test_scrub_states_and_blanks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is found is listed by name and count; copies are announced with a warning to look at them."""
    images = tmp_path / "images"
    write_image(images / "a.dcm", PatientName="SECRET^ANNA", ImageComments="SECRET")
    (images / "b.png").write_bytes(encode_png(burn(GROUND, "SECRET ANNA", 16, (0.0, 0.0)).image))
    assert main(["data", "scrub", str(images), "--out", str(tmp_path / "told"), "--quiet"]) == 0
    reported = capsys.readouterr()
    assert (
        "PatientName" in reported.out
        and "images with burned-in text" in reported.out
        and "SECRET" not in reported.out + reported.err
    )
    assert main(["data", "scrub", str(images), "--blank", "--out", str(tmp_path / "done"), "--json", "--quiet"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["states"] == {"cleaned": 2} and (tmp_path / "done" / "cleaned" / "b.png").is_file()


def test_scrub_fails_where_a_image_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, with the reason counted."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(["data", "scrub", str(tmp_path / "images"), "--out", str(tmp_path / "run"), "--quiet"]) == 1
    assert "cannot be read or decoded in full" in capsys.readouterr().out


def test_many_kinds_of_elements_are_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dozen on the screen, the rest in the file."""
    names = ("PatientName", "PatientID", "StudyDate", "StudyTime", "SeriesDate", "AccessionNumber", "InstitutionName",
             "StationName", "OperatorsName", "StudyDescription", "SeriesDescription", "PatientAddress",
             "PatientBirthDate", "Manufacturer")  # fmt: skip
    values = {name: "20200101" if name.endswith("Date") else "101010" for name in names}
    write_image(tmp_path / "images" / "a.dcm", **values)
    assert main(["data", "scrub", str(tmp_path / "images"), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert "and 3 more kinds in" in capsys.readouterr().out

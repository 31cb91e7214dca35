"""A whole source is scrubbed: nothing in place, nothing silently passed, and a stopped run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from burned_text import burn
from corpora import content, toy_corpus
from dicom_images import write_image

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.data import deidentify_folder
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.check import check_corpus
from cxrlab.data.config import ScrubConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.deidentify_folder import CLEANED, LINES, run_scrub
from cxrlab.data.images import load_image

GROUND = np.rint(60 + 40 * np.outer(np.hanning(160), np.hanning(200))).astype(np.uint8)
TEXT = burn(GROUND, "SECRET ANNA", 16, (0.0, 0.0))
BLANK = ScrubConfig(blank=True, workers=1)
LIST = ScrubConfig(workers=1)


def lines(out: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in (out / LINES).read_text().splitlines()]
    assert len({line["file"] for line in found}) == len(found)
    return {line["file"]: line for line in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two DICOM images of one patient, a picture with text, one without, and a file that is no image."""
    source = tmp_path / "images"
    for name in ("one", "two"):
        write_image(source / "SECRET-17" / f"{name}.dcm", PatientID="SECRET-17", PatientName="SECRET^ANNA", StudyID="9")
    (source / "text.png").write_bytes(encode_png(TEXT.image))
    (source / "plain.png").write_bytes(encode_png(GROUND))
    (source / "notes.csv").write_text("id,name\n1,SECRET\n")
    return source


def test_flags_alone_by_default(folder: Path, tmp_path: Path) -> None:
    """Elements by keyword, boxes by place; no copy, no key, no value, and the source untouched."""
    before = content(folder)
    report = run_scrub(folder, LIST, tmp_path / "out")
    found = lines(tmp_path / "out")
    assert found["SECRET-17/one.dcm"]["tags"] == ["SOPInstanceUID", "PatientName", "PatientID", "StudyID"]
    assert len(found["text.png"]["boxes"]) == 1 and len(found["text.png"]["boxes"][0]) == 4
    assert found["plain.png"]["state"] == "nothing found" and found["notes.csv"]["state"] == "left out"
    assert report.ok and (report.files, report.with_text, report.tags["PatientName"]) == (5, 1, 2)
    assert content(folder) == before and not (tmp_path / "out" / CLEANED).exists()
    assert "ANNA" not in "".join(path.read_text() for path in (tmp_path / "out").iterdir() if path.is_file())


def test_copies_are_clean_and_nothing_else_is_there(folder: Path, tmp_path: Path) -> None:
    """Images alone, names of folders without the patient's number, the same patient under one new number."""
    before = content(folder)
    report = run_scrub(folder, BLANK, tmp_path / "out")
    copies = content(tmp_path / "out" / CLEANED)
    assert (
        report.ok
        and report.states == {"cleaned": 4, "left out": 1}
        and report.reasons == {deidentify_folder.NOT_AN_IMAGE: 1}
    )
    assert not any(b"SECRET" in name.encode() + data for name, data in copies.items())
    places = {Path(name).parent for name in copies if name.endswith(".dcm")}
    assert len(copies) == 4 and len(places) == 1
    assert content(folder) == before
    again = run_scrub(tmp_path / "out" / CLEANED, LIST, tmp_path / "again")
    assert again.states == {"nothing found": 4}


def test_one_image_by_itself(folder: Path, tmp_path: Path) -> None:
    """A file may be named; a link to one too."""
    (tmp_path / "link.png").symlink_to(folder / "text.png")
    for number, image in enumerate([folder / "text.png", tmp_path / "link.png"]):
        report = run_scrub(image, BLANK, tmp_path / f"out{number}")
        assert report.states == {"cleaned": 1}
        assert load_image(tmp_path / f"out{number}" / CLEANED / image.name).max() < 0.6


def test_a_corpus_gives_a_corpus(tmp_path: Path) -> None:
    """Ids, splits, labels, masks and paths stay; text on an image goes; the check finds nothing wrong."""
    source = toy_corpus(tmp_path / "c")
    (source.path / "images" / "s1.png").write_bytes(encode_png(TEXT.image))
    mask = np.zeros(TEXT.image.shape, bool)
    mask[4:30, 4:9] = mask[25:30, 4:20] = True  # looks like an L, and is a finding
    (source.path / "masks" / "s1_0.png").write_bytes(encode_png(mask))
    report = run_scrub(source.path, ScrubConfig(blank=True, markers=True, workers=2), tmp_path / "out")
    copy = load_corpus(tmp_path / "out" / CLEANED)
    assert report.ok and [study.to_json() for study in copy] == [study.to_json() for study in source]
    assert copy.card.name == source.card.name and copy.card.settings["scrubbed"] is True
    assert check_corpus(copy.path, 1).ok
    assert copy.image(copy["s1"]).max() < 0.6
    kept = copy.mask(copy["s1"], 0)
    assert kept is not None and (kept == mask).all()


def test_a_linked_corpus_is_followed(tmp_path: Path) -> None:
    """An imported corpus reaches its images through a link; the copy holds them itself."""
    source = toy_corpus(tmp_path / "c")
    (source.path / "images").rename(tmp_path / "elsewhere")
    (source.path / "images").symlink_to(tmp_path / "elsewhere")
    assert run_scrub(source.path, BLANK, tmp_path / "out").ok
    assert not (tmp_path / "out" / CLEANED / "images").is_symlink()


def test_a_image_that_cannot_be_cleaned_is_not_passed_on(tmp_path: Path) -> None:
    """The study loses that image and says so; one that loses all is left out; the command fails."""
    two = {"images": load_corpus(toy_corpus(tmp_path / "first").path)["s0"].images * 2}
    source = toy_corpus(tmp_path / "c", changes={2: two})
    (source.path / "images" / "s1.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    report = run_scrub(source.path, BLANK, tmp_path / "out")
    copy = load_corpus(tmp_path / "out" / CLEANED)
    assert not report.ok and report.reasons == {deidentify_folder.UNREADABLE: 1} and "s1" not in copy
    assert copy.card.dropped == {deidentify_folder.NO_IMAGE: 1} and not (copy.path / "images" / "s1.png").exists()


def test_one_of_two_images_lost(tmp_path: Path) -> None:
    """The other stays, with a remark."""
    images = tuple(load_corpus(toy_corpus(tmp_path / "first").path)[name].images[0] for name in ("s0", "s1"))
    source = toy_corpus(tmp_path / "c", changes={0: {"images": images}})
    (source.path / "images" / "s1.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    run_scrub(source.path, BLANK, tmp_path / "out")
    copy = load_corpus(tmp_path / "out" / CLEANED)
    assert [image.path for image in copy["s0"].images] == ["images/s0.png"]
    assert copy.card.remarks == {deidentify_folder.IMAGE_LOST: 1}


def test_hostile_files_are_listed_and_stop_nothing(folder: Path, tmp_path: Path) -> None:
    """Links out of the folder or in a circle, a pipe, a name that is not UTF-8, a cut file: failed, not copied."""
    (tmp_path / "outside.png").write_bytes(encode_png(TEXT.image))
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (tmp_path / "far").mkdir()
    (folder / "linked").symlink_to(tmp_path / "far")
    (folder / "circle.dcm").symlink_to("circle.dcm")
    os.mkfifo(folder / "pipe.dcm")
    with open(os.fsencode(folder) + b"/\xff.png", "wb") as stream:
        stream.write(encode_png(GROUND))
    (folder / "cut.dcm").write_bytes((folder / "SECRET-17" / "one.dcm").read_bytes()[:300])
    report = run_scrub(folder, BLANK, tmp_path / "out")
    found = lines(tmp_path / "out")
    assert not report.ok and report.states["failed"] == 6 and report.states["cleaned"] == 4
    assert found["link.png"]["reason"] == found["linked"]["reason"] == deidentify_folder.LINK_OUTSIDE
    assert {found[name]["reason"] for name in ("pipe.dcm", "cut.dcm", "circle.dcm")} == {deidentify_folder.UNREADABLE}
    assert found["\\xff.png"]["reason"] == deidentify_folder.ODD_NAME
    assert len(content(tmp_path / "out" / CLEANED)) == 4


@pytest.mark.parametrize("kind", ["folder", "corpus"])
def test_a_stopped_run_goes_on_to_the_same_bytes(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at the third file, run again: every file once, and copies as of a run that was never stopped."""
    source = folder if kind == "folder" else toy_corpus(tmp_path / "c").path
    calls = []

    def stops(path: Path) -> bytes:
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read_bounded(path)

    monkeypatch.setattr(deidentify_folder, "read_bounded", stops)
    with pytest.raises(KeyboardInterrupt):
        run_scrub(source, BLANK, tmp_path / "out")
    key = (tmp_path / "out" / "pseudonyms.key").read_bytes()
    report = run_scrub(source, BLANK, tmp_path / "out")
    monkeypatch.undo()
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "pseudonyms.key").write_bytes(key)
    monkeypatch.setattr(deidentify_folder.Run, "open", _over(deidentify_folder.Run.open, tmp_path / "whole"))
    run_scrub(source, BLANK, tmp_path / "whole")
    assert report.ok and lines(tmp_path / "out") == lines(tmp_path / "whole")
    assert content(tmp_path / "out" / CLEANED) == content(tmp_path / "whole" / CLEANED)


def _over(real: Any, folder: Path) -> Any:
    """A run may not begin in a folder with files in it; for the comparison both runs need one key."""

    def opened(path: Path, *rest: Any, **more: Any) -> Any:
        key = (folder / "pseudonyms.key").read_bytes()
        (folder / "pseudonyms.key").unlink()
        run = real(path, *rest, **more)
        (folder / "pseudonyms.key").write_bytes(key)
        return run

    return opened


@pytest.mark.parametrize("out", ["images", "images/inside", "."])
def test_nothing_is_cleaned_in_place(folder: Path, tmp_path: Path, out: str) -> None:
    """The output in the source, or around it."""
    with pytest.raises(ConfigError, match="choose another --out"):
        run_scrub(folder, BLANK, tmp_path / out)


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    """Named, with a remedy."""
    with pytest.raises(DataError, match="nowhere"):
        run_scrub(tmp_path / "nowhere", LIST, tmp_path / "out")


def test_a_dicom_file_that_is_no_single_image_is_reported_as_such(tmp_path: Path) -> None:
    """A report or a loop among the images of an export is nothing that was damaged."""
    write_image(tmp_path / "images" / "loop.dcm", NumberOfFrames=2)
    report = run_scrub(tmp_path / "images", BLANK, tmp_path / "out")
    assert not report.ok and report.reasons == {deidentify_folder.NOT_ONE_IMAGE: 1}


def test_a_folder_that_cannot_be_listed_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images in it would count as looked at."""
    real = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("SECRET-17"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match="SECRET-17"):
        run_scrub(folder, LIST, tmp_path / "out")


def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    """It would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe or a device"):
        run_scrub(tmp_path / "pipe", LIST, tmp_path / "out")

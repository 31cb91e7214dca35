"""The import engine: linked or copied images, notes, splits, and the same bytes after a kill at any moment."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from corpora import content
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError, RunError, UnknownName
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import importing
from cxrlab.data.check import check_corpus
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.corpus_writer import NOTES, PARTIAL, Dropped
from cxrlab.data.importing import (
    FIELDS,
    IMPORTERS,
    NOT_IN_FOLDER,
    OUTSIDE_FOLDER,
    Imported,
    ImportPlan,
    dataset_info,
    import_corpus,
)

pytestmark = pytest.mark.slow

NIH = Path(__file__).parent / "sources" / "fixtures" / "nih_cxr14"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """NIH's layout with three of its twelve images on disk."""
    folder = tmp_path / "nih"
    shutil.copytree(NIH, folder)
    for number, name in enumerate(("00000001_000", "00000002_000", "00000003_010")):
        (folder / "images").mkdir(exist_ok=True)
        (folder / "images" / f"{name}.png").write_bytes(encode_png(np.full((8, 8), 40 * number + 9, np.uint8)))
    return folder


def test_images_are_linked_and_can_be_read(root: Path, tmp_path: Path) -> None:
    """One link leads to the source folder; nothing of it is copied or changed."""
    before = content(root)
    corpus = import_corpus("nih-cxr14", ImportConfig(root), tmp_path / "c")
    assert os.readlink(tmp_path / "c" / "images") == str(root)
    image = corpus.image(corpus["00000002_000"])
    assert image.shape == (8, 8) and np.allclose(image, 49 / 255)
    assert content(root) == before
    assert corpus.card.counts["images"] == 3 and corpus.card.collections == ("nih-clinical-center",)
    assert set(check_corpus(tmp_path / "c").counts) <= {"study without images"}


def test_copied_images_make_the_same_corpus_without_the_source(root: Path, tmp_path: Path) -> None:
    linked = import_corpus("nih-cxr14", ImportConfig(root), tmp_path / "linked")
    copied = import_corpus("nih-cxr14", ImportConfig(root, copy=True), tmp_path / "copied")
    assert linked.file.read_bytes() == copied.file.read_bytes()
    shutil.rmtree(root)
    assert copied.image(copied["00000001_000"]).shape == (8, 8)
    with pytest.raises(DataError):
        linked.image(linked["00000001_000"])


def test_a_image_that_is_not_there_is_set_apart_and_counted(root: Path, tmp_path: Path) -> None:
    """Nine of twelve images are missing: their studies stay, with the image as the source lists it."""
    corpus = import_corpus("nih-cxr14", ImportConfig(root), tmp_path / "c")
    study = corpus["00000009_000"]
    assert study.images == () and study.absent_images == (ImageFile("images/images/00000009_000.png", View.PA),)
    assert corpus.card.remarks[NOT_IN_FOLDER] == 9
    notes = [json.loads(line) for line in (tmp_path / "c" / NOTES).read_text().splitlines()]
    assert len(notes) == 10, "the nine, and the one with an impossible age"


@pytest.mark.parametrize("cut", range(0, 13))
def test_stopped_after_any_study_it_ends_the_same(root: Path, tmp_path: Path, cut: int) -> None:
    """The state after a kill: some lines, perhaps the note of a study whose own line did not make it."""
    import_corpus("nih-cxr14", ImportConfig(root, workers=1), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut", symlinks=True)
    folder = tmp_path / "cut"
    (folder / "card.yaml").unlink()
    lines = (folder / "studies.jsonl").read_bytes().splitlines(keepends=True)
    kept = {json.loads(line)["id"] for line in lines[:cut]}
    following = {json.loads(lines[cut])["id"]} if cut < len(lines) else set()
    notes = (folder / NOTES).read_bytes().splitlines(keepends=True)
    (folder / NOTES).write_bytes(b"".join(n for n in notes if json.loads(n)["id"] in kept | following) + b'{"id": "0')
    (folder / "studies.jsonl").write_bytes(b"".join(lines[:cut]) + b'{"id": "00')
    card = load_corpus(tmp_path / "whole").card
    (folder / PARTIAL).write_text(dataclasses.replace(card, counts={}, dropped={}, remarks={}).to_yaml())
    import_corpus("nih-cxr14", ImportConfig(root, workers=2), folder)
    assert content(folder) == content(tmp_path / "whole")


def test_a_kill_in_the_middle_is_resumed_byte_for_byte(root: Path, tmp_path: Path) -> None:
    """A real process, killed while it works, twice; then run to its end."""
    rows = (root / "Data_Entry_2017_v2020.csv").read_text().splitlines()
    more = [rows[1].replace("00000001_000", f"{n:08d}_000").replace(",0,1,", f",0,{n},") for n in range(100, 6000)]
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([*rows, *more]) + "\n")
    import_corpus("nih-cxr14", ImportConfig(root), tmp_path / "whole")
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "cxrlab", "data", "import", "nih-cxr14", "--root", str(root), "--out", str(out)]
    for size in (1, 400_000):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        lines = out / "studies.jsonl"
        while time.monotonic() < until and not (lines.exists() and lines.stat().st_size >= size):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (out / "card.yaml").exists(), "it was to be killed before its end"
    subprocess.run(command, check=True, capture_output=True)
    assert content(out) == content(tmp_path / "whole")


def test_another_source_folder_does_not_continue_a_corpus(root: Path, tmp_path: Path) -> None:
    """The images would come from elsewhere than the first half's."""
    folder = tmp_path / "c"
    corpus = import_corpus("nih-cxr14", ImportConfig(root), folder)
    (folder / "card.yaml").rename(folder / PARTIAL)
    assert corpus.card.name == "nih-cxr14"
    shutil.copytree(root, tmp_path / "other")
    with pytest.raises(RunError, match="does not lead to"):
        import_corpus("nih-cxr14", ImportConfig(tmp_path / "other"), folder)


def test_another_or_a_changed_source_does_not_pass_for_what_is_there(root: Path, tmp_path: Path) -> None:
    """A finished corpus stays as it is; whoever imports something else into its folder gets an error."""
    folder = tmp_path / "c"
    import_corpus("nih-cxr14", ImportConfig(root), folder)
    before = content(folder)
    shutil.copytree(root, tmp_path / "other")
    with pytest.raises(RunError, match="does not lead to"):
        import_corpus("nih-cxr14", ImportConfig(tmp_path / "other"), folder)
    (root / "test_list.txt").write_text("00000003_010.png\n")
    with pytest.raises(RunError, match=r"made_from\.test_list\.txt is '\w{16}' there and '\w{16}' here"):
        import_corpus("nih-cxr14", ImportConfig(root), folder)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("name", "fixture"),
    [
        ("mimic-cxr", "mimic_cxr"),
        ("chexpert", "chexpert/v1"),
        ("chexpert", "chexpert/plus"),
        ("brax", "brax"),
        ("candid-ptx", "candid_ptx"),
        ("vindr-cxr", "vindr_cxr"),
        ("object-cxr", "object_cxr"),
        ("padchest", "padchest"),
        ("nih-cxr14", "nih_cxr14"),
        ("iu-xray", "iu_xray"),
        ("openi", "openi_csv"),
    ],
)
def test_the_card_states_which_tables_a_corpus_is_made_from(tmp_path: Path, name: str, fixture: str) -> None:
    """Every table of the layout, by a digest of its content, so that none can change behind the corpus's back."""
    folder = NIH.parent / fixture
    tables = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".csv", ".gz", ".json") or path.name.endswith("_list.txt")
    }
    corpus = import_corpus(name, ImportConfig(folder), tmp_path / "c")
    reported = corpus.card.settings["made_from"]
    assert set(reported) == {path for path in tables if not path.startswith("older/")}
    assert all(len(digest) == 16 for digest in reported.values())
    with pytest.raises(ConfigError, match="layout='zzz' is unknown here"):
        import_corpus(name, ImportConfig(folder, layout="zzz"), tmp_path / "d")


def test_a_corpus_is_not_made_inside_its_source(root: Path) -> None:
    """Copied images would be met again as images of the source, and the link would lead in circles."""
    with pytest.raises(ConfigError, match="lies in the source folder"):
        import_corpus("nih-cxr14", ImportConfig(root), root / "images" / ".." / "corpus")
    assert not (root / "corpus").exists()


def test_a_folder_in_the_place_of_a_image_is_no_image(root: Path, tmp_path: Path) -> None:
    (root / "images" / "00000009_000.png").mkdir()
    corpus = import_corpus("nih-cxr14", ImportConfig(root, copy=True), tmp_path / "c")
    assert corpus["00000009_000"].images == ()


def test_the_split_can_be_drawn_by_patient_or_be_train(root: Path, tmp_path: Path) -> None:
    drawn = import_corpus("nih-cxr14", ImportConfig(root, split="patient", seed=3), tmp_path / "drawn")
    splits: dict[str, set[str | None]] = {}
    for study in drawn:
        splits.setdefault(study.patient, set()).add(study.split)
    assert all(len(several) == 1 for several in splits.values()) and None not in set.union(*splits.values())
    whole = import_corpus("nih-cxr14", ImportConfig(root, split="train"), tmp_path / "train")
    assert {study.split for study in whole} == {"train"}
    with pytest.raises(RunError, match="split"):
        import_corpus("nih-cxr14", ImportConfig(root, split="train"), tmp_path / "drawn")


def read_odd(number: int) -> Imported | Dropped:
    if number == 1:
        return Dropped("s1", "no words")
    path = "../../secret.png" if number == 2 else f"{number}.png"
    return Imported(Study(f"s{number}", "p", (ImageFile(path),)), ("odd", "odder") if number == 3 else ())


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that climbs out of the source is never followed."""

    def plan(config: ImportConfig) -> ImportPlan[int]:
        return ImportPlan(range(5), lambda number: f"s{number}", read_odd, 5, "toy", remarks={"odd": 2})

    monkeypatch.setattr(IMPORTERS, "load", lambda name: plan)
    monkeypatch.setattr(importing, "dataset_info", lambda importer: about_nih)
    (tmp_path / "root").mkdir()
    corpus = import_corpus("toy", ImportConfig(tmp_path / "root"), tmp_path / "c")
    assert corpus.card.dropped == {"no words": 1, OUTSIDE_FOLDER: 1}
    assert corpus.card.remarks == {NOT_IN_FOLDER: 3, "odd": 3, "odder": 1}
    assert corpus.ids() == ("s0", "s3", "s4")


about_nih = dataset_info(IMPORTERS.load("nih-cxr14"))


@every_row("name", IMPORTERS)
def test_every_importer_states_what_its_data_set_is(name: str) -> None:
    """Counts, licence, citation, how to obtain it: a user must know before downloading."""
    reported = dataset_info(IMPORTERS.load(name))
    assert tuple(reported.fields) == FIELDS and all(reported.fields.values()) and reported.title


def test_an_unknown_name_and_a_wrong_folder_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'nih-cxr14'"):
        import_corpus("nih-cxr", ImportConfig(tmp_path), tmp_path / "c")
    with pytest.raises(DataError, match="does not exist"):
        import_corpus("nih-cxr14", ImportConfig(tmp_path / "none"), tmp_path / "c")
    with pytest.raises(DataError, match="the table of images"):
        import_corpus("nih-cxr14", ImportConfig(tmp_path), tmp_path / "c")
    with pytest.raises(ConfigError, match="reports='x'.*nih-cxr14"):
        import_corpus("nih-cxr14", ImportConfig(NIH, reports=Path("x")), tmp_path / "c")
    assert not (tmp_path / "c").exists(), "nothing is made before the source was understood"

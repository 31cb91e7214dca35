"""A user's table becomes a corpus: what is read, what is refused, and that a kill resumes exactly."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chest_images import frontal_images, png, side_image
from corpora import content, image
from dicom_images import write_image

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Study
from cxrlab.data import corpus_writer
from cxrlab.data.check import check_corpus
from cxrlab.data.config import TableConfig
from cxrlab.data.corpus import Corpus, assign_split, load_corpus
from cxrlab.data.source_tables import AGE_OUT_OF_RANGE
from cxrlab.data.sources.openi import FROM_PICTURE
from cxrlab.data.sources.table import ALIKE_PATIENTS, NO_PATIENT, VIEW_UNKNOWN, import_table
from cxrlab.data.study_rows import StudyRows

REPORT = "EXAM: Chest PA. INDICATION: Cough. FINDINGS: The lungs are clear. IMPRESSION: Normal chest."


def table(folder: Path, *rows: dict[str, Any], name: str = "t.csv", images: bool = True) -> Path:
    """A CSV of these rows; the PNG files that its column `image` names are drawn below `scans`."""
    folder.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    for number, row in enumerate(rows if images else ()):
        draw(folder / "scans" / str(row["image"]), number)
    return folder / name


def draw(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_png(image(number)))
    return path


def imported(source: Path, out: Path, *columns: str, **settings: Any) -> Corpus:
    scans = source.parent / "scans"
    settings = {
        "columns": columns or ("auto",),
        "workers": 1,
        **({"images": scans} if scans.is_dir() else {}),
        **settings,
    }
    corpus = import_table(source, TableConfig(**settings), out)[1]
    assert corpus is not None
    return corpus


def studies(corpus: Corpus) -> dict[str, Study]:
    return {study.id: study for study in corpus}


def row(number: int, **values: Any) -> dict[str, Any]:
    return {"image": f"{number}.png", "report": REPORT, "patient": f"p{number}", **values}


def refused(source: Path, *columns: str, **settings: Any) -> str:
    """The message with which a table is refused; nothing is written."""
    out = source.parent / "out"
    with pytest.raises((DataError, ConfigError)) as error:
        imported(source, out, *columns, **settings)
    assert not out.exists()
    return str(error.value)


def test_a_whole_row_becomes_a_study(tmp_path: Path) -> None:
    source = table(
        tmp_path,
        row(0, exam_id="7.0", sex="female", age="061Y", view="AP portable", date="2024-05-03", Edema="1", split="training"),
        row(1, exam_id="8.0", sex="M", age="40", view="PA", date="2024-05-04", Edema="", split="test"),
    )  # fmt: skip
    found = studies(imported(source, tmp_path / "out", "auto", "study=exam_id"))
    first = found["7"]
    assert (first.patient, first.split, first.sex, first.age) == ("p0", "train", "F", 61)
    assert first.images[0].path == "images/0.png" and first.images[0].view == "AP"
    assert first.labels == {"Edema": 1} and found["8"].labels == {}
    assert first.sections is not None and first.sections.findings == "The lungs are clear."
    assert first.sections.indication == "Cough." and first.report == REPORT
    assert check_corpus(tmp_path / "out").ok


def test_without_columns_nothing_is_written_and_the_command_is_told(tmp_path: Path) -> None:
    source = table(tmp_path, row(0), row(1))
    for config, dry_run in ((TableConfig(images=tmp_path / "scans"), False), (TableConfig(columns=("auto",)), True)):
        found, corpus = import_table(source, config, tmp_path / "out", dry_run)
        assert corpus is None and not (tmp_path / "out").exists()
        assert found.command is not None and "--columns image=image,patient=patient,report=report" in found.command
        assert [study.id for study in found.first] == ["0", "1"] and not found.problems


def test_several_rows_of_one_study_are_one(tmp_path: Path) -> None:
    source = table(
        tmp_path,
        row(0, study="s", view="PA", patient="p"),
        row(1, study="r", view="PA", patient="p"),
        row(2, study="s", view="LL", patient="p", report=""),
    )
    found = studies(imported(source, tmp_path / "out"))
    assert list(found) == ["s", "r"]
    assert [(one.path, one.view) for one in found["s"].images] == [("images/0.png", "PA"), ("images/2.png", "lateral")]


def test_several_images_in_columns_or_cells(tmp_path: Path) -> None:
    for number in range(4):
        draw(tmp_path / "scans" / f"{number}.png", number)
    wide = table(tmp_path, {"frontal": "0.png", "lateral": "1.png", "report": REPORT}, images=False)
    study = next(iter(imported(wide, tmp_path / "a", "image=frontal+lateral", "report=report")))
    assert [(one.path, one.view) for one in study.images] == [("images/0.png", "frontal"), ("images/1.png", "lateral")]
    for number, cell in enumerate(("2.png; 3.png", "2.png|3.png", '["2.png", "3.png"]')):
        joined = table(tmp_path, {"image": cell, "report": REPORT}, images=False)
        study = next(iter(imported(joined, tmp_path / f"b{number}")))
        assert [one.path for one in study.images] == ["images/2.png", "images/3.png"] and study.id == "2"


def test_ids_come_from_the_names_of_images_in_their_shortest_form(tmp_path: Path) -> None:
    same = table(tmp_path, row(0, image="a/1.png"), row(1, image="b/1.png"))
    assert list(studies(imported(same, tmp_path / "x"))) == ["a/1", "b/1"]
    draw(tmp_path / "scans" / "c/1.PNG", 5)
    draw(tmp_path / "scans" / "c/1.jpg", 6)
    endings = table(tmp_path, row(0, image="c/1.PNG"), row(1, image="c/1.jpg"), images=False)
    assert list(studies(imported(endings, tmp_path / "y"))) == ["1.PNG", "1.jpg"]
    texts = table(tmp_path, {"report": REPORT}, {"report": REPORT + " More."}, images=False)
    assert list(studies(imported(texts, tmp_path / "z"))) == ["row1", "row2"]


def test_images_are_found_without_endings_by_bare_names_and_by_absolute_paths(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(3):
        draw(data / "scans" / "deep" / f"{number}.png", number)
    elsewhere = draw(data / "elsewhere" / "3.png", 3)
    names = ("deep/0", "1.png", "2", str(elsewhere))
    source = table(data, *(row(k, image=name) for k, name in enumerate(names)), images=False)
    corpus = imported(source, tmp_path / "out")
    paths = [study.images[0].path for study in corpus]
    assert paths == [*(f"images/scans/deep/{k}.png" for k in range(3)), "images/elsewhere/3.png"]
    assert os.readlink(tmp_path / "out" / "images") == str(data)
    assert np.array_equal(corpus.image(corpus["3"]) * 255, image(3))
    with pytest.raises(ConfigError, match="--copy"):  # the folder that they have in common holds the corpus
        imported(source, data / "out")
    assert imported(source, data / "out", copy=True)["3"].images[0].path == "images/elsewhere/3.png"


def test_a_copy_holds_the_same_bytes_and_does_not_need_the_folder(tmp_path: Path) -> None:
    source = table(tmp_path, row(0), row(1))
    corpus = imported(source, tmp_path / "out", copy=True)
    assert not (tmp_path / "out" / "images").is_symlink()
    assert (tmp_path / "out" / "images" / "1.png").read_bytes() == (tmp_path / "scans" / "1.png").read_bytes()
    assert corpus.card.settings["images"] == "copied"


def test_the_corpus_may_not_lie_among_its_images(tmp_path: Path) -> None:
    source = table(tmp_path, row(0), row(1))
    with pytest.raises(ConfigError, match="--out"):
        imported(source, tmp_path / "scans" / "out")
    assert imported(source, tmp_path / "out").path == tmp_path / "out"  # beside them it may


def test_priors_follow_the_dates_of_a_patient(tmp_path: Path) -> None:
    dates = ("2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01")
    source = table(tmp_path, *(row(k, patient="p" if k < 3 else "q", date=date) for k, date in enumerate(dates)))
    assert {name: study.prior for name, study in studies(imported(source, tmp_path / "out")).items()} == {
        "0": "2", "1": None, "2": "1", "3": None
    }  # fmt: skip


def test_without_splits_they_are_drawn_by_patient(tmp_path: Path) -> None:
    source = table(tmp_path, *(row(k, patient=f"p{k // 2}") for k in range(40)))
    for study in imported(source, tmp_path / "out", seed=3):
        assert study.split == assign_split(study.patient, 3)


def test_without_patients_each_study_is_its_own_and_the_card_says_so(tmp_path: Path) -> None:
    source = table(tmp_path, row(0), row(1))
    found, corpus = import_table(
        source, TableConfig(columns=("image=image", "report=report"), images=tmp_path / "scans"), tmp_path / "out"
    )
    assert corpus is not None and corpus.card.remarks == {NO_PATIENT: 2}
    assert [study.patient for study in corpus] == ["0", "1"]
    assert any(line.startswith("patient:") for line in found.missing)


def test_views_come_from_the_table_else_the_header_else_on_request_the_pixels(tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    write_image(scans / "head", ViewPosition="AP", PatientSex="F")
    (scans / "front.png").write_bytes(png(frontal_images(1)[0]))
    (scans / "side.png").write_bytes(png(side_image()))
    source = table(
        tmp_path,
        row(0, image="head", view=""),
        row(1, image="front.png", view=""),
        row(2, image="side.png", view="knee"),
        images=False,
    )
    corpus = imported(source, tmp_path / "out", "auto", "view=view")
    assert [study.images[0].view for study in corpus] == ["AP", None, "other"]
    assert corpus["head"].sex == "F" and corpus.card.remarks[VIEW_UNKNOWN] == 1 and corpus.card.absent == {"view": 1}
    decided = imported(source, tmp_path / "seen", "auto", "view=none", views_from_pixels=True)
    assert [study.images[0].view for study in decided] == ["AP", "frontal", "lateral"]
    assert decided.card.remarks[FROM_PICTURE] == 2


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [
        ([row(0, image="no.png")], (), "missing or empty image files: 1 ('no.png' at {t}:2)"),
        ([row(0, study="s"), row(1, study="s", report="Edema.", patient="p0")], (), "studies with two different reports: 1"),
        ([row(0, date="last week")], ("auto", "date=date"), "unreadable dates: 1 ('last week' at {t}:2)"),
        ([row(0, date="05/03/2024")], (), "unreadable dates: 1 ('05/03/2024'"),
        ([row(0), row(1, image="0.png")], (), "images that are listed twice: 1 ('0.png' at {t}:2 and {t}:3)"),
        ([row(0, study="s"), row(1, study="s")], (), "studies whose rows disagree: 1 ('s' in 'patient' at {t}:2 and {t}:3)"),
        ([row(0, patient="p", split="train"), row(1, patient="p", split="val")], (), "patients in two splits: 1 ('p' in"),
        ([row(0, split="holdout")], (), "splits of unknown names: 1 ('holdout' at {t}:2)"),
        ([row(0, study="")], ("auto", "study=study"), "rows with an empty study id: 1 ({t}:2)"),
        ([row(0, patient="")], (), "studies with an empty patient id: 1 ('0' at {t}:2)"),
        ([row(0), {"image": "", "report": "", "patient": "p"}], (), "studies without image and report: 1 ('row2' at {t}:3)"),
        ([row(0, report="#NAME?")], (), "cells with a spreadsheet's error: 1 (#NAME? in 'report' at {t}:2)"),
        ([row(0, patient="1.23457E+11")], (), "ids whose digits a spreadsheet has rounded: 1 ('1.23457E+11' at {t}:2)"),
        ([row(0, study="a\tb")], (), "ids with characters that cannot be seen: 1 ("),
        ([row(0, patient="p\u202e1")], (), "ids with characters that cannot be seen: 1 ("),
        ([row(0, Edema="perhaps")], (), "unreadable labels: 1 ('Edema' is 'perhaps' at {t}:2)"),
        ([row(0)], ("image=imge",), "Did you mean 'image'"),
        ([row(0)], ("image=image", "image=report"), "'image' twice"),
        ([row(0)], ("patient=patient",), "no column was recognised as images or reports"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused_and_nothing_is_written(
    tmp_path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...], found: str
) -> None:
    source = table(tmp_path, *rows, images=False)
    draw(tmp_path / "scans" / "0.png", 0)
    draw(tmp_path / "scans" / "1.png", 1)
    message = refused(source, *columns)
    assert found.format(t=source) in message
    assert REPORT not in message and "Edema." not in message


def test_problems_of_every_kind_are_counted_before_the_command_stops(tmp_path: Path) -> None:
    source = table(tmp_path, *(row(k, date="soon", split="odd") for k in range(9)), images=False)
    (tmp_path / "scans").mkdir()
    message = refused(source, "auto", "date=date")
    for words in ("unreadable dates: 9", "splits of unknown names: 9", "missing or empty image files: 9"):
        assert words in message


def test_a_name_of_two_files_is_not_guessed(tmp_path: Path) -> None:
    draw(tmp_path / "scans" / "a" / "0.png", 0)
    draw(tmp_path / "scans" / "b" / "0.png", 1)
    assert "image names of several files: 1 ('0.png'" in refused(table(tmp_path, row(0), images=False))


def test_remedies_of_the_messages_work(tmp_path: Path) -> None:
    source = table(
        tmp_path, row(0, split="holdout", date="05/03/2024"), row(1, split="rest", date="06/03/2024"), images=False
    )
    draw(tmp_path / "scans" / "0.png", 0)
    corpus = imported(
        source, tmp_path / "out", "auto", "date=date",
        allow_missing_images=True, split_names=("holdout=test", "rest=none"), date_order="dmy",
    )  # fmt: skip
    found = studies(corpus)
    assert found["0"].split == "test" and found["1"].split is None and found["0"].extra == {"date": "20240305"}
    assert found["1"].images == () and [one.path for one in found["1"].absent_images or ()] == ["images/1.png"]


def test_odd_values_are_left_out_and_counted(tmp_path: Path) -> None:
    corpus = imported(table(tmp_path, row(0, age="413"), row(1, age="41")), tmp_path / "out", "auto", "age=age")
    assert [study.age for study in corpus] == [None, 41] and corpus.card.remarks == {AGE_OUT_OF_RANGE: 1}


def test_a_killed_import_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table(tmp_path, *(row(k) for k in range(40)))
    whole = content(imported(source, tmp_path / "whole", copy=True).path)
    append = corpus_writer.CorpusWriter.append
    count = 0

    def dying(writer: corpus_writer.CorpusWriter, line: corpus_writer.Line) -> None:
        nonlocal count
        count += 1
        if count == 17:
            raise KeyboardInterrupt
        append(writer, line)

    monkeypatch.setattr(corpus_writer.CorpusWriter, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        imported(source, tmp_path / "out", copy=True)
    monkeypatch.undo()
    assert not (tmp_path / "out" / "card.yaml").exists()
    assert content(imported(source, tmp_path / "out", copy=True).path) == whole
    with source.open("a") as file:
        file.write("\n")
    with pytest.raises(Exception, match="made_from"):  # another table never continues it
        imported(source, tmp_path / "out", copy=True)


def test_the_rows_leave_nothing_behind_after_a_kill() -> None:
    """What does not fit into memory is in a file that has no name from the moment that it is made."""
    with StudyRows() as rows:
        for number in range(300):
            rows.add("t", str(number), {"report": "x" * 100_000}, [])
        entries = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        files = [os.readlink(entry) for entry in entries if os.path.lexists(entry)]
        spilled = [file for file in files if "etilqs_" in file]  # how SQLite calls its temporary files
        assert spilled and all(file.endswith("(deleted)") for file in spilled)


def test_a_full_disk_is_reported_with_a_remedy() -> None:
    with pytest.raises(DataError, match="SQLITE_TMPDIR") as error, StudyRows() as rows:
        rows._db.execute("PRAGMA max_page_count = 20")
        for number in range(1000):
            rows.add(f"t.csv:{number}", f"s{number}", {"report": REPORT * 10}, [])
    assert "Cough" not in str(error.value)


def test_cells_that_hold_images_are_written_into_the_corpus(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    for split, numbers in (("train", (0, 1)), ("validation", (2,))):
        cells = [{"bytes": encode_png(image(k)), "path": f"{k}.png"} for k in numbers]
        rows = pa.table({"image": cells, "text": [REPORT] * len(cells), "sex": [k % 2 for k in numbers]})
        features = {"info": {"features": {"sex": {"names": ["F", "M"], "_type": "ClassLabel"}}}}
        rows = rows.replace_schema_metadata({"huggingface": json.dumps(features)})
        parquet.write_table(rows, folder / "data" / f"{split}-00000-of-00001.parquet")
    found = list(imported(folder, tmp_path / "out"))
    assert [(study.split, study.sex) for study in found] == [("train", "F"), ("train", "M"), ("val", "F")]
    for number, study in enumerate(found):
        assert (tmp_path / "out" / study.images[0].path).read_bytes() == encode_png(image(number))
    assert check_corpus(tmp_path / "out").studies == 3


def test_a_saved_data_set_is_read_without_the_library_that_saved_it(tmp_path: Path) -> None:
    """The layout of `datasets.save_to_disk`: Arrow streams, listed by state.json, in a folder per split."""
    import pyarrow as pa

    for split in ("train", "test"):
        folder = tmp_path / "set" / split
        folder.mkdir(parents=True)
        rows = pa.table(
            {"image": [{"bytes": encode_png(image(1)), "path": None}], "findings": [split + " lungs clear"]}
        )
        with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", rows.schema) as stream:
            stream.write_table(rows)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (tmp_path / "set" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    found = list(imported(tmp_path / "set", tmp_path / "out"))
    assert [study.split for study in found] == ["train", "test"]
    assert [study.sections.findings for study in found if study.sections] == ["train lungs clear", "test lungs clear"]


def test_an_imagefolder_has_its_metadata_beside_the_images(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "test")):
        draw(tmp_path / "set" / split / "0.png", number)
        (tmp_path / "set" / split / "metadata.csv").write_text(f"file_name,text\n0.png,{REPORT}\n")
    found = list(imported(tmp_path / "set", tmp_path / "out"))
    assert {study.id: study.split for study in found} == {"test/0": "test", "train/0": "train"}
    assert [study.images[0].path for study in found] == ["images/test/0.png", "images/train/0.png"]


@pytest.mark.real_data
def test_forty_real_studies_under_odd_names(tmp_path: Path, real_data: Path) -> None:
    """IU X-ray as a table of its own: every report arrives, and every image is found and readable."""
    listed = json.loads((real_data / "iu_xray" / "annotation.json").read_text())["val"][:40]
    rows = [
        {"Nr.": one["id"], "Bild": ";".join(one["image_path"]), "Text des Befunds": one["report"]} for one in listed
    ]
    source = table(tmp_path, *rows, images=False)
    found = import_table(source, TableConfig(images=real_data / "iu_xray" / "images"), None)[0]
    assert found.meaning.roles == {"image": ("Bild",), "report": ("Text des Befunds",)}
    corpus = imported(
        source, tmp_path / "out", "auto", "study=Nr.", images=real_data / "iu_xray" / "images", views_from_pixels=True
    )
    assert [study.report for study in corpus] == [one["report"] for one in listed]
    assert [len(study.images) for study in corpus] == [len(one["image_path"]) for one in listed]
    report = check_corpus(corpus.path)
    assert report.images == sum(len(one["image_path"]) for one in listed)
    assert not {"unreadable image", "missing image"} & set(report.counts)
    run, scored = str(tmp_path / "run"), tmp_path / "scored"
    words = ["generate", "--model", "stub:normal", "--data", str(corpus.path), "--split", "train", "--allow-missing"]
    assert main([*words, "--out", run]) == 0
    words = ["score", "--references", str(corpus.path), "--predictions", run, "--metrics", "rougeL:google"]
    assert main([*words, "--out", str(scored)]) == 0
    # The study without a frontal image counts as an empty report.
    assert json.loads((scored / "scores.json").read_text())["n"] == len(corpus.ids("train")) == 32


@pytest.mark.full
def test_two_hundred_thousand_rows_take_little_memory(tmp_path: Path) -> None:
    """Reports of 600 characters; the peak of the command and of any of its workers stays below 350 MB."""
    text = "FINDINGS: " + "The lungs are clear. " * 26 + "IMPRESSION: Normal chest {}."
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["study", "patient", "image", "report"])
        rows.writerows((f"s{k}", f"p{k // 3}", f"{k}.png", text.format(k)) for k in range(200_000))
    code = (
        "import re, resource, sys; from cxrlab.cli.main import main; code = main(sys.argv[1:]);"
        # Of the process itself by its own counter: `ru_maxrss` survives exec and so may be that of the test's process.
        "own = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]);"
        "print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); sys.exit(code)"
    )
    words = [
        "data",
        "import",
        "table",
        "t.csv",
        "--columns",
        "auto",
        "--allow-missing-images",
        "--out",
        "out",
        "--quiet",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert load_corpus(tmp_path / "out").card.counts["studies"] == 200_000
    assert int(done.stdout.splitlines()[-1]) / 1024 < 350


def test_missing_images_keep_the_place_that_the_table_states(tmp_path: Path) -> None:
    names = ("a/0.png", "b/1.png", "2.png", "/no/such/folder/3.png")
    source = table(tmp_path / "data", *(row(k, image=name) for k, name in enumerate(names)), images=False)
    draw(tmp_path / "data" / "scans" / names[0], 0)
    corpus = imported(source, tmp_path / "out", allow_missing_images=True)
    absent = [image.path for study in corpus for image in study.absent_images or ()]
    assert corpus["0"].images[0].path == "images/a/0.png"
    assert absent == ["images/b/1.png", "images/2.png", "images/3.png"]


def test_only_images_are_taken_for_images(tmp_path: Path) -> None:
    """Neither the keys of this machine nor a text behind the name of a picture enter a corpus."""
    source = table(tmp_path, row(0), row(1, image="../secret"), row(2, image="2.png"), images=False)
    draw(tmp_path / "scans" / "0.png", 0)
    (tmp_path / "secret").write_text("a private key")
    (tmp_path / "scans" / "2.png").symlink_to(tmp_path / "secret")
    message = refused(source, copy=True)
    assert "no PNG, JPEG or DICOM image: 2 ('../secret'" in message and "2.png" in message
    corpus = imported(source, tmp_path / "out", copy=True, allow_missing_images=True)
    assert [len(study.images) for study in corpus] == [1, 0, 0]
    assert not any(b"private" in file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())


@pytest.mark.parametrize("written", [".", "..", "/", "x/..", "a\0b.png", "a/\0.png", "", {"path": None}, {"a": 1}])
def test_no_image_cell_is_an_accident(tmp_path: Path, written: Any) -> None:
    """Whatever stands in the column of images is a missing image, or none."""
    source = tmp_path / "t.jsonl"
    source.write_text("".join(json.dumps({"image": cell, "report": REPORT}) + "\n" for cell in ("0.png", written)))
    draw(tmp_path / "scans" / "0.png", 0)
    if isinstance(written, str) and written:
        assert "missing or empty image files: 1" in refused(source, "image=image", "report=report")
    corpus = imported(source, tmp_path / "out", "image=image", "report=report", allow_missing_images=True)
    assert [len(study.images) for study in corpus] == [1, 0]


def test_a_list_or_object_is_no_report(tmp_path: Path) -> None:
    """Its JSON would be learnt as the text of a report; a list of one text is that text."""
    source = tmp_path / "t.jsonl"
    for cell in ({"findings": REPORT}, [REPORT, REPORT]):
        source.write_text(json.dumps({"report": cell, "age": 61}) + "\n")
        message = refused(source, "report=report")
        assert f"cells that hold a list or object: 1 ('report' at {source}:1)" in message and "lungs" not in message
    source.write_text(json.dumps({"report": [REPORT]}) + "\n")
    assert [study.report for study in imported(source, tmp_path / "out", "report=report")] == [REPORT]


def test_a_named_pipe_is_no_image(tmp_path: Path) -> None:
    """Whoever reads one waits until somebody writes."""
    (tmp_path / "scans").mkdir()
    os.mkfifo(tmp_path / "scans" / "0.png")
    source = table(tmp_path, row(0), images=False)
    assert "missing or empty image files: 1 ('0.png'" in refused(source, "image=image", "report=report")


def test_a_table_without_a_header_is_refused_without_its_text(tmp_path: Path) -> None:
    """Its first report would stand in every message as the name of a column."""
    for first in (f"0.png,{REPORT}", f"0,{REPORT * 3}"):
        (tmp_path / "t.csv").write_text(f"{first}\n1.png,Clear lungs.\n")
        message = refused(tmp_path / "t.csv")
        assert "Add a row of names" in message and "lungs" not in message


def test_patients_who_differ_in_case_alone_are_counted(tmp_path: Path) -> None:
    source = table(tmp_path, *(row(k, patient=name) for k, name in enumerate(("A 1", "a1", "A1", "b"))))
    corpus = imported(source, tmp_path / "out", "auto", "patient=patient")
    assert corpus.card.remarks[ALIKE_PATIENTS] == 3


def test_a_report_never_reaches_a_message(tmp_path: Path) -> None:
    """Not even where its column was taken for another."""
    source = table(tmp_path, row(0), row(1, report=""))
    for role in ("date", "split", "study", "patient", "image"):
        message = refused(
            source, *(["image=image"] if role != "image" else ["image=report"]), *[f"{role}=report"][role == "image" :]
        )
        assert "lungs" not in message and "Normal" not in message, message

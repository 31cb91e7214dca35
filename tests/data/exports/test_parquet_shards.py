"""A corpus as Parquet shards is read by Hugging Face `datasets`, and comes back as it was, also after a kill."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import CARD, content, drawn, image, toy_corpus
from hostile_images import dicom

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Box, ImageFile, Report
from cxrlab.core.vocabulary import View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.export import export_corpus
from cxrlab.data.parquet_shards import import_parquet
from cxrlab.data.phantom.corpus import make_phantom


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Twelve studies: two views, no split, no image, no findings, a prior, keys of other programs; large images."""
    card = dataclasses.replace(
        CARD, licence="PhysioNet Credentialed Health Data License", collections=("toy hospital",)
    )
    with CorpusWriter(tmp_path_factory.mktemp("corpus") / "c", card) as writer:
        for number in range(12):
            one = drawn(number, extra={"device": f"d{number}"})
            files = {**one.files, f"images/s{number}.png": encode_png(image(number, 700))}
            study = one.study
            if number == 1:
                files["images/s1_l.png"] = encode_png(image(100))
                study = dataclasses.replace(study, images=(*study.images, ImageFile("images/s1_l.png", View.LATERAL)))
            elif number == 2:
                boxes = (Box("Opacity", (1, 2, 3, 4)),)
                study = dataclasses.replace(study, split=None, prior="s1", patient="p1", boxes=boxes)
            elif number == 3:
                study = dataclasses.replace(study, images=(), masks={}, absent_images=(ImageFile("images/lost.png"),))
                files = {}
            elif number == 4:
                findings = Report(findings="Zeichen ü, «quoted»\nand a second line.")
                study = dataclasses.replace(study, findings=None, masks={}, age=None, sex=None, sections=findings)
            writer.add(study, files)
    return load_corpus(writer.path)


@pytest.fixture(scope="module")
def exported(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_corpus("parquet", corpus, tmp_path_factory.mktemp("exported") / "x", workers=1, shard_mb=1)


def test_a_corpus_comes_back_as_it_was(corpus: Corpus, exported: Path, tmp_path: Path) -> None:
    """Studies in their order, every file to the byte, and the card."""
    back = import_parquet(exported, tmp_path / "back", workers=2)
    assert list(back) == list(corpus)
    assert content(back.path) == {path: data for path, data in content(corpus.path).items() if path in used(corpus)}


def used(corpus: Corpus) -> set[str]:
    """Files of a corpus that its studies or its readers need."""
    listed = {path for study in corpus for path in (*(one.path for one in study.images), *study.masks.values())}
    return listed | {"studies.jsonl", "card.yaml"}


def test_exporting_what_came_back_gives_the_same_shards(exported: Path, tmp_path: Path) -> None:
    back = import_parquet(exported, tmp_path / "back", workers=1)
    again = export_corpus("parquet", back, tmp_path / "again", workers=2, shard_mb=1)
    assert content(again) == content(exported)
    assert len(list(again.glob("data/train-*-of-00002.parquet"))) == 2


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


def test_datasets_reads_the_folder(corpus: Corpus, exported: Path, tmp_path: Path, offline: Any) -> None:
    """Every split by its name, images decoded to the same pixels, sections as text."""
    found = offline.load_dataset(str(exported), cache_dir=str(tmp_path))
    assert {name: len(rows) for name, rows in found.items()} == {"train": 4, "val": 4, "test": 3, "unassigned": 1}
    assert found["val"].features["images"].feature == offline.Image()
    rows = {row["id"]: row for name in found for row in found[name]}
    assert [row["id"] for row in found["train"]] == ["s0", "s3", "s6", "s9"]
    for study in corpus:
        row = rows[study.id]
        assert row["patient"] == study.patient and row["prior"] == study.prior and row["age"] == study.age
        assert row["findings"] == (study.sections.findings if study.sections else None)
        assert json.loads(row["labels"]) == dict(study.labels)
        assert row["views"] == [image.view for image in study.images] and len(row["images"]) == len(study.images)
        for k, picture in enumerate(row["images"]):
            assert (np.asarray(picture, np.float32) / 255 == corpus.image(study, k)).all()


def test_datasets_streams_and_resumes(exported: Path, offline: Any) -> None:
    """The rows come in the order of the corpus; a saved state goes on with the next row, also after a shuffle."""
    stream = offline.load_dataset(str(exported), split="val", streaming=True)
    assert [row["id"] for row in stream] == ["s1", "s4", "s7", "s10"]
    walk = iter(stream)
    assert next(walk)["id"] == "s1" and next(walk)["id"] == "s4"
    fresh = offline.load_dataset(str(exported), split="val", streaming=True)
    fresh.load_state_dict(stream.state_dict())
    assert [row["id"] for row in fresh] == ["s7", "s10"]
    shuffled = stream.shuffle(seed=3, buffer_size=4)
    assert sorted(row["id"] for row in shuffled) == ["s1", "s10", "s4", "s7"]


_KILLED = """
import os, signal, sys
from itertools import chain
import cxrlab.data.parquet_shards as shards
from cxrlab.data.corpus import load_corpus
from cxrlab.data.export import export_corpus

write, written = shards.write_pieces, []

def end():
    yield b"PAR"
    os.kill(os.getpid(), signal.SIGKILL)

def write_and_die(path, pieces):
    written.append(path)
    return write(path, pieces if len(written) < 3 else chain([next(pieces)], end()))

shards.write_pieces = write_and_die
export_corpus("parquet", load_corpus(sys.argv[1]), sys.argv[2], workers=1, shard_mb=1)
"""


@pytest.mark.slow
def test_a_killed_export_resumes_to_the_same_bytes(corpus: Corpus, exported: Path, tmp_path: Path) -> None:
    """Two shards are whole and the third is begun when the process dies: nothing looks finished, the two are kept."""
    out = tmp_path / "x"
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(corpus.path), str(out)], check=False)
    assert ended.returncode == -9
    assert not (out / "data").exists() and list(out.rglob(".*.tmp"))
    before = {path.name: path.stat().st_mtime_ns for path in (out / ".data").glob("*.parquet")}
    assert len(before) == 2
    export_corpus("parquet", corpus, out, workers=1, shard_mb=1)
    assert content(out) == content(exported)
    assert {name: (out / "data" / name).stat().st_mtime_ns for name in before} == before


def test_shards_of_an_earlier_state_of_the_corpus_are_written_again(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "a")
    out = export_corpus("parquet", load_corpus(tmp_path / "a"), tmp_path / "x", workers=1)
    (out / ".export").write_text("")  # as before the last moment of an export
    changed = toy_corpus(tmp_path / "b", changes={0: {"sex": "M"}})
    export_corpus("parquet", changed, out, workers=1)
    assert list(import_parquet(out, tmp_path / "back", workers=1)) == list(changed)


def edited(exported: Path, folder: Path, change: dict[str, Any]) -> Path:
    """A copy of the export whose columns of one shard have other values in every row."""
    shutil.copytree(exported, folder)
    file = next(iter(sorted((folder / "data").glob("val-*"))))
    table = pq.read_table(file)
    for name, value in change.items():
        at = table.schema.get_field_index(name)
        column = pa.array([value] * len(table), table.schema.field(name).type)
        table = table.remove_column(at) if value is None else table.set_column(at, name, column)
    pq.write_table(table, file)
    return folder


def test_a_column_that_disagrees_with_the_record_is_refused(exported: Path, tmp_path: Path) -> None:
    folder = edited(exported, tmp_path / "x", {"findings": "Clear lungs."})
    with pytest.raises(DataError, match=r"study 's1'.* 'findings' differs"):
        import_parquet(folder, tmp_path / "back", workers=1)


@pytest.mark.parametrize(
    ("change", "message"), [({"study": None}, "no column 'study'"), ({"study": "{"}, "not valid JSON")]
)
def test_other_shards_are_refused(exported: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = edited(exported, tmp_path / "x", change)
    with pytest.raises(DataError, match=message):
        import_parquet(folder, tmp_path / "back", workers=1)


def test_folders_without_a_card_and_damaged_shards_are_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no card.yaml"):
        import_parquet(tmp_path, tmp_path / "back")
    folder = shutil.copytree(exported, tmp_path / "x")
    next((folder / "data").glob("val-*")).write_bytes(b"PAR1")
    with pytest.raises(DataError, match="damaged"):
        import_parquet(folder, tmp_path / "back")
    with pytest.raises(DataError, match="cxrlab data import parquet --root"):
        load_corpus(exported)


def test_a_shard_size_is_checked(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--shard-mb 0"):
        export_corpus("parquet", corpus, tmp_path / "x", shard_mb=0)


def test_dicom_images_become_pngs(tmp_path: Path) -> None:
    """`datasets` decodes no DICOM; the grey values are those that every command sees, in 8 bits."""
    one = drawn(0)
    study = dataclasses.replace(one.study, images=(ImageFile("images/s0.dcm", View.PA),), masks={})
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        writer.add(study, {"images/s0.dcm": dicom()})
    source = load_corpus(tmp_path / "c")
    back = import_parquet(export_corpus("parquet", source, tmp_path / "x", workers=1), tmp_path / "back", workers=1)
    (again,) = back
    assert again.images[0].path == "images/s0.dcm.png"
    assert np.abs(back.image(again) - source.image(study)).max() <= 0.5 / 255 + 1e-6


def test_the_data_set_card_states_the_licence_and_warns_of_patients_data(corpus: Corpus, tmp_path: Path) -> None:
    text = (export_corpus("parquet", corpus, tmp_path / "x", 1) / "README.md").read_text()
    assert "PhysioNet Credentialed Health Data License" in text and "credentialed user" in text
    phantoms = make_phantom(PhantomConfig(n=2, size=32, seed=1, workers=1), tmp_path / "p")
    text = (export_corpus("parquet", phantoms, tmp_path / "y", 1) / "README.md").read_text()
    assert "Synthetic" in text and "credentialed user" not in text


def test_an_export_that_is_not_whole_is_no_corpus(exported: Path, tmp_path: Path) -> None:
    """A stopped export holds some shards; a shard that was lost leaves others which count it."""
    stopped = shutil.copytree(exported, tmp_path / "stopped")
    (stopped / "data").rename(stopped / ".data")
    (stopped / ".export").touch()
    with pytest.raises(DataError, match="not finished"):
        import_parquet(stopped, tmp_path / "back")
    lost = shutil.copytree(exported, tmp_path / "lost")
    (lost / "data/train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataError, match="train-00000-of-00002"):
        import_parquet(lost, tmp_path / "back")

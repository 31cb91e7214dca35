"""`retrieve` on phantoms: with an encoder whose answers are known, and with a tiny real one."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_dual_encoder

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import load_corpus
from cxrlab.data.views import load_selected_image
from cxrlab.evaluation import retrieve as embedding
from cxrlab.evaluation import retrieve as module
from cxrlab.evaluation.config import RetrieveConfig
from cxrlab.evaluation.retrieve import read_entry, read_retrieval, retrieve
from cxrlab.findings.finding_sentences import NOTHING_PRESENT


class Known:
    """Knows each train image by its pixels: it finds its own report, or with `shift` that of the next study."""

    name = "known"

    def __init__(self, corpus: Path, shift: int = 0) -> None:
        opened = load_corpus(corpus)
        studies = list(opened.studies("train"))
        self.images = {opened.image(study).tobytes(): k for k, study in enumerate(studies)}
        self.texts = {study.sections.findings.strip(): k for k, study in enumerate(studies)}  # type: ignore[union-attr]
        self.count, self.shift, self.asked = len(studies), shift, 0

    def embed_images(self, images: Sequence[Any]) -> np.ndarray:
        self.asked += len(images)
        return np.eye(self.count + 1, dtype=np.float32)[
            [(self.images[i.tobytes()] + self.shift) % self.count for i in images]
        ]

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.eye(self.count + 1, dtype=np.float32)[[self.texts.get(text, self.count) for text in texts]]


@pytest.fixture
def known(phantom: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    one = Known(phantom)
    monkeypatch.setattr(module, "load_encoder", lambda name, loading: one)
    return one


def known_words(corpus: Path) -> list[str]:
    """The train reports as they count for being the same."""
    studies = load_corpus(corpus).studies("train")
    return [" ".join(re.findall(r"\w+", str(study.sections and study.sections.findings).lower())) for study in studies]


def config(corpus: Path, **changes: Any) -> RetrieveConfig:
    return RetrieveConfig("hf:x", corpus, **{"split": "train", "trials": 50, "zero_shot": None, **changes})


def test_an_encoder_that_knows_finds_everything(known: Known, phantom: Path, tmp_path: Path) -> None:
    found = retrieve(config(phantom), tmp_path / "run")
    for way in ("image_to_text", "text_to_image"):
        for kind in ("text", "findings"):
            one = found.recalls[way][kind]["recall@1"]
            assert (one.value, one.high, one.n) == (1.0, 1.0, found.gallery)
            assert 0.025 ** (1 / 30) < one.low < 1.0, "all found, by so many patients"
    assert found.gallery == known.count and found.median_ranks["image_to_text"]["text"] == 1.0
    lines = [record for _, record in read_jsonl(tmp_path / "run" / "ranks.jsonl")]
    assert len(lines) == known.count and lines[0]["image_to_text"] == {"text": 1, "findings": 1}
    assert (
        read_retrieval(tmp_path / "run") == found == retrieve(config(phantom), tmp_path / "run")
    )  # finished: left as it is


def test_an_encoder_that_is_always_wrong_finds_nothing(phantom: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """It points at the next study's report; all others tie at 0, and ties count against it."""
    wrong = Known(phantom, shift=1)
    monkeypatch.setattr(module, "load_encoder", lambda name, loading: wrong)
    found = retrieve(config(phantom, ks=(1, wrong.count)), tmp_path / "run")
    figures = found.recalls["image_to_text"]["text"]
    assert figures["recall@1"].value == 0.0 and figures[f"recall@{wrong.count}"].value == 1.0
    assert figures["recall@1"].chance == pytest.approx(1 / wrong.count, rel=0.5)
    assert figures[f"recall@{wrong.count}"].chance == figures[f"recall@{wrong.count}"].fixed_order == 1.0
    assert figures["recall@1"].fixed_order == max(Counter(known_words(phantom)).values()) / wrong.count


def test_the_same_words_and_the_same_findings_count(own_phantom: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Study 1 gets the words of study 0 in other spelling, study 2 its findings: image 0 may find any of them."""
    file = own_phantom / "studies.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    train = [line for line in lines if line["split"] == "train"]
    train[1]["sections"]["findings"] = train[0]["sections"]["findings"].upper()
    train[2]["findings"] = train[0]["findings"]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    texts = [one["sections"]["findings"] for one in train]
    wrong = Known(own_phantom, shift=1)
    monkeypatch.setattr(module, "load_encoder", lambda name, loading: wrong)
    found = retrieve(config(own_phantom), tmp_path / "run")
    assert found.distinct_texts == len({"".join(filter(str.isalnum, text.lower())) for text in texts})
    ranks = {record["id"]: record for _, record in read_jsonl(tmp_path / "run" / "ranks.jsonl")}
    assert ranks[train[0]["id"]]["image_to_text"]["text"] == 1  # points at study 1, which has the same words
    assert ranks[train[1]["id"]]["image_to_text"]["findings"] > 1  # study 2 has the findings of 0, not those of 1


def test_an_encoder_of_present_statements_is_shown_those_alone(phantom: Path) -> None:
    """What it has learnt from: the denials go, and a normal report becomes one and the same sentence."""
    studies = list(load_corpus(phantom).studies())
    whole, kept = ([read_entry(study, "findings", present) for study in studies] for present in (False, True))
    pairs = [(a, b) for a, b in zip(whole, kept, strict=True) if a is not None and b is not None]
    assert len(pairs) == len(studies) and all(len(b.text) <= len(a.text) for a, b in pairs)
    normal = {b.text for _, b in pairs if not b.present}
    assert normal == {NOTHING_PRESENT} and len({b.text for _, b in pairs}) > 20


@pytest.mark.parametrize("kind", ["embed_texts", "embed_images"])
def test_an_encoder_that_gives_no_numbers_is_told(
    known: Known, phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Such texts would be found by every image, and such images reported as unreadable."""
    given = getattr(Known, kind)
    monkeypatch.setattr(Known, kind, lambda self, asked: given(self, asked) * np.float32("nan"))
    with pytest.raises(DataError, match=f"no numbers for the {kind[6:-1].replace('image', 'image')} of study"):
        retrieve(config(phantom, allow_missing=True), tmp_path / "run")
    assert not (tmp_path / "run" / "retrieval.json").exists()


def test_a_stopped_run_embeds_only_what_is_missing(
    known: Known, phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BLOCK", 16)
    straight = retrieve(config(phantom), tmp_path / "straight")
    calls = known.asked
    original = Known.embed_images

    def failing(self: Known, images: Sequence[Any]) -> np.ndarray:
        if self.asked >= calls + 32:
            raise KeyboardInterrupt
        return original(self, images)

    monkeypatch.setattr(Known, "embed_images", failing)
    with pytest.raises(KeyboardInterrupt):
        retrieve(config(phantom), tmp_path / "stopped")
    monkeypatch.setattr(Known, "embed_images", original)
    known.asked = 0
    assert retrieve(config(phantom), tmp_path / "stopped") == straight
    assert known.asked == known.count - 32
    for name in ("retrieval.json", "ranks.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_images_that_cannot_be_read(known: Known, own_phantom: Path, tmp_path: Path) -> None:
    opened = load_corpus(own_phantom)
    broken = next(opened.studies("train"))
    (own_phantom / broken.images[0].path).write_bytes(b"no image")
    with pytest.raises(DataError, match=f"1 of {known.count} studies have no readable image .*'{broken.id}'"):
        retrieve(config(own_phantom), tmp_path / "run")
    found = retrieve(config(own_phantom, allow_missing=True), tmp_path / "run")  # goes on where it stopped
    assert found.without_image == 1 and found.gallery == known.count - 1


def test_studies_without_text_are_left_out_and_counted(known: Known, own_phantom: Path, tmp_path: Path) -> None:
    file = own_phantom / "studies.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    next(line for line in lines if line["split"] == "train")["sections"]["findings"] = "  "
    for line in lines:
        line["sections"]["examination"] = None
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    found = retrieve(config(own_phantom), tmp_path / "run")
    assert found.without_text == 1 and found.gallery == known.count - 1
    with pytest.raises(DataError, match="0 have a text in the section 'examination'"):
        retrieve(config(own_phantom, section="examination"), tmp_path / "other")


def test_n_draws_a_smaller_gallery(known: Known, phantom: Path, tmp_path: Path) -> None:
    assert retrieve(config(phantom, n=10), tmp_path / "run").gallery == 10


@pytest.mark.parametrize(
    "changes",
    [{"split": "x"}, {"section": "finding"}, {"ks": ()}, {"ks": (0,)}, {"level": 1.0}, {"n": 1}, {"trials": 0}],
)
def test_unusable_settings(changes: dict[str, Any], phantom: Path) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        config(phantom, **changes)


def test_a_damaged_block_is_named(known: Known, phantom: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    retrieve(config(phantom), run)
    (run / "status.json").write_text('{"state": "interrupted", "at": "x"}\n')
    block = run / "vectors" / "images_000000.npy"
    for content in (b"nonsense", b""):
        block.write_bytes(content)
        with pytest.raises(DataError, match="images_000000.npy"):
            retrieve(config(phantom), run)
    np.save(block, np.zeros((3, 4), np.float32))
    with pytest.raises(DataError, match="rows were expected"):
        retrieve(config(phantom), run)


def test_the_command_with_a_real_encoder(phantom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An untrained encoder lies near chance; labels and observations of the phantom are classified beside it."""
    for part in tiny_dual_encoder():
        part.save_pretrained(tmp_path / "encoder")
    words = ["retrieve", "--model", f"hf:{tmp_path / 'encoder'}", "--data", str(phantom), "--split", "train",
             "--trials", "20", "--out", str(tmp_path / "run"), "--quiet"]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert re.search(r"image to text, same text\n +found +low +high +chance +fixed order\n  recall@1 +0\.\d{3} ", shown)
    assert "mean AUROC over" in shown
    found = read_retrieval(tmp_path / "run")
    assert found.recalls["text_to_image"]["text"]["recall@1"].value < 0.2
    areas = json.loads((tmp_path / "run" / "zero_shot.json").read_text())
    assert areas["sentences"] == "report/1" and areas["labels"] and areas["observations"]
    margins = [record for _, record in read_jsonl(tmp_path / "run" / "zero_shot.jsonl")]
    assert len(margins) == found.gallery and set(areas["labels"]) <= set(margins[0]["margins"])
    assert main([*words, "--json"]) == 0 and json.loads(capsys.readouterr().out)["gallery"] == found.gallery


def test_a_wrong_wording_is_told_before_images_are_embedded(known: Known, phantom: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="report/1"):
        retrieve(config(phantom, zero_shot="repot/1"), tmp_path / "run")
    assert known.asked == 0 and not (tmp_path / "run").exists()


def test_a_picture_is_shown_in_colour_with_its_caption(tmp_path: Path) -> None:
    from cxrlab.data.config import ScenesConfig
    from cxrlab.data.synthetic_scenes import make_scenes

    scenes = make_scenes(ScenesConfig(n=4, size=32, seed=7, workers=1), tmp_path / "scenes")
    study = next(load_corpus(scenes.path).studies())
    found = read_entry(study, "findings")
    assert found is not None and found.text == study.caption and found.exact is None
    assert load_selected_image(load_corpus(scenes.path), study).shape == (32, 32, 3)


def test_an_empty_split_is_told(known: Known, own_phantom: Path, tmp_path: Path) -> None:
    shutil.copy(own_phantom / "studies.jsonl", tmp_path / "backup")
    file = own_phantom / "studies.jsonl"
    lines = [{**json.loads(line), "split": "train"} for line in file.read_text().splitlines()]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with pytest.raises(DataError, match="no study in its val split"):
        retrieve(replace(config(own_phantom), split="val"), tmp_path / "run")

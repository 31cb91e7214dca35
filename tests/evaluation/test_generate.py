from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.image_codec import decode
from cxrlab.core.records import ImageFile, Prediction
from cxrlab.core.runs import state
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ScenesConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.evaluation.certify import run_certify
from cxrlab.evaluation.config import CertifyConfig, GenerateConfig
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY, generate
from cxrlab.evaluation.score import score
from cxrlab.models.baselines import REPORTS

pytestmark = pytest.mark.slow


def config(data: Path, **changes: Any) -> GenerateConfig:
    return GenerateConfig(**{"model": f"retrieval:{data}", "data": data, "split": "val", "batch_size": 4, **changes})


def predictions(run: Path) -> list[Prediction]:
    return [Prediction.from_json(json.loads(line)) for line in (run / PREDICTIONS).read_text().splitlines()]


def break_image(corpus: Path, study_id: str) -> tuple[Path, bytes]:
    image = corpus / load_corpus(corpus)[study_id].images[0].path
    whole = image.read_bytes()
    image.write_bytes(whole[: len(whole) // 2])
    return image, whole


def test_captioned_pictures_are_shown_in_colour(phantom: Path, tmp_path: Path) -> None:
    """Pictures have no frontal view; a model of pictures is asked about them all the same, wrong pictures included."""
    scenes = make_scenes(ScenesConfig(n=12, size=32, seed=1, workers=1), tmp_path / "scenes")
    done = generate(config(scenes.path, model=f"retrieval:{phantom}", split="train"), tmp_path / "run")
    assert done.predictions == done.studies == len(scenes.ids("train"))
    assert done.controls == dict.fromkeys(("noise", "blank", "swapped"), done.studies)
    example = json.loads((tmp_path / "run" / "examples.jsonl").read_text().splitlines()[0])
    assert example["heading"] == "picture" and example["reference"] == scenes[example["id"]].caption
    assert decode((tmp_path / "run" / example["thumb"]).read_bytes(), "thumb").ndim == 3


def test_one_report_a_study_in_the_order_of_the_corpus(phantom: Path, tmp_path: Path) -> None:
    done = generate(config(phantom, model="stub:normal"), tmp_path / "run")
    ids = list(load_corpus(phantom).ids("val"))
    found = predictions(tmp_path / "run")
    assert [item.id for item in found] == ids and {item.report for item in found} == {REPORTS["normal"]}
    assert (done.predictions, done.distinct_reports, done.missing) == (len(ids), 1, ())
    assert done.mean_words == len(REPORTS["normal"].split())
    assert state(tmp_path / "run") == "finished"
    assert json.loads((tmp_path / "run" / SUMMARY).read_text())["predictions"] == len(ids)


def test_retrieval_answers_with_a_training_report_and_names_it(phantom: Path, tmp_path: Path) -> None:
    generate(config(phantom), tmp_path / "run")
    corpus = load_corpus(phantom)
    for item in predictions(tmp_path / "run"):
        neighbour = corpus[item.extra["neighbour"]]
        assert neighbour.split == "train" and neighbour.patient != corpus[item.id].patient
        assert item.report == neighbour.sections.findings
        assert -1 <= item.extra["similarity"] <= 1


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_the_batch_size_does_not_change_the_answers(phantom: Path, tmp_path: Path, batch_size: int) -> None:
    generate(config(phantom), tmp_path / "four")
    generate(config(phantom, batch_size=batch_size), tmp_path / "other")
    reports = [[item.report for item in predictions(tmp_path / name)] for name in ("four", "other")]
    assert reports[0] == reports[1]


def test_a_smaller_number_is_drawn_with_the_seed(phantom: Path, tmp_path: Path) -> None:
    def drawn(name: str, seed: int) -> list[str]:
        generate(config(phantom, model="stub:normal", split="train", n=10, seed=seed), tmp_path / name)
        return [item.id for item in predictions(tmp_path / name)]

    first, again, other = drawn("a", 7), drawn("b", 7), drawn("c", 8)
    assert first == again != other and len(set(first)) == 10
    order = load_corpus(phantom).ids("train")
    assert first == sorted(first, key=order.index)


SLOW = """
import sys, time
from pathlib import Path
from cxrlab.core.runs import Run
from cxrlab.evaluation.certify import run_certify
from cxrlab.evaluation.config import CertifyConfig, GenerateConfig
from cxrlab.evaluation.generate import generate
quick = Run.append
def slow(*given):
    time.sleep(0.05)
    return quick(*given)
Run.append = slow
data, out = map(Path, sys.argv[1:])
generate(GenerateConfig(model=f"retrieval:{data}", data=data, split="val", batch_size=4), out)
"""


def test_a_killed_run_goes_on_where_it_stopped_and_ends_with_the_same_bytes(phantom: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of a batch, then the command again: nothing twice, nothing lost, nothing different."""
    generate(config(phantom), tmp_path / "whole")
    expected = (tmp_path / "whole" / PREDICTIONS).read_bytes()
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(phantom), str(killed)], env={**os.environ, "CXRLAB_QUIET": "1"}
    )
    written = 0
    deadline = time.monotonic() + 60
    while written < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
        written = (killed / PREDICTIONS).read_bytes().count(b"\n") if (killed / PREDICTIONS).exists() else 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = (killed / PREDICTIONS).read_bytes()
    assert 3 <= before.count(b"\n") < expected.count(b"\n")
    assert expected.startswith(before)
    with (killed / PREDICTIONS).open("ab") as stream:
        stream.write(b'{"id": "torn')  # the worst that a kill can leave behind
    generate(config(phantom), killed)
    assert (killed / PREDICTIONS).read_bytes() == expected
    assert (killed / SUMMARY).read_bytes() == (tmp_path / "whole" / SUMMARY).read_bytes()
    assert (killed / "examples.jsonl").read_bytes() == (tmp_path / "whole" / "examples.jsonl").read_bytes()


def test_an_unreadable_image_is_counted_listed_and_fails_the_run(own_phantom: Path, tmp_path: Path) -> None:
    ids = load_corpus(own_phantom).ids("val")
    image, whole = break_image(own_phantom, ids[2])
    run = tmp_path / "run"
    with pytest.raises(DataError, match=f"1 of {len(ids)} studies .*{image.name}.*--allow-missing"):
        generate(config(own_phantom, examples=len(ids)), run)
    assert [item.id for item in predictions(run)] == [key for key in ids if key != ids[2]]
    listed = json.loads((run / SUMMARY).read_text())["missing"]
    assert [item["id"] for item in listed] == [ids[2]] and image.name in listed[0]["reason"]
    assert state(run) == "interrupted"
    image.write_bytes(whole)  # mended: the same command now completes the run
    done = generate(config(own_phantom, examples=len(ids)), run)
    assert {item.id for item in predictions(run)} == set(ids) and done.missing == ()
    assert state(run) == "finished"


def test_missing_images_can_be_allowed(own_phantom: Path, tmp_path: Path) -> None:
    ids = load_corpus(own_phantom).ids("val")
    image, _ = break_image(own_phantom, ids[0])
    image.unlink()
    with pytest.raises(DataError, match="does not exist"):
        generate(config(own_phantom), tmp_path / "run")
    done = generate(config(own_phantom, allow_missing=True), tmp_path / "run")
    assert done.predictions == len(ids) - 1 and [item.id for item in done.missing] == [ids[0]]
    assert state(tmp_path / "run") == "finished"


def test_when_every_image_is_missing_the_mean_is_unknown(own_phantom: Path, tmp_path: Path) -> None:
    for study_id in load_corpus(own_phantom).ids("val"):
        break_image(own_phantom, study_id)
    generate(config(own_phantom, model="stub:normal", allow_missing=True), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert summary["predictions"] == 0 and summary["mean_words"] is None


def test_an_empty_split_is_told_with_those_that_are_there(own_phantom: Path, tmp_path: Path) -> None:
    file = own_phantom / "studies.jsonl"
    file.write_text(file.read_text().replace('"split": "test"', '"split": "val"'))
    with pytest.raises(DataError, match=r"no study in its test split \(splits there: train, val\)"):
        generate(config(own_phantom, split="test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_retrieval_among_its_own_train_split_is_refused(phantom: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(phantom)  # by whatever path
    with pytest.raises(ConfigError, match="finds itself"):
        generate(config(phantom, model=f"retrieval:{tmp_path / 'link'}", split="train"), tmp_path / "run")


@pytest.mark.parametrize("model", ["stub:nothing", "hf:x/y", "retrieval:nowhere", "words"])
def test_a_wrong_model_leaves_no_folder_behind(phantom: Path, tmp_path: Path, model: str) -> None:
    with pytest.raises(CxrlabError):
        generate(config(phantom, model=model), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_not_written_over(phantom: Path, tmp_path: Path) -> None:
    """The same command again changes nothing and says the same; another one is refused."""
    first = generate(config(phantom, model="stub:normal"), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert generate(config(phantom, model="stub:normal"), tmp_path / "run") == first
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="other settings"):
        generate(config(phantom, model="stub:empty"), tmp_path / "run")


def two_views(number: int, *views: View) -> dict[str, tuple[ImageFile, ...]]:
    """The images of study `number` in these views; each is the one that the toy corpus wrote for it."""
    return {"images": tuple(ImageFile(f"images/s{number}.png", view) for view in views)}


def test_by_image_every_frontal_image_is_one_pair(tmp_path: Path) -> None:
    """Studies 2, 5, 8, 11 and 14 are the test split; five of their seven images are frontal, 8 has none."""
    changes = {
        2: two_views(2, View.PA, View.LATERAL),
        5: two_views(5, View.LATERAL, View.PA, View.AP),
        8: two_views(8, View.LATERAL),
        11: two_views(11, View.AP),
        14: {"images": (), "absent_images": (ImageFile("images/gone.jpg", View.AP),)},
    }
    corpus = toy_corpus(tmp_path / "corpus", 15, changes).path
    run, expected = tmp_path / "run", ["s2#0", "s5#1", "s5#2", "s11#0"]
    settings = config(corpus, model="stub:normal", split="test", unit="image")
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read .*gone.jpg"):
        generate(settings, run)
    done = generate(dataclasses.replace(settings, allow_missing=True), run)
    assert [item.id for item in predictions(run)] == expected
    assert (done.studies, done.predictions, done.unit, done.without_frontal) == (5, 4, "image", 1)
    assert [item.id for item in done.missing] == ["s14#0"]
    assert done.controls == {"noise": 4, "blank": 4, "swapped": 4}
    examples = [json.loads(line) for line in (run / "examples.jsonl").read_text().splitlines()]
    assert [(item["id"], item["heading"].split(" ")[0]) for item in examples] == [
        ("s2#0", "PA"), ("s5#1", "PA"), ("s5#2", "AP"), ("s11#0", "AP"),
    ]  # fmt: skip
    sheet = score(corpus, run, metrics=["findings.f1"], unit="image", trials=50)
    assert [one.pair.id for one in sheet.studies] == [*expected, "s14#0"]
    assert [one.pair.patient for one in sheet.studies] == ["p2", "p5", "p5", "p11", "p14"]
    assert {name: found["findings.f1"].n for name, found in sheet.slices.items() if name.startswith("view")} == {
        "view=AP": 2, "view=PA": 2, "view=unknown": 1,
    }  # fmt: skip
    assert set(sheet.floors) == {"repeated-word", "empty", "unrelated", "constant-normal", "shuffled"}
    assert sheet.image_dependence is not None
    assert (sheet.image_dependence.n, sheet.image_dependence.patients) == (4, 3)
    assert "4 images of 3 patients" in sheet.image_dependence.sentence
    fewer = generate(dataclasses.replace(settings, n=2, allow_missing=True), tmp_path / "two")
    assert fewer.studies == 2
    assert score(corpus, tmp_path / "two", metrics=["findings.f1"]).n == 2


def test_predictions_by_image_are_certified_by_image(tmp_path: Path) -> None:
    """The model generates again for images, and retrieved reports are those of the same images."""
    changes = {number: two_views(number, View.PA, View.AP) for number in (2, 5)}
    corpus = toy_corpus(tmp_path / "corpus", 18, changes).path
    generate(config(corpus, split="test", unit="image", control_studies=0), tmp_path / "run")
    settings = CertifyConfig(tmp_path / "run", corpus, training=corpus, model=f"retrieval:{corpus}", trials=50)
    certificate = run_certify(settings, tmp_path / "certificate")
    assert certificate.n == 8
    assert [item.id for item in predictions(tmp_path / "certificate" / "model")][:3] == ["s2#0", "s2#1", "s5#0"]

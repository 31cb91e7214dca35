"""The check counts every kind of problem and changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from corpora import content, drawn, toy_corpus
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import ImageFile, Report
from cxrlab.core.vocabulary import View
from cxrlab.data import images
from cxrlab.data.check import EXAMPLES_PER_KIND, LACKS, check_corpus
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import PARTIAL
from cxrlab.training.config import ExtraCorpus
from cxrlab.training.samples import read_source


def test_a_sound_corpus_is_ok(tmp_path: Path) -> None:
    """Six studies, two in each split, and nothing to complain of."""
    toy_corpus(tmp_path / "c")
    before = content(tmp_path / "c")
    report = check_corpus(tmp_path / "c", workers=1)
    assert report.ok and report.counts == {} and "no problems" in report.table()
    assert (report.studies, report.patients, report.images) == (6, 6, 6)
    assert report.splits == {"train": 2, "val": 2, "test": 2}
    assert content(tmp_path / "c") == before


@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_problem_is_counted(tmp_path: Path, workers: int) -> None:
    """One of each is planted, and each is found once and named with its line."""
    changes: dict[int, dict[str, object]] = {
        0: {"patient": "p1"},  # train, while p1 itself is in val
        3: {"prior": "s99", "structured": {"some-model": {"findings": "…"}}},  # in train, where it is allowed
        4: {"prior": "s5"},  # another patient's
        5: {"structured": {"some-model": {"findings": "…"}}},  # in test
        6: {"masks": {"7": "masks/s6_0.png"}},
        7: {"images": ()},
    }
    corpus = toy_corpus(tmp_path / "c", count=12, changes=changes)
    radiographs, masks = corpus.path / "images", corpus.path / "masks"
    (radiographs / "s8.png").write_bytes((radiographs / "s3.png").read_bytes())  # test shows a train picture
    (radiographs / "s9.png").write_bytes(b"not a picture")
    (radiographs / "s10.png").unlink()
    (masks / "s11_0.png").write_bytes(encode_png(np.ones((5, 7), bool)))
    (masks / "s2_0.png").unlink()
    extra = [
        "{broken",
        json.dumps({"id": "x1", "patient": "x1", "labels": {"Edemma": 1}}),
        json.dumps({**drawn(1).study.to_json(), "patient": "q"}),
    ]
    with corpus.file.open("a") as stream:
        stream.write("\n".join(extra) + "\n")
    report = check_corpus(corpus.path, workers)
    assert report.counts == {
        "patient in two splits": 1,
        "prior that does not exist": 1,
        "prior of another patient": 1,
        "model text in a test split": 1,
        "mask without a finding": 1,
        "study without images": 1,
        "same picture in two splits": 1,
        "unreadable image": 1,
        "missing image": 1,
        "mask of another size": 1,
        "missing mask": 1,
        "malformed line": 1,
        "word outside the vocabulary": 1,
        "duplicate id": 1,
    }
    reported = {problem.kind: problem.message for problem in report.examples}
    assert "studies.jsonl:10, image 0" in reported["unreadable image"]
    assert "studies.jsonl:13" in reported["malformed line"]
    assert "Did you mean 'Edema'" in reported["word outside the vocabulary"]
    assert "'p1' is in train and val" in reported["patient in two splits"]
    assert "7 x 5" in reported["mask of another size"]
    assert not report.ok and report.images == 9
    for kind in report.counts:
        assert kind in report.table()


def test_priors_that_lead_in_a_circle_are_found(tmp_path: Path) -> None:
    """Two circles of one patient, one of them with a study that leads into it; a chain is none."""
    priors = {0: "s1", 1: "s2", 2: "s0", 3: "s2", 4: "s5", 5: "s4", 7: "s6", 8: "s7"}
    changes: dict[int, dict[str, object]] = {
        number: {"patient": "p", "split": "train", **({"prior": priors[number]} if number in priors else {})}
        for number in range(9)
    }
    report = check_corpus(toy_corpus(tmp_path / "c", count=9, changes=changes).path, workers=1)
    assert report.counts == {"priors in a circle": 2}
    messages = " ".join(problem.message for problem in report.examples)
    assert "'s0' → 's1' → 's2' → 's0'" in messages and "'s4' → 's5' → 's4'" in messages and "'s3'" not in messages


def without(study_number: int, lack: str) -> dict[str, object]:
    """What to change in a toy study so that it lacks text, split or view."""
    images = (ImageFile(f"images/s{study_number}.png"),)
    return {"text": {"sections": Report(indication="Fever.")}, "split": {"split": None}, "view": {"images": images}}[
        lack
    ]


@pytest.mark.parametrize("lack", list(LACKS))
def test_missing_text_splits_and_views_are_problems(tmp_path: Path, lack: str) -> None:
    """Counted, with an example that names the study; nothing is put in the place of what is missing."""
    kind = LACKS[lack][0]
    corpus = toy_corpus(tmp_path / "c", changes={1: without(1, lack), 4: without(4, lack)})
    report = check_corpus(corpus.path, workers=1)
    assert report.counts == {kind: 2} and not report.ok and kind in report.table()
    assert ["studies.jsonl:2: study 's1'" in problem.message for problem in report.examples] == [True, False]
    if lack == "view":
        assert report.statistics.views["unknown"] == {"all": 2, "val": 2} and "frontal" not in report.statistics.views


@pytest.mark.parametrize("lack", list(LACKS))
def test_what_the_card_states_is_no_problem_and_is_reported(tmp_path: Path, lack: str) -> None:
    """Exactly as many as it states; one more and all are a problem."""
    kind = LACKS[lack][0]
    corpus = toy_corpus(tmp_path / "c", changes={1: without(1, lack), 4: without(4, lack)})
    with (corpus.path / "card.yaml").open("a") as card:
        card.write(f"absent: {{{lack}: 2}}\n")
    report = check_corpus(corpus.path, workers=1)
    assert report.ok and report.stated == {kind: 2} and kind in report.table()
    card_text = (corpus.path / "card.yaml").read_text()
    (corpus.path / "card.yaml").write_text(card_text.replace(f"{lack}: 2", f"{lack}: 1"))
    report = check_corpus(corpus.path, workers=1)
    assert report.counts == {kind: 2} and report.stated == {}


def test_a_corpus_of_labels_needs_no_text(tmp_path: Path) -> None:
    """All have labels and none has text; a single report shows that the others lost theirs."""
    bare = {number: {"sections": None} for number in range(6)}
    report = check_corpus(toy_corpus(tmp_path / "a", changes=bare).path, workers=1)
    assert report.ok and report.stated == {"study without report text": 6}
    some = {number: {"sections": None} for number in range(5)}
    assert check_corpus(toy_corpus(tmp_path / "b", changes=some).path, 1).counts == {"study without report text": 5}
    nothing = {number: {"sections": None, "labels": {}, "findings": None, "masks": {}} for number in range(6)}
    assert not check_corpus(toy_corpus(tmp_path / "c", changes=nothing).path, workers=1).ok


def test_what_training_would_leave_out_is_counted_by_split(tmp_path: Path) -> None:
    """By the same rules as training: findings text, and an image that is known to be frontal."""
    impression = {"sections": Report(impression="Effusion.")}
    corpus = toy_corpus(tmp_path / "c", count=9, changes={0: without(0, "view"), 1: without(1, "split"), 3: impression})
    found = check_corpus(corpus.path, workers=1).statistics.usable
    assert found["no frontal image"] == {"all": 1, "train": 1} and found["no findings text"] == {"all": 1, "train": 1}
    assert found["no split"] == {"all": 1, "none": 1}
    source = read_source(ExtraCorpus(corpus.path))
    assert len(source.samples) == found["split, frontal image and findings text"]["train"] == 1
    assert sum(source.left_out.values()) == 3


def test_counts_go_on_where_examples_stop(tmp_path: Path) -> None:
    """A corpus with a thousand missing images must not fill the screen or the memory."""
    corpus = toy_corpus(tmp_path / "c", count=EXAMPLES_PER_KIND + 5)
    for path in (corpus.path / "images").iterdir():
        path.unlink()
    report = check_corpus(corpus.path, workers=1)
    assert report.counts == {"missing image": EXAMPLES_PER_KIND + 5} and len(report.examples) == EXAMPLES_PER_KIND
    assert report.to_json()["problems"] == {"missing image": EXAMPLES_PER_KIND + 5} and report.to_json()["ok"] is False


def test_the_same_picture_in_one_split_is_no_leak(tmp_path: Path) -> None:
    """Two studies of a split may share an image (a repeated import); only across splits does it spoil a test."""
    toy_corpus(tmp_path / "c", changes={3: {"images": (ImageFile("images/s0.png", View.PA),)}})
    assert check_corpus(tmp_path / "c", workers=1).ok


def test_the_card_is_compared(tmp_path: Path) -> None:
    """Lines lost or added by hand, no card, a broken card."""
    corpus = toy_corpus(tmp_path / "c")
    corpus.file.write_bytes(b"".join(corpus.file.read_bytes().splitlines(keepends=True)[:-1]))
    assert check_corpus(corpus.path, 1).counts == {"card with another count": 1}
    (corpus.path / "card.yaml").write_text("3")
    assert check_corpus(corpus.path, 1).counts == {"malformed card": 1}
    (corpus.path / "card.yaml").unlink()
    assert check_corpus(corpus.path, 1).counts == {"no card": 1}
    (corpus.path / PARTIAL).touch()  # as a killed import leaves it
    assert check_corpus(corpus.path, 1).counts == {"unfinished": 1}
    (corpus.path / PARTIAL).unlink()


def test_a_folder_that_is_no_corpus_is_an_error(tmp_path: Path) -> None:
    """There is nothing to count."""
    with pytest.raises(DataError, match="no studies.jsonl"):
        check_corpus(tmp_path)


def test_a_folder_that_does_not_exist_is_distinguished_from_one_that_is_no_corpus(tmp_path: Path) -> None:
    """A typo in the path needs another remedy than a wrong folder."""
    with pytest.raises(DataError, match="nope does not exist"):
        check_corpus(tmp_path / "nope")


def line_with(corpus: Corpus, path: str) -> None:
    """Let the first study list this path instead of its image."""
    lines = [json.loads(line) for line in corpus.file.read_text().splitlines()]
    lines[0]["images"][0]["path"] = path
    corpus.file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_one_bad_file_does_not_stop_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no file system takes, a pipe, a device, and a decoder that fails in a way nobody foresaw."""
    corpus = toy_corpus(tmp_path / "c")
    line_with(corpus, "images/" + "n" * 300 + ".png")
    for name in ("s1", "s2"):
        (corpus.path / "images" / f"{name}.png").unlink()
    os.mkfifo(corpus.path / "images" / "s1.png")
    (corpus.path / "images" / "s2.png").symlink_to("/dev/zero")
    assert check_corpus(corpus.path, 1).counts == {"missing image": 1, "unreadable image": 2}
    real = images.decode

    def fails(data: bytes, name: str) -> object:
        if name.endswith("s3.png"):
            raise ZeroDivisionError("never seen before")
        return real(data, name)

    monkeypatch.setattr(images, "decode", fails)
    report = check_corpus(corpus.path, 1)
    assert report.counts == {"missing image": 1, "unreadable image": 3} and report.studies == 6
    assert any("s3.png" in one.message and "never seen before" in one.message for one in report.examples)


def test_a_path_that_leaves_the_folder_is_a_malformed_line(tmp_path: Path) -> None:
    """A corpus given to others must not read their files."""
    corpus = toy_corpus(tmp_path / "c")
    line_with(corpus, "../../etc/image.png")
    assert check_corpus(corpus.path, 1).counts == {"malformed line": 1, "card with another count": 1}


def test_a_picture_saved_in_another_way_is_still_the_same(tmp_path: Path) -> None:
    """Another compression, three equal channels or 16 bits: other bytes, the same image of another split."""
    corpus = toy_corpus(tmp_path / "c", count=9)
    first = np.asarray(Image.open(corpus.path / "images" / "s0.png"))
    Image.fromarray(first).save(corpus.path / "images" / "s1.png", compress_level=9)
    (corpus.path / "images" / "s4.png").write_bytes(encode_png(np.repeat(first[..., None], 3, axis=2)))
    (corpus.path / "images" / "s5.png").write_bytes(encode_png(first.astype(np.uint16) * 257))
    names = ("s0", "s1", "s4", "s5")
    assert len({(corpus.path / "images" / f"{name}.png").read_bytes() for name in names}) == 4
    assert check_corpus(corpus.path, 1).counts == {"same picture in two splits": 3}


def test_counts_given_as_text_are_the_cards_fault(tmp_path: Path) -> None:
    """'6' is not 6; the message must not say that 6 differs from 6."""
    corpus = toy_corpus(tmp_path / "c")
    card = corpus.path / "card.yaml"
    card.write_text(card.read_text().replace("studies: 6", "studies: '6'"))
    report = check_corpus(corpus.path, 1)
    assert report.counts == {"malformed card": 1}
    assert "counts 'studies' as '6'" in report.examples[0].message and "whole number" in report.examples[0].message


def test_images_that_the_source_lacks_are_no_defect(tmp_path: Path) -> None:
    """A study all of whose images are listed as absent is told in the numbers; one without any stays a defect."""
    gone = {"images": (), "masks": {}, "absent_images": (ImageFile("images/x.png"),)}
    toy_corpus(tmp_path / "c", changes={0: gone, 1: {"images": ()}})
    report = check_corpus(tmp_path / "c", 1)
    assert report.counts == {"study without images": 1} and report.statistics.absent_images == 1


def test_a_check_counts_what_it_reads(tmp_path: Path) -> None:
    """Six studies with one report and six different images; the image of another size is in the numbers, too."""
    corpus = toy_corpus(tmp_path / "c")
    numbers = check_corpus(corpus.path, 1).statistics
    assert numbers.splits == {"train": 2, "val": 2, "test": 2} and numbers.images.read == 6
    assert numbers.views == {"PA": {"all": 6, "train": 2, "val": 2, "test": 2}}
    assert numbers.repeats["same report"].groups == 1 and numbers.repeats["same report"].across_splits == 1
    assert numbers.repeats["same image"].groups == 0 and set(numbers.repeats) == {"same report", "same image"}
    assert check_corpus(corpus.path, 2).statistics == numbers


def test_near_repeats_are_looked_for_when_requested(tmp_path: Path) -> None:
    """An image saved brighter and a report with one word changed; a malformed line and a repeated id stop nothing."""
    words = "The heart is normal in size and the lungs are clear without effusion or pneumothorax on this {}"
    changes = {k: {"sections": Report(findings=words.format("image"))} for k in (0, 3)}
    changes[1] = {"sections": Report(findings=words.format("study"))}
    corpus = toy_corpus(tmp_path / "c", changes=changes)
    image = np.rint(np.add.outer(np.hanning(24) * 90, np.hanning(24) * 60)).astype(np.uint8)
    (corpus.path / "images" / "s0.png").write_bytes(encode_png(image))
    (corpus.path / "images" / "s1.png").write_bytes(encode_png(image + 9))
    with corpus.file.open("a") as stream:
        stream.write("{broken\n" + json.dumps(drawn(0).study.to_json()) + "\n")
    repeats = check_corpus(corpus.path, 1, duplicates=True).statistics.repeats
    assert repeats["similar image"].members == 2 and repeats["similar image"].across_splits == 1
    assert repeats["similar report"].members == 2 and repeats["same report"].groups == 2


def test_notes_of_an_import_are_reported(tmp_path: Path) -> None:
    """What the card says was left out, and what was odd."""
    corpus = toy_corpus(tmp_path / "c")
    card = corpus.path / "card.yaml"
    card.write_text(card.read_text() + "dropped:\n  no image: 3\nremarks:\n  view not told: 2\n")
    numbers = check_corpus(corpus.path, 1).statistics
    assert numbers.dropped == {"no image": 3} and numbers.remarks == {"view not told": 2}


def test_a_corpus_without_a_study_is_a_problem(tmp_path: Path) -> None:
    """As an import of a table that lists no study leaves it."""
    corpus = toy_corpus(tmp_path / "c", count=0)
    report = check_corpus(corpus.path, workers=1)
    assert not report.ok and report.counts == {"no study": 1}

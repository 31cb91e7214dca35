from __future__ import annotations

from pathlib import Path

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import EXAMPLES, Example
from cxrlab.core.runs import Run
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import load_image
from cxrlab.evaluation.generate import THUMB_SIZE, Images, sample_ids, write_examples


def kept(folder: Path) -> list[Example]:
    return [Example.from_json(record) for _, record in read_jsonl(folder / EXAMPLES)]


def test_the_choice_follows_the_seed_and_keeps_the_order() -> None:
    ids = [f"s{k:02d}" for k in range(50)]
    chosen = sample_ids(ids, 8, seed=7)
    assert chosen == sample_ids(ids, 8, seed=7) == sorted(chosen) and len(set(chosen)) == 8
    assert chosen != sample_ids(ids, 8, seed=8)
    assert sample_ids(ids, 99, seed=7) == ids


def test_an_example_carries_image_truth_and_reference(phantom: Path, tmp_path: Path) -> None:
    corpus = load_corpus(phantom)
    normal = next(study for study in corpus if not any(finding.present for finding in study.findings or ()))
    ill = next(study for study in corpus if any(finding.present for finding in study.findings or ()))
    with Run.open(tmp_path / "run", {}) as run:
        write_examples(run, Images(corpus), [normal.id, ill.id])
    first, second = kept(tmp_path / "run")
    assert first.id == normal.id and first.truth == ()  # known to be empty, which is not the same as unknown
    assert second.truth and all(words for words in second.truth)
    assert second.reference == ill.sections.findings
    assert ill.images[0].view.value in second.heading and str(round(ill.age)) in second.heading
    assert load_image(tmp_path / "run" / second.thumb).shape == (THUMB_SIZE, THUMB_SIZE)


def test_what_is_kept_stays_and_the_unreadable_is_passed_over(phantom: Path, tmp_path: Path) -> None:
    """A study mended later takes the place that was left for it; no image is overwritten by another."""
    corpus = load_corpus(phantom)
    ids = corpus.ids()[:3]
    with Run.open(tmp_path / "run", {}) as run:
        write_examples(run, Images(corpus), ids, unreadable={ids[1]})
        write_examples(run, Images(corpus), ids)
        write_examples(run, Images(corpus), ids)
    found = kept(tmp_path / "run")
    assert [example.id for example in found] == [ids[0], ids[2], ids[1]]
    assert len({example.thumb for example in found}) == 3

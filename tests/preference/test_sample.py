from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save_tiny_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BATCH_FILE
from cxrlab.core.runs import Run, state
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.preference.candidate_files import CANDIDATES, CandidateFiles
from cxrlab.preference.config import SampleConfig
from cxrlab.preference.sample_candidates import Sampling, plan_sampling, sample


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{save_tiny_llava(tmp_path_factory.mktemp('models') / 'tiny')}"


def config(model: str, data: Path, **changes: Any) -> SampleConfig:
    small = {"n": 5, "answers": 3, "max_new_tokens": 6, "batch_size": 2, "loading": LoadSettings(device="cpu")}
    return SampleConfig(**{"model": model, "data": data, **small, **changes})


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / CANDIDATES).read_text().splitlines()]


def test_several_reports_a_study_in_the_order_of_the_corpus(model: str, phantom: Path, tmp_path: Path) -> None:
    done = sample(config(model, phantom), tmp_path / "run")
    found = records(tmp_path / "run")
    order = load_corpus(phantom).ids("train")
    assert [record["id"] for record in found] == sorted((record["id"] for record in found), key=order.index)
    assert all(len(record["answers"]) == 3 for record in found) and len(found) == 5
    reports = [[answer["report"] for answer in record["answers"]] for record in found]
    assert len({tuple(drawn) for drawn in reports}) > 1 and any(len(set(drawn)) > 1 for drawn in reports)
    assert (done.studies, done.candidates, done.split, done.missing) == (5, 15, "train", ())
    assert done.distinct == sum(len({" ".join(text.lower().split()) for text in drawn}) for drawn in reports)
    assert done.mean_words == sum(len(text.split()) for drawn in reports for text in drawn) / 15
    means = [answer["confidence"]["mean_logprob"] for record in found for answer in record["answers"]]
    assert done.mean_logprob == pytest.approx(sum(means) / 15) and done.mean_logprob < 0
    assert done.truncated == sum(bool(a.get("truncated")) for record in found for a in record["answers"])
    assert state(tmp_path / "run") == "finished"


def test_the_plan_counts_studies_and_writes_nothing(model: str, phantom: Path, tmp_path: Path) -> None:
    plan = plan_sampling(config(model, phantom), tmp_path / "run")
    assert not list(tmp_path.iterdir())
    done = sample(config(model, phantom), tmp_path / "run")
    (work,) = plan.work
    assert (work.count, work.measured, plan.facts["candidates_per_study"]) == (done.studies, 4, 3)
    assert plan.seconds > 0 and not plan_sampling(config(model, phantom), tmp_path / "run").work


def test_it_writes_what_generate_with_several_answers_writes(model: str, phantom: Path, tmp_path: Path) -> None:
    """The same bytes, so that candidates of either command can be judged."""
    sample(config(model, phantom), tmp_path / "sampled")
    decoding = Decoding("sample", max_new_tokens=6, answers=3)
    asked = GenerateConfig(
        model,
        phantom,
        "train",
        n=5,
        batch_size=2,
        control_studies=0,
        decoding=decoding,
        loading=LoadSettings(device="cpu"),
    )
    generate(asked, tmp_path / "generated")
    written = (tmp_path / "generated" / "predictions.jsonl").read_bytes()
    assert (tmp_path / "sampled" / CANDIDATES).read_bytes() == written


def test_the_greedy_report_is_one_more_candidate_and_marked(model: str, phantom: Path, tmp_path: Path) -> None:
    """The drawn ones have the words that they have without it; the greedy one is what the model writes by default.

    Prompts are read once for both, so that a batch has more rows and the last bit of a number may differ.
    """
    sample(config(model, phantom), tmp_path / "drawn")
    done = sample(config(model, phantom, greedy=True), tmp_path / "both")
    asked = GenerateConfig(
        model,
        phantom,
        "train",
        n=5,
        control_studies=0,
        decoding=Decoding(max_new_tokens=6),
        loading=LoadSettings(device="cpu"),
    )
    generate(asked, tmp_path / "greedy")
    likeliest = [
        json.loads(line)["report"] for line in (tmp_path / "greedy/predictions.jsonl").read_text().splitlines()
    ]
    for alone, both, expected in zip(records(tmp_path / "drawn"), records(tmp_path / "both"), likeliest, strict=True):
        words, logs = zip(*((one.pop("report"), one.pop("confidence")) for one in alone["answers"]), strict=True)
        assert words == tuple(one["report"] for one in both["answers"][:3]) and len(both["answers"]) == 4
        assert [one["confidence"] for one in both["answers"][:3]] == [pytest.approx(one, abs=1e-5) for one in logs]
        assert [{**one, "report": None, "confidence": None} for one in both["answers"][:3]] == [
            {**one, "report": None, "confidence": None} for one in alone["answers"]
        ]
        assert both["answers"][3]["report"] == expected
        assert [bool(answer.get("greedy")) for answer in both["answers"]] == [False, False, False, True]
    assert done.candidates == 20
    assert all(len(CandidateFiles([tmp_path / "both"]).of(r["id"])) == 4 for r in records(tmp_path / "both"))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_run_ends_with_the_same_bytes(
    model: str, phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    whole = sample(config(model, phantom, greedy=True), tmp_path / "whole")
    append, count = Run.append, 0

    def stopping(run: Run, name: str, record: Any) -> None:
        nonlocal count
        if count == stop:
            raise KeyboardInterrupt
        count += 1
        append(run, name, record)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "append", stopping)
        sample(config(model, phantom, greedy=True), tmp_path / "run")
    file = tmp_path / "run" / CANDIDATES
    assert file.read_bytes().count(b"\n") == stop
    with file.open("ab") as stream:
        stream.write(b'{"id": "torn')
    assert sample(config(model, phantom, greedy=True), tmp_path / "run") == whole
    assert file.read_bytes() == (tmp_path / "whole" / CANDIDATES).read_bytes()


def test_a_finished_run_is_left_as_it_is(
    model: str, phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sample(config(model, phantom), tmp_path / "run")
    monkeypatch.setattr(
        "cxrlab.preference.sample_candidates.open_model", lambda *_: pytest.fail("the model was loaded again")
    )
    assert sample(config(model, phantom), tmp_path / "run") == done


def test_one_answer_is_a_candidate_too(model: str, phantom: Path, tmp_path: Path) -> None:
    """One draw of each of several models makes several candidates."""
    done = sample(config(model, phantom, answers=1), tmp_path / "run")
    assert done.candidates == 5 and "answers" not in records(tmp_path / "run")[0]
    assert done.mean_logprob < 0


def test_a_model_that_cannot_draw_is_refused_before_a_folder_is_made(phantom: Path, tmp_path: Path) -> None:
    for name in ("stub:normal", f"retrieval:{phantom}"):
        with pytest.raises(
            ConfigError, match=f"'{name}' cannot sample several reports for one image; name a model with"
        ):
            sample(config(name, phantom), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unreadable_image_is_listed_and_fails_the_run(model: str, tmp_path: Path) -> None:
    from corpora import toy_corpus

    corpus = toy_corpus(tmp_path / "toy", 9)
    (corpus.path / corpus["s3"].images[0].path).unlink()
    asked = config(model, corpus.path, n=None)
    with pytest.raises(DataError, match="1 of 3 studies have no readable frontal image .*--allow-missing"):
        sample(asked, tmp_path / "run")
    assert [record["id"] for record in records(tmp_path / "run")] == ["s0", "s6"]
    done = sample(config(model, corpus.path, n=None, allow_missing=True), tmp_path / "run")
    assert [item.id for item in done.missing] == ["s3"] and done.candidates == 6
    assert sample(config(model, corpus.path, n=None, allow_missing=True), tmp_path / "run") == done


def test_nothing_at_all_has_no_means(tmp_path: Path, model: str) -> None:
    from corpora import toy_corpus

    corpus = toy_corpus(tmp_path / "toy", 3)
    (corpus.path / corpus["s0"].images[0].path).unlink()
    done = sample(config(model, corpus.path, n=None, allow_missing=True), tmp_path / "run")
    assert isinstance(done, Sampling) and done.candidates == 0 and done.mean_words != done.mean_words
    again = sample(config(model, corpus.path, n=None, allow_missing=True), tmp_path / "run")
    assert again.mean_words != again.mean_words


def test_a_batch_that_does_not_fit_draws_what_a_smaller_one_draws(
    model: str, phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last bit, and the run goes by the batch that was asked for in its config."""
    sample(config(model, phantom, batch_size=2), tmp_path / "small")
    answers = HfModel.answers

    def small(self: HfModel, images: Any, *asked: Any) -> Any:
        if len(images) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return answers(self, images, *asked)

    monkeypatch.setattr(HfModel, "answers", small)
    done = sample(config(model, phantom, batch_size=4), tmp_path / "halved")
    assert "Batch of 4 does not fit in GPU memory; continuing with 2." in capsys.readouterr().err
    assert (tmp_path / "halved" / CANDIDATES).read_bytes() == (tmp_path / "small" / CANDIDATES).read_bytes()
    assert json.loads((tmp_path / "halved" / BATCH_FILE).read_text())["batch_size"]["used"] == 2
    assert "batch_size: 4" in (tmp_path / "halved" / "config.yaml").read_text() and done.studies == 5

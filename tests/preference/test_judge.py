from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.llm_requests import LLMConfig, llm_operational_fields
from cxrlab.core.records import Report
from cxrlab.core.runs import Run, state
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.metrics.base import ready
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.preference import judge_candidates as module
from cxrlab.preference.config import JudgeConfig
from cxrlab.preference.judge_candidates import judge, plan_judging
from cxrlab.preference.judges import MetricJudge
from cxrlab.preference.reward_files import REWARDS, JudgedStudy, Judging, RewardedReport, read_rewards, summarize

TOLD = "There is a small left pleural effusion."  # the reference of every toy study, 7 words
HALF = f"{TOLD} There is a large right pneumothorax."  # GREEN 1/2, 13 words
CLEAR = "The lungs are clear. There is no effusion."  # GREEN 0, 8 words


def candidates(path: Path, **reports: Sequence[str]) -> Path:
    """A file with these candidates, by study."""
    lines = [
        {"id": key, "report": given[0], "answers": [{"report": text} for text in given]}
        for key, given in reports.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def config(corpus: Corpus, *files: Path, **changes: Any) -> JudgeConfig:
    return JudgeConfig(**{"candidates": files, "data": corpus.path, **changes})


def rewards(run: Path) -> dict[str, list[float]]:
    return {study.id: study.rewards for study in read_rewards(run / REWARDS)}


def test_the_plan_times_rules_and_counts_the_requests_of_a_model(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = candidates(tmp_path / "c.jsonl", s4=[CLEAR, TOLD], s0=[TOLD, HALF, CLEAR])
    before = sorted(tmp_path.rglob("*"))
    (work,) = plan_judging(config(toy, file), tmp_path / "run").work
    assert (work.count, work.measured, work.unit) == (2, 2, "study") and work.seconds
    llm = LLMConfig(price_prompt=1.0, price_answer=2.0)
    judged = config(toy, file, judge="green:http://127.0.0.1:9/v1#judge", llm=llm)
    (work,) = plan_judging(judged, tmp_path / "run").work  # nothing listens there
    # Of s4 and s0 the same sentences are judged: a prompt that occurs twice is sent once.
    assert (work.unit, work.count) == ("request", 3) and work.prompt_tokens and work.answer_tokens
    assert work.price == pytest.approx((work.prompt_tokens + 2 * work.answer_tokens) / 1000)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(module, "BLOCK", 1)
    opened = Run.open(tmp_path / "begun", judged, seed=judged.seed, operational=llm_operational_fields())
    with pytest.raises(KeyboardInterrupt), opened as run:
        run.append(REWARDS, JudgedStudy("s0", 7, ()))
        raise KeyboardInterrupt
    (left,) = plan_judging(judged, tmp_path / "begun").work  # those of s4 alone
    assert left.count == 2


def test_every_candidate_gets_a_reward_in_the_order_of_the_corpus(toy: Corpus, tmp_path: Path) -> None:
    """Hand-made: GREEN of a right report, of one with an invention, and of one that misses all."""
    file = candidates(tmp_path / "c.jsonl", s4=[CLEAR, TOLD], s0=[TOLD, HALF, CLEAR, ""])
    done = judge(config(toy, file), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / REWARDS).read_text().splitlines()]
    assert [line["id"] for line in lines] == ["s0", "s4"]
    first = lines[0]
    assert first["reference_words"] == 7 and "preferred" not in first
    assert first["candidates"][1] == {"report": HALF, "words": 13, "reward": 0.5, "parts": {"green:rules": 0.5}}
    assert [one["reward"] for one in first["candidates"]] == [1.0, 0.5, 0.0, 0.0]
    assert (done.studies, done.candidates, done.undefined) == (2, 6, 0)
    assert done.judge["name"] == "green:rules" and done.judge["signature"].startswith("green:rules|formula:green")
    # s0: 1 first, 1 best, 0 worst, 3/8 mean; s4: 0, 1, 0, 1/2.
    assert (done.first, done.best, done.worst, done.mean) == (0.5, 1.0, 0.0, 0.4375)
    assert done.mean_words == (7 + 13 + 8 + 0 + 8 + 7) / 6 and done.reference_words == 7.0 and done.equal == 0.0
    assert state(tmp_path / "run") == "finished"


def test_the_mark_of_a_cut_candidate_goes_through(toy: Corpus, tmp_path: Path) -> None:
    """It changes no reward; a file without the mark, as older ones are, reads as not cut."""
    plain, marked = candidates(tmp_path / "a.jsonl", s0=[TOLD, HALF]), tmp_path / "b.jsonl"
    marked.write_text(plain.read_text().replace(f'{{"report": "{HALF}"', f'{{"report": "{HALF}", "truncated": true'))
    for file, cut in ((plain, frozenset[int]()), (marked, frozenset({1}))):
        judge(config(toy, file), tmp_path / file.stem)
        (study,) = read_rewards(tmp_path / file.stem / REWARDS)
        assert study.cut == cut and study.rewards == [1.0, 0.5]
        text = (tmp_path / file.stem / REWARDS).read_text()
        assert text.count('"truncated": true') == text.count("truncated") == len(cut)


def test_candidates_of_several_runs_are_joined(toy: Corpus, tmp_path: Path) -> None:
    one = candidates(tmp_path / "a.jsonl", s0=[CLEAR], s1=[TOLD])
    two = candidates(tmp_path / "b.jsonl", s0=[TOLD, HALF])
    judge(config(toy, one, two), tmp_path / "run")
    assert rewards(tmp_path / "run") == {"s0": [0.0, 1.0, 0.5], "s1": [1.0]}


def test_length_control_divides_by_the_words_of_the_reference(toy: Corpus, tmp_path: Path) -> None:
    """HALF has 13 words and the reference 7: 1/2 × 7/13; a right report of equal length keeps its 1."""
    file = candidates(tmp_path / "c.jsonl", s0=[TOLD, HALF])
    done = judge(config(toy, file, length_control=True), tmp_path / "run")
    assert rewards(tmp_path / "run")["s0"] == pytest.approx([1.0, 0.5 * 7 / 13])
    assert done.judge["name"] == "green:rules (length-controlled)" and "length:" in done.judge["signature"]
    judge(config(toy, file, length_control=True, judge="errors.significant"), tmp_path / "negative")
    assert rewards(tmp_path / "negative")["s0"] == pytest.approx([0.0, -13 / 7])


def test_a_pairwise_judge_writes_its_preferences(toy: Corpus, tmp_path: Path) -> None:
    file = candidates(tmp_path / "c.jsonl", s0=[CLEAR, TOLD], s1=[TOLD, TOLD])
    judge(config(toy, file, judge="errors:rules"), tmp_path / "run")
    first, second = read_rewards(tmp_path / "run" / REWARDS)
    assert first.preferred == ((1, 0),) and first.rewards == [-1.0, 1.0]
    assert second.preferred == () and second.rewards == [0.0, 0.0]
    with pytest.raises(ConfigError, match="'errors:rules' gives no reward that could be divided"):
        judge(config(toy, file, judge="errors:rules", length_control=True), tmp_path / "other")
    with pytest.raises(ConfigError, match="'green:rules-lc' is length-controlled already"):
        judge(config(toy, file, judge="green:rules-lc", length_control=True), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_exact_findings_are_never_read(toy: Corpus, tmp_path: Path) -> None:
    """Other exact findings, even impossible ones, change nothing; a pair that carried them would fare otherwise."""
    file = candidates(tmp_path / "c.jsonl", s0=[TOLD, HALF, CLEAR], s1=[CLEAR, TOLD])
    asked = {name: config(toy, file, judge=name) for name in ("green:rules", "findings.f1.full", "errors:rules")}
    for number, one in enumerate(asked.values()):
        judge(one, tmp_path / f"before{number}")
    study = toy["s0"]
    known = Pair("s0", TOLD, TOLD, findings=(replace(study.findings[0], observation="pneumothorax"),))
    assert MetricJudge("green:rules", {"green:rules": 1.0}).rewards([known])[0] == 0.0, "the control of this test"
    text = toy.file.read_text()
    for changed in ('"observation": "pneumothorax"', '"observation": "a word of no vocabulary"'):
        toy.file.write_text(text.replace('"observation": "pleural effusion"', changed))
        assert toy.file.read_text() != text
        for number, one in enumerate(asked.values()):
            out = tmp_path / f"after{number}{len(changed)}"
            judge(one, out)
            assert (out / REWARDS).read_bytes() == (tmp_path / f"before{number}" / REWARDS).read_bytes()


def test_a_study_without_reference_words_has_no_reward(tmp_path: Path) -> None:
    """No section, an empty one, and one that was masked; with and without length control."""
    changes: dict[int, dict[str, object]] = {
        0: {"sections": None},
        1: {"sections": Report(findings="")},
        3: {"sections": Report(findings="___", impression=TOLD)},
    }
    corpus = toy_corpus(tmp_path / "toy", 5, changes)
    file = candidates(tmp_path / "c.jsonl", s0=[TOLD], s1=[TOLD, CLEAR], s3=[TOLD], s4=[TOLD])
    for name in ("green:rules", "rougeL:google", "errors:rules", "crimson:rules"):
        out = tmp_path / name.replace(":", "_")
        done = judge(config(corpus, file, judge=name, length_control=name == "crimson:rules"), out)
        assert [all(map(math.isnan, given)) for given in rewards(out).values()] == [True, True, True, False]
        assert done.undefined == 4 and '"reward": null' in (out / REWARDS).read_text()
    judge(config(corpus, file, section="findings+impression"), tmp_path / "both")
    assert rewards(tmp_path / "both")["s3"] == [1.0], "another section is another reference"


class Stop(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("stop", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("name", ["green:rules", "errors:rules"])
def test_a_stopped_run_ends_with_the_same_bytes(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, name: str
) -> None:
    """In blocks of two studies: a block that was finished is not judged again, one that was begun is judged whole."""
    monkeypatch.setattr(module, "BLOCK", 2)
    reports = {key: [TOLD, HALF, CLEAR] for key in ("s0", "s1", "s3", "s4", "s6")}
    asked = config(toy, candidates(tmp_path / "c.jsonl", **reports), judge=name)
    whole = judge(asked, tmp_path / "whole")
    append, count = Run.append, 0

    def stopping(run: Run, file: str, record: Any) -> None:
        nonlocal count
        if count == stop:
            raise Stop
        count += 1
        append(run, file, record)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Run, "append", stopping)
        judge(asked, tmp_path / "run")
    file = tmp_path / "run" / REWARDS
    assert file.read_bytes().count(b"\n") == stop
    with file.open("ab") as stream:
        stream.write(b'{"id": "torn')
    sizes = []

    class Counted(Batch):
        def __init__(self, pairs: Sequence[Pair]) -> None:
            sizes.append(len(pairs))
            super().__init__(pairs)

    monkeypatch.setattr(module, "Batch", Counted)
    assert judge(asked, tmp_path / "run") == whole
    assert file.read_bytes() == (tmp_path / "whole" / REWARDS).read_bytes()
    assert sizes == [6, 6, 3][stop // 2 :]


def test_no_batch_is_larger_than_a_block(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory follows the largest batch; blocks do not change the rewards."""
    reports = {f"s{n}": [TOLD, HALF, CLEAR] for n in (0, 1, 3, 4, 6, 7)}
    asked = config(toy, candidates(tmp_path / "c.jsonl", **reports))
    judge(asked, tmp_path / "one")
    sizes = []
    rules = ready()["rules"]
    tallies = rules.tallies
    monkeypatch.setattr(rules, "tallies", lambda batch: (sizes.append(len(batch)), tallies(batch))[1])
    monkeypatch.setattr(module, "BLOCK", 4)
    judge(asked, tmp_path / "four")
    assert sizes == [12, 6]
    assert (tmp_path / "one" / REWARDS).read_bytes() == (tmp_path / "four" / REWARDS).read_bytes()


def test_a_finished_run_is_left_as_it_is_unless_its_files_have_changed(toy: Corpus, tmp_path: Path) -> None:
    file = candidates(tmp_path / "c.jsonl", s0=[TOLD, CLEAR])
    done = judge(config(toy, file), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert judge(config(toy, file), tmp_path / "run") == done
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    candidates(file, s0=[CLEAR, TOLD])
    with pytest.raises(RunError, match="c.jsonl has changed since the run in .*run read it; choose another folder"):
        judge(config(toy, file), tmp_path / "run")
    file.unlink()
    assert judge(config(toy, file), tmp_path / "run") == done, "what is gone cannot contradict"


def test_a_stopped_run_does_not_go_on_with_other_candidates(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = candidates(tmp_path / "c.jsonl", s0=[TOLD], s1=[TOLD])
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Run, "append", lambda *_: (_ for _ in ()).throw(Stop()))
        judge(config(toy, file), tmp_path / "run")
    candidates(file, s0=[CLEAR], s1=[TOLD])
    with pytest.raises(RunError, match="has changed since"):
        judge(config(toy, file), tmp_path / "run")


@pytest.mark.parametrize(
    ("reports", "changes", "message"),
    [
        ({"s2": [TOLD], "s0": [TOLD]}, {}, "1 of 2 studies are of the test split .*'s2' at .*c.jsonl:1.*take them out"),
        ({"s0": [TOLD], "x": [TOLD]}, {}, "1 of 2 studies are not in .*'x' at .*c.jsonl:2.*name the corpus"),
        ({"s0": [TOLD]}, {"judge": "green"}, "the judge 'green' needs a model.*green:hf:FOLDER"),
        ({"s0": [TOLD]}, {"section": "finding"}, "'finding' is not a section of a report. Did you mean 'findings'"),
    ],
)
def test_what_cannot_be_judged_leaves_no_folder(
    toy: Corpus, tmp_path: Path, reports: dict[str, list[str]], changes: dict[str, Any], message: str
) -> None:
    file = candidates(tmp_path / "c.jsonl", **reports)
    with pytest.raises((ConfigError, DataError), match=message):
        judge(config(toy, file, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def judged(*rewards: float, words: Sequence[int] | None = None, reference: int = 4) -> JudgedStudy:
    lengths = words or [1] * len(rewards)
    return JudgedStudy(
        "s", reference, tuple(RewardedReport("x", n, value) for value, n in zip(rewards, lengths, strict=True))
    )


def test_the_summary_on_round_numbers() -> None:
    """Two studies of two and three candidates and one without any reward."""
    nan = math.nan
    studies = [
        judged(1.0, 3.0, words=[2, 4]),
        judged(nan, 4.0, 2.0, words=[9, 5, 5]),
        judged(nan, words=[6], reference=0),
    ]
    found = summarize(studies, "j", "j|v:1")
    assert (found.studies, found.candidates, found.undefined) == (3, 6, 2)
    # First reward that is there: 1 and 4; best 3 and 4; worst 1 and 2; means 2 and 3.
    assert (found.first, found.best, found.worst, found.mean) == (2.5, 3.5, 1.5, 2.5)
    assert found.mean_words == (2 + 4 + 9 + 5 + 5 + 6) / 6 and found.reference_words == 4.0 and found.equal == 0.0
    # Rewards −1, 1, 1, −1 around their studies' means, words −1, 1, 0, 0: 2 / √(4 × 2).
    assert found.length_correlation == pytest.approx(2 / math.sqrt(8))


def test_the_correlation_is_within_studies() -> None:
    """Longer is worse in each study, although the study with longer reports has the higher rewards."""
    studies = [judged(0.2, 0.1, words=[10, 20]), judged(0.9, 0.8, words=[100, 110])]
    assert summarize(studies, "j", "s").length_correlation == pytest.approx(-1.0)


def test_rewards_that_are_all_equal_are_counted_and_correlate_with_nothing() -> None:
    """0.1 three times has a mean that is not exactly 0.1: rounding is no correlation."""
    found = summarize([judged(0.1, 0.1, 0.1, words=[1, 2, 4]), judged(0.5)], "j", "s")
    assert found.equal == 1.0, "a study with one reward cannot have equal ones"
    assert math.isnan(found.length_correlation)


def test_a_summary_without_rewards_has_no_means_and_is_read_back() -> None:
    found = summarize([judged(math.nan)], "j", "s")
    assert math.isnan(found.first) and math.isnan(found.equal)
    again = Judging.from_json({"first": None, "studies": 1} | {
        name: None for name in ("best", "worst", "mean", "equal", "mean_words", "reference_words", "length_correlation")
    } | {"judge": {"name": "j", "signature": "s"}, "candidates": 1, "undefined": 1})  # fmt: skip
    assert math.isnan(again.first) and again.studies == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "s", "reference_words": 1}, "r.jsonl:1: a judged study needs 'candidates'"),
        ({"id": "s", "reference_words": 1, "candidates": [{"report": "x"}]}, "needs 'words' and 'reward'"),
        ({"id": "s", "reference_words": 1, "candidates": [], "preferred": [[0]]}, "the numbers of two candidates"),
        ({"id": "s", "reference_words": 1, "candidates": [], "preferred": [[0, 1]]}, "there are 0 candidates"),
    ],
)
def test_rewards_of_another_form_are_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=message):
        list(read_rewards(tmp_path / "r.jsonl"))


def test_the_references_of_a_phantom_are_its_words(phantom: Path, tmp_path: Path) -> None:
    """A report judged against itself is perfect by every rule, as far as the reader goes."""
    corpus = load_corpus(phantom)
    reports = {study.id: [study.sections.findings] for study in corpus.studies("train")}
    done = judge(config(corpus, candidates(tmp_path / "c.jsonl", **reports)), tmp_path / "run")
    assert done.first == 1.0 and done.studies == len(reports)

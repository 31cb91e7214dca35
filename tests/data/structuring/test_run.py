"""Structured corpora: what is written, resumed, paid for and left alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from corpora import content, toy_corpus
from scripted_model import FakeModel, answer

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import ANSWERS, REQUESTS, AnswerStore, BudgetSpent, LLMConfig
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.records import Report
from cxrlab.data.check import check_corpus
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.structuring import by_model as results
from cxrlab.data.structuring.run import structure_corpus
from cxrlab.models.llm_cache import CachedTextModel

COUNT = 9


@pytest.fixture
def source(tmp_path: Path) -> Corpus:
    """Nine studies, three of each split; every report compares, each with another effusion."""
    texts = {
        k: {"sections": Report(indication=f"{k + 40} yo man, cough.", findings=f"Unchanged left effusion. Mark {k}.")}
        for k in range(COUNT)
    }
    return toy_corpus(tmp_path / "source", COUNT, texts)


class Dying(FakeModel):
    """Is interrupted in the call of this number."""

    def __init__(self, reply: Callable[[str], str], stop: int) -> None:
        super().__init__(reply)
        self._stop = stop

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        given = super().complete(prompts, max_tokens=max_tokens, seed=seed)
        if len(self.calls) == self._stop:
            raise KeyboardInterrupt
        return given


def by_model(source: Corpus, config: StructureConfig, out: Path, model: FakeModel) -> Corpus:
    with CachedTextModel(model, config.llm, out) as asked:
        return structure_corpus(source, config, out, asked)


def made(folder: Path) -> dict[str, bytes]:
    """Every file but those of llm, in which the order of the answers and who paid for them may differ."""
    return {name: data for name, data in content(folder).items() if name not in (ANSWERS, REQUESTS)}


def requests(folder: Path) -> dict[str, tuple[str, str]]:
    """Key → prompt and answer, each once."""
    lines = [record for _, record in read_jsonl(folder / REQUESTS)]
    found = {str(record["id"]): (str(record["prompt"]), str(record["answer"])) for record in lines}
    assert len(found) == len(lines)
    return found


def outcomes(folder: Path) -> dict[str, dict[str, object]]:
    return {str(record["id"]): record for _, record in read_jsonl(folder / "structuring.jsonl")}


def good(prompt: str) -> str:
    return answer(findings="Left effusion.", indication="Cough.")


def test_rules_write_text_beside_the_source(source: Corpus, tmp_path: Path) -> None:
    done = structure_corpus(source, StructureConfig(workers=1), tmp_path / "out")
    study = done["s0"]
    assert study.sections == source["s0"].sections and study.labels == source["s0"].labels
    assert study.structured == {"rules": {"indication": "Cough.", "findings": "Left effusion. Mark 0."}}
    assert done.card.remarks == {results.BY_RULES: 6, results.TEST: 3}
    assert done.card.counts == source.card.counts


def test_images_and_masks_are_reached_through_links(source: Corpus, tmp_path: Path) -> None:
    done = structure_corpus(source, StructureConfig(workers=1), tmp_path / "out")
    assert (tmp_path / "out" / "images").is_symlink()
    assert (done.image(done["s0"]) == source.image(source["s0"])).all()
    found = check_corpus(tmp_path / "out", workers=1)
    assert found.ok, found.table()


def test_a_test_split_is_untouched(source: Corpus, tmp_path: Path) -> None:
    done = by_model(source, StructureConfig(model="fake:one"), tmp_path / "out", FakeModel(good))
    for study in done.studies("test"):
        assert study == source[study.id]
    assert outcomes(tmp_path / "out")["s2"]["result"] == results.TEST


def test_the_bytes_do_not_depend_on_workers_or_batch(source: Corpus, tmp_path: Path) -> None:
    structure_corpus(source, StructureConfig(workers=1, batch=2), tmp_path / "one")
    structure_corpus(source, StructureConfig(workers=2, batch=16), tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_finished_corpus_is_left_as_it_is(source: Corpus, tmp_path: Path) -> None:
    config = StructureConfig(model="fake:one")
    by_model(source, config, tmp_path / "out", FakeModel(good))
    before = content(tmp_path / "out")
    again = CachedTextModel(FakeModel(lambda prompt: pytest.fail("asked again")), config.llm, tmp_path / "out")
    with again:
        structure_corpus(source, config, tmp_path / "out", again)
        again.recall()
    assert content(tmp_path / "out") == before
    assert (again.paid, again.found, again.budget.answer_tokens) == (6, 0, 120)


def test_other_settings_are_refused(source: Corpus, tmp_path: Path) -> None:
    structure_corpus(source, StructureConfig(workers=1), tmp_path / "out")
    with pytest.raises(RunError, match="limit"):
        structure_corpus(source, StructureConfig(workers=1, limit=2), tmp_path / "out")


def test_split_and_limit_choose(source: Corpus, tmp_path: Path) -> None:
    """Of train (s0, s3, s6) the first two; everything else passes."""
    done = structure_corpus(source, StructureConfig(split="train", limit=2, workers=1), tmp_path / "out")
    assert [study.id for study in done.studies() if study.structured] == ["s0", "s3"]
    assert done.card.remarks[results.NOT_CHOSEN] == 4 and len(done) == COUNT


def test_a_kill_in_the_middle_costs_nothing(source: Corpus, tmp_path: Path) -> None:
    """Batches of two, killed while the third is asked: the same bytes as in one go, and no prompt asked twice."""
    config = StructureConfig(model="fake:one", batch=2, retries=1)

    def reply(prompt: str) -> str:  # every third report is answered wrongly at first
        wrong = "Mark 3" in prompt and "refused" not in prompt
        return answer(findings="Cardiomegaly.") if wrong else good(prompt)

    whole = FakeModel(reply)
    by_model(source, config, tmp_path / "whole", whole)
    for stop in range(1, len(whole.calls) + 1):
        out = tmp_path / f"stopped_{stop}"
        first = Dying(reply, stop)
        with pytest.raises(KeyboardInterrupt):
            by_model(source, config, out, first)
        second = FakeModel(reply)
        by_model(source, config, out, second)
        assert made(out) == made(tmp_path / "whole") and requests(out) == requests(tmp_path / "whole")
        answered = [prompt for call in first.calls[:-1] for prompt in call]
        assert not set(answered) & set(second.prompts)
        assert sorted(answered + second.prompts) == sorted(whole.prompts)


def test_a_kill_between_an_outcome_and_its_study_leaves_no_double(source: Corpus, tmp_path: Path) -> None:
    """The outcome is written first; a study that lacks its line gets it, and the outcome stays single."""
    structure_corpus(source, StructureConfig(workers=1), tmp_path / "whole")
    out = tmp_path / "out"
    structure_corpus(source, StructureConfig(workers=1), out)
    for name in ("studies.jsonl", "notes.jsonl"):
        lines = (out / name).read_bytes().splitlines(keepends=True)
        (out / name).write_bytes(b"".join(lines[:4]))
    (out / "structuring.jsonl").write_bytes(b"".join((out / "structuring.jsonl").read_bytes().splitlines(True)[:5]))
    (out / "card.yaml").rename(out / "card.partial.yaml")
    structure_corpus(source, StructureConfig(workers=1), out)
    assert content(out) == content(tmp_path / "whole")


def test_the_budget_stops_and_a_higher_one_goes_on(source: Corpus, tmp_path: Path) -> None:
    """An answer may cost 1 and costs 0.02: with a limit of 1.05 three are asked, since 0.06 and 1 would be more."""

    def config(most: float | None) -> StructureConfig:
        llm = LLMConfig(max_cost=most, price_answer=1.0)
        return StructureConfig(model="fake:one", batch=2, max_tokens=1000, llm=llm)

    first = FakeModel(good)
    with pytest.raises(BudgetSpent, match="0.0600 of the max-cost 1.05 are spent"):
        by_model(source, config(1.05), tmp_path / "out", first)
    assert len(first.prompts) == 3
    second = FakeModel(good)
    with CachedTextModel(second, config(9.0).llm, tmp_path / "out") as asked:
        structure_corpus(source, config(9.0), tmp_path / "out", asked)
    assert len(second.prompts) == 3 and asked.budget.spent == pytest.approx(6 * 20 / 1000)
    by_model(source, config(None), tmp_path / "whole", FakeModel(good))
    assert made(tmp_path / "out") == made(tmp_path / "whole")


def test_a_cache_of_ones_own_serves_two_corpora(source: Corpus, tmp_path: Path) -> None:
    cache = tmp_path / "kept" / "answers.sqlite"
    for name, most in (("one", 4), ("two", None)):
        model = FakeModel(good)
        config = StructureConfig(model="fake:one", limit=most, llm=LLMConfig(cache=cache))
        by_model(source, config, tmp_path / name, model)
        assert len(model.prompts) == (4 if most else 2)
    assert not (tmp_path / "two" / ANSWERS).exists()
    paid = [record["paid"] for _, record in read_jsonl(tmp_path / "two" / REQUESTS)]
    assert sorted(paid) == [False] * 4 + [True] * 2


def test_two_runs_may_share_a_cache_at_once(source: Corpus, tmp_path: Path) -> None:
    """Both want the same six answers at once: both corpora are whole and alike, and no answer is kept twice."""
    config = StructureConfig(model="fake:one", batch=1, llm=LLMConfig(cache=tmp_path / "kept.sqlite"))
    together = threading.Barrier(2, timeout=30)
    failed: list[BaseException] = []

    def run(name: str) -> None:
        def reply(prompt: str) -> str:  # each would answer in words of its own
            if "Mark 0" in prompt:
                together.wait()
            return answer(findings="Left effusion.", indication="Cough." if name == "one" else "Cough today.")

        try:
            by_model(source, config, tmp_path / name, FakeModel(reply))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and made(tmp_path / "one") == made(tmp_path / "two")
    with AnswerStore(tmp_path / "kept.sqlite") as store:
        assert len(store) == 6


def test_a_corpus_whose_text_a_model_made_can_be_structured_again(source: Corpus, tmp_path: Path) -> None:
    """Answers and requests stay with the run that paid for them: they are no films to be linked."""
    by_model(source, StructureConfig(model="fake:one"), tmp_path / "one", FakeModel(good))
    structure_corpus(load_corpus(tmp_path / "one"), StructureConfig(workers=1), tmp_path / "two")
    assert {REQUESTS, ANSWERS} <= set(content(tmp_path / "one"))
    assert not any((tmp_path / "two" / name).exists() for name in (REQUESTS, ANSWERS))


def test_how_a_model_is_queried_does_not_stand_in_the_card(source: Corpus, tmp_path: Path) -> None:
    """Prices and patience change no word: another of them continues the corpus, and the card is the same."""
    config = StructureConfig(model="fake:one", llm=LLMConfig(price_answer=2.0, connection=Connection(timeout_s=3.0)))
    first = by_model(source, config, tmp_path / "out", FakeModel(good))
    assert by_model(source, StructureConfig(model="fake:one"), tmp_path / "out", FakeModel(good)).card == first.card
    assert "llm" not in first.card.settings


@pytest.mark.parametrize(
    ("model", "kept"), [("https://elsewhere.example/v1#m", True), ("http://127.0.0.1/v1#m", False)]
)
def test_permission_to_send_reports_away_stays_with_the_corpus(
    source: Corpus, tmp_path: Path, model: str, kept: bool
) -> None:
    said = "Data office, for this trial"
    config = StructureConfig(model=model, llm=LLMConfig(connection=Connection(egress_permission=said)))
    for _ in range(2):
        by_model(source, config, tmp_path / "out", FakeModel(good, name=model))
    file = tmp_path / "out" / "egress_permissions.jsonl"
    assert file.exists() == kept
    if kept:
        assert [record for _, record in read_jsonl(file)] == [{"model": model, "egress_permission": said}]


def test_why_a_study_fell_back_is_on_record(source: Corpus, tmp_path: Path) -> None:
    model = FakeModel(lambda prompt: "no" if "Mark 4" in prompt else good(prompt))
    done = by_model(source, StructureConfig(model="fake:one", retries=0), tmp_path / "out", model)
    record = outcomes(tmp_path / "out")["s4"]
    assert record["by"] == "rules" and record["refused"] == [["the answer holds no JSON object"]]
    assert list(done["s4"].structured) == ["rules"]
    assert done.card.remarks[results.KEPT_RULES] == 1


def test_what_other_languages_and_silent_studies_get_from_the_rules(tmp_path: Path) -> None:
    changes: dict[int, dict[str, object]] = {
        0: {"sections": None, "report": "sin hallazgos .", "extra": {"language": "es"}},
        1: {"sections": None},
    }
    source = toy_corpus(tmp_path / "source", 2, changes)
    done = structure_corpus(source, StructureConfig(workers=1), tmp_path / "out")
    assert done.card.remarks == {results.NO_TEXT: 1, results.FOREIGN: 1}
    assert not any(study.structured for study in done)


def test_text_that_was_there_stays(tmp_path: Path) -> None:
    source = toy_corpus(tmp_path / "source", 1, {0: {"structured": {"labels": {"findings": "Effusion."}}}})
    done = structure_corpus(source, StructureConfig(workers=1), tmp_path / "out")
    assert list(done["s0"].structured) == ["labels", "rules"]


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_folder_inside_the_source_is_refused(source: Corpus, inside: str) -> None:
    with pytest.raises(ConfigError, match="lies inside"):
        structure_corpus(source, StructureConfig(), source.path / inside)


def test_a_real_kill_resumes(source: Corpus, tmp_path: Path) -> None:
    """The process ends itself without a word after five answers; the same command completes the corpus."""
    script = tmp_path / "answers.jsonl"
    script.write_text(json.dumps({"contains": "", "answer": good("")}) + "\n")
    program = f"""
import os, sys
from cxrlab.cli.main import main
from cxrlab.core import llm_requests
if sys.argv[1] == "die":
    add, count = llm_requests.AnswerStore.add, []
    def dying(self, *given):
        add(self, *given)
        count.append(1)
        len(count) == 5 and os._exit(9)
    llm_requests.AnswerStore.add = dying
sys.exit(main(["data", "structure", {str(source.path)!r}, "--model", {f"scripted:{script}"!r}, "--batch", "2",
               "--out", sys.argv[2]]))
"""
    for how, out, code in (("die", "killed", 9), ("live", "killed", 0), ("live", "whole", 0)):
        ran = subprocess.run([sys.executable, "-c", program, how, str(tmp_path / out)], capture_output=True, text=True)
        assert ran.returncode == code, ran.stderr
    assert made(tmp_path / "killed") == made(tmp_path / "whole")
    assert requests(tmp_path / "killed") == requests(tmp_path / "whole")
    assert len(load_corpus(tmp_path / "killed")) == COUNT

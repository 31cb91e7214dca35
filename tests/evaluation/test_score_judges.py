"""Judges by language models among the metrics of `score`: counted, listed, kept, compared, and asked once."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import ChatServer, last_message_text
from corpora import toy_corpus
from simulated_judges import UNREADABLE, answer

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named, main
from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, CxrlabError, DataError, UnknownName
from cxrlab.core.llm_requests import BudgetSpent, LLMConfig, LLMLoadSettings
from cxrlab.core.records import Report
from cxrlab.core.registry import load_reference
from cxrlab.core.runs import state
from cxrlab.data.card import CARD
from cxrlab.evaluation import load_model as module
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.load_model import UnopenedModel, open_text_model
from cxrlab.evaluation.score import run_score, score
from cxrlab.evaluation.score_inputs import load_inputs
from cxrlab.evaluation.select_metrics import (
    build_judges,
    format_unreadable_answers,
    list_gated_families,
    select_metrics,
    separate_judges,
)
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.judging.judges import ChexPrompt
from cxrlab.models.load_settings import LoadSettings

HASTY = LLMConfig(connection=Connection(tries=1, concurrency=2, timeout_s=5.0))
# Significant errors of each candidate, which holds a word of its own; None where the judge says nothing of use.
ERRORS = {"quartz": 0, "basalt": 2, "gypsum": 5, "pumice": None}
REPORTS = {word: f"There is {word} in both lungs." for word in ERRORS}


def said(prompt: str, errors: dict[str, int | None] | None = None) -> str:
    """What the judge says of the candidate in a prompt: so many significant errors, and one more that is not."""
    word = next(word for word in ERRORS if REPORTS[word] in prompt)
    count = (errors or ERRORS)[word]
    return UNREADABLE if count is None else answer(np.array([count, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Four references and predictions, and a judge of a file."""
    (tmp_path / "r.json").write_text(json.dumps(dict.fromkeys(ERRORS, "The lungs are clear.")))
    (tmp_path / "p.json").write_text(json.dumps(REPORTS))
    lines = [{"contains": REPORTS[word], "answer": said(REPORTS[word])} for word in ERRORS]
    (tmp_path / "judge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def config(folder: Path, *metrics: str, **changes: Any) -> ScoreConfig:
    return ScoreConfig(folder / "r.json", folder / "p.json", metrics=metrics, trials=20, **changes)


def requests(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "requests.jsonl").read_text().splitlines()]


def test_a_judge_is_counted_beside_the_metrics(files: Path) -> None:
    """Means of 1, 3 and 6 errors, and of 0, 2 and 5 significant ones; what was not read has no value."""
    model = f"scripted:{files / 'judge.jsonl'}"
    name, significant = f"chexprompt:{model}", f"chexprompt.significant:{model}"
    found = run_score(config(files, "rougeL:google", name), files / "run")
    reported = found["metrics"][name]
    assert reported["value"] == pytest.approx(10 / 3) and (reported["n"], reported["undefined"]) == (3, 1)
    assert reported["direction"] == "lower" and found["metrics"][significant]["value"] == pytest.approx(7 / 3)
    assert "rougeL:google" in found["metrics"] and "bleu1:coco" not in found["metrics"]
    assert set(found["floors"]["empty"]) == {"rougeL:google"}, "floors would ask five times more"
    counts = found["judges"][name]
    assert (counts["asked"], counts["parsed"], counts["partial"], counts["failed"]) == (4, 3, 0, 1)
    lines = [json.loads(line) for line in (files / "run/per_study.jsonl").read_text().splitlines()]
    assert [line["values"][significant] for line in lines] == [0.0, 2.0, 5.0, None]
    assert [line["judged"][name]["status"] for line in lines] == ["parsed"] * 3 + ["failed"]
    assert len(requests(files / "run")) == 4 and (files / "run/answers.sqlite").is_file()
    assert state(files / "run") == "finished"


def test_one_metric_of_a_judge_may_be_asked_for_alone(files: Path) -> None:
    model = f"scripted:{files / 'judge.jsonl'}"
    found = run_score(config(files, f"chexprompt.significant:{model}"))
    assert set(found["metrics"]) == {f"chexprompt.significant:{model}"} and set(found["judges"]) == {
        f"chexprompt:{model}"
    }
    with pytest.raises(ConfigError, match="there is no metric 'chexprompt.signifcant:"):
        run_score(config(files, f"chexprompt.signifcant:{model}"))


def test_without_judges_nothing_is_said_of_them(files: Path) -> None:
    found = run_score(config(files, "rougeL:google"), files / "run")
    assert found["judges"] == {} and '"judged"' not in (files / "run/per_study.jsonl").read_text()
    assert not (files / "run/answers.sqlite").exists()


def test_two_judges_on_one_model_open_it_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    load = module.open_text_model

    def counting(name: str, *rest: Any, **more: Any) -> Any:
        opened[name] += 1
        return load(name, *rest, **more)

    monkeypatch.setattr(module, "open_text_model", counting)
    model, other = f"scripted:{files / 'judge.jsonl'}", f"scripted:{files / 'other.jsonl'}"
    (files / "other.jsonl").write_text((files / "judge.jsonl").read_text())
    found = run_score(config(files, f"chexprompt:{model}", f"green:{model}", f"chexprompt:{other}"))
    assert opened == {model: 1, other: 1}
    assert set(found["judges"]) == {f"chexprompt:{model}", f"green:{model}", f"chexprompt:{other}"}


def test_all_and_default_hold_no_judge(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "open_text_model", lambda *_: pytest.fail("a model was opened"))
    for wanted in (None, ("all",), ("default",)):
        assert separate_judges(wanted)[1] == ()
    assert run_score(config(files, "all"))["judges"] == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chexpromt:hf:x", "neither a metric nor a judge 'chexpromt:hf:x'. Did you mean 'chexprompt'"),
        ("chexprompt", "'chexprompt' needs a model; name both, as in chexprompt:http://127.0.0.1:8000/v1#MODEL"),
        ("chexprompt:scripted:a,b", "a comma"),
        ("chexprompt:https://example.org/v1#m", "'https://example.org/v1#m' is not on this machine"),
        ("chexprompt:http://127.0.0.1:8000/v1", "names no model"),
        ("pairwise:hf:x", "'cxrlab prefer judge --judge pairwise:MODEL'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_leaves_nothing(files: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_score(config(files, "default", name), files / "run")
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (files / "run").exists()


def test_answers_that_all_failed_are_told_loudly(files: Path) -> None:
    (files / "judge.jsonl").write_text(json.dumps({"contains": "", "answer": UNREADABLE}) + "\n")
    name = f"chexprompt:scripted:{files / 'judge.jsonl'}"
    found = run_score(config(files, name))
    assert found["metrics"][name]["value"] is None and found["metrics"][name]["undefined"] == 4
    (line,) = format_unreadable_answers(found["judges"])
    assert line.startswith(f"{name}: NONE of its 4 answers could be read")


def test_another_wording_by_file_with_the_published_answers_gives_the_shares_without_errors(files: Path) -> None:
    """A wording without a mark of its own, as published; of three answers that can be read one has no significant error."""
    (files / "w.yaml").write_text(
        "version: other-1\ntext: |\n  Reference: {reference}\n  Candidate: {candidate}\n  Errors:\n"
    )
    judge = f"chexprompt:scripted:{files / 'judge.jsonl'}"
    found = run_score(config(files, judge, judging=JudgeSettings((f"chexprompt={files / 'w.yaml'}",))), files / "run")
    free = found["metrics"][judge.replace(":", ".error-free.significant:", 1)]
    assert free["value"] == pytest.approx(1 / 3) and (free["n"], free["undefined"]) == (3, 1)
    assert 0 <= free["low"] < free["value"] < free["high"] <= 1 and "prompt:other-1@" in free["signature"]
    assert found["metrics"][judge.replace(":", ".error-free:", 1)]["value"] == 0, "each has one that is insignificant"


def test_runs_are_compared_by_their_judges(files: Path) -> None:
    """Also when nothing is chosen, and under 'all'; a judge of one run alone is not."""
    model = f"scripted:{files / 'judge.jsonl'}"
    for run in ("a", "b"):
        run_score(config(files, "rougeL:google", f"chexprompt:{model}"), files / run)
    run_score(config(files, "rougeL:google"), files / "c")
    sums = {f"chexprompt{part}:{model}" for part in ("", ".significant", ".error-free", ".error-free.significant")}
    plain = {one.metric for one in compare([files / "a", files / "b"], trials=20).metrics}
    assert plain == {"rougeL:google", *sums}, "not one by one the twelve counts"
    every = {one.metric for one in compare([files / "a", files / "b"], metrics=["all"], trials=20).metrics}
    assert every > plain
    assert {one.metric for one in compare([files / "a", files / "c"], metrics=["all"], trials=20).metrics} == {
        "rougeL:google"
    }


class Stopping:
    """Answers as the judge does, and after so many answers no more."""

    def __init__(self, most: int) -> None:
        self.left, self.answered = most, []

    def __call__(self, body: dict[str, Any]) -> str | tuple[int, dict[str, Any]]:
        if self.left <= 0:
            return 500, {"error": {"message": "gone", "type": "error", "code": None, "param": None}}
        self.left -= 1
        self.answered.append(last_message_text(body))
        return said(last_message_text(body))


def test_a_run_that_was_stopped_asks_nothing_twice(files: Path) -> None:
    """Over loopback: the server dies half-way and comes back; the result is that of a run that was never stopped."""
    stopping = Stopping(2)
    with ChatServer(stopping) as server:
        name = f"chexprompt:{server.address()}"
        asked = config(files, "rougeL:google", name, llm=HASTY)
        with pytest.raises(CxrlabError):
            run_score(asked, files / "run")
        assert state(files / "run") == "interrupted" and len(requests(files / "run")) == 2
        server.stop()
        stopping.left = 100
        server.start()
        before = list(stopping.answered)
        found = run_score(asked, files / "run")
        again = stopping.answered[len(before) :]
        assert len(again) == 2 and not set(again) & set(before)
        assert [one["paid"] for one in requests(files / "run")] == [True] * 4
        llm = LLMConfig(connection=Connection(tries=3, concurrency=4))
        assert run_score(config(files, "rougeL:google", name, llm=llm), files / "run") == found, "left as it is"
        whole = run_score(asked, files / "whole")
    for file in ("scores.json", "per_study.jsonl", "tallies.json"):
        assert (files / "run" / file).read_bytes() == (files / "whole" / file).read_bytes()
    assert whole == found


def test_a_limit_of_cost_stops_before_it_is_spent(files: Path) -> None:
    name = f"chexprompt:scripted:{files / 'judge.jsonl'}"
    poor = LLMConfig(max_cost=0.001, price_answer=1.0)
    with pytest.raises(BudgetSpent, match="stopped within the budget"):
        run_score(config(files, name, llm=poor), files / "run")
    rich = LLMConfig(max_cost=10.0, price_answer=1.0)
    assert run_score(config(files, name, llm=rich), files / "run")["judges"][name]["asked"] == 4


def test_two_judges_share_the_limit(files: Path) -> None:
    """An answer costs 0.1 once it has come, before that as much as the longest: 0.35 more lets four go, 0.55 six."""
    lines = (files / "judge.jsonl").read_text().splitlines()
    priced = "".join(json.dumps({**json.loads(line), "tokens": 100}) + "\n" for line in lines)
    for name in ("judge.jsonl", "other.jsonl"):
        (files / name).write_text(priced)
    names = [f"chexprompt:scripted:{files / name}" for name in ("judge.jsonl", "other.jsonl")]
    for more, asked in ((0.35, 4), (0.55, 6)):
        poor = LLMConfig(max_cost=ChexPrompt.longest / 1000 + more, price_answer=1.0)
        with pytest.raises(BudgetSpent):
            run_score(config(files, *names, llm=poor), files / "run")
        assert len(requests(files / "run")) == asked


def test_answers_are_shared_by_runs_that_name_a_file(files: Path) -> None:
    """The second run needs no model any more: here its file is gone but for the name."""
    with ChatServer(lambda body: said(last_message_text(body))) as server:
        name = f"chexprompt:{server.address()}"
        llm = LLMConfig(files / "shared.sqlite", connection=HASTY.connection)
        first = run_score(config(files, name, llm=llm), files / "one")
    assert run_score(config(files, name, llm=llm), files / "two") == first
    assert [one["paid"] for one in requests(files / "two")] == [False] * 4


def test_judges_of_two_hosts_do_not_share_a_key(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the addresses, which are of no machine: only their names are looked at."""
    monkeypatch.setenv("CXRLAB_API_KEY", "sk-of-one-of-them")
    names = [f"chexprompt:https://{host}.example/v1#m" for host in ("weaker", "stronger")]
    llm = LLMConfig(connection=Connection(egress_permission="Dr Grey, ethics vote 12"))
    with pytest.raises(ConfigError, match="would be sent to stronger.example and to weaker.example"):
        run_score(config(files, *names, llm=llm), files / "run")
    assert not (files / "run").exists()


def test_other_commands_say_that_they_ask_no_model() -> None:
    with pytest.raises(UnknownName, match="'green:hf:x' asks a language model, which 'cxrlab score'"):
        select_metrics(("green:hf:x",))
    with pytest.raises(UnknownName, match="no metric 'green:ruls'. Did you mean 'green:rules"):
        select_metrics(("green:ruls",))


def test_from_python(files: Path) -> None:
    name = f"chexprompt:scripted:{files / 'judge.jsonl'}"
    sheet = score({"quartz": "x"}, {"quartz": REPORTS["quartz"]}, metrics=[name], trials=5)
    assert sheet[name].value == 1.0 and sheet.judges[name]["parsed"] == 1


def test_what_a_judge_is_shown_is_a_patients_unless_a_card_denies_it(tmp_path: Path) -> None:
    """A synthetic corpus and a run about it; but not a plain file, nor a run that copied reports from elsewhere."""
    corpus = toy_corpus(tmp_path / "toy", 3)
    ids = {study.id: "x" for study in corpus}

    def run(name: str, model: str | None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        lines = [json.dumps({"id": key, "report": text}) + "\n" for key, text in ids.items()]
        (folder / "predictions.jsonl").write_text("".join(lines))
        if model is not None:
            (folder / "summary.json").write_text(json.dumps({"model": model}))
        return folder

    sources = {
        run("written", "builtin:reporter"): True,
        run("nobody", None): False,
        run("copied", f"retrieval:{tmp_path / 'elsewhere'}"): False,
        run("near", f"retrieval:{corpus.path}"): True,
        tmp_path / "written/predictions.jsonl": False,
    }
    for synthetic in (False, True):
        text = (corpus.path / CARD).read_text().replace("synthetic: true\n", "")
        (corpus.path / CARD).write_text(text + ("synthetic: true\n" if synthetic else ""))
        for source, allowed in sources.items():
            shown = load_inputs(corpus.path, source, allow_missing=True).egress_data
            assert [one.synthetic for one in shown] == [synthetic, synthetic and allowed], source
    assert [one.synthetic for one in load_inputs(corpus.path, ids).egress_data] == [True, False], "texts in memory"


def test_a_name_is_looked_at_without_a_model() -> None:
    (judge,) = build_judges(["chexprompt:hf:nowhere"], UnopenedModel)
    assert judge.name == "chexprompt:hf:nowhere" and "chexprompt.significant:hf:nowhere" in judge.metrics
    with pytest.raises(NotImplementedError):
        UnopenedModel("hf:nowhere").complete(["?"])


@pytest.mark.parametrize(
    ("given", "needed", "never"),
    [
        ("chexbert", ("--chexbert FILE", "--bert FOLDER", "another metric"), "Did you mean"),
        ("F1-CheXbert", ("--chexbert FILE", "--bert FOLDER"), "Did you mean"),
        ("chexbert14.micro.f2", ("--chexbert FILE", "--bert FOLDER"), "Did you mean"),
        ("green", ("green:http://", "green:hf:FOLDER", "another metric"), "Did you mean"),
        ("green:org/judge", ("hf:org/judge", "https://HOST/v1#org/judge"), "Did you mean"),
        ("chexprompt:gpt-4o", ("https://HOST/v1#gpt-4o",), "hf:"),
        ("gpt-4o", ("a model and not a metric", "https://HOST/v1#gpt-4o"), "Did you mean"),
        ("radgraph", ("--graphs FILE", "radgraph-xl"), "Did you mean"),
        ("bertscore", ("--encoder FOLDER",), "Did you mean"),
        ("radcliq", ("--graphs", "--encoder", "--chexbert", "--bert"), "Did you mean"),
        ("bleu", ("bleu1:coco", "bleu4:coco", "bleu4:sacre", "bleu*"), "Did you mean"),
        ("BLEU-4", ("bleu4:coco, bleu4:sacre",), "bleu1"),
        ("rouge", ("rougeL:coco", "rouge1:google"), "Did you mean"),
        ("METEOR", ("not counted", "WordNet"), "Did you mean"),
        ("crimson", ("language model", "another metric"), "Did you mean"),
        ("blue4:coco", ("Did you mean 'bleu4:coco'",), "needs"),
    ],
)
def test_no_other_metric_is_suggested_for_the_one_that_is_wanted(
    files: Path, given: str, needed: tuple[str, ...], never: str
) -> None:
    with pytest.raises(ConfigError) as error:
        run_score(config(files, given))
    assert all(part in str(error.value) for part in needed) and never not in str(error.value)


def test_the_name_of_a_family_is_enough_where_its_weights_are_given() -> None:
    needy = [family for family, _ in list_gated_families()]
    assert all(name.startswith("chexbert") for name in select_metrics(["chexbert"], needy).extra)
    assert {"radcliq0", "radcliq1"} == set(select_metrics(["radcliq"], needy).extra)
    with pytest.raises(UnknownName, match="Did you mean 'chexbert14.micro.f1:uncertain-positive'"):
        select_metrics(["chexbert14.micro.f1:uncertain-positiv"], needy)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["score", "{r}.json", "{p}.json", "--metrics", "green:hf:org/no-such-judge"], "--llm.loading.download"),
        (
            ["metrics", "validate", "--benchmark", "phantom", "--n", "5", "--metrics", "green:hf:org/no-such-judge"],
            "--llm.loading.download",
        ),
        (["prefer", "judge", "--candidates", "{c}", "--data", "{d}", "--judge", "green:hf:org/no-such-judge"], ""),
        (["data", "structure", "{d}", "--model", "hf:org/no-such-model"], ""),
        (
            ["extract", "--victim", "stub:normal", "--data", "{d}", "--oracle", "hf:org/no-such-oracle", "--n", "1"],
            "--oracle-llm.loading.download",
        ),
    ],
)
def test_a_flag_that_is_advised_for_a_judge_is_one_of_the_command(
    files: Path, tmp_path: Path, words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--loading.download` was advised where no command had it; nothing is fetched here."""
    corpus = toy_corpus(tmp_path / "corpus").path
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "s0", "candidates": [{"report": "Clear."}]}) + "\n")
    places = {"{r}.json": files / "r.json", "{p}.json": files / "p.json", "{c}": tmp_path / "c.jsonl", "{d}": corpus}
    argv = [str(places.get(word, word)) for word in words]
    assert main([*argv, "--out", str(tmp_path / "out"), "--quiet"]) == 1
    said = capsys.readouterr().err
    advised = re.findall(r"--[a-z.-]*download", said)
    command = command_named(argv)
    assert command is not None and advised == [flag or "--llm.loading.download"], said
    assert set(advised) <= set(CommandLine(command, COMMANDS[command], load_reference(COMMANDS[command].target)).flags)


@pytest.mark.parametrize("stage", ["train finetune", "train encoder"])
def test_a_command_that_fetches_nothing_advises_no_flag_for_it(
    tmp_path: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = {place: {"sections": Report(findings=f"Nodule of {place} mm.")} for place in range(6)}
    corpus = toy_corpus(tmp_path / "corpus", changes=reports).path
    words = ["--data", str(corpus), "--start", "hf:org/no-such-start", "--out", str(tmp_path / "out"), "--quiet"]
    assert main([*stage.split(), *words]) == 1
    reported = capsys.readouterr().err
    assert "'org/no-such-start' is neither a folder" in reported and "--loading" not in reported


def test_settings_of_loading_reach_the_weights_of_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[LoadSettings] = []

    def opened(name: str, loading: LoadSettings) -> Any:
        given.append(loading)
        raise DataError("no weights; try --loading.dtype float32")

    monkeypatch.setattr("cxrlab.models.hf.text_model.open_causal", opened)
    llm = LLMConfig(loading=LLMLoadSettings(device="cpu", dtype="bfloat16", download=True, base="b"))
    with pytest.raises(DataError, match="try --llm.loading.dtype float32"):
        open_text_model("hf:org/judge", llm, [])
    assert given == [LoadSettings(device="cpu", dtype="bfloat16", download=True, base="b")]

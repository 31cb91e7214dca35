"""Language models as judges of candidates: as metrics alone and in mixes, and of two reports at a time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import ChatServer, last_message_text
from function_model import FunctionModel
from simulated_judges import UNREADABLE, answer

from cxrlab.cli.main import main
from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, CxrlabError
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.data.card import CARD
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.load_model import UnopenedModel
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.preference import judge_candidates as module
from cxrlab.preference.config import JudgeConfig, PairConfig
from cxrlab.preference.judge_candidates import chosen_judge, judge
from cxrlab.preference.judges import PairwiseModelJudge, load_judge, metric_judge
from cxrlab.preference.make_pairs import pair
from cxrlab.preference.reward_files import REWARDS, read_rewards

TOLD = "There is a small left pleural effusion."  # the reference of every toy study
WORDS = ("quartz", "basalt", "gypsum", "pumice")
REPORTS = {word: f"There is {word} in the left lung." for word in WORDS}
HASTY = LLMConfig(connection=Connection(tries=1, concurrency=2, timeout_s=5.0))


def shown(prompt: str) -> list[str]:
    """The words of the two reports in a prompt, in the order in which they are shown."""
    places = {prompt.index(REPORTS[word]): word for word in WORDS if REPORTS[word] in prompt}
    return [places[place] for place in sorted(places)]


def chooser(better: Callable[[str, str], str | None]) -> Callable[[str], str]:
    """Answers FIRST, SECOND or EQUAL as `better(first, second)` names a word or nothing; with "?" it says nothing."""

    def said(prompt: str) -> str:
        first, second = shown(prompt)
        chosen = better(first, second)
        if chosen == "?":
            return UNREADABLE
        return f"{mark(prompt)}\nBETTER: {'EQUAL' if chosen is None else 'FIRST' if chosen == first else 'SECOND'}"

    return said


def mark(prompt: str) -> str:
    """The line that the answer is to begin with."""
    found = re.findall(r"ANSWER [0-9a-f]{12}", prompt)
    return found[-1] if found else ""


def opinion(said: Callable[[str], str], *words: str) -> tuple[Any, FunctionModel]:
    """What a model says of these candidates of one study, and the model."""
    model = FunctionModel(said, "hf:model")
    pairs = [Pair(f"s#{number}", TOLD, REPORTS.get(word, word)) for number, word in enumerate(words)]
    (found,) = PairwiseModelJudge(model).opinions(Batch(pairs), [range(len(pairs))])
    return found, model


def by_rank(first: str, second: str) -> str:
    return min(first, second, key=WORDS.index)


def test_both_orders_are_asked_and_wins_are_counted() -> None:
    """Quartz before basalt before gypsum: two wins, one and one, two losses."""
    found, model = opinion(chooser(by_rank), "gypsum", "quartz", "basalt")
    assert set(found.preferred) == {(1, 0), (2, 0), (1, 2)} and found.unread == frozenset()
    assert [part["wins"] - part["losses"] for part in found.parts] == [-2.0, 2.0, 0.0]
    assert sorted(map(tuple, map(shown, model.prompts))) == sorted(permutations(("gypsum", "quartz", "basalt"), 2))
    assert load_judge("pairwise:hf:x", models=UnopenedModel).signature.startswith("pairwise:hf:x|orders:both")


def test_a_model_that_takes_whatever_comes_first_ties_everything() -> None:
    """It contradicts itself in every pair: no preference, and a reward of 0 that was heard."""
    found, _ = opinion(chooser(lambda first, _: first), "quartz", "basalt")
    assert found.preferred == () and found.unread == frozenset()
    assert [part["ties"] for part in found.parts] == [1.0, 1.0]


def test_what_could_not_be_read_is_no_tie() -> None:
    """Nothing is read of gypsum; the other two are compared, and a copy shares what was said of the first."""
    unread = chooser(lambda first, second: "?" if "gypsum" in (first, second) else by_rank(first, second))
    found, model = opinion(unread, "gypsum", "quartz", "basalt", REPORTS["gypsum"].upper(), "")
    assert found.preferred == ((1, 2),) and found.unread == {0, 3}
    assert found.parts[0] == found.parts[3] == {"wins": 0.0, "losses": 0.0, "ties": 0.0, "undecided": 2.0}
    assert found.parts[1] == {"wins": 1.0, "losses": 0.0, "ties": 0.0, "undecided": 1.0}
    assert found.parts[4] == {}, "a report without a word is not asked about"
    assert len(model.prompts) == 6


def test_one_candidate_is_not_compared() -> None:
    found, model = opinion(chooser(by_rank), "quartz", REPORTS["quartz"])
    assert found.preferred == () and found.unread == frozenset() and not model.prompts


def candidates(path: Path, **reports: list[str]) -> Path:
    lines = [
        {"id": key, "report": given[0], "answers": [{"report": one} for one in given]} for key, given in reports.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def config(corpus: Corpus, file: Path, name: str, **changes: Any) -> JudgeConfig:
    return JudgeConfig((file,), corpus.path, name, **changes)


def rewards(run: Path) -> dict[str, list[float]]:
    return {study.id: study.rewards for study in read_rewards(run / REWARDS)}


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    """A judge of a file: no, two and four significant errors, and nothing of use about pumice."""
    counts = {"quartz": 0, "basalt": 2, "gypsum": 4}
    lines = [{"contains": REPORTS[word], "answer": answer(np.array([n] + [0] * 11))} for word, n in counts.items()]
    lines.append({"contains": "", "answer": UNREADABLE})
    (tmp_path / "judge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"scripted:{tmp_path / 'judge.jsonl'}"


def test_a_metric_by_a_model_gives_rewards(toy: Corpus, tmp_path: Path, scripted: str) -> None:
    """Fewer errors are better; what could not be read has no reward and is never chosen."""
    file = candidates(tmp_path / "c.jsonl", s0=[REPORTS[word] for word in WORDS])
    done = judge(config(toy, file, f"chexprompt:{scripted}"), tmp_path / "run")
    assert rewards(tmp_path / "run")["s0"][:3] == [0.0, -2.0, -4.0] and math.isnan(rewards(tmp_path / "run")["s0"][3])
    assert done.undefined == 1 and f"chexprompt:{scripted}" in done.judge["signature"]
    made = pair(PairConfig(tmp_path / "run", pairs=2), tmp_path / "pairs")
    assert (made.kept, made.undefined) == (1, 1)
    assert (tmp_path / "run/answers.sqlite").is_file()


def test_a_model_stands_in_a_mix(toy: Corpus, tmp_path: Path, scripted: str) -> None:
    """Half of the errors by the model, and 0.25 of those by rule: both are costs."""
    file = candidates(tmp_path / "c.jsonl", s0=[REPORTS["basalt"], REPORTS["pumice"]])
    judge(config(toy, file, f"0.5*chexprompt:{scripted}+0.25*errors.total"), tmp_path / "run")
    (study,) = read_rewards(tmp_path / "run" / REWARDS)
    ruled = study.candidates[0].parts["errors.total"]
    assert study.rewards[0] == pytest.approx(-0.5 * 2 - 0.25 * ruled)
    assert math.isnan(study.rewards[1]), "one part without a value leaves the mix without one"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0.5*green:http://127.0.0.1:1/v1#a+b+0.5*rougeL:google", "holds \\+ or \\* cannot be part of a mix"),
        ("0.5*pairwise:hf:x+0.5*green:rules", "'pairwise:hf:x' compares two reports and cannot be part of a mix"),
        ("pairwise:", "is not the name of a text model"),
        ("pairwise:nothing", "'nothing' is not the name of a text model"),
        ("chexprompt:https://example.org/v1#m", "may hold patients' data"),
        ("pairwise:https://example.org/v1#m", "may hold patients' data"),
        ("chexprompt.nothing:hf:x", "there is no metric 'chexprompt.nothing:hf:x'"),
    ],
)
def test_what_cannot_judge_leaves_nothing_behind(toy: Corpus, tmp_path: Path, name: str, message: str) -> None:
    (toy.path / CARD).write_text((toy.path / CARD).read_text().replace("synthetic: true\n", ""))
    file = candidates(tmp_path / "c.jsonl", s0=[REPORTS["quartz"]])
    with pytest.raises(CxrlabError, match=message):
        judge(config(load_corpus(toy.path), file, name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_is_asked_only_by_those_who_open_it(toy: Corpus) -> None:
    """Nowhere by default; and a plan looks at names without opening anything."""
    for name in ("green:hf:nowhere", "pairwise:hf:nowhere"):
        with pytest.raises(ConfigError, match="needs a language model"):
            load_judge(name)
        asked = JudgeConfig((Path("c"),), Path("d"), name)
        assert chosen_judge(asked)[0].name == name
    with pytest.raises(ConfigError, match="needs a language model"):
        metric_judge("0.5*green:hf:nowhere+0.5*green:rules")
    with pytest.raises(ConfigError, match="gives no reward that could be divided"):
        chosen_judge(JudgeConfig((Path("c"),), Path("d"), "pairwise:hf:nowhere", length_control=True))


def test_a_study_of_which_nothing_is_read_has_no_rewards(toy: Corpus, tmp_path: Path) -> None:
    """Silent zeros would say that the two are equal."""
    said = chooser(lambda first, second: "?" if "pumice" in (first, second) else by_rank(first, second))
    file = candidates(
        tmp_path / "c.jsonl", s0=[REPORTS["quartz"], REPORTS["basalt"]], s1=[REPORTS["quartz"], REPORTS["pumice"]]
    )
    with ChatServer(lambda body: said(last_message_text(body))) as server:
        done = judge(config(toy, file, f"pairwise:{server.address()}", llm=HASTY), tmp_path / "run")
    found = rewards(tmp_path / "run")
    assert found["s0"] == [1.0, -1.0] and all(map(math.isnan, found["s1"]))
    assert (done.undefined, done.undecided) == (2, 1)
    made = pair(PairConfig(tmp_path / "run"), tmp_path / "pairs")
    assert (made.kept, made.ties, made.undefined) == (1, 0, 2)


@pytest.mark.parametrize("kind", ["pairwise", "chexprompt"])
def test_a_stopped_run_asks_nothing_twice(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server dies inside the second block; what was answered there is not asked again, the bytes are the same."""
    monkeypatch.setattr(module, "BLOCK", 1)
    reports = {
        key: [REPORTS["quartz"] + f" Seen on {key}.", REPORTS["basalt"] + f" Seen on {key}."] for key in ("s0", "s1")
    }
    file = candidates(tmp_path / "c.jsonl", **reports)
    choose, count = chooser(by_rank), answer(np.array([1] + [0] * 11))
    answered: list[str] = []
    left = 3

    def said(body: dict[str, Any]) -> str | tuple[int, dict[str, Any]]:
        nonlocal left
        if left <= 0:
            return 500, {"error": {"message": "gone"}}
        left -= 1
        answered.append(last_message_text(body))
        return choose(answered[-1]) if kind == "pairwise" else count

    with ChatServer(said) as server:
        asked = config(toy, file, f"{kind}:{server.address()}", llm=HASTY)
        with pytest.raises(CxrlabError):
            judge(asked, tmp_path / "run")
        assert len(answered) == 3
        server.stop()
        left = 100
        server.start()
        done = judge(asked, tmp_path / "run")
        assert len(answered) == 4 and len(set(answered)) == 4
        assert repr(judge(asked, tmp_path / "whole")) == repr(done)  # not ==: a correlation of two reports is NaN
    assert (tmp_path / "run" / REWARDS).read_bytes() == (tmp_path / "whole" / REWARDS).read_bytes()


def test_a_judge_that_says_nothing_is_reported_loudly(
    toy: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mute.jsonl").write_text(json.dumps({"contains": "", "answer": UNREADABLE}) + "\n")
    file = candidates(tmp_path / "c.jsonl", s0=[REPORTS["quartz"], REPORTS["basalt"]])
    words = ["--candidates", str(file), "--data", str(toy.path), "--out", str(tmp_path / "run"), "--quiet"]
    assert main(["prefer", "judge", *words, "--judge", f"pairwise:scripted:{tmp_path / 'mute.jsonl'}"]) == 0
    out = capsys.readouterr().out
    assert "2 without a reward" in out and "1 comparisons were unreadable" in out and "No candidate has a reward" in out

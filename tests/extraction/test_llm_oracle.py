"""A language model as oracle: asked once, pooled, read again, counted; and an attack that goes on after a stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import extraction_attacks as attackers
import pytest
from chat_server import ChatServer
from oracle_answers import ABNORMAL, ASKED, NORMAL, QUESTIONS, good
from scripted_model import FakeModel
from tables import every_row

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.model_interfaces import Generated
from cxrlab.extraction.attack_rounds import run_attack
from cxrlab.extraction.config import OracleConfig, OraclePrompts
from cxrlab.extraction.llm_oracle import (
    ask_oracle,
    check_asked,
    describe_with,
    load_questions,
    misfit,
    query_llm_oracle,
)
from cxrlab.extraction.report_content import Category, distinct
from cxrlab.extraction.rule_oracles import KINDS

PATIENT = LLMConfig(connection=Connection(tries=1, timeout_s=5.0, concurrency=1))


def test_every_category_is_requested_both_kinds_in_several_wordings() -> None:
    rows = list(QUESTIONS.fill_in(7))
    assert len(rows) == 5 * (3 + 2) == len({row.prompt for row in rows})
    for row in rows:
        assert QUESTIONS.parts[row.category] in row.prompt and "{" not in row.prompt
    assert sum(" 7 " in row.prompt for row in rows) == len(rows)


def test_answers_are_pooled_and_what_does_not_fit_is_counted_by_reason() -> None:
    """25 answers of two lines: one of each pair is kept the first time, ten in all, and 15 times it was a duplicate."""
    found, summary = describe_with(FakeModel(good), OraclePrompts(count=2))
    assert summary["model"] == "fake:one"
    for category in Category:
        assert found.of(category, "abnormal") == (ABNORMAL[category],)
        assert found.of(category, "normal") == (NORMAL[category],)
    assert summary["queries"] == 25 and summary["answers"] == {"parsed": 25, "partial": 0, "failed": 0}
    assert summary["dropped"] == {
        "duplicate": 15,
        "no readable finding": 15,
        "no readable statement": 10,
    }
    assert summary["kept"] == {kind: {category.value: 1 for category in Category} for kind in KINDS}
    assert summary["questions"] == {"version": "descriptions/1", "digest": QUESTIONS.digest}
    assert len(summary["examples"]["duplicate"]) == 3
    assert describe_with(FakeModel(good), OraclePrompts(count=2))[0] == found


def test_all_descriptions_are_kept_for_an_attacker_who_cannot_read_them() -> None:
    """The two lines of each answer, once for each category and kind; the second was not read and is counted."""
    found, summary = describe_with(FakeModel(good), OraclePrompts(count=2, keep="all"))
    assert found.of(Category.CARDIAC, "abnormal") == (ABNORMAL[Category.CARDIAC], "Nobody knows what this means.")
    assert summary["kept_unread"] == {"no readable finding": 5, "no readable statement": 5}
    assert summary["dropped"] == {"duplicate": 30}


def test_queried_twice_every_question_has_another_seed() -> None:
    seeds = []

    class Noting(FakeModel):
        def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
            seeds.append((seed, max_tokens, len(prompts)))
            return super().complete(prompts)

    _, summary = describe_with(Noting(good), OraclePrompts(count=2, times=2, max_tokens=99), seed=5)
    assert seeds == [(5, 99, 25), (6, 99, 25)] and summary["queries"] == 50


@every_row(
    ("text", "category", "kind", "reason"),
    [
        ("There is moderate cardiomegaly.", Category.CARDIAC, "abnormal", None),
        ("There is moderate cardiomegaly.", Category.AIRWAY, "abnormal", "other category"),
        ("There is no cardiomegaly.", Category.CARDIAC, "abnormal", "no readable finding"),
        ("The cardiac silhouette sings.", Category.CARDIAC, "abnormal", "no readable finding"),
        ("The heart is normal in size.", Category.CARDIAC, "normal", None),
        ("There is a large heart.", Category.CARDIAC, "normal", "a finding in a normal description"),
        ("No pleural effusion.", Category.CARDIAC, "normal", "other category"),
        ("All is well today.", Category.CARDIAC, "normal", "no readable statement"),
    ],
)
def test_a_description_must_be_read_as_what_it_was_requested(
    text: str, category: Category, kind: Any, reason: str | None
) -> None:
    assert misfit(text, (kind, category)) == reason


def test_one_prompt_for_all_is_a_text_file_and_its_answers_are_sorted_as_they_are_read(tmp_path: Path) -> None:
    """As in the paper: no category and no kind is asked for; what states a finding is abnormal."""
    (tmp_path / "all.txt").write_text("Describe normal and abnormal chest X-rays, all {count} parts of them.\n")
    lines = [f"- Normal: {NORMAL[category]}\n- Abnormal: {ABNORMAL[category]}" for category in Category]
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "\n".join(["Airway and the rest", *lines, "- Nobody knows what this means."])

    found, summary = describe_with(FakeModel(answer), OraclePrompts(questions=tmp_path / "all.txt", times=2))
    assert prompts == ["Describe normal and abnormal chest X-rays, all {count} parts of them."] * 2
    for category in Category:
        assert found.of(category, "abnormal") == (ABNORMAL[category],)
        assert found.of(category, "normal") == (NORMAL[category],)
    assert summary["queries"] == 2 and summary["dropped"] == {"duplicate": 10, "no readable statement": 2}
    assert summary["questions"]["version"] == "all.txt"
    lines[2:] = []
    with pytest.raises(DataError, match="no usable description for abnormal cardiac"):
        describe_with(FakeModel(answer), OraclePrompts(questions=tmp_path / "all.txt"))


def test_a_category_without_a_description_is_reported_in_a_sentence() -> None:
    def evasive(prompt: str) -> str:
        return "I'm sorry, I cannot." if ASKED[prompt].category is Category.CARDIAC else good(prompt)

    with pytest.raises(DataError, match="no usable description for abnormal cardiac, normal cardiac.*5 of 25 answers"):
        describe_with(FakeModel(evasive), OraclePrompts(count=2))


def test_questions_of_ones_own_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    parts = "\n".join(f"  {category.value}: the {category.value}" for category in Category)

    def with_wordings(abnormal: str, normal: str = '["Normal {part}?"]', version: str = "mine/1") -> Path:
        file.write_text(f"version: {version}\nparts:\n{parts}\nwordings:\n  abnormal: {abnormal}\n  normal: {normal}\n")
        return file

    found = load_questions(with_wordings('["{count} of {part}!"]'))
    assert [row.prompt for row in found.fill_in(3)][:2] == ["3 of the airway!", "Normal the airway?"]
    assert found.version == "mine/1" and found.digest != QUESTIONS.digest
    for wrong, message in (
        ('["no place"]', "needs {part} exactly once"),
        ('["{part} {side}"]', "placeholder {side}"),
        ("[]", "is empty"),
        ("[3]", "must be a text"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_questions(with_wordings(wrong))
    with pytest.raises(ConfigError, match="version must be a text"):
        load_questions(with_wordings('["{part}"]', version='""'))
    file.write_text("version: a\nparts: {airway: x}\nwordings: {}\n")
    with pytest.raises(ConfigError, match="exactly the keys airway, breathing"):
        load_questions(file)


def test_killed_half_way_it_goes_on_with_the_questions_that_are_left(tmp_path: Path) -> None:
    """The server hangs up at the eleventh question; started again, it is asked the other fifteen and no other."""
    first: list[str] = []

    def tired(body: dict[str, Any]) -> str | None:
        prompt = body["messages"][-1]["content"]
        if len(first) == 10:
            return None
        first.append(prompt)
        return good(prompt)

    how = OraclePrompts(count=2)
    with ChatServer(tired) as server:
        name = server.address("words")
        with pytest.raises(RunError, match="gave no answer"):
            query_llm_oracle(name, PATIENT, how, 1, tmp_path)
        assert len(first) == 10 and not (tmp_path / "oracle.json").exists()
        server.answer = lambda body: good(body["messages"][-1]["content"])
        server.requests.clear()
        found, summary = query_llm_oracle(name, PATIENT, how, 1, tmp_path)
        assert sorted([*first, *server.prompts]) == sorted(ASKED)
        assert (summary["paid"], summary["found"], summary["model"]) == (25, 0, name)
    # The server is gone: what was said stands in the folder.
    again, counts = query_llm_oracle(name, PATIENT, how, 1, tmp_path)
    assert again == found and counts == summary
    assert found.to_json() == read_json(tmp_path / "oracle.json")["descriptions"]
    assert len(list(read_jsonl(tmp_path / "oracle" / "requests.jsonl"))) == 25


def test_stored_answers_need_no_server(tmp_path: Path) -> None:
    """Another run with the store of the first gets the same descriptions, and an attack refuses a run of other questions."""
    store = replace(PATIENT, cache=tmp_path / "store.sqlite")
    with ChatServer(lambda body: good(body["messages"][-1]["content"])) as server:
        asked = OracleConfig(server.address("words"), 1, OraclePrompts(count=2), store)
        first = ask_oracle(asked, tmp_path / "one")
    again = ask_oracle(asked, tmp_path / "two")
    assert (first["paid"], first["found"]) == (25, 0) and (again["paid"], again["found"]) == (0, 25)
    descriptions = [read_json(tmp_path / name / "oracle.json")["descriptions"] for name in ("one", "two")]
    assert descriptions[0] == descriptions[1] and ask_oracle(asked, tmp_path / "two") == again
    check_asked(attackers.settings(oracle=asked.oracle, oracle_run=tmp_path / "one"))
    with pytest.raises(DataError, match="not of scripted:x"):
        check_asked(attackers.settings(oracle="scripted:x", oracle_run=tmp_path / "one"))
    with pytest.raises(DataError, match="holds no oracle.json"):
        check_asked(attackers.settings(oracle=asked.oracle, oracle_run=tmp_path))


def test_an_attack_moves_pictures_towards_what_the_model_said(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    rows = [{"contains": question.prompt, "answer": good(question.prompt)} for question in ASKED.values()]
    script.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = attackers.settings(budget=6, oracle=f"scripted:{script}", consulting=OraclePrompts(count=2))
    assert config.oracle_is_a_model
    said, summary = query_llm_oracle(config.oracle, config.oracle_llm, config.consulting, config.seed, tmp_path / "run")
    attack, _ = attackers.attack_on(tmp_path / "run", config)
    run_attack(replace(attack, descriptions=said))
    rows = [row for _, row in read_jsonl(tmp_path / "run" / "rounds" / "1" / "plan.jsonl")]
    parts = [part for row in rows for part in row["target"]["parts"].values()]
    spoken = {text for source, text in parts if source == "abnormal"}
    assert spoken and spoken <= set(ABNORMAL.values()) and summary["model"] == config.oracle
    assert all(text in NORMAL.values() for source, text in parts if source == "normal")
    assert distinct(said.texts()) == tuple(said.texts())


@pytest.mark.parametrize("name", ["hf:some/folder", "http://127.0.0.1:9/v1#m", "scripted:answers.jsonl"])
def test_names_of_text_models_are_oracles(name: str) -> None:
    assert attackers.settings(oracle=name).oracle_is_a_model
    assert not attackers.settings().oracle_is_a_model


def test_what_cannot_be_an_oracle_is_reported() -> None:
    for name, message in (
        ("http://127.0.0.1:9/v1", "names no model"),
        ("builtin:reporter", "oracle='builtin:reporter' is unknown.*text model by name"),
        ("hf", "is unknown"),
    ):
        with pytest.raises(ConfigError, match=message):
            attackers.settings(oracle=name)
    address = "http://127.0.0.1:9/v1#m"
    with pytest.raises(ConfigError, match="is the victim"):
        attackers.settings(victim=address, oracle=address)

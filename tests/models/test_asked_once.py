"""Asked once: what is kept, found again, paid for within a limit, and resumed; partly over a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, ChatServer, last_message_text, refusal
from function_model import FunctionModel

from cxrlab.core.egress import Connection, EgressData
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.llm_requests import BudgetSpent, LLMConfig
from cxrlab.core.model_interfaces import Generated, TextModel
from cxrlab.evaluation.load_model import open_text_model
from cxrlab.models.http_client import ChatClient
from cxrlab.models.http_models import HttpTextModel
from cxrlab.models.llm_cache import REQUESTS, CachedTextModel

PROMPTS = [f"prompt {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def no_shared_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CXRLAB_ANSWERS", "CXRLAB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def requests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / REQUESTS).read_text().splitlines()]


def texts(answers: Sequence[Generated]) -> list[str]:
    return [answer.text for answer in answers]


def over(server: ChatServer, **settings: Any) -> HttpTextModel:
    return HttpTextModel(ChatClient(server.address(), Connection(**settings), sleep=lambda _: None))


def test_a_prompt_is_asked_once_in_a_call_in_a_run_and_in_the_next(tmp_path: Path) -> None:
    model = FunctionModel(str.upper)
    with CachedTextModel(model, folder=tmp_path / "run") as asked:
        assert isinstance(asked, TextModel) and asked.name == "answering"
        assert asked.complete([]) == [] and not (tmp_path / "run").exists()
        assert texts(asked.complete(["a", "b", "a"])) == ["A", "B", "A"]
        assert texts(asked.complete(["b", "c"])) == ["B", "C"]
        assert (asked.paid, asked.found) == (3, 0)
    assert model.prompts == ["a", "b", "c"]
    silent = FunctionModel(lambda prompt: pytest.fail("asked again"))
    with CachedTextModel(silent, folder=tmp_path / "run") as asked:
        assert texts(asked.complete(["c", "b", "a"])) == ["C", "B", "A"]
        assert (asked.paid, asked.found) == (3, 0)  # of this run, which was only interrupted


@pytest.mark.parametrize("change", [{"max_tokens": 9}, {"seed": 1}])
def test_other_settings_are_another_question(change: dict[str, int]) -> None:
    model = FunctionModel(str.upper)
    asked = CachedTextModel(model)
    asked.complete(["a"])
    asked.complete(["a"], **change)
    asked.complete(["a"], **change)
    assert model.prompts == ["a", "a"]


class Weighed(FunctionModel):
    """A model whose name stays while its weights change."""

    fingerprint = "first"


def test_other_weights_or_another_model_are_asked_again(tmp_path: Path) -> None:
    file = LLMConfig(cache=tmp_path / "answers.sqlite")
    first, second, other = Weighed(lambda p: "1"), Weighed(lambda p: "2"), Weighed(lambda p: "3", name="other")
    second.fingerprint = "second"
    for model, answer in ((first, "1"), (second, "2"), (other, "3"), (first, "1")):
        assert texts(CachedTextModel(model, file).complete(["a"])) == [answer]
    assert [len(model.prompts) for model in (first, second, other)] == [1, 1, 1]


def test_every_request_of_a_run_is_written_down_with_its_answer(tmp_path: Path) -> None:
    model = FunctionModel(lambda prompt: Generated("x" * 8, tokens=2, extra={"prompt_tokens": 7}))
    with CachedTextModel(model, folder=tmp_path) as asked:
        asked.complete(["half \ud83d"], max_tokens=5, seed=3)
    (line,) = requests(tmp_path)
    reported = {"model": "answering", "max_tokens": 5, "seed": 3, "paid": True, "prompt_tokens": 7, "tokens": 2}
    assert {**line, "id": ""} == {**reported, "id": "", "prompt": "half ?", "answer": "x" * 8}


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_two_runs_share_a_file_and_the_second_pays_nothing(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shared" / "answers.sqlite"
    llm = LLMConfig(price_answer=1.0, cache=file if by == "flag" else None)
    if by == "environment":
        monkeypatch.setenv("CXRLAB_ANSWERS", str(file))
    with ChatServer() as server:
        with CachedTextModel(over(server), llm, tmp_path / "one") as first:
            answers = first.complete(PROMPTS)
            assert first.paid == 40 and first.budget.spent == 40 * 3 / 1000
        server.stop()  # the second needs no connection
        with CachedTextModel(over(server), llm, tmp_path / "two") as second:
            assert second.complete(PROMPTS) == answers
            assert (second.paid, second.found, second.budget.spent) == (0, 40, 0.0)
    assert len(server.requests) == 40 and not (tmp_path / "two" / "answers.sqlite").exists()
    assert [line["paid"] for line in requests(tmp_path / "two")] == [False] * 40


def test_a_run_whose_server_was_killed_goes_on_with_the_same_answers_and_asks_nothing_twice(tmp_path: Path) -> None:
    """Answers count how often each prompt was asked, so that one that was asked twice would differ."""
    times: dict[str, int] = {}

    def answer(body: dict[str, Any]) -> str:
        prompt = last_message_text(body)
        times[prompt] = times.get(prompt, 0) + 1
        if len(times) == 15 and times[prompt] == 1:
            threading.Thread(target=server.stop).start()
            threading.Event().wait(0.05)  # killed while this one is under way
        return f"{prompt} asked {times[prompt]} times"

    with ChatServer(answer) as server:
        with CachedTextModel(over(server, concurrency=1, tries=2), folder=tmp_path) as asked:
            with pytest.raises(RunError, match="repeat the command"):
                asked.complete(PROMPTS)
        kept = {line["prompt"]: line["answer"] for line in requests(tmp_path)}
        assert len(kept) == 14
        server.start()
        with CachedTextModel(over(server, tries=2), folder=tmp_path) as asked:
            found = dict(zip(PROMPTS, texts(asked.complete(PROMPTS)), strict=True))
            assert asked.paid == 40
    assert {prompt: found[prompt] for prompt in kept} == kept
    assert len(server.requests) == 41  # the one that was under way when the server died was never answered
    lost = [prompt for prompt, count in times.items() if count == 2]
    assert len(lost) == 1 and lost[0] not in kept
    with CachedTextModel(over(server, tries=1), folder=tmp_path) as asked:
        assert texts(asked.complete(PROMPTS)) == list(found.values())


def test_what_was_under_way_when_one_failed_is_kept(tmp_path: Path) -> None:
    four = threading.Barrier(4)

    def answer(body: dict[str, Any]) -> Answer:
        four.wait(10)
        if last_message_text(body) == "prompt 2":
            return 400, refusal("no")
        threading.Event().wait(0.1)  # the failure is there first
        return "kept"

    with ChatServer(answer) as server, CachedTextModel(over(server, concurrency=4), folder=tmp_path) as asked:
        with pytest.raises(RunError, match="it answered 400"):
            asked.complete(PROMPTS)
    assert {line["prompt"] for line in requests(tmp_path)} == {"prompt 0", "prompt 1", "prompt 3"}
    assert len(server.requests) == 4


class Interrupted(FunctionModel):
    """Hands out one answer after the other; the fourth is Ctrl-C."""

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        for place in range(len(prompts)):
            if len(self.prompts) == 3:
                self.prompts.append("stopped")
                raise KeyboardInterrupt
            yield place, self.complete([prompts[place]])[0]


def test_ctrl_c_keeps_every_answer_that_came(tmp_path: Path) -> None:
    model = Interrupted(str.upper)
    with pytest.raises(KeyboardInterrupt), CachedTextModel(model, folder=tmp_path) as asked:
        asked.complete(["a", "b", "c", "d"])
    with CachedTextModel(model, folder=tmp_path) as asked:
        assert texts(asked.complete(["a", "b", "c", "d"])) == ["A", "B", "C", "D"]
    assert model.prompts == ["a", "b", "c", "stopped", "d"]


def test_a_limit_of_cost_stops_before_more_is_spent_and_the_run_goes_on_when_it_is_raised(tmp_path: Path) -> None:
    """An answer has 500 tokens at 1 a thousand and costs 0.5, and may have 1,000. Of 3 the first three may surely be
    paid (3 · 1); then 1.5 are left for one more, and for another after it; then 0.5, which is too little."""
    model = FunctionModel(lambda prompt: Generated(prompt, tokens=500, extra={"prompt_tokens": 0}))
    limited = LLMConfig(max_cost=3.0, price_answer=1.0)
    with CachedTextModel(model, limited, tmp_path) as asked:
        with pytest.raises(BudgetSpent, match="2.5000 of .*max-cost 3 are spent"):
            asked.complete(PROMPTS[:9], max_tokens=1000)
        assert (asked.paid, asked.budget.spent) == (5, 2.5)
    with CachedTextModel(model, limited, tmp_path) as asked:  # again, it still knows what it spent
        with pytest.raises(BudgetSpent):
            asked.complete(PROMPTS[:9], max_tokens=1000)
    assert len(model.prompts) == 5
    with CachedTextModel(model, LLMConfig(max_cost=10.0, price_answer=1.0), tmp_path) as asked:
        assert texts(asked.complete(PROMPTS[:9], max_tokens=1000)) == PROMPTS[:9]
        assert (asked.paid, asked.budget.spent) == (9, 4.5)
    assert model.prompts == PROMPTS[:9]


def test_a_model_that_counts_more_tokens_than_we_guess_stays_within_the_limit_too(tmp_path: Path) -> None:
    """A prompt of 40 characters is taken for 10 tokens and counted as 100, at 1 a token: of 1,000 ten are paid for.

    The guess alone would have let all of the first 64 go. A run that goes on knows what its first start has seen.
    """
    prompts = [f"{number:040}" for number in range(64)]
    model = FunctionModel(lambda prompt: Generated(prompt, tokens=0, extra={"prompt_tokens": 100}))
    for most, paid in ((1000.0, 10), (1550.0, 15)):
        with CachedTextModel(model, LLMConfig(max_cost=most, price_prompt=1000.0), tmp_path) as asked:
            with pytest.raises(BudgetSpent):
                asked.complete(prompts, max_tokens=10)
            assert (asked.paid, asked.budget.spent, asked.budget.tokens_per_estimate) == (paid, 100.0 * paid, 10.0)


def test_concurrent_requests_stay_within_the_limit_and_those_under_way_are_kept(tmp_path: Path) -> None:
    """An answer costs 3 tokens and may cost 10, of 60: 17 are paid (51), and another one might end at 61."""

    def answer(body: dict[str, Any]) -> str:
        threading.Event().wait(0.02)
        return "kept"

    with ChatServer(answer) as server:
        llm = LLMConfig(max_cost=0.06, price_answer=1.0)
        with CachedTextModel(over(server, concurrency=4), llm, tmp_path) as asked:
            with pytest.raises(BudgetSpent):
                asked.complete(PROMPTS, max_tokens=10)
            assert asked.paid == len(server.requests) == 17 and asked.budget.spent == pytest.approx(0.051)
        assert 1 < server.most_in_flight <= 4


def test_tokens_that_nobody_counted_are_guessed_by_length(tmp_path: Path) -> None:
    """Four characters a token: 8 asked are 2, 12 answered are 3."""
    with CachedTextModel(
        FunctionModel(lambda p: "x" * 12), LLMConfig(price_prompt=1.0, price_answer=10.0), tmp_path
    ) as asked:
        asked.complete(["p" * 8])
        assert asked.budget.spent == (2 * 1 + 3 * 10) / 1000


class Short(FunctionModel):
    """Gives fewer answers than it was asked for."""

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        return super().complete(prompts[1:])


def test_a_model_that_leaves_prompts_without_an_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="answering gave 1 answers to 2 prompts"):
        CachedTextModel(Short(str.upper)).complete(["a", "b"])


def test_patients_text_is_refused_before_anything_connects_and_synthetic_text_is_not(tmp_path: Path) -> None:
    """The address is of no machine (a range kept for documents) and is never asked: only its name is looked at."""
    elsewhere = "https://192.0.2.1/v1#m"
    patients, phantoms = EgressData("corpora/mimic", False), EgressData("corpora/phantom", True)
    with pytest.raises(ConfigError, match="corpora/mimic may hold patients' data.*--llm.connection.egress-permission"):
        open_text_model(elsewhere, LLMConfig(), [patients, phantoms], tmp_path / "run")
    assert open_text_model(elsewhere, LLMConfig(), [phantoms]).name == elsewhere
    allowed = LLMConfig(connection=Connection(egress_permission="Dr Grey, ethics vote 12"))
    assert open_text_model(elsewhere, allowed, [patients], tmp_path / "run").name == elsewhere
    with pytest.raises(ConfigError, match="Give a run folder"):  # in which the leave would stand
        open_text_model(elsewhere, allowed, [patients])
    with ChatServer() as server, open_text_model(server.address(), LLMConfig(), [patients], tmp_path / "run") as model:
        assert texts(model.complete(["a"])) == ["a"]
    assert len(requests(tmp_path / "run")) == 1


def test_the_key_is_in_no_file_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-0123456789-never-to-be-seen"
    monkeypatch.setenv("CXRLAB_API_KEY", key)
    with ChatServer(lambda body: f"your key is {key}") as server:
        with CachedTextModel(over(server), folder=tmp_path) as asked:
            assert texts(asked.complete(["a"])) == ["your key is ***"]
        assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 2 and not any(b"never-to-be-seen" in file.read_bytes() for file in files)

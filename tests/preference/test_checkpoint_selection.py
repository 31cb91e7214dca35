"""What is written and judged while a model is aligned, and which step is kept."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_server import ChatServer, completion, last_message_text
from function_model import FunctionModel
from preference_runs import (
    ADAPTER,
    assert_rejected,
    changed,
    history,
    losses,
    saved_adapter,
    single_thread,
    tiny_preference_config,
)
from simulated_judges import UNREADABLE
from training_fixtures import phantoms

from cxrlab.core.egress import Connection, EgressData
from cxrlab.core.errors import ConfigError, CxrlabError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import BudgetSpent, LLMConfig
from cxrlab.data.corpus import Corpus
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.models.hf.static_cache import StaticDecoder
from cxrlab.preference.checkpoint_selection import CheckpointSelector
from cxrlab.preference.config import Measure, PreferConfig, Validation
from cxrlab.preference.train import prefer
from cxrlab.training.best_weights import best_file
from cxrlab.training.report_model import load_start

pytestmark = pytest.mark.slow

WATCH = Validation(n=3, max_new_tokens=6)
EVERY_TWO = replace(WATCH, every=2)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PreferConfig:
    return tiny_preference_config(tmp_path_factory.mktemp("prefer"))


def scripted(monkeypatch: pytest.MonkeyPatch, scores: dict[int, tuple[float, float]]) -> dict[int, Any]:
    """Figures by hand, (reward, length-controlled) of each step; returns the trained weights at each."""
    kept: dict[int, Any] = {}
    whole = CheckpointSelector.evaluation.fget
    assert whole is not None

    def measure(module: Any, step: int) -> dict[str, float]:
        trained = ((name, value) for name, value in module.named_parameters() if value.requires_grad)
        kept[step] = {name: value.detach().clone() for name, value in trained}
        return dict(zip(("reward", "reward_length_controlled"), scores[step], strict=True))

    monkeypatch.setattr(CheckpointSelector, "evaluation", property(lambda self: replace(whole(self), measure=measure)))
    return kept


def test_what_is_watched_stands_in_the_history(config: PreferConfig, tmp_path: Path) -> None:
    """Before the first step, every four, and after the last; looking changes nothing of what is learnt."""
    prefer(config, tmp_path / "unseen")
    mine = changed(config, validation=replace(WATCH, select="last", every=4))
    prefer(mine, tmp_path / "run")
    figures_by_step = {line["step"]: line["evaluation"] for line in history(tmp_path / "run") if "evaluation" in line}
    assert list(figures_by_step) == [0, 4, 6]
    for figures in figures_by_step.values():
        assert figures.keys() == {"reward", "reward_length_controlled", "words", "length_ratio"}
        assert figures["words"] <= 6 and 0 <= figures["reward_length_controlled"] <= figures["reward"] <= 1
    assert (tmp_path / "run" / ADAPTER).read_bytes() == (tmp_path / "unseen" / ADAPTER).read_bytes()
    selection = json.loads((tmp_path / "run" / "selection.json").read_text())
    assert selection == {"select": "last", "judge": "green:rules", "watched": 3, "step": 6, "of": 6}


def test_a_validation_leaves_no_cache_and_no_captured_step(
    config: PreferConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast, captured steps hold weights as they were cast at the validation, which later steps have changed."""
    start = load_start(config.start, None, None, 0, any_family=True)
    selector = CheckpointSelector(changed(config, validation=WATCH), start.prompts, start)
    selector._cache = "static"
    reserved: list[int] = []
    reserve = StaticDecoder.reserve
    monkeypatch.setattr(
        StaticDecoder, "reserve", lambda self, rows, length: (reserved.append(rows), reserve(self, rows, length))
    )
    with torch.no_grad():
        first, second = (selector.figures(start.model.eval()) for _ in range(2))
    assert reserved and first == second
    assert selector._writer is not None and selector._writer._static is not None
    assert not selector._writer._static._layers and not selector._writer._static._steps


def test_a_corpus_with_nothing_to_measure_on_is_reported_before_the_first_step(
    config: PreferConfig, tmp_path: Path
) -> None:
    other = phantoms(tmp_path / "train_only")
    kept = [line for line in (other / "studies.jsonl").read_text().splitlines() if '"test"' not in line]
    (other / "studies.jsonl").write_text("\n".join(kept) + "\n")
    assert_rejected(config, tmp_path, "has no study in its test split to measure on", measure=Measure(data=other, n=2))


SCORES = {0: (0.9, 0.9), 2: (0.5, 0.2), 4: (0.3, 0.6), 6: (0.4, 0.1)}


@pytest.mark.parametrize(("select", "best"), [("length-controlled", 4), ("reward", 2), ("last", 6)])
def test_the_best_step_is_kept(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: Any, best: int
) -> None:
    """The start has the best figures of all and is not what an aligned model is."""
    kept = scripted(monkeypatch, SCORES)
    prefer(changed(config, validation=replace(EVERY_TWO, select=select)), tmp_path / "run")
    selection = json.loads((tmp_path / "run" / "selection.json").read_text())
    assert selection["step"] == best and selection["of"] == 6
    assert selection.get("score") == {"length-controlled": 0.6, "reward": 0.5}.get(select)
    assert selection.get("start_score") == (None if select == "last" else 0.9)
    found = saved_adapter(tmp_path / "run")
    assert len(found) == len(kept[best])
    for name, value in kept[best].items():
        plain = name.removeprefix("reporter.model.").replace(".default", "")
        assert torch.equal(found[f"base_model.model.{plain}"], value), name
    assert not all(torch.equal(kept[2][name], kept[6][name]) for name in kept[2])


@pytest.mark.parametrize("step", [0, 2, 4, 6])
def test_a_kill_while_it_is_looked_at_changes_nothing(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Checkpoints come every three steps: step 4 is taken again after a kill in its evaluation or in that of step 6."""
    mine = changed(config, validation=EVERY_TWO)
    with monkeypatch.context() as patch:
        scripted(patch, SCORES)
        prefer(mine, tmp_path / "straight")
    with monkeypatch.context() as patch:
        scripted(patch, {key: value for key, value in SCORES.items() if key != step})
        with pytest.raises(KeyError):
            prefer(mine, tmp_path / "run")
    with monkeypatch.context() as patch:
        scripted(patch, SCORES)
        prefer(mine, tmp_path / "run")
    for name in (ADAPTER, "history.jsonl", "selection.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name


@pytest.mark.parametrize("place", [b'"weights":"', None])
def test_weights_of_the_best_step_that_were_altered_are_not_taken(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: bytes | None
) -> None:
    """The hash in the header, or a number of the weights."""
    mine = changed(config, validation=EVERY_TWO)
    with monkeypatch.context() as patch:
        scripted(patch, {0: (0.9, 0.9), 2: (0.5, 0.7), 4: (0.3, 0.6)})
        with pytest.raises(KeyError):
            prefer(mine, tmp_path / "run")
    file = best_file(tmp_path / "run" / "steps", 2)
    content = bytearray(file.read_bytes())
    content[-2 if place is None else content.index(place) + len(place)] ^= 1
    file.write_bytes(content)
    scripted(monkeypatch, SCORES | {6: (0.3, 0.5)})
    with pytest.raises(RunError, match=rf"{file.name}.* is damaged"):
        prefer(mine, tmp_path / "run")


def test_training_stops_after_validations_without_a_better_reward(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain reward is highest at step 2: with a patience of 1, step 4 is the last."""
    scripted(monkeypatch, SCORES)
    prefer(changed(config, validation=replace(EVERY_TWO, select="reward", patience=1)), tmp_path / "run")
    selection = json.loads((tmp_path / "run" / "selection.json").read_text())
    assert (selection["step"], selection["of"]) == (2, 4)


def test_a_step_without_a_score_is_never_the_best(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge may have nothing to say of any report at one step."""
    scripted(monkeypatch, {**SCORES, 2: (math.nan, math.nan)})
    prefer(changed(config, validation=EVERY_TWO), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "selection.json").read_text())["step"] == 4


def test_bfloat16_with_checkpointed_activations_is_watched_too(config: PreferConfig, tmp_path: Path) -> None:
    """Adapters are float32 on weights of bfloat16; the model writes under the same casts as it learns."""
    half = changed(
        config, validation=WATCH, precision="bfloat16", gradient_checkpointing=True, cache=tmp_path / "cache"
    )
    prefer(half, tmp_path / "run")
    assert losses(tmp_path / "run")[0] == pytest.approx(math.log(2), rel=0.01)
    assert all(
        torch.isfinite(value).all() and value.dtype == torch.float32
        for value in saved_adapter(tmp_path / "run").values()
    )


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        (Validation(n=2, judge="gren:rules"), "there is no judge 'gren:rules'"),
        (Validation(n=2, judge="errors:rules"), "compares two reports"),
        (Validation(n=2, judge="green:rules-lc"), "length-controlled already; give --validation.select reward"),
    ],
)
def test_a_wrong_judge_is_reported_before_the_run_is_made(
    config: PreferConfig, tmp_path: Path, watch: Validation, said: str
) -> None:
    assert_rejected(config, tmp_path, said, validation=watch)


def counting(body: dict[str, Any]) -> str:
    """GREEN's form: as many findings are matched as the candidate states, and one error is significant."""
    prompt = last_message_text(body)
    mark = re.findall(r"ANSWER [0-9a-f]{12}", prompt)[-1]  # earlier ones are those of examples
    (matched,) = re.findall(r"There are (\d+) findings in", prompt)
    kinds = "\n".join(f"({letter}) kind: {int(letter == 'a')}." for letter in "abcdef")
    rest = f"[Clinically Insignificant Errors]:\nNo errors.\n\n[Matched Findings]:\n{matched}. some"
    return f"{mark}\n[Clinically Significant Errors]:\n{kinds}\n\n{rest}"


@pytest.fixture
def various_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports that depend on the study and on the trained weights: the tiny model always writes the same."""

    def written(self: CheckpointSelector, model: Any) -> list[str]:
        trained = b"".join(value.detach().numpy().tobytes() for value in model.parameters() if value.requires_grad)
        numbers = hashlib.sha256(trained).digest()
        return [f"There are {1 + numbers[place] % 9} findings in {key}." for place, key in enumerate(self._studies)]

    monkeypatch.setattr(CheckpointSelector, "_generate", written)


def by_model(config: PreferConfig, server: ChatServer, **changes: Any) -> PreferConfig:
    """The config with validations by a language model at this server."""
    llm = LLMConfig(**{"connection": Connection(tries=1, timeout_s=5.0), **changes.pop("llm", {})})
    return changed(
        config, llm=llm, validation=replace(EVERY_TWO, judge=f"green-published:{server.address()}", **changes)
    )


@pytest.mark.usefixtures("various_reports")
def test_a_language_model_judges_and_a_kill_repeats_no_request(config: PreferConfig, tmp_path: Path) -> None:
    """The server dies in the validation of step 4; the run goes on from step 3 and asks only what it has not."""
    left = 100
    asked: list[str] = []

    def said(body: dict[str, Any]) -> Any:
        nonlocal left
        if len(asked) >= left:
            return 500, {"error": {"message": "gone"}}
        asked.append(last_message_text(body))
        return counting(body)

    with ChatServer(said) as server:
        mine = by_model(config, server)
        prefer(mine, tmp_path / "whole")
        whole = list(asked)
        assert len(whole) == len(set(whole)), "equal reports of two steps are one question"
        evaluated = [line["evaluation"] for line in history(tmp_path / "whole") if "evaluation" in line]
        assert len(evaluated) == 4 and all(0 < figures["reward"] < 1 for figures in evaluated)
        requests = [record for _, record in read_jsonl(tmp_path / "whole" / "requests.jsonl")]
        assert sorted(record["prompt"] for record in requests) == sorted(whole) and all(
            record["paid"] for record in requests
        )
        asked.clear()
        left = len(whole) - 1
        with pytest.raises(CxrlabError):
            prefer(mine, tmp_path / "run")
        left = 100
        prefer(mine, tmp_path / "run")
        assert sorted(asked) == sorted(whole)
        prefer(mine, tmp_path / "run")  # finished: nothing is asked
        assert len(asked) == len(whole)
    for name in (ADAPTER, "history.jsonl", "selection.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    selection = json.loads((tmp_path / "run" / "selection.json").read_text())
    best = max(evaluated[1:], key=lambda figures: figures["reward_length_controlled"])
    assert selection["judge"] == mine.validation.judge and selection["score"] == best["reward_length_controlled"]


@pytest.mark.usefixtures("various_reports")
def test_what_a_language_model_may_cost_is_kept_to(config: PreferConfig, tmp_path: Path) -> None:
    """The first validation stops within the budget; with a higher one the same command goes on to the end."""
    prices = {"price_prompt": 0.01, "price_answer": 0.01}  # 0.011 for each answer, at most about 0.017
    with ChatServer(lambda body: completion(counting(body), prompt_tokens=700, tokens=400)) as server:
        poor = by_model(config, server, llm={**prices, "max_cost": 0.02})
        with pytest.raises(BudgetSpent, match="--llm.max-cost"):
            prefer(poor, tmp_path / "run")
        before = len(server.requests)
        prefer(by_model(config, server, llm={**prices, "max_cost": 9.0}), tmp_path / "run")
        assert 0 < before < len(server.requests) == len(set(server.prompts))
    with pytest.raises(ConfigError, match="max_cost needs price_prompt"):
        LLMConfig(max_cost=1.0)


def test_what_a_judge_cannot_be_shown_or_read_is_said(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patients' references leave the machine with a permission alone; an answer that cannot be read has no reward."""
    away = replace(WATCH, judge="green:https://example.org/v1#m")
    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "egress_data", property(lambda self: EgressData("corpora/mimic", synthetic=False)))
        assert_rejected(config, tmp_path, "may hold patients' data", validation=away)
    start = load_start(config.start, None, None, 0, any_family=True)
    model = FunctionModel(lambda prompt: UNREADABLE)
    wording = tmp_path / "wording.yaml"
    wording.write_text("version: mine-1\nreports: plain\ntext: 'Reference: {reference} Candidate: {candidate}'\n")
    mine = changed(config, validation=replace(WATCH, judge="green:hf:m"), judging=JudgeSettings((f"green={wording}",)))
    figures = CheckpointSelector(mine, start.prompts, start, lambda name: model).figures(start.model.eval())
    assert math.isnan(figures["reward"]) and math.isnan(figures["reward_length_controlled"])
    assert figures["unjudged"] == 3 and all(prompt.startswith("Reference: ") for prompt in model.prompts)

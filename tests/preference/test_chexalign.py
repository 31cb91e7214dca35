"""The shipped CheXalign configs against every setting of its release; `cases/chexalign_settings.json` names the sources."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from chat_server import ChatServer, last_message_text

from cxrlab.core.config import config_from, flatten
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.preference.config import LOSSES, JudgeConfig, PairConfig, PreferConfig, SampleConfig
from cxrlab.preference.judge_candidates import judge
from cxrlab.preference.make_pairs import pair
from cxrlab.preference.sample_candidates import sample
from cxrlab.preference.train import prefer

CONFIGS = Path(__file__).parents[2] / "configs" / "preference"
RELEASE = json.loads((Path(__file__).parent / "cases" / "chexalign_settings.json").read_text())
RELEASED_LOSSES = ("dpo", "ipo", "kto", "orpo", "rdpo")
VARIANTS = {"released": "", "launched": "_launched"}  # the key of a row's value → what ends the name of our file
STAGES: dict[str, tuple[type, tuple[str, ...]]] = {
    "sampling": (SampleConfig, ("model=m", "data=d")),
    "judging": (JudgeConfig, ("candidates=[c]", "data=d")),
    "pairing": (PairConfig, ("rewards=r",)),
}
FILES = {"sampling": "sample", "judging": "judge", "pairing": "pair"}
OURS_ALONE = ("validation.", "measure.")  # the release evaluates nothing while it trains


@cache
def training(loss: str, variant: str) -> PreferConfig:
    file = CONFIGS / f"chexalign_{loss}{VARIANTS[variant]}.yaml"
    return config_from(PreferConfig, file, ["data=d", "pairs=p", "start=s"])


def value(config: Any, name: str) -> Any:
    """A setting as JSON has it."""
    found = attrgetter(name)(config)
    return list(found) if isinstance(found, tuple) else found


def expected(row: dict[str, Any], loss: str, variant: str) -> Any:
    """The launch script's value where it has one, else the YAML file's; by loss where they differ."""
    released = row.get(variant, row["released"])
    return released[loss] if isinstance(released, dict) else released


@pytest.mark.parametrize("row", RELEASE["training"], ids=lambda row: row["setting"])
def test_every_setting_of_training_is_the_released_one(row: dict[str, Any]) -> None:
    for loss, variant in product(RELEASED_LOSSES, VARIANTS):
        assert value(training(loss, variant), row["ours"]) == expected(row, loss, variant), (loss, row["file"])


@pytest.mark.parametrize("stage", STAGES)
def test_every_setting_before_training_is_the_released_one(stage: str) -> None:
    kind, needed = STAGES[stage]
    config: Any = config_from(kind, CONFIGS / f"chexalign_{FILES[stage]}.yaml", list(needed))
    for row in RELEASE[stage]:
        assert value(config, row["ours"]) == row["released"], row["file"]


def test_both_variants_differ_in_what_the_launch_script_overrides_alone() -> None:
    """128 and 64 pairs per step on 4 GPUs."""
    overridden = {row["ours"] for row in RELEASE["training"] if "launched" in row}
    assert overridden == {"optimisation.accumulate", "optimisation.max_length", "optimisation.save_every"}
    for loss in RELEASED_LOSSES:
        first, second = (flatten(yaml.safe_load(file.read_text())) for file in files_of(loss))
        assert {name for name in first if first[name] != second[name]} == overridden and first.keys() == second.keys()
        each = [training(loss, variant).optimisation for variant in VARIANTS]
        assert [4 * one.batch_size * one.accumulate for one in each] == [128, 64]


def test_no_setting_of_our_files_is_without_a_source() -> None:
    named = {row["ours"] for row in RELEASE["training"]}
    files = [file for loss in RELEASED_LOSSES for file in files_of(loss)]
    assert {*files, *(CONFIGS / f"chexalign_{name}.yaml" for name in FILES.values())} == {*CONFIGS.glob("chexalign_*")}
    for file in files:
        given = flatten(yaml.safe_load(file.read_text()))
        assert {name for name in given if not name.startswith(OURS_ALONE)} <= named, file
    for stage in ("training", *STAGES):
        assert all(row["file"] and "released" in row for row in RELEASE[stage])
    assert all(row["why"] for row in RELEASE["without a setting here"])


def test_each_header_names_the_file_that_it_follows() -> None:
    for loss in RELEASED_LOSSES:
        first, second = (file.read_text() for file in files_of(loss))
        assert f"Follows: scripts/configs/config_chexagent_{loss}.yaml" in first and "run.sh" not in first
        assert "Follows: run.sh" in second and f"config_chexagent_{loss}.yaml" in second
    assert set(RELEASED_LOSSES) <= set(LOSSES)


def test_the_optimiser_is_the_released_one(tmp_path: Path) -> None:
    """AdamW of torch with the library's betas and epsilon; a tenth of the steps warms up."""
    from transformers import TrainingArguments

    from cxrlab.training.trainer import Part, arguments, plan_steps

    settings = training("dpo", "launched").optimisation
    found = arguments(settings, plan_steps([Part(8000)], settings, np.ones(8000, np.int64)), tmp_path)
    theirs = TrainingArguments(output_dir=str(tmp_path), optim="adamw_torch", report_to="none")
    for name in ("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"):
        assert getattr(found, name) == getattr(theirs, name), name
    assert str(found.optim.value).startswith(theirs.optim.value)
    assert (found.max_steps, found.warmup_steps) == (500, 50)  # one process: 4 x 4 pairs per step


def files_of(loss: str) -> list[Path]:
    return [CONFIGS / f"chexalign_{loss}{end}.yaml" for end in VARIANTS.values()]


@pytest.mark.slow
@pytest.mark.full
def test_the_shipped_files_run_one_after_another(tmp_path: Path) -> None:
    """Candidates of two views, rewards by a server in GREEN's place and its own wording, pairs, and an aligned model."""
    from tiny_families import save_tiny

    data = tmp_path / "corpus"
    make_phantom(PhantomConfig(n=40, size=32, seed=3, workers=1, masks=False, lateral=True), data)
    start, wording = save_tiny("llava", tmp_path / "start"), tmp_path / "green.yaml"
    wording.write_text("version: theirs\nreports: cleaned\ntext: 'Reference: {reference} Candidate: {candidate}'\n")
    seen = []

    def judged(body: dict[str, Any]) -> str:
        """As many findings as the candidate has different letters; kinds of errors without any are left out."""
        seen.append(last_message_text(body))
        matched = len(set(seen[-1].partition("Candidate: ")[2]))
        error = "(b) Missing a finding present in the reference: 4. Some"
        return f"[Explanation]:\nX\n\n[Clinically Significant Errors]:\n{error}\n\n[Matched Findings]:\n{matched}. Some"

    sampling = ["n=12", f"data={data}", f"model=hf:{start}", "max_new_tokens=24", "loading.prompts=llava-rad/2"]
    sample(config_from(SampleConfig, CONFIGS / "chexalign_sample.yaml", sampling), tmp_path / "candidates")
    with ChatServer(judged) as server:
        model = f"green-published:{server.address('StanfordAIMI/GREEN-radllama2-7b')}"
        judging = [f"candidates=[{tmp_path / 'candidates'}]", f"data={data}", f"judge={model}",
                   f"judging.prompts=[green-published={wording}]"]  # fmt: skip
        judge(config_from(JudgeConfig, CONFIGS / "chexalign_judge.yaml", judging), tmp_path / "rewards")
        assert seen and all(prompt.startswith("Reference: ") and prompt[11:30].islower() for prompt in seen)
        pairing = config_from(PairConfig, CONFIGS / "chexalign_pair.yaml", [f"rewards={tmp_path / 'rewards'}"])
        made = pair(pairing, tmp_path / "pairs")
        assert made.kept + made.ties == 12 and made.kept > 3
        small = [f"data={data}", f"pairs={tmp_path / 'pairs'}", f"start=hf:{start}", "prompts=llava-rad/2", "measure.n=0",
                 "validation.n=2", "validation.max_new_tokens=6", f"validation.judge={model}", "optimisation.batch_size=2",
                 "optimisation.accumulate=1", "optimisation.steps=2", f"judging.prompts=[green-published={wording}]"]  # fmt: skip
        for loss in ("dpo", "kto"):
            found = config_from(PreferConfig, CONFIGS / f"chexalign_{loss}.yaml", small)
            prefer(found, tmp_path / loss)
            assert json.loads((tmp_path / loss / "selection.json").read_text())["select"] == "length-controlled"

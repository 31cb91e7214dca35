"""The sequence of LLaVA-Rad on the seven data sets in their true layouts, from the imports to the scores."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from seven_layouts import import_seven

from cxrlab.cli.main import main
from cxrlab.core.config import config_from, parse_group
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.studies.run_study import read_study, run_study
from cxrlab.studies.sequence import SequenceConfig
from cxrlab.training.config import AlignConfig, EncoderConfig, FinetuneConfig
from cxrlab.training.validation import validation_source

ROOT = Path(__file__).parents[2]
COMPOSE = ["data", "compose", "--config", "configs/llava_rad/02_compose_cxr697k.yaml"]
CORPUS = {1: "corpora/cxr697k", 2: "corpora/mimic-cxr-frontal", 3: "corpora/mimic-cxr-frontal"}
TRAIN = {1: "encoder --config configs/llava_rad/03_encoder.yaml", 2: "align --config configs/llava_rad/04_align.yaml",
         3: "finetune --config configs/llava_rad/05_finetune.yaml"}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the shipped configs, and both composed corpora under the names of the configs."""
    folder = tmp_path_factory.mktemp("llava_rad")
    (folder / "configs").symlink_to(ROOT / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXRLAB_QUIET", "1")
        patch.chdir(folder)
        import_seven(folder)
        for stage in (1, 2):
            assert main([*COMPOSE, "--stage", str(stage), "--out", CORPUS[stage]]) == 0
    return folder


@pytest.fixture
def asked(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command in that folder and returns its JSON, with the exit code that is expected."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("CXRLAB_QUIET", "1")
    capsys.readouterr()

    def run(*words: str, code: int = 0) -> Any:
        assert main([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


def learnt(asked: Callable[..., Any], stage: int, *more: str) -> Counter[tuple[str, str, str]]:
    """The pairs that a stage would train on."""
    table = asked("train", *TRAIN[stage].split(), "--data", CORPUS[stage], "--dry-run", *more)
    rows = Counter({(row["corpus"], row["text"], row["view"]): row["pairs"] for row in table["rows"]})
    assert table["pairs"] == rows.total()
    return rows


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_stage_learns_the_pairs_of_the_composition(asked: Callable[..., Any], stage: int) -> None:
    """By corpus, source of the text and view; the sum is that of the composition's table."""
    table = asked(*COMPOSE, "--stage", str(stage), "--dry-run")["table"]
    composed = Counter(
        {
            (row["member"], text, view): count
            for row in table
            for text, views in row["views"].items()
            for view, count in views.items()
        }
    )
    assert learnt(asked, stage) == composed and composed.total() == sum(row["pairs"] for row in table) > 0


def test_the_composition_is_the_paper_s(asked: Callable[..., Any]) -> None:
    """Stage 1: one text per image, lateral images of MIMIC-CXR alone; later both texts of its AP and PA images."""
    first = learnt(asked, 1)
    assert {corpus for corpus, _, _ in first} == {
        "chexpert", "brax", "candid-ptx", "vindr-cxr", "object-cxr", "mimic-cxr", "padchest",
    }  # fmt: skip
    assert {corpus for corpus, _, view in first if view in ("lateral", "other")} == {"mimic-cxr"}
    table = asked("train", *TRAIN[1].split(), "--data", CORPUS[1], "--dry-run")
    assert table["pairs"] == table["images"] > table["studies"] and table["unused"] == []
    later = learnt(asked, 3)
    assert {view for _, _, view in later} == {"PA", "AP"}
    assert {text for _, text, _ in later} == {"sections", "structured:gpt"} and later == learnt(asked, 2)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_flags_of_validation_keep_the_pairs_of_the_training(asked: Callable[..., Any], stage: int) -> None:
    """Those that the document gives for a stage: AP and PA images of val studies, one by one and with both texts."""
    document = (ROOT / "docs" / "reproduce_llava_rad.md").read_text()
    ((_, flags),) = [
        row for row in re.findall(r"^\| (\d) \| `(--validation[^`]*)`", document, re.M) if row[0] == str(stage)
    ]
    assert learnt(asked, stage, *flags.split()) == learnt(asked, stage)
    config = (EncoderConfig, AlignConfig, FinetuneConfig)[stage - 1]
    file = f"configs/llava_rad/{TRAIN[stage].split('/')[-1]}"
    words = shlex.split(flags)
    overrides = [f"{name[2:].replace('-', '_')}={value}" for name, value in zip(words[::2], words[1::2], strict=True)]
    source = validation_source(config_from(config, Path(file), [f"data={CORPUS[stage]}", *overrides]))
    assert source is not None and {sample.kind.view for sample in source.samples} <= {"PA", "AP"}
    texts = {sample.kind.text for sample in source.samples}
    assert texts == ({"sections"} if stage == 1 else {"sections", "structured:gpt"})
    assert all(len(sample.images) == 1 and sample.context is None for sample in source.samples)


def test_stage_1_of_mimic_alone_is_another_training(asked: Callable[..., Any]) -> None:
    """Variant 1 of the paper: the same pairs of MIMIC-CXR and no other, the rest listed as left out."""
    whole, alone = learnt(asked, 1), learnt(asked, 1, "--members", "mimic-cxr")
    assert alone == Counter({kind: count for kind, count in whole.items() if kind[0] == "mimic-cxr"}) != whole
    table = asked("train", *TRAIN[1].split(), "--data", CORPUS[1], "--members", "mimic-cxr", "--dry-run")
    unused = {row["corpus"]: row["images"] for row in table["unused"]}
    assert len(unused) == 6 and alone.total() + sum(unused.values()) == whole.total()


def states(asked: Callable[..., Any], code: int) -> dict[str, str]:
    return {row["what"]: row["state"] for row in asked("study", "llava-rad", "--dry-run", code=code)}


def test_the_dry_run_reports_what_is_missing_and_what_differs(asked: Callable[..., Any], home: Path) -> None:
    """The fixture is smaller than the data sets, and its weights are not there."""
    found = states(asked, 1)
    assert found["import brax"] == "differs" and found["compose stage 1"] == "done"
    assert found["train encoder"] == found["train align"] == "missing" and found["score"] == "waiting"
    with pytest.raises(ConfigError, match="started one by one"):
        run_study("llava-rad", home / "runs" / "none")
    assert not (home / "runs" / "none").exists()


def sequence(path: Path, **changes: Any) -> str:
    """The file of a sequence: an import and a training."""
    first = {"command": "cxrlab data import brax --root downloads/brax --out corpora/brax", "expected": {"images": 12}}
    last = {"command": f"cxrlab train {TRAIN[1]} --data {CORPUS[1]} --out runs/encoder", "needs": [CORPUS[1]]}
    path.write_text(yaml.safe_dump({"study": "sequence", "steps": {"first": first, "last": last, **changes}}))
    return str(path)


def test_nothing_missing_is_exit_0_and_another_count_exit_1(
    asked: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    file = sequence(tmp_path / "s.yaml")
    assert [row["state"] for row in asked("study", file, "--dry-run")] == ["done", "ready"]
    lines = (home / CORPUS[1] / "studies.jsonl").read_text().splitlines(keepends=True)
    (home / CORPUS[1] / "studies.jsonl").write_text("".join(lines[1:]))  # a study of CheXpert is lost
    try:
        rows = asked("study", file, "--dry-run", code=1)
    finally:
        (home / CORPUS[1] / "studies.jsonl").write_text("".join(lines))
    assert rows[1]["state"] == "differs" and "chexpert structured:labels" in rows[1]["name"]


def test_a_command_whose_settings_are_not_there_is_missing_them(asked: Callable[..., Any], tmp_path: Path) -> None:
    """A wrong working folder is reported like any other input, and does not end the report."""
    last = {"command": f"cxrlab train encoder --config {tmp_path}/no.yaml --data {CORPUS[1]} --out runs/encoder"}
    rows = asked("study", sequence(tmp_path / "s.yaml", last=last), "--dry-run", code=1)
    assert [row["state"] for row in rows] == ["done", "missing"] and rows[1]["name"] == f"{tmp_path}/no.yaml"


def test_a_damaged_corpus_hides_no_other_step_and_an_interrupted_one_is_unfinished(
    asked: Callable[..., Any], tmp_path: Path
) -> None:
    steps = {}
    for name, file in (("first", "card.yaml"), ("half", "card.partial.yaml")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("name: [")
        steps[name] = {"command": f"cxrlab data import brax --root downloads/brax --out {tmp_path / name}"}
    rows = asked("study", sequence(tmp_path / "s.yaml", **steps), "--dry-run", code=1)
    assert {row["what"]: row["state"] for row in rows} == {"first": "error", "last": "ready", "half": "unfinished"}
    assert "card.yaml:1" in rows[0]["name"]


def test_commands_can_be_pasted_at_80_columns(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each that is not done is one line; the table above them fits the terminal."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["study", "llava-rad", "--dry-run"]) == 1
    table, _, commands = capsys.readouterr().out.partition("\n\n")
    steps = read_study(ROOT / "configs" / "studies" / "llava_rad.yaml").config.chosen()
    assert {steps[name].command for name in ("train encoder", "score")} <= set(commands.splitlines())
    assert max(map(len, table.splitlines())) <= 80 and "cxrlab" not in table


def test_bad_steps_are_refused() -> None:
    for steps, said in (
        ({"a": {"command": "cxrlab data ls"}}, "no --out"),
        ({"a": {}}, "'command' has no default"),
        ({"a": {"command": "x --out y", "need": []}}, "Did you mean 'needs'"),
    ):
        with pytest.raises(ConfigError, match=said):
            SequenceConfig(steps=steps)


def test_every_command_of_the_sequence_is_in_the_document() -> None:
    """docs/reproduce_llava_rad.md shows exactly the commands that the dry run looks for."""
    shown = re.findall(r"```\n(.*?)```", (ROOT / "docs" / "reproduce_llava_rad.md").read_text(), re.S)
    lines = {line for block in shown for line in block.splitlines()}
    steps = read_study(ROOT / "configs" / "studies" / "llava_rad.yaml").config.chosen()
    assert {step.command for step in steps.values()} <= lines


def test_the_ablations_train_by_the_recipe_of_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pairs per step, rates and adapters; they divide a step differently, because a study runs in one process."""
    monkeypatch.chdir(ROOT)
    ablations = yaml.safe_load(Path("configs/studies/ablations_llavarad.yaml").read_text())
    found = {}
    for name, config_class, file, start in (
        ("encoder", EncoderConfig, "03_encoder", {"vision_encoder": "hf:x"}),
        ("align", AlignConfig, "04_align", {"start": "x"}),
        ("finetune", FinetuneConfig, "05_finetune", {"start": "x"}),
    ):
        theirs, problems = parse_group(config_class, {**start, **ablations[name]}, name)
        assert not problems
        ours = config_from(config_class, Path(f"configs/llava_rad/{file}.yaml"), ["data=x"])
        recipes = [recipe(one, processes) for one, processes in ((ours, 8), (theirs, 1))]
        assert recipes[0] == recipes[1], name
        found[name] = recipes[0]
    assert (
        found["align"] | {"pairs": 256, "learning_rate": 1e-3, "epochs": 1, "conversation": "plain"} == found["align"]
    )
    rest = {
        "pairs": 64,
        "learning_rate": 1e-4,
        "epochs": 3,
        "conversation": "vicuna-v1",
        "lora_rank": 64,
        "lora_alpha": 128,
    }
    assert found["finetune"] | rest == found["finetune"]


def recipe(config: Any, processes: int) -> dict[str, Any]:
    """What decides the result of a training, apart from its data, starts and seed."""
    one = config.optimisation
    names = (
        "learning_rate",
        "schedule",
        "warmup",
        "weight_decay",
        "clip",
        "epochs",
        "steps",
        "precision",
        "max_length",
    )
    own = ("conversation", "prompts", "indication", "lora_rank", "lora_alpha", "lora_dropout", "text", "views", "members",
           "image_size", "projection_dim", "text_head", "augmentation", "train_vision_encoder", "train_projector")  # fmt: skip
    return {
        "pairs": one.batch_size * one.accumulate * processes,
        **{name: getattr(one, name) for name in names},
        **{name: getattr(config, name) for name in own if hasattr(config, name)},
    }


def save_stand_ins(home: Path) -> None:
    """Random weights of the published architectures at 518 pixels, a few thousand numbers, in the configs' folders."""
    from tiny_models import tiny_tokenizer

    from cxrlab.models.random_init import (
        Size,
        build_image_processor,
        build_language_model,
        build_text_encoder,
        build_vision_encoder,
    )

    size = Size(image=518, patch=14, vision_encoder=2, language=1, text=1, width=32, head=16, shared=32,
                vocabulary=512, context=2048)  # fmt: skip
    tokenizer, models = tiny_tokenizer(), home / "models"
    for name, parts in {
        "dinov2-base": (build_vision_encoder(size, 0), build_image_processor(224)),
        "pubmedbert": (build_text_encoder(tokenizer, size, 1), tokenizer),
        "vicuna-7b-v1.5": (build_language_model(tokenizer, size, 2), tokenizer),
    }.items():
        for part in parts:
            part.save_pretrained(models / name)


# What precedes a report that follows the indication 'Cough.': the image alone, then Vicuna's conversation.
PROMPTS = {
    2: "<image>",
    3: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and "
    "polite answers to the user's questions. USER: <image>\nProvide a description of the findings in the radiology image "
    "given the following indication: Cough. ASSISTANT:",
}


def prompt_of(run: Path, stage: int) -> str:
    """The prompt with which a run was trained, as its own settings give it."""
    from transformers import AutoProcessor

    from cxrlab.models.hf.prompting import prompt_text
    from cxrlab.models.prompts import load_prompts

    settings = yaml.safe_load((run / "config.yaml").read_text())
    prompts = load_prompts(settings["prompts"])
    words = prompts.align if stage == 2 else prompts.ask("Cough." if settings["indication"] else None)
    return prompt_text(AutoProcessor.from_pretrained(run / "checkpoint"), words)


@pytest.mark.slow
def test_the_sequence_runs_from_the_composition_to_the_scores(asked: Callable[..., Any], home: Path) -> None:
    """The shipped configs at 518 pixels; only batches, epochs and lengths are smaller."""
    save_stand_ins(home)
    small = ["--optimisation.workers", "0", "--optimisation.batch-size"]
    runs = "runs/llava_rad"
    more = {1: ["16", "--optimisation.epochs", "1"], 2: ["2"], 3: ["2", "--optimisation.epochs", "1"]}
    for stage, name in enumerate(("encoder", "align", "finetune"), 1):
        folder = f"{runs}/{name}"
        done = asked("train", *TRAIN[stage].split(), "--data", CORPUS[stage], "--out", folder, *small, *more[stage])
        assert done["rows"] == learnt(asked, stage).total() and done["left_out"] == {}
        assert states(asked, 1)[f"train {name}"] == "done"
    assert {stage: prompt_of(home / runs / name, stage) for stage, name in ((2, "align"), (3, "finetune"))} == PROMPTS
    card = read_json(home / runs / "finetune" / "checkpoint" / "cxrlab.json")
    assert len(card["collections"]) == 7, "the encoder has seen all seven"
    generate = ["generate", "--config", "configs/llava_rad/06_generate.yaml", "--out", f"{runs}/reports"]
    asked(*generate, "--decoding.max-new-tokens", "4", "--control-studies", "0")
    asked("score", "--config", "configs/llava_rad/07_score.yaml", "--out", f"{runs}/scores", "--trials", "20")
    found = states(asked, 1)
    assert {found[name] for name in ("generate", "score", "compose stage 1")} == {"done"}
    lines = (home / runs / "reports" / "predictions.jsonl").read_text().splitlines()
    assert lines and all("#" in json.loads(line)["id"] for line in lines), "one report per image"

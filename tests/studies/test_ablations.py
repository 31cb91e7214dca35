"""The ablations: what is planned, what is shared, what the table says, and one whole study on tiny models."""

from __future__ import annotations

import json
import math
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.runs import state
from cxrlab.studies.ablations import Ablations, AblationsConfig, AblationVariant, ablation_table
from cxrlab.studies.corpora import corpus_folders, make_corpora, with_folders
from cxrlab.studies.engine import Part, run_in_processes, run_recipe
from cxrlab.studies.run_study import find_study, read_study

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {
    "corpora": {"drawn": {"phantom": {"n": 60, "size": 32, "seed": 3, "workers": 1, "masks": False}}},
    "test": "drawn",
    "vision_encoder": "fresh:tiny",
    "language_model": "fresh:tiny",
    "encoder": {
        "data": "drawn",
        "text_encoder": "fresh:tiny",
        "optimisation": {"steps": 1, "batch_size": 4, "max_length": 64},
    },
    "align": {"data": "drawn", "optimisation": {"steps": 1, "batch_size": 2}},
    "finetune": {"data": "drawn", "lora_rank": 2, "optimisation": {"steps": 1, "batch_size": 2}},
    "variants": {"full": {"changes": "Nothing."}, "no-stage-2": {"changes": "No stage 2.", "stages": [1, 3]}},
    "seeds": (1,),
    "metrics": ("findings.f1.side", "rougeL:google"),
    "n": 3,
    "control_studies": 0,
    "max_new_tokens": 4,
    "trials": 5,
}


def config(**changes: Any) -> AblationsConfig:
    return AblationsConfig(**{**BASE, **changes})


def planned(out: Path, **changes: Any) -> Ablations:
    return Ablations(config(**changes), out)


def run_ablations(settings: AblationsConfig, out: Path) -> Path:
    return run_recipe(Ablations(settings, out))


def trained(study: Ablations) -> list[Part]:
    """The training stages among the parts."""
    return [part for part in study.parts if part.kind not in ("reports", "scores")]


def variants(**rows: dict[str, Any]) -> dict[str, Any]:
    return {"full": {"changes": "Nothing."}} | {
        name.replace("_", "-"): {"changes": "Something.", **row} for name, row in rows.items()
    }


def test_what_variants_share_is_trained_once(tmp_path: Path) -> None:
    """Without stage 3 nothing new is trained; another stage 3 stands on the same first two."""
    rows = variants(no_stage_3={"stages": [1, 2]}, no_lora={"finetune": {"lora_rank": 0}})
    found = planned(tmp_path, variants=rows)
    assert [part.folder for part in trained(found)] == [
        "seed1/full/encoder",
        "seed1/full/align",
        "seed1/full/finetune",
        "seed1/no-lora/finetune",
    ]
    short = found.trials[1]
    stages = {"encoder": "seed1/full/encoder", "align": "seed1/full/align"}
    reports = {"reports": "seed1/no-stage-3/reports", "scores": "seed1/scores/no-stage-3"}
    assert short.parts == {**stages, **reports}
    assert found.part("seed1/no-stage-3/reports").config.model == f"hf:{tmp_path}/seed1/full/align/checkpoint"


def test_each_stage_starts_from_the_one_before(tmp_path: Path) -> None:
    encoder, align, finetune = trained(planned(tmp_path))[:3]
    assert encoder.config.vision_encoder == "fresh:tiny"
    assert align.config.encoder == f"hf:{tmp_path}/seed1/full/encoder/checkpoint"
    assert finetune.config.start == str(tmp_path / "seed1/full/align")
    assert finetune.config.data == tmp_path / "corpora" / "drawn"


def test_a_stage_that_is_left_out_hands_its_start_on(tmp_path: Path) -> None:
    """No stage 1: the vision encoder itself; no stage 2: encoder and language model; a whole model stands for both."""
    rows = variants(
        a={"stages": [2, 3], "vision_encoder": "hf:other"},
        b={"stages": [1, 3]},
        c={"stages": [2, 3], "model": "hf:whole"},
    )
    parts = {part.folder: part.config for part in planned(tmp_path, variants=rows).parts}
    assert parts["seed1/a/align"].encoder == "hf:other"
    assert parts["seed1/b/finetune"].encoder == f"hf:{tmp_path}/seed1/full/encoder/checkpoint"
    assert parts["seed1/b/finetune"].language_model == "fresh:tiny"
    assert parts["seed1/c/align"].start == "hf:whole"


def test_the_seed_reaches_every_stage(tmp_path: Path) -> None:
    found = planned(tmp_path, seeds=(3, 5))
    assert {(part.folder[:5], part.config.optimisation.seed) for part in trained(found)} == {("seed3", 3), ("seed5", 5)}


def test_null_takes_a_setting_out(tmp_path: Path) -> None:
    """A variant that learns one text only takes the other corpus out of the recipe."""
    recipe = {**BASE["align"], "extra_corpora": {"twice": {"data": "drawn", "weight": 0.5}}}
    parts = planned(tmp_path, align=recipe, variants=variants(one={"align": {"extra_corpora": None}})).parts
    alsos = {part.folder: part.config.extra_corpora for part in parts if part.kind == "align"}
    assert alsos["seed1/full/align"]["twice"]["data"] == str(tmp_path / "corpora" / "drawn")
    assert alsos["seed1/one/align"] == {}


@every_row(
    ("changes", "message"),
    [
        ({"variants": {"full": {"changes": "x"}}}, "at least 2"),
        ({"variants": variants(a={"stages": [1]})}, "no model that generates reports"),
        ({"variants": variants(a={"stages": [3, 2]})}, "in order"),
        ({"variants": variants(a={"stages": [2], "finetune": {"n": 3}})}, "does not run"),
        ({"variants": variants(a={"model": "hf:x"})}, "whole model"),
        ({"variants": variants(a={"vision_encodr": "x"})}, "Did you mean 'vision_encoder'"),
        ({"variants": variants(scores={})}, "folder of the study"),
        ({"variants": {"a/b": {"changes": "x"}, "c": {"changes": "y"}}}, "letters, digits"),
        ({"test": "drown"}, "Did you mean 'drawn'"),
        ({"seeds": (1, 1)}, "different whole numbers"),
        ({"metrics": ()}, "name at least one"),
        ({"n": 0}, "n=0"),
    ],
)
def test_bad_settings_are_refused_before_the_study_starts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"align": {"data": "drown"}}, "no corpus 'drown'"),
        ({"align": {"data": "drawn", "epochs": 3}}, "there is no setting 'epochs'"),
        ({"corpora": {"drawn": {"phantom": {"n": 0}}}}, "n=0"),
        ({"corpora": {"drawn": {"mimic": {}}}}, "one of phantom"),
        ({"corpora": {"drawn": {"structured": {"of": "later"}}}}, "no corpus 'later' before it"),
        ({"corpora": {"drawn": {"composed": 3}}}, "group of settings"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, **changes)


@pytest.mark.parametrize(("name", "rows", "parts"), [("ablations_llavarad", 9, 18), ("ablations_phantom", 12, 72)])
def test_the_shipped_studies_can_be_planned(tmp_path: Path, name: str, rows: int, parts: int) -> None:
    """The paper's nine rows of one seed; on phantoms twelve of three.

    By hand for the paper's: 3 stages for the full recipe and for another stage 1, 2 for each of the six rows with
    another stage 2, none for the row without stage 3. On phantoms 24 for each seed.
    """
    one = read_study(find_study(name)).config
    found = Ablations(one, tmp_path)
    assert len(one.chosen()) == rows and len(trained(found)) == parts
    papers = [variant.paper for variant in one.chosen().values() if variant.paper]
    assert papers == ["LLaVA-Rad", *(f"Variant #{number}" for number in range(1, 9))]


def test_the_study_of_the_built_in_models_can_be_planned(tmp_path: Path) -> None:
    """Of each seed: a projector for five encoders (rows that change nothing before it share that of the full recipe),
    adapters for seven rows, an encoder for one.
    """
    one = read_study(find_study("ablations_builtin")).config
    found = Ablations(one, tmp_path)
    assert len(one.chosen()) == 8 and len(found.trials) == 24
    kinds = Counter(part.kind for part in trained(found) if part.seed == 2)
    assert kinds == {"align": 5, "finetune": 7, "encoder": 1} and len(trained(found)) == 3 * kinds.total()


@pytest.mark.slow
@pytest.mark.full
def test_parts_side_by_side_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts in processes of their own, with the bytes and figures of one after the other."""
    pytest.importorskip("torch")
    true, found = Ablations.make, []

    def noted(study: Ablations, part: Part) -> None:
        found.append(state(study.out / part.folder))
        true(study, part)

    monkeypatch.setattr(Ablations, "make", noted)
    rows = variants(no_stage_3={"stages": [1, 2]})
    tables = []
    for name, at_once in (("one", 1), ("two", 2)):
        run_ablations(config(seeds=(1, 2), at_once=at_once, variants=rows), tmp_path / name)
        tables.append(json.loads((tmp_path / name / "ablations.json").read_text()))
    half = len(found) // 2
    assert "finished" not in found[:half] and set(found[half:]) == {"finished"}
    assert tables[0] == tables[1]
    files = list((tmp_path / "one").glob("seed*/*/*/checkpoint/*.safetensors"))
    assert len(files) >= len([part for part in trained(planned(tmp_path, seeds=(1, 2), variants=rows))])
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes()
    # How many at once is no part of what was asked.
    run_ablations(config(seeds=(1, 2), at_once=1, variants=rows), tmp_path / "two")


@pytest.mark.slow
@pytest.mark.full
def test_a_part_that_fails_ends_the_others_and_is_named(tmp_path: Path) -> None:
    """Seed 2 finds a folder that belongs to something else."""
    pytest.importorskip("torch")
    (tmp_path / "study" / "seed2" / "full" / "encoder").mkdir(parents=True)
    (tmp_path / "study" / "seed2" / "full" / "encoder" / "thesis.tex").write_text("x")
    others = set(multiprocessing.active_children())
    study = Ablations(config(seeds=(1, 2), at_once=2), tmp_path / "study")
    make_corpora(study.corpus_rows(), study.corpora)
    with pytest.raises(RunError, match=r"seed2/full/encoder: .*thesis\.tex"):
        run_in_processes(study.make_folder, {part.folder: part.needs for part in study.parts}, 2)
    assert set(multiprocessing.active_children()) <= others


def test_the_table_by_hand() -> None:
    """Two seeds: 0.5 and 0.7 against 0.4 and 0.4; the difference is taken seed by seed."""
    two = config(seeds=(1, 2), metrics=("m",), variants=variants(less={}))
    values = {("full", 1): 0.5, ("full", 2): 0.7, ("less", 1): 0.4, ("less", 2): 0.4}
    rows = [
        {"variant": name, "seed": seed, "studies": 3, "scores": {"m": {"value": value}}}
        for (name, seed), value in values.items()
    ]
    found = ablation_table(two, rows)["variants"]
    assert found["full"]["metrics"]["m"]["mean"] == pytest.approx(0.6)
    gap = found["less"]["metrics"]["m"]["difference"]
    assert gap["values"] == pytest.approx((-0.1, -0.3)) and gap["mean"] == pytest.approx(-0.2)
    assert found["full"]["metrics"]["m"]["difference"] is None


def test_a_metric_without_a_value_is_unknown_and_not_zero() -> None:
    one = config(metrics=("m",))
    rows = [{"variant": name, "seed": 1, "studies": 3, "scores": {"m": {"value": None}}} for name in one.variants]
    mean = ablation_table(one, rows)["variants"]["full"]["metrics"]["m"]["mean"]
    assert mean is None or math.isnan(mean)


def test_corpora_are_drawn_structured_and_composed(tmp_path: Path) -> None:
    from cxrlab.data.corpus import load_corpus

    rows = {
        "drawn": {"phantom": {"n": 12, "size": 32, "workers": 1, "masks": False}},
        "scenes": {"scenes": {"n": 4, "size": 32, "workers": 1}},
        "clean": {"structured": {"of": "drawn", "workers": 1}},
        "both": {"composed": {"drawn": {"texts": ["sections"]}, "clean": None}},
    }
    del rows["both"]["composed"]["clean"]  # one patient cannot stand in a composition twice
    folders = corpus_folders(rows, tmp_path)
    make_corpora(rows, folders)
    make_corpora(rows, folders)  # what is there is left as it is
    train = [study for study in load_corpus(folders["clean"]).studies("train")]
    assert train and all("rules" in study.structured for study in train)
    assert len(list(load_corpus(folders["both"]).studies())) == len(train)
    assert with_folders({"data": "both"}, folders, "x") == {"data": str(folders["both"])}


def test_a_corpus_that_is_not_there_is_said_before_training(tmp_path: Path) -> None:
    rows = {**BASE["corpora"], "mine": str(tmp_path / "nowhere")}
    with pytest.raises(DataError, match="nowhere does not exist"):
        run_ablations(config(corpora=rows), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_variant_says_what_it_runs() -> None:
    assert AblationVariant("x").stages == (1, 2, 3)


@pytest.mark.slow
def test_a_whole_study_ends_with_a_table_and_goes_on_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in front of the second model's reports, it trains nothing again and ends with every row."""
    pytest.importorskip("torch")
    import cxrlab.evaluation.generate as generating

    true, calls = generating.generate, []

    def stops(asked: Any, out: Path) -> Any:
        calls.append(out)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return true(asked, out)

    monkeypatch.setattr(generating, "generate", stops)
    out = tmp_path / "study"
    with pytest.raises(KeyboardInterrupt):
        run_ablations(config(), out)
    trained = {path: path.stat().st_mtime_ns for path in out.glob("seed1/*/*/checkpoint/*.safetensors")}
    assert trained and not (out / "ablations.json").exists()
    page = run_ablations(config(), out)
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
    found = json.loads((out / "ablations.json").read_text())
    assert list(found["variants"]) == ["full", "no-stage-2"] and found["n"] == 3
    assert len((out / "trials.jsonl").read_text().splitlines()) == 2
    assert "<h2>Ablations</h2>" in page.read_text()
    assert run_ablations(config(), out) == page


def test_a_test_split_without_a_study_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    few = {"drawn": {"phantom": {"n": 3, "size": 32, "workers": 1, "masks": False}}}
    with pytest.raises(DataError, match="no study in its test split"):
        run_ablations(config(corpora=few), tmp_path / "study")
    assert not list((tmp_path / "study").glob("seed*"))


def test_a_start_that_is_not_there_is_reported_before_anything_is_trained(tmp_path: Path) -> None:
    """The last row's encoder would otherwise be missed when all the others are done."""
    pytest.importorskip("torch")
    rows = variants(other={"stages": [2, 3], "vision_encoder": f"hf:{tmp_path}/nowhere"})
    with pytest.raises(DataError, match="nowhere"):
        run_ablations(config(variants=rows), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_an_unknown_metric_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="findings.f1.sid"):
        run_ablations(config(metrics=("findings.f1.sid",)), tmp_path / "study")
    assert not (tmp_path / "study").exists()

"""The ablations of LLaVA-Rad from the shipped file, on the seven data sets in their true layouts with tiny weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from seven_layouts import import_seven

from cxrlab.cli.main import main
from cxrlab.core.config import parse_group
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.evaluation.metric_presets import PRESETS
from cxrlab.studies.ablations import Ablations, AblationsConfig
from cxrlab.studies.engine import merged, run_recipe

ROOT = Path(__file__).parents[2]
FILE = ROOT / "configs" / "studies" / "ablations_llavarad.yaml"
SMALL = {"steps": 1, "epochs": None, "batch_size": 2, "accumulate": 1, "max_length": 256, "workers": 0, "precision": None,
         "gradient_checkpointing": False}  # fmt: skip
TINY = {
    "encoder": {"image_size": 32, "projection_dim": 16, "optimisation": SMALL},
    "align": {"optimisation": SMALL},
    "finetune": {"lora_rank": 2, "lora_alpha": 4, "optimisation": SMALL},
    "control_studies": 0,
    "max_new_tokens": 4,
    "trials": 10,
    "variants": {"no-stage-1": {"align": {"image_size": 32}}},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with both composed corpora and random weights under the names of the shipped file."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("ablations")
    (folder / "configs").symlink_to(ROOT / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXRLAB_QUIET", "1")
        patch.chdir(folder)
        import_seven(folder)
        for stage, out in ((1, "cxr697k"), (2, "mimic-cxr-frontal")):
            compose = ["data", "compose", "--config", "configs/llava_rad/02_compose_cxr697k.yaml"]
            assert main([*compose, "--stage", str(stage), "--out", f"corpora/{out}"]) == 0
    save_stand_ins(folder)
    return folder


def save_stand_ins(home: Path) -> None:
    from tiny_models import save_tiny_llava, tiny_tokenizer
    from tiny_text_models import chexbert_weights, roberta_folder, save_chexbert

    from cxrlab.models.random_init import (
        TINY,
        build_image_processor,
        build_language_model,
        build_text_encoder,
        build_vision_encoder,
    )

    tokenizer, models = tiny_tokenizer(), home / "models"
    parts: dict[str, tuple[Any, Any]] = {
        name: (build_vision_encoder(TINY, seed), build_image_processor(TINY.image))
        for seed, name in enumerate(("dinov2-base", "clip-vit-large-patch14-336", "biomedclip"))
    }
    parts["dinov2-base"] = (parts["dinov2-base"][0], build_image_processor(48))  # as published: not the encoder's size
    parts["pubmedbert"] = (build_text_encoder(tokenizer, TINY, 3), tokenizer)
    parts["vicuna-7b-v1.5"] = (build_language_model(tokenizer, TINY, 4), tokenizer)
    for name, both in parts.items():
        for part in both:
            part.save_pretrained(models / name)
    save_tiny_llava(models / "llava-v1.5-7b", seed=5)
    bert = home / "downloads" / "bert-base-uncased"
    bert.mkdir(parents=True)
    save_chexbert(home / "downloads" / "chexbert.pth", chexbert_weights(bert))
    roberta_folder(home / "downloads" / "distilroberta")


class EveryWord:
    """In place of the radgraph package: every word is an entity."""

    def __init__(self, model_type: str) -> None:
        assert model_type == "radgraph"

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        def graph(text: str) -> dict[str, Any]:
            entity = {"label": "OBS-DP", "start_ix": 0, "end_ix": 0, "relations": []}
            return {
                "text": text,
                "entities": {str(n): {**entity, "tokens": word} for n, word in enumerate(text.split())},
            }

        return {str(place): graph(text) for place, text in enumerate(texts)}


def study(out: Path, **changes: Any) -> Ablations:
    """The shipped study with one step per stage, and further changes."""
    values = merged(merged(yaml.safe_load(FILE.read_text()), TINY), changes)
    config, problems = parse_group(
        AblationsConfig, {key: value for key, value in values.items() if key != "study"}, "x"
    )
    assert not problems, problems
    return Ablations(config, out)


def test_the_shipped_file_has_the_twelve_columns_of_the_paper() -> None:
    """In the order of its table; every variant has a figure for each, and the preset a convention for each label."""
    config, problems = parse_group(
        AblationsConfig, {key: value for key, value in yaml.safe_load(FILE.read_text()).items() if key != "study"}, "x"
    )
    assert config is not None and not problems
    labels = [row.label for row in PRESETS["llava-rad"]]
    for name, variant in config.chosen().items():
        assert list(variant.published) == labels[:12], name
        assert all(isinstance(figure, float) for figure in variant.published.values())
    assert config.chosen()["llava-rad"].published["Macro-F1-5+"] == 53.3


@pytest.mark.slow
@pytest.mark.full
def test_every_row_of_the_paper_ends_in_the_table(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All nine rows with stand-ins for CheXbert, RadGraph and RadCliQ: every column has a value, beside the paper's."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("CXRLAB_QUIET", "1")
    monkeypatch.setitem(sys.modules, "radgraph", SimpleNamespace(RadGraph=EveryWord))
    extras = {"graphs": "radgraph", "encoder": "downloads/distilroberta", "layer": 3}
    page = run_recipe(study(tmp_path / "study", extras=extras, metrics=["radcliq1"]))
    found = json.loads((tmp_path / "study" / "ablations.json").read_text())
    columns = {column["label"]: column["metric"] for column in found["columns"]}
    assert columns["Micro-F1-14"] == "chexbert14.micro.f1:uncertain-negative"
    assert columns["Macro-F1-5+"] == "chexbert5.macro.f1:uncertain-positive"
    assert (columns["F1-RadGraph"], columns["BLEU-1"]) == ("radgraph.partial:cased", "bleu1:sacre")
    assert len(found["variants"]) == 9 and found["n"] > 0
    for name, row in found["variants"].items():
        for label, metric in [*columns.items(), ("RadCliQ-v1", "radcliq1")]:
            assert isinstance(row["metrics"][metric]["mean"], float), (name, label)
    assert "57.3" in page.read_text() and "Macro-F1-14+" in page.read_text()
    reports = json.loads((tmp_path / "study" / "seed1" / "llava-rad" / "reports" / "summary.json").read_text())
    assert reports["parameters"] > 0 and reports["unit"] == "image"
    by_image = (tmp_path / "study" / "seed1" / "scores" / "llava-rad" / "per_study.jsonl").read_text().splitlines()
    assert len(by_image) == found["n"] and all("#" in json.loads(line)["id"] for line in by_image)
    samples = {
        name: read_rows(tmp_path / "study" / "seed1" / name / "encoder") for name in ("llava-rad", "mimic-encoder")
    }
    assert samples["llava-rad"] > samples["mimic-encoder"] > 0, "variant 1 learns from MIMIC-CXR alone"


def read_rows(run: Path) -> int:
    summary: Mapping[str, Any] = json.loads((run / "summary.json").read_text())
    return int(summary["rows"])


@pytest.mark.slow
def test_what_cannot_be_scored_ends_the_study_before_training(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Test studies without a frontal image, damaged weights, graphs that cannot exist yet."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("CXRLAB_QUIET", "1")
    (tmp_path / "chexbert.pth").write_bytes(b"x")
    for number, (changes, said) in enumerate(
        (
            (
                {"corpora": {"mimic-test": {"composed": {"mimic": {"splits": ["test"], "views": ["lateral"]}}}}},
                "frontal image",
            ),
            ({"extras": {"chexbert": str(tmp_path / "chexbert.pth")}}, "chexbert.pth"),
        )
    ):
        with pytest.raises(DataError, match=said):
            run_recipe(study(tmp_path / str(number), **changes))
        assert not list((tmp_path / str(number)).glob("seed*"))


def test_a_published_figure_stands_beside_its_own_convention_or_an_empty_cell(tmp_path: Path) -> None:
    """Without weights no metric stands under CheXbert's columns, and the reason names the flags."""
    columns = {
        column.label: column for column in study(tmp_path, extras={"chexbert": None, "bert": None}).config.columns()
    }
    empty = {label for label, column in columns.items() if not column.metrics}
    assert empty == {label for label in columns if "-F1-" in label} | {"F1-RadGraph"}
    assert "chexbert" in columns["Micro-F1-14"].missing and columns["ROUGE-L"].metrics == ("rougeL:google-unstemmed",)


def test_weights_that_are_not_there_are_listed_with_the_other_inputs(tmp_path: Path) -> None:
    missing = [
        row["name"] for row in study(tmp_path, extras={"chexbert": "nowhere.pth"}).status() if row["what"] == "input"
    ]
    assert "nowhere.pth does not exist." in missing and any("models/vicuna" in name for name in missing)


def test_wrong_columns_and_graphs_are_refused(tmp_path: Path) -> None:
    values = {key: value for key, value in yaml.safe_load(FILE.read_text()).items() if key != "study"}
    for changes, said in (
        ({"extras": {"graphs": str(tmp_path / "graphs.json")}}, "yet to be generated"),
        ({"variants": {"llava-rad": {"published": {"Mikro-F1-14": 57.3}}}}, "Did you mean 'Micro-F1-14'"),
        ({"metrics": ["radcliq1"]}, "radcliq1"),
    ):
        with pytest.raises(ConfigError, match=said):
            config, problems = parse_group(AblationsConfig, merged(values, changes), "x")
            if problems:
                raise ConfigError(problems[0])
            assert config is not None
            Ablations(config, tmp_path)

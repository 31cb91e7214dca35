"""Stage 1 end to end on tiny vision encoders and 64 phantoms of 32 pixels."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import run_together
from safetensors.torch import load_file
from tiny_models import tiny_dual_encoder, tiny_tokenizer
from training_fixtures import killed_after

from cxrlab.core.config import to_yaml
from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.model_registry import load_encoder
from cxrlab.training.config import NONE, EncoderConfig, Optimisation, Validation
from cxrlab.training.encoder import train_encoder
from cxrlab.training.run_folder import read_result

pytestmark = pytest.mark.slow

SHORT = Optimisation(
    learning_rate=2e-3, steps=5, batch_size=8, max_length=48, group_by_length=False, log_every=1, save_every=2
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=64, size=32, seed=7, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture(scope="module")
def drops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dual encoder whose text encoder has dropout."""
    folder = tmp_path_factory.mktemp("models") / "drops"
    for part in tiny_dual_encoder():
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def start(drops: Path) -> Path:
    """The same without dropout, so that how pairs are spread over forward passes changes no draw."""
    folder = Path(shutil.copytree(drops, drops.parent / "start"))
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config(corpus: Path, **changes: Any) -> EncoderConfig:
    optimisation = replace(SHORT, **changes.pop("optimisation", {}))
    parts = {} if "start" in changes else {"vision_encoder": "fresh:tiny", "text_encoder": "fresh:tiny"}
    return EncoderConfig(corpus, **{**parts, "projection_dim": 16, "optimisation": optimisation, **changes})


def losses(out: Path) -> list[float]:
    return [record["loss"] for _, record in read_jsonl(out / "history.jsonl") if "loss" in record]


def stored(out: Path) -> bytes:
    return (out / "checkpoint" / "model.safetensors").read_bytes()


def recall_at_one(encoder: Any, corpus: Path) -> float:
    """Of the train images, those that find their own report first; all reports here are different."""
    from cxrlab.data.corpus import load_corpus

    opened = load_corpus(corpus)
    studies = list(opened.studies("train"))
    images = encoder.embed_images([opened.image(study) for study in studies])
    texts = encoder.embed_texts([study.sections.findings for study in studies if study.sections])
    return float(((images @ texts.T).argmax(1) == range(len(studies))).mean())


def test_it_learns_to_tell_images_by_their_reports(corpus: Path, start: Path, tmp_path: Path) -> None:
    """Guessing among 16 costs ln 16 = 2.77; the loss must end well below, and recall on the 52 train images above
    three times chance, 1/52. What is written opens as an encoder that knows where it comes from."""
    settings = {"warmup": 0.05, "steps": 200, "batch_size": 16, "log_every": 10}
    parts = {"vision_encoder": f"hf:{start}", "text_encoder": f"hf:{start}", "text_head": "biomedclip"}
    done = train_encoder(config(corpus, **parts, augmentation=NONE, optimisation=settings), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert found[0] > 2.7 and found[-1] < 2.0 and done.loss == found[-1]
    assert done.rows == 52 and done.extra["compared"] == 16 and done.samples == 200 * 16
    encoder = load_encoder(f"hf:{tmp_path / 'run' / 'checkpoint'}")
    assert recall_at_one(encoder, corpus) > 3 / 52
    assert encoder.card is not None and encoder.card.trained_on == "synthetic"
    assert encoder.collections and encoder.longest == 48 and not (tmp_path / "run" / "steps").exists()


def test_a_stopped_run_ends_with_the_same_bytes(corpus: Path, drops: Path, tmp_path: Path) -> None:
    """Images varied, dropout on, in two pieces, validated, stopped between two checkpoints."""
    wanted = config(
        corpus,
        start=f"hf:{drops}",
        validation=Validation(every=1),
        optimisation={"batch_size": 4, "accumulate": 2},
    )
    train_encoder(wanted, tmp_path / "straight")
    with killed_after(3):
        train_encoder(wanted, tmp_path / "stopped")
    train_encoder(wanted, tmp_path / "stopped")
    assert stored(tmp_path / "stopped") == stored(tmp_path / "straight")
    assert (tmp_path / "stopped" / "history.jsonl").read_bytes() == (
        tmp_path / "straight" / "history.jsonl"
    ).read_bytes()
    assert train_encoder(wanted, tmp_path / "straight").steps == 5  # finished: left as it is
    with pytest.raises(RunError, match="learning_rate"):
        train_encoder(replace(wanted, optimisation=replace(SHORT, learning_rate=1.0)), tmp_path / "straight")


def test_a_run_does_not_go_on_with_other_words(corpus: Path, drops: Path, tmp_path: Path) -> None:
    """The folder is the same and its reports are not."""
    mine = Path(shutil.copytree(corpus, tmp_path / "corpus"))
    wanted = config(mine, start=f"hf:{drops}")
    with killed_after(3):
        train_encoder(wanted, tmp_path / "run")
    studies = mine / "studies.jsonl"
    studies.write_text(studies.read_text().replace("eart", "EART"))
    with pytest.raises(RunError, match="was begun with data: "):
        train_encoder(wanted, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.full
def test_pieces_are_the_large_batch_and_so_are_two_processes(corpus: Path, start: Path, tmp_path: Path) -> None:
    """16 pairs at once, 2 × 8 in pieces, and 8 + 8 in two processes: the same losses step by step, images varied. Small
    batches by themselves would give ln 8 instead of ln 16 at the start. So are the losses of 5 validation pairs."""
    watched = Validation(every=2, n=5)
    base = config(
        corpus, start=f"hf:{start}", cache=tmp_path / "cache", validation=watched, optimisation={"batch_size": 16}
    )
    train_encoder(base, tmp_path / "one")
    pieces = replace(base, optimisation=replace(base.optimisation, batch_size=8, accumulate=2))
    train_encoder(pieces, tmp_path / "pieces")
    file = tmp_path / "two.yaml"
    file.write_text(to_yaml(replace(base, optimisation=replace(base.optimisation, batch_size=8))))
    command = [
        sys.executable,
        "-m",
        "cxrlab",
        "train",
        "encoder",
        "--config",
        str(file),
        "--out",
        str(tmp_path / "two"),
    ]
    assert run_together(command) == [0, 0]
    one, two = (read_result(tmp_path / name).extra["validation"] for name in ("one", "two"))
    assert one["samples"] == 5 and one["step"] == two["step"] and one["loss"] == pytest.approx(two["loss"], abs=2e-5)
    whole = losses(tmp_path / "one")
    assert len(whole) == 5 and whole[0] > 2.7
    assert losses(tmp_path / "pieces") == pytest.approx(whole, abs=2e-5)
    assert losses(tmp_path / "two") == pytest.approx(whole, abs=2e-5)
    assert json.loads((tmp_path / "two" / "summary.json").read_text())["extra"]["compared"] == 16


def test_another_seed_is_another_training_and_the_same_is_the_same(corpus: Path, drops: Path, tmp_path: Path) -> None:
    parts = {"vision_encoder": f"hf:{drops}", "text_encoder": f"hf:{drops}"}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        train_encoder(config(corpus, **parts, optimisation={"steps": 2, "seed": seed}), tmp_path / name)
    assert stored(tmp_path / "a") == stored(tmp_path / "b") != stored(tmp_path / "c")


def test_a_vision_encoder_with_parts_that_nothing_uses(corpus: Path, start: Path, tmp_path: Path) -> None:
    """DINOv2's mask token has no gradient: it stays as it is and is named."""
    from transformers import Dinov2Config, Dinov2Model

    from cxrlab.models.random_init import build_image_processor

    torch.manual_seed(0)
    vision_encoder = Dinov2Model(
        Dinov2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16)
    )
    vision_encoder.save_pretrained(tmp_path / "vision_encoder")
    build_image_processor(32).save_pretrained(tmp_path / "vision_encoder")
    parts = {"vision_encoder": f"hf:{tmp_path / 'vision_encoder'}", "text_encoder": f"hf:{start}"}
    done = train_encoder(config(corpus, **parts, optimisation={"steps": 1}), tmp_path / "run")
    assert done.extra["not_trained"] == ["vision_model.embeddings.mask_token"]
    assert done.parameters - done.trained_parameters == 32
    before = vision_encoder.state_dict()["embeddings.mask_token"]
    after = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")["vision_model.embeddings.mask_token"]
    assert torch.equal(before, after)


def test_the_scale_is_held_and_spared_by_decay(corpus: Path, start: Path, tmp_path: Path) -> None:
    """A start beyond 100 comes back to it; decay of 0.9 with a rate of 0.1 would take 9 % of its logarithm a step."""
    copy = Path(shutil.copytree(start, tmp_path / "hot"))
    tensors = load_file(copy / "model.safetensors")
    tensors["logit_scale"] = torch.tensor(6.0)
    from safetensors.torch import save_file

    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    optimisation = {"steps": 1, "weight_decay": 0.9, "learning_rate": 1e-4}
    done = train_encoder(config(corpus, start=f"hf:{copy}", optimisation=optimisation), tmp_path / "run")
    assert done.extra["scale"] == pytest.approx(100.0, rel=2e-4) and done.extra["scale"] <= 100.0 + 1e-3


def _same_reports(corpus: Path) -> None:
    file = corpus / "studies.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["sections"]["findings"] = "The lungs are clear."
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")


def _no_reports(corpus: Path) -> None:
    file = corpus / "studies.jsonl"
    lines = [{**json.loads(line), "sections": None} for line in file.read_text().splitlines()]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")


@pytest.mark.parametrize(("damage", "told"), [(_same_reports, "all the same"), (_no_reports, "no text: 52")])
def test_a_corpus_that_teaches_nothing_is_refused(damage: Any, told: str, corpus: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(corpus, tmp_path / "copy"))
    damage(copy)
    with pytest.raises(DataError, match=told):
        train_encoder(config(copy), tmp_path / "run")
    assert not (tmp_path / "run").exists()  # said at the door


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"optimisation": {"batch_size": 1}}, "nothing to compare"),
        ({"optimisation": {"batch_size": 500}}, "a step takes 500"),
        ({"image_size": 64}, "image_size=32"),
        ({"vision_encoder": "fresh:huge"}, "There are: phantom, tiny, outsider"),
        ({"text_encoder": "fresh:huge"}, "Sizes: phantom, tiny"),
        ({"text_encoder": "bert"}, "KIND:ARGUMENT"),
        ({"start": "stub:normal"}, "does not name a dual encoder"),
    ],
)
def test_settings_that_cannot_work_are_told_before_the_run(
    changes: dict[str, Any], told: str, corpus: Path, start: Path, tmp_path: Path
) -> None:
    parts = {} if "start" in changes else {"vision_encoder": f"hf:{start}", "text_encoder": f"hf:{start}"}
    with pytest.raises(CxrlabError, match=told):
        train_encoder(config(corpus, **{**parts, **changes}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_configs_that_contradict_themselves(corpus: Path) -> None:
    for changes, told in (
        ({"vision_encoder": None}, "there is no start"),
        ({"vision_encoder": "fresh:tiny", "text_encoder": "fresh:tiny", "start": "hf:x"}, "contradict"),
        ({"n": 0}, "n=0"),
        ({"cache_gb": -1.0}, "cache_gb"),
        (
            {"vision_encoder": "fresh:tiny", "extra_corpora": {"words": {"data": "x", "images": False}}},
            "an image and a report",
        ),
        ({"vision_encoder": "fresh:tiny", "optimisation": Optimisation(compiled=True)}, "no language model"),
    ):
        with pytest.raises(ConfigError, match=told):
            EncoderConfig(corpus, **{"text_encoder": "fresh:tiny", **changes})


def test_a_second_corpus_in_colour_and_a_second_text_of_one_image(corpus: Path, start: Path, tmp_path: Path) -> None:
    """Scenes have three channels and captions; the same corpus again is the same images."""
    from cxrlab.data.config import ScenesConfig
    from cxrlab.data.synthetic_scenes import make_scenes

    scenes = make_scenes(ScenesConfig(n=24, size=32, seed=7, workers=1), tmp_path / "scenes").path
    also = {"scenes": {"data": str(scenes), "weight": 0.5}, "again": {"data": str(corpus)}}
    done = train_encoder(
        config(corpus, start=f"hf:{start}", extra_corpora=also, optimisation={"steps": 2}), tmp_path / "run"
    )
    assert done.rows > 2 * 52 and done.steps == 2


def test_sentences_that_deny_may_be_left_out(corpus: Path, start: Path, tmp_path: Path) -> None:
    """Normal images then share one text, so there are fewer different texts; captions of pictures stay whole."""
    from cxrlab.data.corpus import load_corpus
    from cxrlab.findings.finding_sentences import present_sentences

    steps = {"steps": 1}
    whole = train_encoder(config(corpus, start=f"hf:{start}", optimisation=steps), tmp_path / "whole")
    cut = train_encoder(
        config(corpus, start=f"hf:{start}", statements="present", optimisation=steps), tmp_path / "present"
    )
    texts = [study.sections.findings for study in load_corpus(corpus).studies("train") if study.sections]
    assert whole.extra["distinct_reports"] == len(set(texts))
    assert cut.extra["distinct_reports"] == len({present_sentences(text or "") for text in texts}) < len(set(texts))


def test_fresh_parts_are_put_together(corpus: Path, tmp_path: Path) -> None:
    """Random encoders by seed, with a tokenizer of the narrator's words; bfloat16 and checkpointing change no shape."""
    settings = {"steps": 1, "precision": "bfloat16", "gradient_checkpointing": True}
    done = train_encoder(config(corpus, optimisation=settings), tmp_path / "run")
    assert done.steps == 1 and done.extra["not_trained"] == [] and done.loss > 1
    stored_types = {
        tensor.dtype for tensor in load_file(tmp_path / "run" / "checkpoint" / "model.safetensors").values()
    }
    assert stored_types == {torch.float32}


def test_the_command_says_what_guessing_would_cost(
    corpus: Path, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cxrlab.cli.main import main

    words = ["train", "encoder", "--data", str(corpus), "--start", f"hf:{start}", "--optimisation.steps", "1",
             "--optimisation.batch-size", "8", "--optimisation.max-length", "24", "--seed", "9",
             "--out", str(tmp_path / "run"), "--quiet"]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "8 pairs is 2.079" in shown and "cut at max_length" in shown
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["seed"] == 9


def test_a_text_encoder_that_cannot_stand_beside_a_vision_encoder(corpus: Path, start: Path, tmp_path: Path) -> None:
    """DistilBERT has no vector for a whole text: one sentence, before the run folder is made."""
    from transformers import DistilBertConfig, DistilBertModel

    tokenizer = tiny_tokenizer()
    DistilBertModel(
        DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    ).save_pretrained(tmp_path / "text")
    tokenizer.save_pretrained(tmp_path / "text")
    parts = {"vision_encoder": f"hf:{start}", "text_encoder": f"hf:{tmp_path / 'text'}"}
    with pytest.raises(ConfigError, match="do not work as a pair"):
        train_encoder(config(corpus, **parts), tmp_path / "run")
    assert not (tmp_path / "run").exists()

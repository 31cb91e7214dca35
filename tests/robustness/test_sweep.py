"""Images made once and shown to several models, each with the losses of its own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import planted_targets as planted
import pytest
import torch
from torch import Tensor

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import ConfigError, DataError, OutOfMemory
from cxrlab.core.image_codec import encode_png
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BATCH_FILE
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.models.hf.gradient_memory import GradientMemory
from cxrlab.robustness import audit as audits
from cxrlab.robustness import micro_batches
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.robustness.sweep import attacks_with_goals

pytestmark = pytest.mark.slow


class Vectors(planted.PatternTarget):
    """Has none of the first model's aims."""

    aims = ("answers",)


def test_an_attack_by_words_has_one_aim_and_needs_reports() -> None:
    config = RobustnessConfig(model="m", data=Path("c"), attacks=("pgd", "random-report"), aims=("answers", "report"))
    chosen, left = attacks_with_goals(planted.PatternTarget("a", "m"), config)
    wanted = [("pgd", "answers"), ("pgd", "report"), ("random-report", "report")]
    assert [(one.attack, one.aim) for one in chosen] == wanted and not left
    assert chosen[-1].condition(config.budgets[0]) == "random-report:report@1/255"
    chosen, left = attacks_with_goals(Vectors("a", "m"), config)
    assert [(one.attack, one.aim) for one in chosen] == [("pgd", "answers")]
    assert len(left) == 1 and "random-report" in left[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return planted.pattern_corpus(tmp_path_factory.mktemp("leaning") / "corpus", 12)


@pytest.fixture
def audited(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]:
    def run(*kinds: type[planted.PatternTarget], **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        order = dict(zip("abc", kinds, strict=False))
        monkeypatch.setattr(
            audits, "load_audited_model", lambda key, name, labels, config, **_: order[key](key, name, labels)
        )
        plain: dict[str, Any] = {
            "model": "planted:a", "versus": tuple(f"planted:{key}" for key in list(order)[1:]), "data": corpus.path,
            "attacks": ("noise",), "eps": ("16/255",), "only_labels": (planted.NAME,), "trials": 20, "triptychs": 2,
            "control_studies": 0, "uint8": False, "attack": AttackSettings(steps=4),
        }  # fmt: skip
        found = audits.audit(RobustnessConfig(**{**plain, **changes}), tmp_path / "run")
        return found, [record for _, record in read_jsonl(tmp_path / "run" / "answers.jsonl")]

    return run


def test_noise_is_the_same_for_all_and_each_has_its_own_trace(audited: Any, tmp_path: Path) -> None:
    found, lines = audited(planted.PatternTarget, planted.BlindTarget)
    traces = {line["id"]: line["attack"] for line in lines if line["condition"] != "clean"}
    for study in {line["study"] for line in lines}:
        one, other = traces[f"a|noise@16/255|{study}"], traces[f"b|noise@16/255|{study}"]
        assert one["linf"] == other["linf"] and one["l2"] == other["l2"]
        # The blind model's loss does not move; the first one's does.
        assert other["start"] == pytest.approx(other["end"]) and one["start"] != pytest.approx(one["end"])
    assert not any(line["crafted_on"] for line in lines if "crafted_on" in line)
    assert not [path.name for path in (tmp_path / "run" / "triptychs").iterdir() if "_b_" in path.name]


def test_a_first_model_without_the_aim_does_not_stop_the_others(audited: Any) -> None:
    """It is shown the noise that the second is measured with, and a sentence says that it is not attacked."""
    found, lines = audited(Vectors, planted.PatternTarget, aims=("report",), attacks=("pgd", "noise"))
    conditions = {(line["model"], line["condition"]) for line in lines}
    assert ("a", "noise@16/255") in conditions and ("b", "pgd@16/255") in conditions
    assert any("none of the aims report " in line for line in found["warnings"])
    assert found["models"]["planted:b"]["attacks"]["pgd@16/255"]["flip_rate"]["value"] == 1


def test_one_change_for_all_images_is_made_of_another_split(audited: Any, corpus: Corpus, tmp_path: Path) -> None:
    """What turns an image with the finding leaves one without it as it is: the mean loss still rises to its bound."""
    with CorpusWriter(tmp_path / "both", corpus.card) as writer:
        for study in corpus.studies():
            for split, name in (("train", f"t{study.id}"), ("test", study.id)):
                text = None if split == "train" else study.sections
                image = dataclasses.replace(study.images[0], path=f"images/{name}.png")
                if split == "train" and not study.labels["Pleural Effusion"]:
                    continue  # made of images with the finding alone
                copy = dataclasses.replace(
                    study, id=name, patient=f"{split}{study.patient}", split=split, images=(image,), sections=text
                )
                radiograph = np.round(corpus.image(study) * 255).astype(np.uint8)
                writer.add(copy, {image.path: encode_png(radiograph)})
    both = writer.finish()
    found, lines = audited(
        planted.PatternTarget, data=both.path, attacks=("universal",), aims=("answers",), control_studies=0,
        attack=AttackSettings(universal_epochs=4),
    )  # fmt: skip
    row = found["models"]["planted:a"]["attacks"]["universal@16/255"]
    # The lean of 10/255 is turned where the finding is; where it is not, the change leads further away from it.
    assert row["closed_questions.accuracy"]["value"] == 0.5 and row["passes"] == 0
    assert len(list((tmp_path / "run" / "universal").iterdir())) == 1
    change = np.load(next((tmp_path / "run" / "universal").iterdir()))
    assert np.allclose(change[0, 0], -16 / 255 * planted.SIGN, atol=1e-6)  # studies without reports serve this aim


def test_a_split_without_images_for_it_is_reported(audited: Any) -> None:
    with pytest.raises(DataError, match="train split has no image of 16 × 16 pixels"):
        audited(planted.PatternTarget, attacks=("universal",), aims=("answers",))


class Small(planted.PatternTarget):
    """A machine whose memory holds two images at once, one where gradients are wanted."""

    def margin(self, images: Tensor) -> Tensor:
        if len(images) > (1 if images.requires_grad else 2):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().margin(images)


@pytest.mark.parametrize("attacks", [("pgd", "noise"), ("apgd", "square"), ("ensemble", "random-report")])
def test_a_batch_that_does_not_fit_is_attacked_in_halves_with_the_same_result(
    audited: Any, tmp_path: Path, attacks: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is drawn for an image depends on the seed and its id: the lines are those of a batch of one."""
    settings = {"attacks": attacks, "control_studies": 4, "attack": AttackSettings(steps=3, queries=20)}
    whole, lines = audited(Small, batch_size=8, **settings)
    assert "Batch of 8 does not fit in GPU memory; continuing with 4." in capsys.readouterr().err
    used = {name: kept["used"] for name, kept in json.loads((tmp_path / "run" / BATCH_FILE).read_text()).items()}
    size = f"{planted.SIDE}x{planted.SIDE}"
    assert used == {"batch_size": 2, f"micro_batch.a.report.{size}": 1, f"micro_batch.a.answers.{size}": 1}
    shutil.rmtree(tmp_path / "run")
    alone, ones = audited(planted.PatternTarget, batch_size=1, **settings)
    by_id = {line["id"]: line for line in ones}
    assert len(lines) == len(ones) and all(line == by_id[line["id"]] for line in lines)
    assert whole["models"] == alone["models"] and whole["controls"] == alone["controls"]
    assert [line for line in whole["warnings"] if "does not fit" in line] == [
        "Batch of 8 does not fit in GPU memory; continued with 2."
    ]


def test_a_stopped_sweep_remembers_the_batch_that_fits(
    audited: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audits, "examine_control_images", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        audited(Small, attacks=("pgd",), batch_size=4, control_studies=2)
    monkeypatch.undo()
    capsys.readouterr()
    found, _ = audited(Small, attacks=("pgd",), batch_size=4, control_studies=2)
    assert "does not fit" not in capsys.readouterr().err and "does not fit" in " ".join(found["warnings"])


def test_an_image_that_does_not_fit_alone_ends_the_sweep_with_what_is_done_kept(audited: Any, tmp_path: Path) -> None:
    class Tiny(planted.PatternTarget):
        def margin(self, images: Tensor) -> Tensor:
            if images.requires_grad:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().margin(images)

    with pytest.raises(OutOfMemory, match="even with a batch of 1"):
        audited(Tiny, attacks=("pgd",), batch_size=4)
    conditions = [record["condition"] for _, record in read_jsonl(tmp_path / "run" / "answers.jsonl")]
    assert conditions == ["clean"] * 4


class Costly(planted.PatternTarget):
    """The gradient of an image needs 3 GB, or 1 GB with gradient checkpointing; 2 GB are there."""

    estimated = GradientMemory(int(3e9), int(1e9), 1.0)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.checkpointing = False

    def gradient_memory(self, aim: str, cases: Any, size: tuple[int, int]) -> GradientMemory:
        assert size == (planted.SIDE, planted.SIDE)
        return self.estimated

    def checkpoint_layers(self, on: bool) -> None:
        self.checkpointing = on

    def margin(self, images: Tensor) -> Tensor:
        if images.requires_grad and len(images) * (1 if self.checkpointing else 3) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().margin(images)


class Underestimated(Costly):
    estimated = GradientMemory(int(1e8), int(1e7), 1.0)


class TooLarge(Costly):
    estimated = GradientMemory(int(9e9), int(3e9), 1.0)


def test_micro_batch_and_checkpointing_follow_the_estimate_or_the_failure(
    audited: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Estimated: at once and without a failed attempt. Underestimated: halved, then checkpointed. The same results."""
    monkeypatch.setattr(micro_batches, "free_memory", lambda device: int(2e9))
    settings = {"attacks": ("pgd",), "aims": ("report",), "batch_size": 4}
    _, plain = audited(planted.PatternTarget, **settings)
    name = f"micro_batch.a.report.{planted.SIDE}x{planted.SIDE}"
    for kind, used, expected in (
        (Costly, 2, ["1.0 GB per image, 2.0 GB are free: 2 at once with gradient checkpointing"]),
        (Underestimated, 1, ["Batch of 4 does not fit", "Batch of 2 does not fit", "with gradient checkpointing"]),
    ):
        shutil.rmtree(tmp_path / "run")
        capsys.readouterr()
        _, lines = audited(kind, **settings)
        notices = capsys.readouterr().err
        assert all(one in notices for one in expected) and notices.count("does not fit") == (3 if used == 1 else 0)
        assert json.loads((tmp_path / "run" / BATCH_FILE).read_text())[name]["used"] == used
        assert lines == plain
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"3\.0 GB .* 2\.0 GB"):
        audited(TooLarge, **settings)
    assert not (tmp_path / "run").exists()


def test_a_batch_of_one_needs_the_memory_of_one_image(audited: Any) -> None:
    """Also where every image is shown a second time in 8 bits."""

    class One(planted.PatternTarget):
        def margin(self, images: Tensor) -> Tensor:
            if len(images) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().margin(images)

    _, lines = audited(One, attacks=("noise",), batch_size=4, uint8=True)
    assert len(lines) == 24 and all(line["uint8"] for line in lines)

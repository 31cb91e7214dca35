"""Audits of models that receive several images and a prior: attacks change the frontal image alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_families import save_tiny

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import PREDICTIONS, generate
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.robustness.audit import audit
from cxrlab.robustness.audited_models import AuditedReportModel, load_audited_model
from cxrlab.robustness.audited_studies import Cases
from cxrlab.robustness.config import RobustnessConfig

pytestmark = pytest.mark.slow

BOTH: dict[str, Any] = {"views": ("frontal", "lateral"), "prior": ("image",)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    config = PhantomConfig(n=12, size=32, seed=3, workers=1, masks=False, lateral=True)
    return make_phantom(config, tmp_path_factory.mktemp("context") / "corpus")


def settings(corpus: Corpus, start: Path, **changes: Any) -> RobustnessConfig:
    plain: dict[str, Any] = {
        "model": f"hf:{start}", "data": corpus.path, "split": "train", "n": 3, "attacks": ("pgd",), "eps": ("8/255",),
        "aims": ("report",), "questions": "none", "batch_size": 2, "trials": 20, "triptychs": 0, "control_studies": 0,
        "attack": AttackSettings(steps=2), "decoding": Decoding(max_new_tokens=8),
        "loading": LoadSettings(prompts="llava-rad/2"), **BOTH,
    }  # fmt: skip
    return RobustnessConfig(**{**plain, **changes})


def test_an_audit_gives_the_model_what_generate_gives_it(corpus: Corpus, tmp_path: Path) -> None:
    """The reports of the clean images are those of `generate`; two contexts of one image have losses of their own."""
    config = settings(corpus, save_tiny("llava", tmp_path / "start"))
    audit(config, tmp_path / "run")
    generate(
        GenerateConfig(
            config.model, corpus.path, split="train", n=3, seed=config.seed, control_studies=0, examples=0,
            decoding=config.decoding, loading=config.loading, **BOTH,
        ),
        tmp_path / "reports",
    )  # fmt: skip
    written = {row["id"]: row["report"] for _, row in read_jsonl(tmp_path / "reports" / PREDICTIONS)}
    cases = Cases(corpus, list(written), config)
    opened = load_audited_model("a", config.model, [], config)
    assert isinstance(opened, AuditedReportModel)
    images = torch.from_numpy(np.stack([cases.image(case) for case in cases.all]))[:, None]
    answers = opened.examine(images, cases.all)
    assert {case.id: answer.report for case, answer in zip(cases.all, answers, strict=True)} == written

    contexts = [case.indication for case in cases.all]
    assert all(isinstance(one, StudyContext) and len(one.further_images) >= 1 for one in contexts)
    same, blank = torch.full_like(images[:1], 0.5).repeat(2, 1, 1, 1), np.zeros((32, 32), np.float32)
    other = replace(contexts[0], further_images=[blank] * len(contexts[0].further_images))  # type: ignore[type-var, union-attr]
    for _ in range(2):  # from the cache the second time
        one, two = opened.losses(same, ["No effusion."] * 2, [contexts[0], other]).tolist()
        assert one != two
    assert opened.gradient_memory("report", cases.all, (32, 32)).plain > 0  # type: ignore[union-attr]


def test_settings_that_do_not_fit_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    for changes, words in (({"views": ("lateral", "frontal")}, "frontal first"), ({"missing": "drop"}, "missing=drop")):
        with pytest.raises(ConfigError, match=words):
            settings(corpus, tmp_path, **changes)
    with pytest.raises(ConfigError, match="'stub:normal' takes one image"):
        audit(settings(corpus, tmp_path, model="stub:normal", attacks=("random-report",)), tmp_path / "run")


def test_an_unreadable_further_image_is_found_before_the_first_attack(corpus: Corpus, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(corpus.path, tmp_path / "corpus"))
    config = RobustnessConfig(model="stub:normal", data=copied, questions="none", views=("frontal", "lateral"))
    opened = load_corpus(copied)
    study = next(study for study in opened.studies() if len(study.images) == 2)
    cases = Cases(opened, [study.id], config)
    cases.check_images()
    (copied / study.images[1].path).write_bytes(b"no image")
    with pytest.raises(DataError, match="^1 of 1 studies cannot be attacked"):
        cases.check_images()

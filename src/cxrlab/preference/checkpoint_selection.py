"""What a model writes while it is aligned: judged now and then, so that the best step can be kept.

A judge can be pleased by length alone. The judgement that steps are chosen by is therefore length-controlled: it
is divided by how many times as long as the reference a report is, where it is longer.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import Images
from cxrlab.metrics.pairs import Pair
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.preference.config import PreferConfig
from cxrlab.preference.judges import length_controlled, metric_judge
from cxrlab.training.llava import StartModel
from cxrlab.training.run_folder import RunFolder, tensors_key

BEST = "best.safetensors"
_CHOSEN_BY = {"length-controlled": "reward_length_controlled", "reward": "reward"}


class CheckpointSelector:
    """Writes reports for a few held-out studies, judges them, and remembers the best step.

    Args:
        config: Settings.
        prompts: What the model is asked by.
        start: The model before the training.
    """

    def __init__(self, config: PreferConfig, prompts: str | None, start: StartModel) -> None:
        self._settings, self._start = config.validation, start
        self._prompts = load_prompts(prompts)
        self._writer: HfModel | None = None
        self._studies: list[str] = []
        if not config.validation.n:
            return
        self._judge = metric_judge(config.validation.judge)
        corpus = load_corpus(config.data)
        ids = [key for key in corpus.ids(config.validation.split) if _reference(corpus[key])]
        if not ids:
            raise DataError(
                f"{corpus.path} has no study with findings in its {config.validation.split} split to watch; give another "
                "with --validation.split, or --validation.n 0."
            )
        drawn = generator(config.optimisation.seed, "watch").permutation(len(ids))[: config.validation.n]
        self._images = Images(corpus)
        self._studies = [ids[number] for number in sorted(drawn.tolist())]
        self._references = [_reference(corpus[key]) for key in self._studies]

    def evaluate(self, module: Any, step: int, *, run: RunFolder) -> dict[str, float]:
        """Figures of this step; the weights are kept where it is the best so far, the start itself aside."""
        figures = self._figures(module.model)
        if step and self._settings.select != "last":
            self._keep(run.steps, module, step, figures[_CHOSEN_BY[self._settings.select]])
        return figures

    def choose(self, module: Any, run: RunFolder, steps: int, watched: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the weights of the best step into the module; which that is, its score, and that of the start."""
        told: dict[str, Any] = {"judge": self._settings.judge, "watched": len(self._studies)}
        file = run.steps / BEST
        if not file.is_file():  # nothing was watched, or nothing had a score
            return {"select": "last", **told, "step": steps, "of": steps}
        told["select"] = self._settings.select
        step, score = _kept(file)
        weights = _verified(file)
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in weights.items():
                parameters[name].copy_(value)
        before = watched[0][_CHOSEN_BY[self._settings.select]]
        return {**told, "step": step, "of": steps, "score": score, "start_score": before}

    def _keep(self, folder: Path, module: Any, step: int, score: float) -> None:
        file = folder / BEST
        if math.isnan(score):
            return  # no report could be judged; nothing compares with that
        if file.is_file():
            before, best = _kept(file)
            # A step that is taken again after a kill replaces what it left: the same weights.
            if before != step and not score > best:
                return
        trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        temporary = folder / f"{BEST}.tmp"
        weights = {name: value.detach().contiguous().cpu() for name, value in trained.items()}
        # In the same file: it is whole, or as it was.
        told = {"step": str(step), "score": repr(score), "weights": tensors_key(weights)}
        save_file(weights, temporary, {**told, "checksum": _checksum(told)})
        temporary.replace(file)

    def _figures(self, model: Any) -> dict[str, float]:
        """Mean judgement, the same length-controlled, and words a report; of one and the same studies."""
        reports = self._write(model)
        pairs = [
            Pair(key, reference, report)
            for key, reference, report in zip(self._studies, self._references, reports, strict=True)
        ]
        rewards = np.asarray(self._judge.rewards(pairs), np.float64)
        controlled = [
            length_controlled(float(reward), report, reference)
            for reward, report, reference in zip(rewards, reports, self._references, strict=True)
        ]
        ratio = [
            len(report.split()) / max(len(reference.split()), 1)
            for report, reference in zip(reports, self._references, strict=True)
        ]
        return {
            "reward": float(np.nanmean(rewards)),
            "reward_length_controlled": float(np.nanmean(controlled)),
            "words": float(np.mean([len(report.split()) for report in reports])),
            "length_ratio": float(np.mean(ratio)),
        }

    def _write(self, model: Any) -> list[str]:
        writer = self._open(model)
        decoding = Decoding(max_new_tokens=self._settings.max_new_tokens)
        found: list[str] = []
        for first in range(0, len(self._studies), self._settings.batch_size):
            keys = self._studies[first : first + self._settings.batch_size]
            reasons = [self._images.indication(key) for key in keys]
            answers = writer.answers([self._images.image(key) for key in keys], reasons, decoding)
            found += [answer[0].text for answer in answers]
        return found

    def _open(self, model: Any) -> HfModel:
        """The model as one that writes; what of it is trained stays so."""
        if self._writer is None:
            trained = [value for value in model.parameters() if value.requires_grad]
            processor = self._start.processor
            folder = self._start.folder
            assert folder is not None
            checkpoint = Checkpoint(model, processor, processor.tokenizer, None, folder)
            self._writer = HfModel(checkpoint, "the model in training", self._prompts)
            for value in trained:
                value.requires_grad_(True)
        return self._writer


def _kept(file: Path) -> tuple[int, float]:
    """Step and score of the weights that were kept."""
    told = _told(file)
    if "checksum" in told and told["checksum"] != _checksum(told):
        raise _damaged(file)
    return int(told["step"]), float(told["score"])


def _verified(file: Path) -> dict[str, torch.Tensor]:
    """The weights that were kept, which must be as they were written."""
    weights, key = load_file(file), _told(file).get("weights")
    if key is None:
        NoticeStream(sys.stderr).write(f"{file} was not verified: it has no checksum (cxrlab 0.1.0 wrote none)\n")
    elif key != tensors_key(weights):
        raise _damaged(file)
    return weights


def _told(file: Path) -> dict[str, str]:
    try:
        with safe_open(file, "pt") as stored:
            return dict(stored.metadata())
    except (SafetensorError, TypeError) as error:  # a damaged header; one without metadata
        raise _damaged(file) from error


def _checksum(told: Mapping[str, str]) -> str:
    return hashlib.sha256(f"{told['step']} {told['score']} {told['weights']}".encode()).hexdigest()


def _damaged(file: Path) -> RunError:
    return RunError(
        f"{file}, the weights of the best step so far, is damaged: its content has changed since it was written; "
        "train again in a new folder."
    )


def _reference(study: Any) -> str:
    text = study.sections.findings if study.sections else None
    return text or ""

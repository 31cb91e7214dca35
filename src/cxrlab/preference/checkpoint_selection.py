"""Checkpoint selection in preference training: judge generated reports at some steps and keep the best step.

By default the reward is length-controlled, since a judge may prefer length alone: the reward of a report that is longer
than the reference is divided by the ratio of their lengths.
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
from cxrlab.metrics.report_pairs import Pair
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.preference.config import PreferConfig
from cxrlab.preference.judges import length_controlled, metric_judge
from cxrlab.training.report_model import StartModel
from cxrlab.training.run_folder import RunFolder, tensors_key

BEST = "best.safetensors"
_CHOSEN_BY = {"length-controlled": "reward_length_controlled", "reward": "reward"}


class CheckpointSelector:
    """Generates reports for a few held-out studies, judges them, and keeps the weights of the best step."""

    def __init__(self, config: PreferConfig, prompts: str | None, start: StartModel) -> None:
        self._settings, self._start = config.validation, start
        self._prompts = load_prompts(prompts)
        self._writer: HfModel | None = None
        self._studies: list[str] = []
        if not config.validation.n:
            return
        self._judge = metric_judge(config.validation.judge)
        corpus = load_corpus(config.data)
        references: dict[str, str] = {}
        for key in corpus.ids(config.validation.split):
            sections = corpus[key].sections
            if sections and sections.findings:
                references[key] = sections.findings
        ids = list(references)
        if not ids:
            raise DataError(
                f"{corpus.path} has no study with findings in its {config.validation.split} split to validate on; give another "
                "with --validation.split, or --validation.n 0."
            )
        drawn = generator(config.optimisation.seed, "watch").permutation(len(ids))[: config.validation.n]
        self._images = Images(corpus)
        self._studies = [ids[number] for number in sorted(drawn.tolist())]
        self._references = [references[key] for key in self._studies]

    def evaluate(self, module: Any, step: int, *, run: RunFolder) -> dict[str, float]:
        """The figures of this step; its weights are kept where it is the best so far, step 0 aside."""
        figures = self.figures(module.model)
        if step and self._settings.select != "last":
            self._keep(run.steps, module, step, figures[_CHOSEN_BY[self._settings.select]])
        return figures

    def figures(self, model: Any) -> dict[str, float]:
        """Mean reward, the same length-controlled, and words per report, over the same studies at every step."""
        reports = self._generate(model)
        compared = list(zip(self._studies, self._references, reports, strict=True))
        rewards = np.asarray(self._judge.rewards([Pair(*one) for one in compared]), np.float64)
        controlled = [
            length_controlled(float(reward), report, reference)
            for reward, (_, reference, report) in zip(rewards, compared, strict=True)
        ]
        words = [(len(reference.split()), len(report.split())) for _, reference, report in compared]
        return {
            "reward": float(np.nanmean(rewards)),
            "reward_length_controlled": float(np.nanmean(controlled)),
            "words": float(np.mean([own for _, own in words])),
            "length_ratio": float(np.mean([own / max(wanted, 1) for wanted, own in words])),
        }

    def choose(self, module: Any, run: RunFolder, steps: int, watched: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the weights of the best step into the module; returns that step, its score, and that of the start."""
        found: dict[str, Any] = {"judge": self._settings.judge, "watched": len(self._studies)}
        file = run.steps / BEST
        if not file.is_file():  # no validation, or no score
            return {"select": "last", **found, "step": steps, "of": steps}
        found["select"] = self._settings.select
        step, score, key = _read_header(file)
        weights = load_file(file)
        if key is None:
            NoticeStream(sys.stderr).write(f"{file} was not verified: it has no checksum (cxrlab 0.1.0 wrote none)\n")
        elif key != tensors_key(weights):
            raise _damaged(file)
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in weights.items():
                parameters[name].copy_(value)
        before = watched[0][_CHOSEN_BY[self._settings.select]]
        return {**found, "step": step, "of": steps, "score": score, "start_score": before}

    def _keep(self, folder: Path, module: Any, step: int, score: float) -> None:
        file = folder / BEST
        if math.isnan(score):
            return  # no report could be judged
        if file.is_file():
            before, best, _ = _read_header(file)
            if before != step and not score > best:  # a step that is repeated after a kill replaces its own weights
                return
        trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        temporary = folder / f"{BEST}.tmp"
        weights = {name: value.detach().contiguous().cpu() for name, value in trained.items()}
        header = {"step": str(step), "score": repr(score), "weights": tensors_key(weights)}
        save_file(weights, temporary, {**header, "checksum": _checksum(header)})
        temporary.replace(file)

    def _generate(self, model: Any) -> list[str]:
        if self._writer is None:
            trained = [value for value in model.parameters() if value.requires_grad]
            processor, folder = self._start.processor, self._start.folder
            assert folder is not None
            checkpoint = Checkpoint(model, processor, processor.tokenizer, None, folder)
            self._writer = HfModel(checkpoint, "the model in training", self._prompts)
            for value in trained:  # `HfModel` freezes its model
                value.requires_grad_(True)
        decoding = Decoding(max_new_tokens=self._settings.max_new_tokens)
        found: list[str] = []
        for first in range(0, len(self._studies), self._settings.batch_size):
            keys = self._studies[first : first + self._settings.batch_size]
            indications = [self._images.indication(key) for key in keys]
            answers = self._writer.answers([self._images.image(key) for key in keys], indications, decoding)
            found += [answer[0].text for answer in answers]
        return found


def _read_header(file: Path) -> tuple[int, float, str | None]:
    """Step, score and hash of the weights that were kept."""
    try:
        with safe_open(file, "pt") as stored:
            header = dict(stored.metadata())
    except (SafetensorError, TypeError) as error:  # a damaged header; one without metadata
        raise _damaged(file) from error
    if "checksum" in header and header["checksum"] != _checksum(header):
        raise _damaged(file)
    return int(header["step"]), float(header["score"]), header.get("weights")


def _checksum(header: Mapping[str, str]) -> str:
    return hashlib.sha256(f"{header['step']} {header['score']} {header['weights']}".encode()).hexdigest()


def _damaged(file: Path) -> RunError:
    return RunError(
        f"{file}, the weights of the best step so far, is damaged: its content has changed since it was written; "
        "train again in a new folder."
    )

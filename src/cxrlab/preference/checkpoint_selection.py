"""Checkpoint selection in preference training: judge generated reports at some steps and keep the best step.

By default the reward is length-controlled, since a judge may prefer length alone: the reward of a report that is longer
than the reference is divided by the ratio of their lengths.

Where a language model judges, answers.sqlite and requests.jsonl of the run hold its requests and answers. A validation that
is repeated after a kill sends no request twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import Images
from cxrlab.metrics.report_pairs import Pair
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.preference.config import PreferConfig
from cxrlab.preference.judges import Models, length_controlled, metric_judge
from cxrlab.training import best_weights
from cxrlab.training.distributed import from_main_process
from cxrlab.training.report_model import StartModel
from cxrlab.training.run_folder import RunFolder
from cxrlab.training.sharding import is_sharded, unsharded
from cxrlab.training.trainer import Evaluation, Fitted

_CHOSEN_BY = {"length-controlled": "reward_length_controlled", "reward": "reward"}


class CheckpointSelector:
    """Generates reports for a few held-out studies and judges them, by which the best step is selected.

    `models` opens language models; a judge that needs one is refused when None.
    """

    def __init__(
        self, config: PreferConfig, prompts: str | None, start: StartModel, models: Models | None = None
    ) -> None:
        self._settings, self._start = config.validation, start
        self._prompts = load_prompts(prompts)
        self._writer: HfModel | None = None
        self._cache: str | None = None
        self._studies: list[str] = []
        if not config.validation.n:
            return
        self._judge = metric_judge(config.validation.judge, models=models, judging=config.judging)
        if config.validation.select == "length-controlled" and "|length:" in self._judge.signature:
            raise ConfigError(f"'{self._judge.name}' is length-controlled already; give --validation.select reward.")
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
        self._images = Images(corpus, context=config.context)
        self._studies = [ids[number] for number in sorted(drawn.tolist())]
        self._references = [references[key] for key in self._studies]

    @property
    def evaluation(self) -> Evaluation | None:
        """What the trainer measures, before the first step too; None without validation."""
        if not self._settings.n:
            return None

        def measure(module: Any, step: int) -> dict[str, float]:
            # Weights that are gathered lie elsewhere each time, where a captured graph does not look.
            self._cache = "growing" if is_sharded(module) else None
            with unsharded(module):
                return from_main_process(lambda: self.figures(module.model))

        return Evaluation(
            measure,
            every=self._settings.every,
            first=True,
            score=_CHOSEN_BY.get(self._settings.select),
            larger=True,
            patience=self._settings.patience,
        )

    def figures(self, model: Any) -> dict[str, float]:
        """Mean reward, the same length-controlled, and words per report, over the same studies at every step.

        Reports without a reward, such as those whose judgement could not be read, are counted as `unjudged`.
        """
        reports = self._generate(model)
        compared = list(zip(self._studies, self._references, reports, strict=True))
        rewards = np.asarray(self._judge.rewards([Pair(*one) for one in compared]), np.float64)
        controlled = [
            length_controlled(float(reward), report, reference)
            for reward, (_, reference, report) in zip(rewards, compared, strict=True)
        ]
        judged = ~np.isnan(rewards)
        words = [(len(reference.split()), len(report.split())) for _, reference, report in compared]
        return {
            "reward": float(rewards[judged].mean()) if judged.any() else math.nan,
            "reward_length_controlled": float(np.array(controlled)[judged].mean()) if judged.any() else math.nan,
            "words": float(np.mean([own for _, own in words])),
            "length_ratio": float(np.mean([own / max(wanted, 1) for wanted, own in words])),
            **({} if judged.all() else {"unjudged": float((~judged).sum())}),
        }

    def choose(
        self, module: Any, run: RunFolder, fitted: Fitted, watched: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Put the weights of the best step into the module; returns that step, its score, and that of the start."""
        found: dict[str, Any] = {"judge": self._settings.judge, "watched": len(self._studies), "of": fitted.steps}
        best = fitted.best
        if best is None:  # no validation, or no score
            return {"select": "last", **found, "step": fitted.steps}
        best_weights.restore(run.steps, best.step, module)
        before = watched[0][_CHOSEN_BY[self._settings.select]]
        return {"select": self._settings.select, **found, "step": best.step, "score": best.score, "start_score": before}

    def _generate(self, model: Any) -> list[str]:
        if self._writer is None:
            trained = [value for value in model.parameters() if value.requires_grad]
            processor, folder = self._start.processor, self._start.folder
            assert folder is not None
            checkpoint = Checkpoint(model, processor, processor.tokenizer, None, folder)
            self._writer = HfModel(checkpoint, "the model in training", self._prompts, cache=self._cache)
            for value in trained:  # `HfModel` freezes its model
                value.requires_grad_(True)
        decoding = Decoding(max_new_tokens=self._settings.max_new_tokens)
        found: list[str] = []
        for first in range(0, len(self._studies), self._settings.batch_size):
            keys = self._studies[first : first + self._settings.batch_size]
            images, contexts = zip(*map(self._images.given, keys), strict=True)
            answers = self._writer.answers(images, contexts, decoding)
            found += [answer[0].text for answer in answers]
        # The next training steps need the memory, and captured steps hold the weights that autocast has cast until now.
        self._writer.release_generation_cache()
        return found

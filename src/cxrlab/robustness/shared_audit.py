"""An audit by workers: each has the models, the first process plans and appends to the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.runs import Run
from cxrlab.core.workers import Workers
from cxrlab.robustness.audited_models import AuditedModel
from cxrlab.robustness.calibration import label_probabilities
from cxrlab.robustness.micro_batches import MicroBatches
from cxrlab.robustness.sweep import Sweep
from cxrlab.robustness.validity_checks import answers_to_control, randomness_warnings

if TYPE_CHECKING:
    from cxrlab.robustness.audit_records import Answer, ImageAnswer
    from cxrlab.robustness.audited_studies import Cases
    from cxrlab.robustness.config import RobustnessConfig

_FACTS = ("key", "name", "gradients", "scores", "generates_reports", "aims", "smoothing")


class AuditWorker:
    """The models and studies of an audit, in a worker; images of the run folder are written by the worker itself."""

    def __init__(self, config: RobustnessConfig, cases: Cases, models: Sequence[AuditedModel], out: Path) -> None:
        self._config, self._cases, self._models = config, cases, models
        self._run = Run.opened_elsewhere(out)
        self._sweep: Sweep | None = None

    def facts(self) -> list[dict[str, Any]]:
        """What the first process needs to know of each model."""
        return [{name: getattr(model, name) for name in _FACTS} for model in self._models]

    def check_memory(self, key: str, aim: str, size: tuple[int, int]) -> None:
        """A `ConfigError` where the gradient of one image does not fit."""
        MicroBatches(self._cases, self._config).plan(self._model(key), aim, size)

    def answers(self, batch: int, item: int, clean: Sequence[tuple[str, str, ImageAnswer]]) -> list[Answer]:
        """See `Sweep.answers`."""
        if self._sweep is None:  # the run folder exists by now
            self._sweep = Sweep(self._run, self._cases, self._models, self._config)
        return self._sweep.answers(batch, item, clean)

    def answers_to_control(self, control: str, key: str) -> dict[str, ImageAnswer] | None:
        """See `validity_checks.answers_to_control`."""
        return answers_to_control(control, self._model(key), self._cases, self._config, self._batch_size())

    def label_probabilities(self, key: str, ids: Sequence[str]) -> list[tuple[int, list[float]]]:
        """See `calibration.label_probabilities`."""
        return label_probabilities(self._model(key), self._cases, self._cases.load(ids))

    def randomness_warnings(self) -> list[str]:
        """See `validity_checks.randomness_warnings`."""
        return list(randomness_warnings(self._models, self._cases, self._batch_size()))

    def _batch_size(self) -> BatchSize:
        return BatchSize(self._config.batch_size, self._run.folder)

    def _model(self, key: str) -> AuditedModel:
        return next(model for model in self._models if model.key == key)


class ModelOfWorkers(AuditedModel):
    """Stands for a model that workers have loaded: its attributes alone."""

    def __init__(self, facts: dict[str, Any], cases: Cases) -> None:
        super().__init__(facts["key"], facts["name"], cases.labels)
        vars(self).update(facts)

    def examine(self, images: Any, cases: Any) -> Any:
        """Workers examine images."""
        raise NotImplementedError

    def objective(self, aim: Any, cases: Any, clean: Any, images: Any) -> Any:
        """Workers attack."""
        raise NotImplementedError


def models_of_workers(workers: Workers, cases: Cases, permission: str | None) -> list[AuditedModel]:
    """Let workers load the models of an audit."""
    workers.start([cases.corpus.egress_data], permission)
    return [ModelOfWorkers(facts, cases) for facts in workers.call("facts")]

"""Micro-batches of attacks: how many images are differentiated at once, by an estimate, and fewer where memory runs out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from cxrlab.core.errors import ConfigError
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.hf.gradient_memory import GradientPlan, free_memory, plan_gradients
from cxrlab.robustness.audited_models import AuditedModel
from cxrlab.robustness.audited_studies import Cases
from cxrlab.robustness.config import RobustnessConfig

_CHECKPOINTING = {"auto": None, "on": True, "off": False}


class MicroBatches:
    """The micro-batch of each model, attack goal and image size, estimated when it is first needed.

    Args:
        folder: Run folder, in whose batch.json micro-batches below `batch_size` are kept for a resumed run.
    """

    def __init__(self, cases: Cases, config: RobustnessConfig, folder: Path | None = None) -> None:
        self.cases, self.config, self._folder = cases, config, folder
        self._found: dict[str, tuple[BatchSize, GradientPlan | None]] = {}
        self._too_much = False  # memory ran out with a single image and without checkpointing

    def of(self, model: AuditedModel, aim: str, size: tuple[int, int]) -> BatchSize:
        """The micro-batch for images of this height and width; the model is set to checkpointing or not."""
        name = f"micro_batch.{model.key}.{aim}.{size[0]}x{size[1]}"
        if name not in self._found:
            self._found[name] = self._estimated(name, model, aim, size)
        micro_batch, plan = self._found[name]
        if plan is not None:
            model.checkpoint_layers(plan.checkpointing or self._too_much)
        return micro_batch

    def _estimated(
        self, name: str, model: AuditedModel, aim: str, size: tuple[int, int]
    ) -> tuple[BatchSize, GradientPlan | None]:
        batch = self.config.batch_size
        micro_batch = BatchSize(min(self.config.micro_batch or batch, batch), self._folder, name)
        plan = self.plan(model, aim, size)
        if plan is not None:
            if self.config.micro_batch is None:
                micro_batch.start_with(plan.images, str(plan))
            plan = replace(plan, images=micro_batch.current)
            if plan.images < batch or plan.checkpointing:
                NoticeStream(sys.stderr).write(f"{model.name}, aim {aim}: {plan}\n")
        return micro_batch, plan

    def plan(self, model: AuditedModel, aim: str, size: tuple[int, int]) -> GradientPlan | None:
        """By the estimate; None for a model without one. A `ConfigError` if not even one image fits."""
        memory = model.gradient_memory(aim, self.cases.all, size)
        if memory is None:
            return None
        checkpointing = _CHECKPOINTING[self.config.gradient_checkpointing]
        try:
            return plan_gradients(memory, self.config.batch_size, free_memory(model.device), checkpointing)
        except ConfigError as error:
            raise ConfigError(f"{model.name}, aim {aim}: {error}") from error

    def checkpoint_from_now_on(self) -> bool:
        """Use gradient checkpointing for all that follows; False where that is settled already or changes nothing."""
        plans = [plan for _, plan in self._found.values() if plan is not None]
        if self._too_much or self.config.gradient_checkpointing != "auto" or all(plan.checkpointing for plan in plans):
            return False
        self._too_much = True
        NoticeStream(sys.stderr).write("A single image does not fit; continuing with gradient checkpointing.\n")
        return True

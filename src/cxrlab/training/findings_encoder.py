"""Stage 1 with `--objective findings`: train a vision encoder on the observations that are read from reports."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.data.observation_labels import NORMAL, labels_of_report
from cxrlab.data.parallel import ordered_map
from cxrlab.metrics.classification import auroc
from cxrlab.models.finding_classifier import HeadLabels, class_token, mean_by_study, save_head
from cxrlab.models.local_files import quiet_loading
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on, write_model_card
from cxrlab.models.model_parts import VisionEncoder, load_vision_encoder
from cxrlab.training import best_weights
from cxrlab.training.augment import varied
from cxrlab.training.config import OPERATIONAL, Augmentation, EncoderConfig, Validation
from cxrlab.training.distributed import main_process_first, training_device
from cxrlab.training.encoder import refuse_sharding
from cxrlab.training.image_cache import ImageFile, Images, numbers_of_images, open_images, sized_processor
from cxrlab.training.image_features import to_pixels
from cxrlab.training.memory_estimate import Memory, activations, check_memory
from cxrlab.training.run_folder import BEST, CACHE, RESULT, SUMMARY, RunFolder, TrainingResult, training_run
from cxrlab.training.samples import Source, read_sources
from cxrlab.training.trackers import check_installed
from cxrlab.training.trainer import ITEMS, ROWS, Evaluation, Job, Part, fit, plan_steps
from cxrlab.training.validation import validation_source

_BLOCK = 128  # reports per task of a worker
_UNKNOWN = -1


def train_findings_encoder(config: EncoderConfig, out: Path) -> TrainingResult:
    """Train a vision encoder and a label head into RUN/checkpoint; see `train_encoder`."""
    settings = config.optimisation
    check_installed(config.track)
    refuse_sharding(settings)
    sources, held_out = read_sources(config), validation_source(config)
    studies = [read_studies(source) for source in sources]
    table = LabelTable.of([one.labels for some in studies for one in some], config)
    vision = load_vision_encoder(str(config.vision_encoder), seed=settings.seed, image_size=config.image_size)
    processor = sized_processor(
        vision.image_processor, int(vision.model.config.image_size), None if vision.any_size else config.image_size
    )
    module = LabelEncoder(vision.model.requires_grad_(True), processor, table, config.augmentation, settings.seed)
    order = plan_steps(
        [Part(len(some), source.weight) for some, source in zip(studies, sources, strict=True)],
        settings,
        np.ones(sum(map(len, studies)), np.int64),
    )
    check_memory(memory(module, config, max(len(one.images) for some in studies for one in some)), training_device())
    unreached = freeze_unreached(module)
    if settings.gradient_checkpointing:
        if not vision.model.supports_gradient_checkpointing:
            raise ConfigError("gradient_checkpointing=true: this vision encoder cannot recompute activations.")
        vision.model.gradient_checkpointing_enable({"use_reentrant": False})
    with training_run(config, out, settings.seed, OPERATIONAL) as run:

        def rows_of(some: Sequence[LabelledStudy]) -> LabelDataset:
            files, numbers = numbers_of_images([one.images for one in some])
            folder, cache, most_gb = config.cache or run.folder / CACHE, config.cache_images, config.cache_gb
            with main_process_first():
                images = open_images(files, processor, folder, cache=cache, most_gb=most_gb)
            return LabelDataset(images, numbers, table.targets([one.labels for one in some]))

        rows, evaluation = rows_of([one for some in studies for one in some]), None
        if held_out is not None:
            evaluation = label_validation(
                rows_of(read_studies(held_out)), table, config.validation, settings.batch_size
            )
        fitted = fit(Job(module, rows, order, "training on findings", None, evaluation), settings, run, config.track)
        left_out: Counter[str] = sum((Counter(source.left_out) for source in sources), Counter())
        best = fitted.best
        result = TrainingResult(
            stage="encoder",
            checkpoint=RESULT,
            steps=fitted.steps,
            samples=fitted.samples,
            loss=fitted.loss,
            rows=len(rows),
            left_out=left_out,
            trained_parameters=sum(value.numel() for value in module.parameters() if value.requires_grad),
            parameters=sum(value.numel() for value in module.parameters()),
            extra={
                "objective": config.objective,
                "images": len(rows.images),
                "labels": {
                    name: {"positives": int(present), "negatives": int(absent)}
                    for name, present, absent in zip(table.names, table.present, table.absent, strict=True)
                },
                "not_trained": unreached,
                **({"best": {"checkpoint": BEST, "step": best.step, "auroc": best.score}} if best else {}),
            },
        )
        _write(run, RESULT, config, sources, vision, module)
        if best is not None and run.writes:
            best_weights.restore(run.steps, best.step, module)
            _write(run, BEST, config, sources, vision, module)
        run.write(SUMMARY, result)
        run.remove_steps()
    return result


@dataclass(frozen=True)
class LabelledStudy:
    """The images of a study, and what its report states: observation → present or absent."""

    images: tuple[ImageFile, ...]
    labels: Mapping[str, bool]


def read_studies(source: Source) -> list[LabelledStudy]:
    """The studies of a source: all images of its samples together, and the labels of its first text."""
    grouped = [list(samples) for _, samples in groupby(source.samples, key=lambda sample: sample.id)]
    texts = list(dict.fromkeys(samples[0].report for samples in grouped))
    blocks = [texts[first : first + _BLOCK] for first in range(0, len(texts), _BLOCK)]
    found = track(ordered_map(_read_reports, blocks), "reading reports", len(texts), size=len)
    labels = dict(zip(texts, (one for block in found for one in block), strict=True))
    return [
        LabelledStudy(
            tuple(dict.fromkeys(image for sample in samples for image in sample.images)), labels[samples[0].report]
        )
        for samples in grouped
    ]


def _read_reports(texts: Sequence[str]) -> list[dict[str, bool]]:
    return [labels_of_report(text) for text in texts]


@dataclass(frozen=True, eq=False)
class LabelTable:
    """The labels that are learnt, and how many studies of the training have and lack each."""

    names: tuple[str, ...]
    present: NDArray[np.int64]
    absent: NDArray[np.int64]
    unmentioned: str

    @classmethod
    def of(cls, studies: Sequence[Mapping[str, bool]], config: EncoderConfig) -> LabelTable:
        """Observations with enough positives and at least one negative, in the order of the vocabulary; then `normal`.

        Raises:
            DataError: When no observation has enough.
        """
        settings = config.labels
        candidates = cls((*OBSERVATIONS, NORMAL), np.zeros(0, np.int64), np.zeros(0, np.int64), settings.unmentioned)
        found = candidates.targets(studies)
        present, absent = (found == 1).sum(0), (found == 0).sum(0)
        kept = (present >= settings.min_positives) & (absent > 0)
        if not kept[:-1].any():
            most = int(np.argmax(present[:-1]))
            raise DataError(
                f"no observation is present in {settings.min_positives} of the {len(studies):,} studies and absent in "
                f"others ('{candidates.names[most]}' in {present[most]}); lower --labels.min-positives."
            )
        names = tuple(name for name, keep in zip(candidates.names, kept, strict=True) if keep)
        return cls(names, present[kept], absent[kept], settings.unmentioned)

    def targets(self, studies: Sequence[Mapping[str, bool]]) -> NDArray[np.int8]:
        """1 present, 0 absent, -1 no label: [N, L]."""
        other = 0 if self.unmentioned == "negative" else _UNKNOWN
        rows = [[int(one[name]) if name in one else other for name in self.names] for one in studies]
        return np.array(rows, np.int8).reshape(len(studies), len(self.names))

    @property
    def log_odds(self) -> NDArray[np.float64]:
        """log(positives / negatives) of each label."""
        return np.log(self.present / self.absent)

    @property
    def weights(self) -> NDArray[np.float32]:
        """Weight of a negative and of a positive of each label, [2, L]: both classes weigh half, 1 on average."""
        every = self.present + self.absent
        return np.stack([every / (2 * self.absent), every / (2 * self.present)]).astype(np.float32)


class LabelEncoder(nn.Module):
    """A vision encoder with augmentation and normalisation of its images, and a linear head on the mean vector."""

    def __init__(self, model: Any, processor: Any, table: LabelTable, augmentation: Augmentation, seed: int) -> None:
        super().__init__()
        self.model, self.image_processor, self.augmentation, self.table = model, processor, augmentation, table
        torch.manual_seed(seed + 1)
        self.head = nn.Linear(int(model.config.hidden_size), len(table.names))
        self.register_buffer("weights", torch.from_numpy(table.weights), persistent=False)

    def forward(self, images: Tensor, owner: Tensor, targets: Tensor, seeds: Tensor) -> Tensor:
        """Sum over studies of the weighted cross-entropy, the mean over labels.

        Args:
            images: uint8 [M, H, W] or [M, H, W, 3], all images of the studies.
            owner: Study of each image, [M].
            targets: [B, L], 1 present, 0 absent, -1 no label.
            seeds: [B], for the augmentation.
        """
        if self.training:
            first = torch.searchsorted(owner.contiguous(), torch.arange(len(targets), device=owner.device))
            place = torch.arange(len(owner), device=owner.device) - first[owner]
            images = varied(images, seeds[owner] + place, self.augmentation)
        return self.losses(self.logits(images, owner, len(targets)), targets).sum()

    def logits(self, images: Tensor, owner: Tensor, count: int) -> Tensor:
        """Logits [count, L] of a class-balanced training."""
        vectors = class_token(self.model, to_pixels(images, self.image_processor))
        found: Tensor = self.head(mean_by_study(vectors, owner, count))
        return found

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of each study, [B]."""
        weights: Any = self.weights
        weight = torch.where(targets == 1, weights[1], weights[0]) * (targets != _UNKNOWN)
        truth = (targets == 1).float()
        return binary_cross_entropy_with_logits(logits.float(), truth, weight, reduction="none").mean(1)


@dataclass(frozen=True)
class LabelDataset:
    """Studies in batches, as `LabelEncoder` takes them.

    Args:
        images: Each image once.
        numbers: Numbers of the images of each study, [N, K] with -1 after the last.
        targets: [N, L].
    """

    images: Images
    numbers: NDArray[np.int64]
    targets: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def key(self) -> str:
        """A hash of the training data: images and labels."""
        digest = hashlib.blake2b(self.images.key.encode(), digest_size=12)
        for array in (self.numbers, self.targets):
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """Images [M, H, W], the study of each [M], targets [B, L]."""
        chosen = np.asarray(rows, np.int64)
        numbers = self.numbers[chosen]
        there = numbers >= 0
        return {
            "images": torch.from_numpy(np.ascontiguousarray(self.images[numbers[there]])),
            "owner": torch.from_numpy(np.nonzero(there)[0]),
            "targets": torch.from_numpy(self.targets[chosen].astype(np.int64)),
            ITEMS: torch.tensor([len(rows)]),
            ROWS: torch.from_numpy(chosen),
        }


def label_validation(dataset: LabelDataset, table: LabelTable, validation: Validation, batch_size: int) -> Evaluation:
    """Loss and AUROC of each label on the validation split; the step with the highest mean AUROC is the best.

    Every process measures all studies, so that all get the same numbers.
    """

    def measure(module: Any, step: int) -> dict[str, float]:
        device = module.head.weight.device
        logits, losses = [], []
        for first in range(0, len(dataset), batch_size):
            rows = list(range(first, min(first + batch_size, len(dataset))))
            batch = {name: value.to(device) for name, value in dataset.__getitems__(rows).items()}
            found = module.logits(batch["images"], batch["owner"], len(rows))
            losses.append(module.losses(found, batch["targets"]))
            logits.append(found.float())
        areas = label_areas(torch.cat(logits).cpu().numpy(), dataset.targets, table.names)
        known = [value for value in areas.values() if not math.isnan(value)]
        numbers = {f"auroc {name}": value for name, value in areas.items()}
        mean = math.fsum(known) / len(known) if known else math.nan
        return {"loss": float(torch.cat(losses).mean()), "auroc": mean, **numbers}

    return Evaluation(
        measure, validation.every, score="auroc", larger=True, patience=validation.patience, key=dataset.key
    )


def label_areas(logits: NDArray[np.floating], targets: NDArray[np.int8], names: Sequence[str]) -> dict[str, float]:
    """Area under the ROC curve of each label; not-a-number without a positive or a negative."""
    found = {}
    for column, name in enumerate(names):
        known = targets[:, column] != _UNKNOWN
        found[name] = float(auroc(logits[known, column].astype(np.float64), targets[known, column] == 1)[0])
    return found


def freeze_unreached(module: LabelEncoder) -> list[str]:
    """Freeze weights that the loss does not depend on, such as a mask token; returns their names."""
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    side = int(module.model.config.image_size)
    module.eval()
    found = module.logits(torch.zeros(1, side, side, dtype=torch.uint8), torch.zeros(1, dtype=torch.long), 1)
    gradients = torch.autograd.grad(found.sum(), list(trained.values()), allow_unused=True)
    unreached = [name for name, gradient in zip(trained, gradients, strict=True) if gradient is None]
    for name in unreached:
        trained[name].requires_grad_(False)
    return unreached


def memory(module: LabelEncoder, config: EncoderConfig, images: int) -> Memory:
    """Rough memory of the training on one device, with at most so many images per study."""
    settings, vision = config.optimisation, module.model.config
    count = sum(value.numel() for value in module.parameters())
    tokens = (vision.image_size // vision.patch_size) ** 2 + 1
    number = 2 if settings.precision == "bfloat16" else 4
    kept = images * settings.batch_size * activations(vision, tokens, settings.gradient_checkpointing)
    return Memory(4 * count, 3 * 4 * count, kept * number)


def _write(
    run: RunFolder, name: str, config: EncoderConfig, sources: Sequence[Source], vision: VisionEncoder, module: Any
) -> None:
    """Vision encoder, image processor, head and card, in a folder that stages 1 to 3 and `classify` open."""
    names = (*vision.collections, *(one for source in sources for one in source.collections))
    card = ModelCard(
        stage="encoder",
        collections=tuple(dict.fromkeys(names)),
        trained_on=trained_on((vision.trained_on, of_corpora(source.synthetic for source in sources))),
        extra={
            "objective": config.objective,
            "made_from": {"vision_encoder": config.vision_encoder},
            "seed": config.optimisation.seed,
            "corpora": [source.name for source in sources],
        },
    )

    def write(folder: Path) -> None:
        with quiet_loading():
            module.model.cpu().eval().save_pretrained(folder)
        module.image_processor.save_pretrained(folder)
        save_head(folder, module.head.cpu(), head_labels)
        write_model_card(card, folder)

    table: LabelTable = module.table
    head_labels = HeadLabels(table.names, tuple(table.log_odds.tolist()), tuple(config.views), table.unmentioned)
    run.write_folder(name, write)

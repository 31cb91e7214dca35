"""Loss on the validation split during training: the same samples at every validation, divided among the processes."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.corpus import load_corpus
from cxrlab.data.pairs import is_composed
from cxrlab.training.config import AlignConfig, EncoderConfig, ExtraCorpus, FinetuneConfig, Validation
from cxrlab.training.contrastive import (
    LARGEST_LOG_SCALE,
    ContrastiveDataset,
    PairEncoder,
    Pairs,
    gather,
    symmetric_loss,
)
from cxrlab.training.distributed import is_main_process, process_count, process_rank, summed
from cxrlab.training.image_text import ImageTextDataset
from cxrlab.training.report_dataset import ReportDataset
from cxrlab.training.run_folder import BEST
from cxrlab.training.samples import UNREAD, Source, context_of, pair_views, read_source
from cxrlab.training.trainer import ITEMS, ROWS, Evaluation, Fitted

SPLIT = "val"


def validation_source(config: EncoderConfig | AlignConfig | FinetuneConfig) -> Source | None:
    """The samples of at most n studies of the validation split.

    None without validation and, with a notice, where the corpus has no such split. Text and views are those of the main
    corpus of the training. Its members apply to another corpus only if that is composed too.

    Raises:
        ConfigError: When the split has no study of a member.
        DataError: When the split has studies and none can be used.
    """
    validation = config.validation
    if not validation.every or not validation.n:
        return None
    corpus = load_corpus(validation.data or config.data)
    if not corpus.ids(SPLIT):
        if is_main_process():
            NoticeStream(sys.stderr).write(
                f"No validation loss: {corpus.no_study_error(SPLIT)} Name a corpus that has one with --validation.data, "
                "or switch validation off with --validation.n 0.\n"
            )
        return None
    members = config.members
    if members and validation.data is not None:
        composed = any(is_composed(study) for study in corpus.studies(without=UNREAD) if study.split == SPLIT)
        members = members if composed else ()
    wanted = ExtraCorpus(corpus.path, text=config.text, views=pair_views(config), members=members)
    try:
        return read_source(wanted, validation.n, config.optimisation.seed, SPLIT, context_of(config))
    except (ConfigError, DataError) as error:
        raise type(error)(f"{error} This is the validation split; train without it with --validation.n 0.") from None


def report_validation(dataset: ReportDataset | ImageTextDataset, validation: Validation, batch_size: int) -> Evaluation:
    """Mean of -log p per report token, as the training loss, without dropout and augmentation."""
    order = (-dataset.lengths).argsort(kind="stable")
    batches = [order[first : first + batch_size].tolist() for first in range(0, len(order), batch_size)]

    def measure(module: Any, step: int) -> dict[str, float]:
        device = next(module.parameters()).device
        sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss and tokens
        for first in range(0, len(batches), process_count()):
            # Processes that share weights run equally often: the last batch is repeated, and not counted.
            place = first + process_rank()
            batch = _on(device, dataset.__getitems__(batches[min(place, len(batches) - 1)]))
            tokens, loss = batch.pop(ITEMS).sum(), module(**batch)
            if place < len(batches):
                sums[0] += loss
                sums[1] += tokens
        whole, count = summed(sums).tolist()
        return {"loss": whole / count}

    return _evaluation(validation, measure, dataset.key)


def contrastive_validation(
    dataset: ContrastiveDataset, validation: Validation, batch_size: int, compared: int, seed: int
) -> Evaluation:
    """Mean symmetric loss over blocks of as many pairs as a training step compares, or of all where there are fewer.

    The pairs of a block are drawn with the seed, once; pairs that fill no block are left out.
    """
    rows = generator(seed, "validation").permutation(len(dataset))
    size = min(compared, len(rows))
    rows = rows[: len(rows) // size * size]

    def measure(module: Any, step: int) -> dict[str, float]:
        scale = module.model.logit_scale.clamp(max=LARGEST_LOG_SCALE)
        # Every process embeds equally many pairs; the last pair is repeated where they do not divide evenly.
        share = -(-len(rows) // process_count())
        own = [rows[min(place * process_count() + process_rank(), len(rows) - 1)] for place in range(share)]
        vectors = [_embed(module, dataset, own[first : first + batch_size]) for first in range(0, share, batch_size)]
        images, texts = (_in_order(torch.cat(part))[: len(rows)] for part in zip(*vectors, strict=True))
        device = images.device
        image_ids = torch.from_numpy(dataset.image_of[rows]).to(device)
        reports = torch.from_numpy(dataset.texts.keys[rows]).to(device)
        losses = [
            symmetric_loss(
                Pairs(images[block], texts[block], image_ids[block], reports[block]),
                scale,
                own_process=True,
            )
            for block in (slice(first, first + size) for first in range(0, len(rows), size))
        ]
        return {"loss": float(torch.stack(losses).mean())}

    return _evaluation(validation, measure, dataset.key)


def summarise_validation(source: Source | None, fitted: Fitted) -> dict[str, Any]:
    """The validation entry of summary.json: its samples, and the step whose weights are in RUN/best."""
    if source is None:
        return {}
    best = {"checkpoint": BEST, "step": fitted.best.step, "loss": fitted.best.score} if fitted.best else {}
    return {"validation": {"samples": len(source.samples), **best}}


def _evaluation(validation: Validation, measure: Any, key: str) -> Evaluation:
    return Evaluation(measure, every=validation.every, score="loss", patience=validation.patience, key=key)


def _on(device: torch.device, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in batch.items()}


def _embed(module: PairEncoder, dataset: ContrastiveDataset, rows: list[int]) -> tuple[Tensor, Tensor]:
    batch = _on(module.model.logit_scale.device, dataset.__getitems__(rows))
    images, texts, _ = module(batch["images"], batch["ids"], batch["mask"], batch[ROWS])
    return images, texts


def _in_order(rows: Tensor) -> Tensor:
    """Rows of all processes, of which process k holds every k-th, in their common order."""
    return gather(rows).view(process_count(), *rows.shape).transpose(0, 1).flatten(0, 1)

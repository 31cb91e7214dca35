"""Our settings in the words of Hugging Face's Trainer, and of the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import TrainingArguments

from cxrlab.data.parallel import worker_count
from cxrlab.training.config import Optimisation
from cxrlab.training.order import Order
from cxrlab.training.processes import count


def arguments(settings: Optimisation, order: Order, folder: Path) -> TrainingArguments:
    """The Trainer's own settings; what it would log, show or upload is off."""
    warm = round(settings.warmup * order.steps)
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        max_steps=order.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=warm,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        optim="adamw_torch_fused",
        bf16=settings.precision == "bfloat16",
        seed=settings.seed,
        full_determinism=settings.deterministic,
        dataloader_num_workers=_workers(settings),
        dataloader_persistent_workers=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=True,
        remove_unused_columns=False,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # would wait for the GPU at every step; the journal looks at every loss
        accelerator_config={"non_blocking": True},
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=None,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        average_tokens_across_devices=False,
        use_cpu=not torch.cuda.is_available(),
    )


def _workers(settings: Optimisation) -> int:
    """Processes that read images for this process; all processes that train together share the cores."""
    if not settings.workers:
        return 0
    return max(1, worker_count(settings.workers * count(), "optimisation.workers x processes") // count())


@contextlib.contextmanager
def fast_kernels(settings: Optimisation) -> Iterator[None]:
    """On a GPU, the kernels that suit a training; what was set before is set again afterwards."""
    if not torch.cuda.is_available():
        yield
        return
    attention, products = _cudnn_attention(), torch.get_float32_matmul_precision()
    # cuDNN's attention is planned anew for every new length of a batch, which takes longer than the step.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if settings.precision == "bfloat16":
        torch.set_float32_matmul_precision("high")  # what is left of float32 need not be finer than the rest
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(attention)
        torch.set_float32_matmul_precision(products)


def length_multiple() -> int:
    """What the length of a batch is rounded up to: a GPU prepares itself for each new shape, a processor does not."""
    return 32 if torch.cuda.is_available() else 1


def _cudnn_attention() -> bool:
    return bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]

"""Twenty steps beside TRL's trainers: the same model, images, batches and schedule give the same losses and weights.

Ours sees each image once a pair by stored features, has the reference on disk and pads on the right without a mask; TRL
runs the vision encoder for both reports and again for the reference. What comes out must not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import tiny_llava
from torch import Tensor

from cxrlab.core.image_codec import encode_png
from cxrlab.core.jsonl import read_jsonl
from cxrlab.models.hf.prompting import prompt_text, report_text
from cxrlab.models.random_init import TINY
from cxrlab.preference.config import LossSettings
from cxrlab.preference.dataset import PreferenceDataset, reference_log_probabilities
from cxrlab.preference.losses import PreferenceLoss
from cxrlab.training.config import Optimisation
from cxrlab.training.image_cache import ImageFile, open_images
from cxrlab.training.image_features import open_features, to_pixels
from cxrlab.training.report_dataset import ReportDataset, count_image_tokens, tokenise
from cxrlab.training.report_model import ReportLoss, add_adapters
from cxrlab.training.run_folder import training_run
from cxrlab.training.trainer import Job, Order, fit

pytestmark = pytest.mark.full

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

STEPS, BATCH, RATE, WARM = 20, 4, 1e-2, 0.1
RANK, ALPHA = 4, 8.0
SIZE = replace(TINY, vision_encoder=3, language=3, width=48)
SIDE = 40  # pixels of an image; the vision encoder takes 32
PROMPTS = ("Findings:", "Provide a description of the findings in the radiology image.")
REPORTS = (
    "Both lungs are clear.",
    "Small left pleural effusion with adjacent atelectasis.",
    "Moderate cardiomegaly. No pneumothorax.",
    "The heart is normal in size. Right lower lobe consolidation, no pleural effusion.",
    "No edema.",
    "Endotracheal tube with the tip above the carina.",
)
ITEMS = 12  # images, each with a prompt and two reports


def asked(number: int) -> str:
    return PROMPTS[number % 2]


def good(number: int) -> bool:
    """Whether the first report of an image is a good one."""
    return number % 3 != 1


def reports_of(number: int) -> tuple[str, str]:
    """Two reports for an image, the first of one kind and the second of another: something that can be learnt."""
    return REPORTS[number % 3], REPORTS[3 + number // 2 % 3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Smooth images: noise would be all alike to a vision encoder."""
    folder, found = tmp_path_factory.mktemp("images"), []
    for number in range(ITEMS):
        coarse = np.random.default_rng(number).integers(0, 256, (5, 5), dtype=np.uint8)
        found.append(folder / f"{number}.png")
        found[-1].write_bytes(encode_png(np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE)))))
    return found


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Steps this small are faster alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class Notes:
    """What TRL did: the rows of every batch, its batches, its losses."""

    rows: list[int] = field(default_factory=list)
    batches: list[dict[str, Tensor]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Given(Order):
    """Rows in an order that somebody else made."""

    rows: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)


def their_rows(processor: Any, files: list[Path], paired: bool) -> Any:
    """The images with prompts and reports as plain texts, special tokens written out: TRL adds none of its own here."""
    begin, end = processor.tokenizer.bos_token, processor.tokenizer.eos_token
    found = []
    for number, file in enumerate(files):
        prompt = begin + prompt_text(processor, asked(number))
        first, second = (report_text(processor, report) + end for report in reports_of(number))
        row = {"prompt": prompt, "images": [Image.open(file).convert("RGB")], "number": number}
        found.append(
            {**row, "chosen": first, "rejected": second}
            if paired
            else {**row, "completion": first, "label": good(number)}
        )
    return datasets.Dataset.from_list(found)


@dataclass(frozen=True)
class Case:
    """A loss, what is trained by it, and from which weights."""

    loss: LossSettings
    adapters: bool = True
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.loss.name}-{'adapters' if self.adapters else 'whole'}-{self.seed}"


def frozen(case: Case) -> tuple[Any, Any]:
    """(model, processor); the language model alone is trained where there are no adapters."""
    model, processor = tiny_llava(case.seed, SIZE)
    model.requires_grad_(False)
    if not case.adapters:
        model.model.language_model.requires_grad_(True)
        model.lm_head.requires_grad_(True)
    return model, processor


def trained(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def train_theirs(files: list[Path], out: Path, case: Case) -> tuple[Any, dict[str, Tensor], Notes]:
    """TRL's training: (model, what is trained as it was before, what TRL did)."""
    from peft import LoraConfig

    settings, notes = case.loss, Notes()
    model, processor = frozen(case)
    base, kind = (trl.DPOTrainer, trl.DPOConfig) if settings.kind.paired else (trl.KTOTrainer, trl.KTOConfig)
    own: dict[str, Any] = {
        "dpo": {"loss_type": "sigmoid"},
        "ipo": {"loss_type": "ipo"},
        "robust": {"loss_type": "robust", "label_smoothing": settings.flipped},
        "kto": {"desirable_weight": settings.desirable_weight, "undesirable_weight": settings.undesirable_weight},
    }[settings.name]

    class Noted(base):  # type: ignore[misc,valid-type]
        """The trainer with a record of what it does."""

        def compute_loss(self, model: Any, inputs: Any, *more: Any, **named: Any) -> Any:
            loss = super().compute_loss(model, inputs, *more, **named)
            notes.batches.append({name: value.clone() for name, value in inputs.items()})
            notes.losses.append(float(loss.detach()))
            return loss

    trainer = Noted(
        model=model,
        ref_model=None if case.adapters else tiny_llava(case.seed, SIZE)[0],
        args=kind(
            output_dir=str(out), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE,
            lr_scheduler_type="cosine", warmup_steps=round(WARM * STEPS), beta=settings.strength, bf16=False,
            gradient_checkpointing=False, use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no",
            disable_tqdm=True, seed=5, max_length=None, remove_unused_columns=False, **own,
        ),
        train_dataset=their_rows(processor, files, settings.kind.paired),
        processing_class=processor,
        peft_config=LoraConfig(
            r=RANK, lora_alpha=int(ALPHA), lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
            target_modules=r"model\.language_model\..*\.(q|k|v|o|gate|up|down)_proj",
        ) if case.adapters else None,
    )  # fmt: skip
    collate = trainer.data_collator

    def noted(examples: list[dict[str, Any]]) -> Any:
        notes.rows += [example.pop("number") for example in examples]
        return collate(examples)

    trainer.data_collator = noted
    before = {name: value.clone() for name, value in trained(trainer.model).items()}
    trainer.train()
    del notes.rows[STEPS * BATCH :]  # a loader fetches one batch ahead
    return trainer.model, before, notes


@dataclass(frozen=True, eq=False)
class Ours:
    """Our side before its training; `holder` names what is trained as TRL does."""

    holder: Any
    module: PreferenceLoss
    rows: PreferenceDataset
    order: Given


def prepare_ours(files: list[Path], folder: Path, case: Case, before: dict[str, Tensor], notes: Notes) -> Ours:
    """The same model and adapters; the reference is computed before these are put on."""
    model, processor = frozen(case)
    images = open_images([ImageFile(file) for file in files], processor.image_processor, folder)
    cpu = torch.device("cpu")
    features = open_features(model, images, folder, cache="on", most_gb=1, dtype=torch.float32, device=cpu)
    items, reports, order = _twins(case.loss.kind.paired, notes.rows)
    token = int(model.config.image_token_id)
    tokens = tokenise(processor, token, [asked(number) for number in items for _ in range(2)], reports)
    fixed = {"image_tokens": count_image_tokens(model), "image_token": token, "pad": processor.tokenizer.pad_token_id}
    twins = ReportDataset(tokens, np.repeat(items, 2), None, None, **fixed, max_length=400)
    desirable = None if case.loss.kind.paired else np.array([good(number) for number in items])
    rows = PreferenceDataset(twins, images, features, desirable=desirable)
    reporter = ReportLoss(model, processor.image_processor)
    reference = reference_log_probabilities(reporter, rows, folder, precision="float32", batch_size=5)
    holder = add_adapters(model, RANK, ALPHA, 0.0, train_projector=False) if case.adapters else model
    mine = trained(holder)
    assert mine.keys() == before.keys()
    for name, value in mine.items():
        value.copy_(before[name])
    module = PreferenceLoss(reporter, case.loss)
    return Ours(holder, module, replace(rows, reference=reference), Given((), BATCH, STEPS, 5, rows=order))


def _twins(paired: bool, rows: list[int]) -> tuple[list[int], list[str], tuple[int, ...]]:
    """Items, their reports by twos, and in which order TRL took them.

    Without pairs TRL gives each image the report of the one before it in the batch, the first that of the last; an item
    that comes again in other company is then a row of its own.
    """
    if paired:
        return list(range(ITEMS)), [report for number in range(ITEMS) for report in reports_of(number)], tuple(rows)
    before = [rows[place - 1 if place % BATCH else place + BATCH - 1] for place in range(len(rows))]
    reports = [reports_of(number)[0] for both in zip(rows, before, strict=True) for number in both]
    return rows, reports, tuple(range(len(rows)))


def check_same_words(ours: Ours, notes: Notes) -> None:
    """Every batch of TRL holds our tokens and pixels, padding aside, and counts the same tokens as the report's."""
    order, paired = list(ours.order), ours.rows.desirable is None
    for number, batch in enumerate(notes.batches):
        items = order[number * BATCH : (number + 1) * BATCH]
        mine = ours.rows.__getitems__(items)
        for theirs, prefix in (("", ""),) if paired else (("", ""), ("KL_", "other_")):
            ids = mine[f"{prefix}input_ids"]
            learnt = torch.zeros(ids.numel(), dtype=torch.long)
            learnt[mine[f"{prefix}places"] + 1] = 1
            lengths = batch[f"{theirs}attention_mask"].sum(1).tolist()
            assert len(lengths) == len(ids) == (2 * BATCH if paired else BATCH)
            for row, length in enumerate(lengths):  # both are padded on the right
                assert batch[f"{theirs}attention_mask"][row, :length].all()
                assert batch[f"{theirs}input_ids"][row, :length].tolist() == ids[row, :length].tolist()
                counted = batch[f"{theirs}completion_mask"][row, :length].tolist()
                assert counted == learnt.view(ids.shape)[row, :length].tolist() and counted[-1] == 1
                assert not learnt.view(ids.shape)[row, length:].any()
        if not paired:
            assert torch.equal(mine["desirable"], batch["label"])
        images = ours.rows.images
        assert images is not None
        pixels = to_pixels(
            torch.from_numpy(images[ours.rows.reports.image_of[2 * np.asarray(items)]]), images.processor
        )
        assert torch.allclose(batch["pixel_values"], pixels.repeat(2 if paired else 1, 1, 1, 1), atol=1e-6)


CASES = [
    Case(LossSettings("dpo")),
    Case(LossSettings("dpo"), seed=1),
    Case(LossSettings("dpo"), adapters=False),
    Case(LossSettings("ipo", beta=0.5)),
    Case(LossSettings("robust", flipped=0.2)),
    Case(LossSettings("kto", desirable_weight=0.8, undesirable_weight=1.3)),
    Case(LossSettings("kto"), seed=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_twenty_steps(files: list[Path], tmp_path: Path, case: Case) -> None:
    """Losses of all steps and the weights at the end are equal but for rounding, which steps make larger."""
    theirs, before, notes = train_theirs(files, tmp_path / "theirs", case)
    ours = prepare_ours(files, tmp_path / "cache", case, before, notes)
    assert len(notes.losses) == len(notes.batches) == STEPS and len(notes.rows) == STEPS * BATCH
    check_same_words(ours, notes)
    how = Optimisation(
        learning_rate=RATE, warmup=WARM, batch_size=BATCH, steps=STEPS, max_length=400, log_every=1, save_every=STEPS
    )
    with training_run(how, tmp_path / "ours", 5) as run:
        fit(Job(ours.module, ours.rows, ours.order), how, run)
    history = [record for _, record in read_jsonl(tmp_path / "ours" / "history.jsonl")]
    losses, expected = np.array([line["loss"] for line in history]), np.array(notes.losses)
    assert losses[0] == pytest.approx(expected[0], rel=1e-5)
    assert losses == pytest.approx(expected, rel=1e-4, abs=5e-6)  # robust DPO's passes through 0
    after, mine = trained(theirs), trained(ours.holder)
    for name in after:
        # A weight moves by about the rate a step: what is left between the two is rounding.
        assert torch.allclose(after[name], mine[name], atol=1e-3 * RATE * STEPS), name
    # The test says something only where something was learnt: three batches are all items.
    assert losses[-3:].mean() < 0.95 * losses[:3].mean()
    if not case.loss.kind.paired:
        assert max(line["drift"] for line in history) > 0.5

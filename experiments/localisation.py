"""Train a vision encoder to localise findings on phantoms: the start of builtin:encoder.

    python experiments/localisation.py --data CORPUS --out FOLDER [--vision-encoder NAME] [--steps N] [--batch N] [--rehearse]

CORPUS needs masks. Each patch predicts the findings and sides of its pixels; the patches of a finding together predict
its side, severity, location and tip position. This replaces the DINOv2 pretraining of BiomedCLIP-CXR: a small encoder
that starts contrastive training from random weights, or learns from reports alone, detects large opacities and misses
small ones (experiments/LOG.md). FOLDER/checkpoint is an encoder like any other. An interrupted run starts again from
the beginning.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, max_pool2d, one_hot

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.records import Finding
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import DRAWN, LOCATIONS, TIPS, Severity, Side
from cxrlab.data.card import known_collections
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.parallel import ordered_map
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.local_files import quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import load_vision_encoder
from cxrlab.models.random_init import FEATURE_LAYER
from cxrlab.training.augment import augment, image_seeds, varied
from cxrlab.training.config import Augmentation, Optimisation
from cxrlab.training.image_features import to_pixels
from cxrlab.training.trainer import fast_kernels

KINDS, SIDES = len(DRAWN), 1 + len(Side)
PLACES = tuple(sorted({*LOCATIONS}))
ENDS = tuple(sorted({tip for tips in TIPS.values() for tip in tips}))
# Attributes of a finding; -1 stands for none.
WORDS: tuple[tuple[str, ...], ...] = (tuple(Side), tuple(Severity), PLACES, ENDS)
# Geometric changes apply to an image and its masks, changes of exposure to the image alone.
MOVED = Augmentation(brightness=0.0, contrast=0.0, gamma=0.0, noise=0.0)
EXPOSED = Augmentation(shift=0.0, scale=0.0, rotation=0.0, noise=0.0)
NOISE = 5.0  # largest standard deviation, where an image spans 0 to 255
CELLS = 4  # to a patch's side: how finely masks are kept, so that they can be moved
LEARNT, HELD_OUT = "train", "val"
BETAS = (0.9, 0.98)
BLOCK = 64  # studies that a worker reads at once
REHEARSAL = 60  # phantoms
RESULT, FIGURES = "checkpoint", "localisation.json"


class Samples(NamedTuple):
    """Images [N, H, W], the cells covered by each finding (8 per byte), and the attributes of each, -1 for none."""

    images: NDArray[np.uint8]
    cells: NDArray[np.uint8]
    attributes: NDArray[np.int8]


@dataclass(frozen=True)
class Settings:
    """Settings of the training."""

    steps: int = 6000
    batch: int = 1024
    learning_rate: float = 1.5e-3
    warmup: float = 0.05
    weight_decay: float = 0.05
    seed: int = 7


class Heads(nn.Module):
    """Reads kinds with their sides off every patch, presence and words of a kind off the patches that show it most."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.patch = nn.Linear(width, KINDS * SIDES)
        self.present = nn.Parameter(torch.randn(KINDS, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(KINDS))
        self.words = nn.Parameter(torch.randn(KINDS, sum(map(len, WORDS)), width) / math.sqrt(width))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From [B, patches, D]: scores [B, patches, kinds, sides], [B, kinds] and [B, kinds, words]."""
        seen = self.norm(features)
        patches = self.patch(seen).float().unflatten(2, (KINDS, SIDES))
        shown = torch.einsum("bpk,bpd->bkd", patches.logsumexp(3).softmax(1), seen.float())
        present = (shown * self.present).sum(-1) + self.bias
        return patches, present, torch.einsum("bkd,kwd->bkw", shown, self.words)


def main() -> None:
    """Learn, and print how well held-out images are seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a rehearsal draws phantoms where it is left out")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--vision-encoder", default="fresh:phantom", help="where to start, such as hf:FOLDER of a LLaVA"
    )
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--batch", type=int, default=Settings.batch)
    parser.add_argument("--learning-rate", type=float, default=Settings.learning_rate)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--rehearse", action="store_true", help="two steps on a few images, to see that it runs")
    given = parser.parse_args()
    settings = Settings(given.steps, given.batch, given.learning_rate, seed=given.seed)
    if given.rehearse:
        settings = Settings(steps=2, batch=4)
    if given.data is None:
        if not given.rehearse:
            parser.error("give --data, a corpus with masks")
        given.data = given.out / "phantoms"
        size = load_vision_encoder(given.vision_encoder).model.config.image_size
        make_phantom(PhantomConfig(n=REHEARSAL, size=size, seed=given.seed, workers=1), given.data)
    train_localisation(given.data, given.out, given.vision_encoder, settings)


def train_localisation(data: Path, out: Path, vision_encoder: str, settings: Settings) -> None:
    """Train an encoder on a corpus with masks and write it to `out`/checkpoint; a finished one is left as it is."""
    given = {"data": str(data), "vision_encoder": vision_encoder, **asdict(settings)}
    if (out / FIGURES).is_file():
        if (made := read_json(out / FIGURES)["settings"]) != given:
            raise SystemExit(f"{out} holds a vision encoder made with other settings ({made}); choose another folder.")
        print(f"{out} is finished")
        return
    corpus = load_corpus(data)
    start = load_vision_encoder(vision_encoder, seed=settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = start.model.config
    side = config.image_size // config.patch_size
    if config.image_size % (CELLS * side):
        raise SystemExit(
            f"an image of {config.image_size} pixels cannot be cut into {CELLS * side} x {CELLS * side} cells."
        )
    samples, held_out = (read_samples(corpus, split, config.image_size, side) for split in (LEARNT, HELD_OUT))
    if not samples.cells.any():
        raise DataError(f"{corpus.path} has no masks in its {LEARNT} split; make it with masks.")
    torch.manual_seed(settings.seed)
    heads = Heads(config.hidden_size).to(device)
    model = start.model.to(device)
    with fast_kernels(Optimisation(precision="bfloat16")):
        _learn(model, heads, start.image_processor, samples, settings, device)
        figures = measure(model, heads, start.image_processor, held_out, device)
    print(
        f"held-out images: F1 {figures['micro']:.3f}, over kinds {figures['macro']:.3f}, sides {figures['sides']:.3f}"
    )
    folder = out / RESULT
    with quiet_loading():
        model.cpu().save_pretrained(folder)
    start.image_processor.save_pretrained(folder)
    seen = tuple(dict.fromkeys((*start.collections, *known_collections(corpus.card))))
    write_model_card(
        ModelCard("localisation", collections=seen, extra={"made_from": vision_encoder, "seed": settings.seed}), folder
    )
    write_json(out / FIGURES, {"settings": given, **figures})


def read_samples(corpus: Corpus, split: str, size: int, side: int) -> Samples:
    """The images of a split with the cells and attributes of their findings."""
    ids = corpus.ids(split)
    blocks = [ids[first : first + BLOCK] for first in range(0, len(ids), BLOCK)]
    read = partial(_read, corpus, size, side)
    parts = list(track(ordered_map(read, blocks), f"reading {split}, {BLOCK} at a time", total=len(blocks)))
    if not parts:
        raise DataError(f"{corpus.path} has no study in its {split} split.")
    return Samples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _read(corpus: Corpus, size: int, side: int, ids: Sequence[str]) -> Samples:
    images = np.zeros((len(ids), size, size), np.uint8)
    cells = np.zeros((len(ids), KINDS, (CELLS * side) ** 2 // 8), np.uint8)
    attributes = np.full((len(ids), KINDS, len(WORDS)), -1, np.int8)
    for row, study in enumerate(map(corpus.__getitem__, ids)):
        image = to_uint8(corpus.image(study))
        if image.shape != (size, size):
            raise DataError(
                f"{study.id}: an image of {image.shape[1]} x {image.shape[0]} pixels; make them with {size}."
            )
        images[row] = image
        for index, finding in enumerate(study.findings or ()):
            if finding.present and finding.observation in DRAWN:
                kind = DRAWN.index(finding.observation)
                mask = corpus.mask(study, index)
                if mask is not None:
                    cells[row, kind] |= _cells(mask, CELLS * side)
                attributes[row, kind] = _attributes(finding, attributes[row, kind])
    return Samples(images, cells, attributes)


def _cells(mask: NDArray[np.bool_], side: int) -> NDArray[np.uint8]:
    """Which of side x side cells a mask touches, 8 to a byte."""
    height, width = (length // side for length in mask.shape)
    touched = mask[: side * height, : side * width].reshape(side, height, side, width).any((1, 3))
    return np.packbits(touched)


def _attributes(finding: Finding, before: NDArray[np.int8]) -> list[int]:
    """Indices of a finding's attributes; two findings of a kind on both sides become bilateral."""
    words = (finding.side, finding.severity, finding.location, finding.tip)
    found = [known.index(word) if word in known else -1 for known, word in zip(WORDS, words, strict=True)]
    if before[0] >= 0 and found[0] >= 0 and before[0] != found[0]:
        found[0] = WORDS[0].index(Side.BILATERAL)
    return found


def _learn(
    model: Any, heads: Heads, processor: Any, samples: Samples, settings: Settings, device: torch.device
) -> None:
    trained = [*model.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(
        trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, betas=BETAS, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, partial(_rate, settings))
    whole = _on(samples, device)
    model.train()
    for step in track(range(settings.steps), "training", total=settings.steps):
        rows = torch.randint(len(samples.images), (settings.batch,)).to(device, non_blocking=True)
        images, cells, attributes = (part[rows] for part in whole)
        seeds = image_seeds(settings.seed, rows, step)
        changed = varied(varied(images, seeds, MOVED), seeds, EXPOSED)
        changed = changed + NOISE * torch.rand(len(rows), 1, 1, device=device) * torch.randn_like(changed)
        covered = _patches(augment(_opened(cells), seeds, MOVED))
        loss = _loss(_scores(model, heads, changed, processor), covered, attributes)
        optimiser.zero_grad()
        torch.autograd.backward([loss])
        nn.utils.clip_grad_norm_([each for each in trained if each.grad is not None], 1.0)
        optimiser.step()
        schedule.step()
    model.eval()
    if not torch.isfinite(loss):
        raise DataError("The loss is not finite; use a lower learning rate.")


def _rate(settings: Settings, step: int) -> float:
    share = step / settings.steps
    return min(1.0, (step + 1) / max(1.0, settings.warmup * settings.steps)) * 0.5 * (1 + math.cos(math.pi * share))


def _on(samples: Samples, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    images, cells, attributes = (torch.from_numpy(part).to(device) for part in samples)
    return images, cells, attributes


def _opened(packed: Tensor) -> Tensor:
    """Cells as 0 or 1, [B, kinds, side, side], of [B, kinds, bytes]."""
    bits = (packed.unsqueeze(-1) >> torch.arange(7, -1, -1, device=packed.device)) & 1
    side = math.isqrt(8 * packed.shape[-1])
    return bits.reshape(*packed.shape[:2], side, side).float()


def _patches(cells: Tensor) -> Tensor:
    """Which patches each kind covers, [B, kinds, patches], of cells that may have been moved."""
    return (max_pool2d(cells, CELLS) > 0.5).flatten(2)


def _scores(model: Any, heads: Heads, images: Tensor, processor: Any) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
        hidden = model(pixel_values=to_pixels(images, processor), output_hidden_states=True).hidden_states
        found: tuple[Tensor, Tensor, Tensor] = heads(hidden[FEATURE_LAYER][:, 1:])
    return found


def _loss(scores: tuple[Tensor, Tensor, Tensor], covered: Tensor, attributes: Tensor) -> Tensor:
    """Of an image: kinds of its patches (an eighth of their sum), kinds present, and the words of those."""
    patches, present, words = scores
    there = _present(covered, attributes)
    sides = one_hot(attributes[..., 0].long() + 1, SIDES)  # no side, then those of the vocabulary
    wanted = covered.transpose(1, 2).unsqueeze(3) & sides.bool().unsqueeze(1)
    share = binary_cross_entropy_with_logits(patches, wanted.float(), reduction="sum") / 8
    share = share + binary_cross_entropy_with_logits(present, there.float(), reduction="sum")
    first = 0
    for number, known in enumerate(WORDS):
        target = torch.where(there, attributes[..., number].long(), -1).flatten()
        chosen = words[..., first : first + len(known)].flatten(0, 1)
        share = share + 0.3 * cross_entropy(chosen, target, ignore_index=-1, reduction="sum")
        first += len(known)
    return share / len(present)


def _present(covered: Tensor, attributes: Tensor) -> Tensor:
    """Which kinds are present, [B, kinds]: on a patch, or with an attribute."""
    return covered.any(-1) | (attributes >= 0).any(-1)


@torch.no_grad()
def measure(model: Any, heads: Heads, processor: Any, samples: Samples, device: torch.device) -> dict[str, Any]:
    """F1 of presence, for each finding and over all, and the share of right sides."""
    hits, wrong, missed = (torch.zeros(KINDS, device=device) for _ in range(3))
    right = total_sided = 0
    for block in _blocks(samples):
        images, cells, attributes = _on(block, device)
        _, present, words = _scores(model, heads, images, processor)
        said, there = present > 0, _present(_patches(_opened(cells)), attributes)
        hits += (said & there).sum(0)
        wrong += (said & ~there).sum(0)
        missed += (~said & there).sum(0)
        sided = there & (attributes[..., 0] >= 0)
        right += int((words[..., : len(Side)].argmax(-1) == attributes[..., 0])[sided].sum())
        total_sided += int(sided.sum())
    seen = (hits + missed > 0).tolist()  # a kind that no held-out image shows has no figure
    f1 = (2 * hits / (2 * hits + wrong + missed).clamp(min=1)).tolist()
    kinds = {name: round(value, 4) for name, value, there in zip(DRAWN, f1, seen, strict=True) if there}
    sums = [float(part.sum()) for part in (hits, wrong, missed)]
    return {
        "micro": 2 * sums[0] / max(1.0, 2 * sums[0] + sums[1] + sums[2]),
        "macro": sum(kinds.values()) / max(1, len(kinds)),
        "sides": right / max(1, total_sided),
        "kinds": kinds,
    }


def _blocks(samples: Samples) -> Iterator[Samples]:
    for first in range(0, len(samples.images), 512):
        block = slice(first, first + 512)
        yield Samples(samples.images[block], samples.cells[block], samples.attributes[block])


if __name__ == "__main__":
    main()

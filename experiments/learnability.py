"""F1 by finding of a small network on phantoms: are the rendered findings visible in the images?

    python experiments/learnability.py --n 60000 --size 224 --epochs 16

Renders images (no text), trains a small residual network from scratch on every drawn observation and
on its side, and prints F1 by finding on patients it has not seen: at thresholds chosen on a third
set of patients. `--shifted` adds a test on the shifted preset. One GPU, about five minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from cxrlab.core.vocabulary import DRAWN, OBSERVATIONS, Side  # noqa: E402
from cxrlab.data.parallel import ordered_map  # noqa: E402
from cxrlab.data.phantom.render import PhantomPatient, render  # noqa: E402
from cxrlab.findings.simulated_patients import CaseConfig, draw_patient  # noqa: E402

TARGETS = [(name, None) for name in DRAWN] + [
    (name, side) for name in DRAWN if OBSERVATIONS[name].sided for side in (Side.LEFT, Side.RIGHT)
]


def images(size: int, preset: str, patient: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [V, S, S] of one patient's visits, and targets [V, T] of 0 and 1."""
    case = draw_patient(7, patient, CaseConfig(faint=0.0))
    all_images, truth = [], []
    for visit in case.visits:
        phantom_patient = PhantomPatient(7, patient, visit.sex, case.visits[0].age)
        image = render(phantom_patient, visit.number, visit.view, visit.findings, size, preset, masks=False)
        all_images.append(np.rint(image.image * 255).astype(np.uint8))
        there = [f for f in visit.findings if f.present]
        truth.append(
            [
                any(f.observation == name and (side is None or f.side in (side, Side.BILATERAL)) for f in there)
                for name, side in TARGETS
            ]
        )
    return np.stack(all_images), np.array(truth, dtype=np.uint8)


def draw(n: int, size: int, preset: str, first: int) -> tuple[Tensor, Tensor]:
    """About n images with their targets, from patient number `first` on."""
    all_images, truth, count = [], [], 0
    names = (f"p{number:06d}" for number in range(first, first + n))
    for image, target in ordered_map(partial(images, size, preset), names, ahead=512):
        all_images.append(image)
        truth.append(target)
        count += len(image)
        if count >= n:
            break
    return torch.from_numpy(np.concatenate(all_images)), torch.from_numpy(np.concatenate(truth))


class Block(nn.Module):
    """Two convolutions around a shortcut; halves the image when `stride` is 2."""

    def __init__(self, wide_in: int, wide: int, stride: int):
        super().__init__()
        self.one = nn.Conv2d(wide_in, wide, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)
        same = stride == 1 and wide_in == wide
        self.short = nn.Identity() if same else nn.Conv2d(wide_in, wide, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] → [B, C', H', W']."""
        y = functional.relu(self.norm_one(self.one(x)))
        return functional.relu(self.norm_two(self.two(y)) + self.short(x))


class Reader(nn.Module):
    """A small residual network with an average and a maximum over the image: 3 M parameters."""

    def __init__(self, targets: int):
        super().__init__()
        widths = [32, 64, 128, 192, 256]
        layers: list[nn.Module] = [nn.Conv2d(1, 32, 5, 2, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
        for before, wide in zip([32, *widths], widths, strict=False):
            layers += [Block(before, wide, 1 if wide == 32 else 2), Block(wide, wide, 1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2 * 256, targets)

    def forward(self, image: Tensor) -> Tensor:
        """uint8 [B, S, S] → logits [B, T]."""
        x = self.body((image.unsqueeze(1).float() / 255 - 0.5) * 4)
        return self.head(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int) -> None:
    """One cycle of AdamW with small shifts of the images."""
    steps = epochs * (len(x) // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    rng = np.random.default_rng(7)
    for epoch in range(epochs):
        start = time.time()
        for index in torch.randperm(len(x), device=x.device).split(batch):
            if len(index) < batch:
                continue
            dx, dy = (int(v) for v in rng.integers(-6, 7, 2))
            image = torch.roll(x[index], (dy, dx), (1, 2))
            with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
                loss = functional.binary_cross_entropy_with_logits(model(image).float(), y[index].float())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {float(loss.detach()):.4f}, {time.time() - start:.1f} s", flush=True)


@torch.no_grad()
def scores(model: nn.Module, x: Tensor) -> Tensor:
    """Probabilities [N, T]."""
    model.eval()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        out = torch.cat([model(part).float().sigmoid() for part in x.split(512)])
    model.train()
    return out


def f1(p: Tensor, y: Tensor) -> Tensor:
    """F1 by target [T]; NaN if nothing is present and nothing predicted."""
    y = y.bool()
    return 2 * (p & y).sum(0) / (p.sum(0) + y.sum(0)).float()


def best_thresholds(p: Tensor, y: Tensor) -> Tensor:
    """The threshold of each target with the best F1 on these images."""
    grid = torch.linspace(0.05, 0.95, 46, device=p.device)
    return grid[torch.stack([f1(p > t, y).nan_to_num(0) for t in grid]).argmax(0)]


def main() -> None:
    """Draw, train, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=60000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--shifted", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(7)
    start = time.time()
    sets = {
        "train": draw(args.n, args.size, "standard", 0),
        "val": draw(args.n // 10, args.size, "standard", 400000),
        "test": draw(args.n // 10, args.size, "standard", 600000),
    }
    if args.shifted:
        sets["shifted"] = draw(args.n // 10, args.size, "shifted", 800000)
    total = sum(len(x) for x, _ in sets.values())
    print(f"{total} images in {time.time() - start:.0f} s ({total / (time.time() - start):.0f} per second)", flush=True)
    sets = {name: (x.to(device), y.to(device)) for name, (x, y) in sets.items()}
    model = Reader(len(TARGETS)).to(device, memory_format=torch.channels_last)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters on {device}")
    train(model, *sets["train"], args.epochs, args.batch)
    cut = best_thresholds(scores(model, sets["val"][0]), sets["val"][1])
    table = {
        name: f1(scores(model, x) > cut, y).tolist() for name, (x, y) in sets.items() if name not in ("train", "val")
    }
    share = sets["test"][1].float().mean(0).tolist()
    print(f"{'finding':34s} {'share':>7s} " + " ".join(f"{name:>8s}" for name in table))
    order = sorted(range(len(TARGETS)), key=lambda k: (TARGETS[k][1] is not None, table["test"][k]))
    for k in order:
        name = TARGETS[k][0] + (f" ({TARGETS[k][1]})" if TARGETS[k][1] else "")
        print(f"{name:34s} {share[k]:7.3f} " + " ".join(f"{table[s][k]:8.3f}" for s in table))
    if args.out:
        rows = {f"{n}|{s or ''}": {t: table[t][k] for t in table} for k, (n, s) in enumerate(TARGETS)}
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

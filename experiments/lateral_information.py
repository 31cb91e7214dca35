"""Does the lateral image of a phantom carry information that the frontal one lacks?

    python experiments/lateral_information.py [--n 6000] [--hidden 0.5] [--epochs 10]

Trains small networks on the frontal image, the lateral image, or both, to predict pleural effusion and opacities of the
lower zone; prints the area under the ROC curve on patients that no network has seen: for all findings, and for findings
that are shown or hidden on the frontal image against studies without such a finding. Values are means over seeds;
intervals come from resampled patients. About fifteen minutes on two cores.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity
from cxrlab.data.parallel import ordered_map
from cxrlab.data.phantom.render import HIDEABLE, PhantomPatient, hidden_findings, render, render_lateral
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.classification import auroc
from cxrlab.metrics.statistics.intervals import Resamples

VIEWS = {"frontal": (0,), "lateral": (1,), "both": (0, 1)}
TARGETS = ("pleural effusion", "opacity of the lower zone")


def is_target(finding: Finding, target: str) -> bool:
    """Whether a finding counts as this target."""
    if target == "pleural effusion":
        return finding.present and finding.observation == target
    return finding.present and finding.observation in HIDEABLE and finding.location == "lower zone"


@dataclass
class Samples:
    """Images uint8 [N, 2, S, S] (frontal, lateral); for each target, present, all hidden and none large, [N, T]."""

    images: np.ndarray
    present: np.ndarray
    hidden: np.ndarray
    small: np.ndarray
    patients: list[str]


def draw_visits(size: int, seed: int, share: float, name: str) -> Samples:
    """All visits of one patient."""
    case = draw_patient(seed, name)
    images, present, hidden, small = [], [], [], []
    for visit in case.visits:
        patient = PhantomPatient(seed, name, visit.sex, case.visits[0].age)
        behind = hidden_findings(patient, visit.findings, share)
        frontal = render(patient, visit.number, visit.view, visit.findings, size, masks=False, hidden=behind).image
        lateral = render_lateral(patient, visit.number, visit.findings, size, hidden=behind)
        images.append(np.rint(np.clip(np.stack([frontal, lateral]), 0, 1) * 255).astype(np.uint8))
        found = [[finding for finding in visit.findings if is_target(finding, target)] for target in TARGETS]
        present.append([bool(group) for group in found])
        hidden.append([bool(group) and all(finding in behind for finding in group) for group in found])
        small.append([all(finding.severity in (Severity.TRACE, Severity.MILD) for finding in group) for group in found])
    return Samples(np.stack(images), *map(np.array, (present, hidden, small)), [name] * len(images))


def draw_samples(n: int, first: int, size: int, seed: int, share: float) -> Samples:
    """The first `n` visits of the patients from number `first` on."""
    parts: list[Samples] = []
    names = (f"p{number:06d}" for number in range(first, first + n))
    for part in ordered_map(partial(draw_visits, size, seed, share), names, ahead=128):
        parts.append(part)
        if sum(len(one.patients) for one in parts) >= n:
            break
    arrays = [
        np.concatenate([getattr(one, key) for one in parts])[:n] for key in ("images", "present", "hidden", "small")
    ]
    return Samples(*arrays, [name for one in parts for name in one.patients][:n])


class Classifier(nn.Module):
    """One small convolutional network per view; their features are concatenated."""

    def __init__(self, views: int):
        super().__init__()
        widths = (1, 16, 32, 64, 64)
        self.encoders = nn.ModuleList(
            nn.Sequential(
                *(
                    layer
                    for wide_in, wide in zip(widths[:-1], widths[1:], strict=True)
                    for layer in (nn.Conv2d(wide_in, wide, 3, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())
                ),
                nn.Flatten(),
            )
            for _ in range(views)
        )
        self.head = nn.LazyLinear(len(TARGETS))

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, T] of images [B, V, S, S]."""
        features = [encoder(images[:, k : k + 1]) for k, encoder in enumerate(self.encoders)]
        return self.head(functional.dropout(torch.cat(features, dim=1), 0.4, self.training))


def scores(train: Samples, test: Samples, views: tuple[int, ...], seed: int, epochs: int) -> np.ndarray:
    """Logits [N, T] on the test samples of a network trained from this seed."""
    torch.manual_seed(seed)
    inputs, truth = torch.from_numpy(train.images[:, views]), torch.from_numpy(train.present).float()
    model = Classifier(len(views))
    model(inputs[:2].float())
    steps = epochs * (len(inputs) // 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(inputs))
        for batch in order[: len(order) // 64 * 64].split(64):
            images = functional.pad(inputs[batch].float() / 255 - 0.5, (4, 4, 4, 4), mode="replicate")
            dx, dy = torch.randint(0, 9, (2,)).tolist()  # the whole batch is shifted by up to four pixels
            images = images[:, :, dy : dy + inputs.shape[2], dx : dx + inputs.shape[3]]
            loss = functional.binary_cross_entropy_with_logits(model(images), truth[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        chunks = torch.from_numpy(test.images[:, views]).split(256)
        return torch.cat([model(chunk.float() / 255 - 0.5) for chunk in chunks]).numpy()


def print_table(test: Samples, found: dict[str, np.ndarray]) -> None:
    """A row per target and group of findings: the areas [seeds, N, T] of each network, and both views less frontal."""
    resamples = Resamples(test.patients, rng=np.random.default_rng(7))
    codes = resamples.clusters.codes
    print("| finding | positives | frontal | lateral | both | both − frontal |")
    print("|---|--:|--:|--:|--:|--:|")
    for number, target in enumerate(TARGETS):
        there, hidden, small = test.present[:, number], test.hidden[:, number], test.small[:, number]
        groups = {"all": there, "shown on the frontal image": there & ~hidden, "hidden there": hidden}
        if target == "pleural effusion":
            groups["small, shown"] = there & ~hidden & small
        for group, positive in groups.items():
            used = positive | ~there

            def area(weights: np.ndarray, name: str, used=used, positive=positive, number=number) -> np.ndarray:
                drawn = weights[:, codes][:, used]
                return np.mean([auroc(seed[used, number], positive[used], drawn) for seed in found[name]], axis=0)

            cells = []
            for value_of in (
                *(partial(area, name=name) for name in VIEWS),
                lambda weights: area(weights, "both") - area(weights, "frontal"),
            ):
                least = -1.0 if len(cells) == len(VIEWS) else 0.0
                value = resamples.resample_value(value_of, resamples.clusters.count_with(positive), (least, 1.0))
                low, high = value.estimate().ends
                cells.append(f"{value.value:.3f} ({low:.3f} to {high:.3f})")
            print(f"| {target}, {group} | {int(positive.sum())} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Draw, train, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=6000, help="training studies")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--hidden", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    start = time.time()
    train = draw_samples(args.n, 0, args.size, 7, args.hidden)
    test = draw_samples(max(args.n // 3, 50), 500_000, args.size, 7, args.hidden)
    print(f"{args.n} training and {len(test.patients)} test studies in {time.time() - start:.0f} s", flush=True)
    found = {
        name: np.stack([scores(train, test, views, seed, args.epochs) for seed in range(args.seeds)])
        for name, views in VIEWS.items()
    }
    print_table(test, found)
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()

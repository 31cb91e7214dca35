"""Adaptive Knockoff: a gradient bandit draws groups of similar images more often, the higher their rewards.

The images of the pool are clustered, and the bandit has a preference for each cluster. After every batch of answers
the preferences move by the reward of each answer above the mean so far. A batch is planned on disk like a round, and
its rewards are kept beside the plan, so that a resumed audit sends the same images. No image is moved: in the ledger
all of them are of round 0.

    rounds/K/plan.jsonl      the images of batch K
    rounds/K/rewards.jsonl   the rewards of each of them, null where unknown
    rounds/K/transcript/     training corpus of the surrogate before batch K, a few times in an audit
    rounds/K/fit/            that surrogate
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.core.files import write_text
from cxrlab.core.json_values import dumps
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import Certainty
from cxrlab.extraction.attack_rounds import PlannedImage, blend_chests, fit_round_surrogate, plan_round, query_round
from cxrlab.extraction.config import REWARDS
from cxrlab.extraction.records import Query, QueryImage
from cxrlab.extraction.report_content import FindingSet, report_content
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.extraction.attack_rounds import Attack

Values = NDArray[np.float64]
Rewards = Mapping[str, float | None]

REWARDS_FILE = "rewards.jsonl"
CANDIDATES = 2  # images to choose among, per query of the budget
FITS = 4  # a new surrogate predicts answers from each quarter of the budget on
THUMBNAIL = 8  # pixels; finer detail adds little to the similarity of images
LIMIT = 5.0  # of a preference: the likeliest group is drawn at most exp(10) times as often as the least likely one
_PASSES = 50


class Bandit:
    """A gradient bandit: one preference per group, drawn by softmax; `rate` is the largest step of a unit reward."""

    def __init__(self, groups: int, rate: float) -> None:
        self.preferences: Values = np.zeros(groups)
        self.rate = rate
        self._means = {kind: _RunningMean() for kind in REWARDS}

    def shares(self, left: Sequence[int]) -> Values:
        """[groups], probability of each; 0 for a group with no image left (`left` counts them per group)."""
        some = np.asarray(left) > 0
        # The largest exponent becomes 0: nothing overflows, and the sum is at least 1.
        powers = np.where(some, np.exp(self.preferences - self.preferences[some].max()), 0.0)
        found: Values = powers / powers.sum()
        return found

    def learn(self, groups: Sequence[int], rewards: Sequence[Rewards], shares: Values) -> None:
        """Move the preferences by the answers of one batch.

        Each kind of reward is compared with its own mean over all answers so far, these included; unknown rewards are
        left out. An answer without any known reward moves nothing.

        Args:
            groups: Group of each answer.
            rewards: 0 to 1 for each kind; None where unknown.
            shares: With which the batch was drawn.
        """
        for kind, mean in self._means.items():
            for row in rewards:
                mean.add(row.get(kind))
        means = {kind: mean.value for kind, mean in self._means.items()}
        step = np.zeros_like(self.preferences)
        for group, row in zip(groups, rewards, strict=True):
            gains = [value - mean for kind, mean in means.items() if (value := row.get(kind)) is not None]
            drawn = np.zeros_like(step)
            drawn[group] = 1.0
            step += self.rate * (float(np.mean(gains)) if gains else 0.0) * (drawn - shares)
        self.preferences = np.clip(self.preferences + step, -LIMIT, LIMIT)


def run_adaptive_knockoff(attack: Attack) -> list[Query]:
    """Query batch by batch until the budget is spent; returns the answered queries in order."""
    config = attack.config
    candidates = candidate_images(attack)
    labels = cluster_images((one.pixels for one in candidates), config.policy.groups, config.seed)
    group_of = {one.key: group for one, group in zip(candidates, labels, strict=True)}
    bandit = Bandit(max(labels) + 1, config.policy.rate)
    left: list[dict[str, QueryImage]] = [{} for _ in bandit.preferences]  # of each group, by key, in the pool's order
    for one, group in zip(candidates, labels, strict=True):
        left[group][one.key] = one
    predictor = SurrogateLossReward(attack)
    known: set[FindingSet] = set()
    queries: list[Query] = []
    for number, first in enumerate(range(0, config.budget, config.policy.batch)):
        shares = bandit.shares([len(group) for group in left])
        count = min(config.policy.batch, config.budget - first)
        pictures = plan_round(attack, number, partial(_draw_batch, attack, number, left, bandit, count))
        for one in pictures:
            del left[group_of[one.key]][one.key]
        predictor.renew(number, queries)
        answers = query_round(attack, 0, first, pictures)
        file = attack.place(number) / REWARDS_FILE
        reports = [query.report for query in answers]
        if not file.is_file():  # a resumed audit reads them, so that the bandit takes the same steps
            rewards = report_rewards(reports, known, predictor.losses(pictures, reports))
            rows = [{"key": one.key, **{kind: row[kind] for kind in config.policy.rewards}} for one, row in
                    zip(pictures, rewards, strict=True)]  # fmt: skip
            write_text(file, "".join(f"{dumps(row)}\n" for row in rows))
        known |= {answer.findings for answer in map(report_content, reports) if answer.has_statements}
        found: list[Rewards] = [{kind: row[kind] for kind in config.policy.rewards} for _, row in read_jsonl(file)]
        bandit.learn([group_of[one.key] for one in pictures], found, shares)
        queries += answers
    return queries


def candidate_images(attack: Attack) -> list[QueryImage]:
    """Images to choose among: twice the budget, or all of a smaller pool."""
    pool, budget = attack.pool, attack.config.budget
    count = CANDIDATES * budget
    while True:
        if pool.readable is not None:
            count = max(budget, min(count, pool.readable))
        try:
            return pool.draw(count)
        except DataError:  # a pool learns only while reading which of its images are unreadable
            if pool.readable is None or max(budget, pool.readable) >= count:
                raise


def _draw_batch(
    attack: Attack, number: int, groups: Sequence[Mapping[str, QueryImage]], bandit: Bandit, count: int
) -> list[PlannedImage]:
    """The images of a batch: a group by preference, and its next image in the order of the pool."""
    rng = generator(attack.config.seed, "adaptive", "batch", number)
    left, following = [len(group) for group in groups], [iter(group.values()) for group in groups]
    drawn: list[PlannedImage] = []
    for _ in range(count):
        group = int(rng.choice(len(left), p=bandit.shares(left)))
        drawn.append((next(following[group]), {"group": group}))
        left[group] -= 1
    pictures = blend_chests(attack, [one for one, _ in drawn])
    return [(one, notes) for one, (_, notes) in zip(pictures, drawn, strict=True)]


def cluster_images(pixels: Iterable[NDArray[np.uint8]], groups: int, seed: int) -> list[int]:
    """The group of each image (uint8 [H, W]), from 0: k-means++ on thumbnails; fewer groups if fewer images differ."""
    side, box = (THUMBNAIL, THUMBNAIL), Image.Resampling.BOX
    small = [np.asarray(Image.fromarray(one).resize(side, box), np.float64) for one in pixels]
    rows = np.stack([one.ravel() / 255.0 for one in small])
    rng = generator(seed, "adaptive", "groups")
    centres = rows[[rng.integers(len(rows))]]
    while len(centres) < groups and (far := _distances(rows, centres).min(axis=1)).any():
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=far / far.sum())]])
    labels = _distances(rows, centres).argmin(axis=1)
    for _ in range(_PASSES):
        # A centre without images stays where it is; empty groups are dropped at the end.
        centres = np.stack([rows[labels == k].mean(axis=0) if (labels == k).any() else centres[k]
                            for k in range(len(centres))])  # fmt: skip
        before, labels = labels, _distances(rows, centres).argmin(axis=1)
        if (before == labels).all():
            break
    return [int(label) for label in np.unique(labels, return_inverse=True)[1]]


def certainty(report: str) -> float:
    """Share of findings stated without a hedge, 0 to 1.

    A report without a present finding is judged by its denials; it has 1 if it only calls things normal, and 0 if it
    states nothing about the image.
    """
    reading = read(report)
    findings = [one for one in reading if one.present] or list(reading)
    if not findings:
        return float(reading.has_statements)
    return sum(one.certainty is Certainty.CERTAIN for one in findings) / len(findings)


class SurrogateLossReward:
    """How badly the last surrogate predicted an answer; one is trained when a new quarter of the budget begins."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._quarter = 0
        self._training: tuple[int, list[Query]] | None = None
        self._surrogate: Any = None

    def renew(self, number: int, queries: Sequence[Query]) -> None:
        """Set the answered queries before batch `number`; `losses` trains on them when it is called."""
        quarter = FITS * len(queries) // self._attack.config.budget
        if "loss" in self._attack.config.policy.rewards and quarter > self._quarter:
            self._quarter, self._training, self._surrogate = quarter, (number, list(queries)), None

    def losses(self, pictures: Sequence[QueryImage], reports: Sequence[str]) -> list[float | None]:
        """1 − geometric mean probability of a token of each answer, 0 to 1; None before there is a surrogate."""
        if self._surrogate is None and self._training is not None:
            gc.collect()  # frees the last surrogate before there are two
            self._surrogate = fit_round_surrogate(self._attack, *self._training)
        if self._surrogate is None:
            self._training = None  # until the next quarter
            return [None] * len(pictures)
        import torch

        surrogate = self._surrogate
        batch_size = BatchSize(self._attack.config.alignment.batch_size, self._attack.folder, "alignment.batch_size")
        images = [one.pixels.astype(np.float32) / np.float32(255.0) for one in pictures]
        with torch.no_grad():
            nats = batch_size.map(
                range(len(images)),
                lambda some: surrogate.losses([images[at] for at in some], [reports[at] for at in some]).tolist(),
            )
        return [-float(np.expm1(-loss)) if np.isfinite(loss) else None for loss in nats]


def report_rewards(
    reports: Sequence[str], before: Iterable[FindingSet], losses: Sequence[float | None]
) -> list[Rewards]:
    """All rewards of each report; all are 0 for one that states nothing about the image, such as a refusal.

    Args:
        before: Findings of the reports before these; others are new, and rewarded as diverse.
    """
    known = set(before)
    rows: list[Rewards] = []
    for text, loss in zip(reports, losses, strict=True):
        answer = report_content(text)
        if not answer.has_statements:
            rows.append(dict.fromkeys(REWARDS, 0.0))
            continue
        rows.append({"certainty": certainty(text), "diversity": float(answer.findings not in known), "loss": loss})
        known.add(answer.findings)
    return rows


class _RunningMean:
    """Mean of the known values so far; 0 if there is none."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self._sum, self._count = self._sum + value, self._count + 1

    @property
    def value(self) -> float:
        return self._sum / self._count if self._count else 0.0


def _distances(rows: Values, centres: Values) -> Values:
    """[rows, centres], squared Euclidean."""
    return np.stack([np.square(rows - centre).sum(axis=1) for centre in centres], axis=1)

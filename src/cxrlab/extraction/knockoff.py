"""Knockoff that learns which pictures pay: groups of like pictures, drawn more often the more their answers brought.

The pool's pictures are put into groups by how they look, and a gradient bandit has a preference for each group. After
every batch of answers the preferences move by what each answer brought against the mean so far. A batch is planned on
disk like a round, and what its answers brought is kept beside the plan, so that a stopped audit asks the same
pictures. No picture is moved: to the ledger all of them are of round 0.

    rounds/K/plan.jsonl      the pictures of batch K
    rounds/K/rewards.jsonl   what each of them brought, null where nobody can tell
    rounds/K/transcript/     what the surrogate in front of batch K learnt from, a few times in an audit
    rounds/K/fit/            that surrogate
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.core.files import write_text
from cxrlab.core.json_values import dumps
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import Certainty
from cxrlab.extraction.config import REWARDS
from cxrlab.extraction.records import Picture, Query
from cxrlab.extraction.report_text import FindingSet, report_content
from cxrlab.extraction.rounds import PlannedImage, blend_chests, fit_round_surrogate, plan_round, query_round
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.extraction.rounds import Attack

Values = NDArray[np.float64]
Rewards = Mapping[str, float | None]

REWARDS_FILE = "rewards.jsonl"
CANDIDATES = 2  # pictures to choose among, for each one of the budget
FITS = 4  # a new surrogate foresees from each quarter of the budget on
THUMBNAIL = 8  # pixels; finer detail says little of what a picture is like
LIMIT = 5.0  # of a preference: the likeliest group is drawn at most exp(10) times as often as the least likely one
_PASSES = 50


class Bandit:
    """A gradient bandit: one preference for each group, drawn by softmax.

    Args:
        groups: How many.
        rate: How far one answer that brought 1 more than the mean moves the preference of its group, at most.
    """

    def __init__(self, groups: int, rate: float) -> None:
        self.preferences: Values = np.zeros(groups)
        self.rate = rate
        self._seen: list[Rewards] = []

    def shares(self, left: Sequence[int]) -> Values:
        """[groups], how often each is drawn, sum 1; one with no picture left is not drawn.

        Args:
            left: Pictures left in each group, at least one in all.
        """
        some = np.asarray(left) > 0
        # The largest exponent becomes 0: nothing overflows, and the sum is at least 1.
        powers = np.where(some, np.exp(self.preferences - self.preferences[some].max()), 0.0)
        found: Values = powers / powers.sum()
        return found

    def learn(self, groups: Sequence[int], rewards: Sequence[Rewards], shares: Values) -> None:
        """Move the preferences by the answers of one batch.

        Each kind of reward is held against its own mean over all answers so far, these included, and an unknown one
        is left out: a kind that begins later lifts nobody. An answer of which nothing is known moves nothing.

        Args:
            groups: Group of each answer.
            rewards: What each brought, 0 to 1 for each kind; None where it is not known.
            shares: By which the batch was drawn.
        """
        self._seen += rewards
        means = {kind: _mean([row.get(kind) for row in self._seen]) for kind in REWARDS}
        step = np.zeros_like(self.preferences)
        for group, row in zip(groups, rewards, strict=True):
            gains = [value - mean for kind, mean in means.items() if (value := row.get(kind)) is not None]
            drawn = np.zeros_like(step)
            drawn[group] = 1.0
            step += self.rate * _mean(gains) * (drawn - shares)
        self.preferences = np.clip(self.preferences + step, -LIMIT, LIMIT)


def run_adaptive_knockoff(attack: Attack) -> list[Query]:
    """Ask until the budget is spent, batch by batch; returns what was asked and answered, in order."""
    config = attack.config
    candidates = _candidates(attack)
    labels = cluster_images([one.pixels for one in candidates], config.policy.groups, config.seed)
    group_of = {one.key: group for one, group in zip(candidates, labels, strict=True)}
    bandit = Bandit(max(labels) + 1, config.policy.rate)
    foresight = SurrogateLossReward(attack)
    told: list[Query] = []
    for number, first in enumerate(range(0, config.budget, config.policy.batch)):
        asked = {query.key for query in told}
        groups = [[one for one in candidates if group_of[one.key] == group and one.key not in asked]
                  for group in range(len(bandit.preferences))]  # fmt: skip
        shares = bandit.shares([len(group) for group in groups])
        count = min(config.policy.batch, config.budget - first)
        pictures = plan_round(attack, number, partial(_drawn, attack, number, groups, bandit, count))
        foresight.renew(number, told)
        answers = query_round(attack, 0, first, pictures)
        rewards = _brought(attack, number, pictures, answers, told, foresight)
        bandit.learn([group_of[one.key] for one in pictures], rewards, shares)
        told += answers
    return told


def cluster_images(pixels: Sequence[NDArray[np.uint8]], groups: int, seed: int) -> list[int]:
    """The group of each picture, from 0: k-means on thumbnails; fewer groups where fewer pictures differ.

    Args:
        pixels: uint8 [H, W] each, at least one.
        groups: How many at most.
        seed: Decides the first centres, which are drawn far apart.
    """
    rows = np.stack([_thumbnail(one) for one in pixels])
    rng = generator(seed, "adaptive", "groups")
    centres = rows[[rng.integers(len(rows))]]
    while len(centres) < groups and (far := _distances(rows, centres).min(axis=1)).any():
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=far / far.sum())]])
    labels = _distances(rows, centres).argmin(axis=1)
    for _ in range(_PASSES):
        # A centre that lost all its pictures stays where it is; none is left without one in the end, see below.
        centres = np.stack([rows[labels == k].mean(axis=0) if (labels == k).any() else centres[k]
                            for k in range(len(centres))])  # fmt: skip
        before, labels = labels, _distances(rows, centres).argmin(axis=1)
        if (before == labels).all():
            break
    return [int(label) for label in np.unique(labels, return_inverse=True)[1]]


def certainty(report: str) -> float:
    """The share of findings told without a hedge, 0 to 1.

    A report without a finding is judged by what it denies, and is plain (1) where it only calls things normal. One
    that says nothing of an image has 0.
    """
    reading = read(report)
    told = [one for one in reading if one.present] or list(reading)
    if not told:
        return float(reading.has_statements)
    return sum(one.certainty is Certainty.CERTAIN for one in told) / len(told)


class SurrogateLossReward:
    """How badly the last surrogate foresaw an answer; one is trained when a new quarter of the budget begins.

    Args:
        attack: Whose.
    """

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._quarter = 0
        self._learnt: tuple[int, list[Query]] | None = None
        self._surrogate: Any = None

    def renew(self, number: int, told: Sequence[Query]) -> None:
        """Say what was told before batch `number`; nothing is trained before somebody asks."""
        quarter = FITS * len(told) // self._attack.config.budget
        if "loss" in self._attack.config.policy.rewards and quarter > self._quarter:
            self._quarter, self._learnt, self._surrogate = quarter, (number, list(told)), None

    def losses(self, pictures: Sequence[Picture], reports: Sequence[str]) -> list[float | None]:
        """1 less the geometric mean probability of a token of each answer, 0 to 1; None before there is a surrogate."""
        if self._surrogate is None and not self._fit():
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

    def _fit(self) -> bool:
        if self._learnt is None:
            return False
        gc.collect()  # the surrogate before, before there are two
        self._surrogate = fit_round_surrogate(self._attack, *self._learnt)
        if self._surrogate is None:
            self._learnt = None  # until the next quarter
        return self._surrogate is not None


def _candidates(attack: Attack) -> list[Picture]:
    """Pictures to choose among: twice the budget, or all of a smaller pool."""
    pool, budget = attack.pool, attack.config.budget
    count = CANDIDATES * budget
    while True:
        if pool.readable is not None:
            count = max(budget, min(count, pool.readable))
        try:
            return pool.draw(count)
        except DataError:  # only in reading does a pool learn which of its pictures cannot be read
            if pool.readable is None or max(budget, pool.readable) >= count:
                raise


def _drawn(
    attack: Attack, number: int, groups: Sequence[list[Picture]], bandit: Bandit, count: int
) -> list[PlannedImage]:
    """The pictures of a batch: a group by preference, of it the next picture in the order of the pool."""
    rng = generator(attack.config.seed, "adaptive", "batch", number)
    left = [list(reversed(group)) for group in groups]
    drawn: list[PlannedImage] = []
    for _ in range(count):
        group = int(rng.choice(len(left), p=bandit.shares([len(rest) for rest in left])))
        drawn.append((left[group].pop(), {"group": group}))
    pictures = blend_chests(attack, [one for one, _ in drawn])
    return [(one, notes) for one, (_, notes) in zip(pictures, drawn, strict=True)]


def _brought(
    attack: Attack,
    number: int,
    pictures: Sequence[Picture],
    answers: Sequence[Query],
    told: Sequence[Query],
    foresight: SurrogateLossReward,
) -> list[Rewards]:
    """What each answer of a batch brought, by kind; as it is on file, or worked out now and put there."""
    file = attack.place(number) / REWARDS_FILE
    if not file.is_file():
        reports = [query.report for query in answers]
        found = _rewards(reports, [query.report for query in told], foresight.losses(pictures, reports))
        kinds = attack.config.policy.rewards
        kept = [{"key": one.key, **{kind: row[kind] for kind in kinds}} for one, row in
                zip(pictures, found, strict=True)]  # fmt: skip
        write_text(file, "".join(f"{dumps(row)}\n" for row in kept))
    return [{kind: row[kind] for kind in attack.config.policy.rewards} for _, row in read_jsonl(file)]


def _rewards(reports: Sequence[str], before: Sequence[str], losses: Sequence[float | None]) -> list[Rewards]:
    """All kinds for each report; one that says nothing of an image, such as a refusal, brought nothing of any kind."""
    known: set[FindingSet] = {answer.findings for text in before if (answer := report_content(text)).has_statements}
    rows: list[Rewards] = []
    for text, loss in zip(reports, losses, strict=True):
        answer = report_content(text)
        if not answer.has_statements:
            rows.append(dict.fromkeys(REWARDS, 0.0))
            continue
        rows.append({"certainty": certainty(text), "diversity": float(answer.findings not in known), "loss": loss})
        known.add(answer.findings)
    return rows


def _mean(values: Sequence[float | None]) -> float:
    """Of what is known; 0 where nothing is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else 0.0


def _thumbnail(pixels: NDArray[np.uint8]) -> Values:
    """[64], grey in [0, 1]."""
    small = Image.fromarray(pixels).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(small, np.float64).ravel() / 255.0


def _distances(rows: Values, centres: Values) -> Values:
    """[rows, centres], squared Euclidean."""
    return np.stack([np.square(rows - centre).sum(axis=1) for centre in centres], axis=1)

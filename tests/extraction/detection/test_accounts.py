"""The detectors that judge accounts, on vectors whose distribution is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.extraction.detection.base import DETECTORS, Detector, QueryFeatures, Scorer, Traffic, draw_accounts
from cxrlab.extraction.detection.config import DetectorSettings
from cxrlab.extraction.detection.detect import false_alarms, within
from cxrlab.extraction.detection.detectors import Coverage, Mmd, Prada

SMALL = DetectorSettings(
    image_bound=0.03, account_bound=0.05, account_queries=40, accounts=60, window=16, reference=100, least=15, planes=8
)
LOOKS = np.zeros((1, 80))


def cloud(n: int, seed: int, shift: float = 0.0, spread: float = 1.0, account: str = "one") -> Traffic:
    """Normal vectors in 8 dimensions; looks that say nothing."""
    vectors = shift + spread * np.random.default_rng(seed).standard_normal((n, 8))
    return Traffic(tuple(map(str, range(n))), (account,) * n, vectors, np.repeat(LOOKS, n, axis=0))


def calibrated(kind: type[Detector]) -> Detector:
    found = kind(SMALL)
    found.calibrate(cloud(600, 1), seed=7)
    return found


@pytest.fixture(scope="module")
def detectors() -> dict[str, Detector]:
    return {kind.name: calibrated(kind) for kind in (Prada, Mmd, Coverage)}


def test_benign_accounts_ring_no_more_often_than_the_bound(detectors: dict[str, Detector]) -> None:
    """2,000 fresh images are 50 accounts that share none."""
    for detector in detectors.values():
        rate = false_alarms(detector, cloud(2000, 2), seed=7)
        assert rate.n == 50 and within(rate, SMALL.account_bound), detector.name


def test_a_shift_is_seen_as_soon_as_the_window_is_full(detectors: dict[str, Detector]) -> None:
    found = detectors["mmd"].watch(cloud(100, 3, shift=2.0))
    assert found.alarm == SMALL.window
    assert found.periods == (16, 16)  # two whole accounts of 40; the last 20 images are no account
    assert np.isnan(found.scores[:15]).all() and found.flagged is None


def test_a_window_has_the_discrepancy_that_its_definition_gives(detectors: dict[str, Detector]) -> None:
    mmd = detectors["mmd"]
    assert isinstance(mmd, Mmd)
    stream = cloud(30, 4, shift=0.5)
    scores = mmd.watch(stream).scores
    last, reference = stream.features[14:30], mmd.reference

    def mean_kernel(one: np.ndarray, two: np.ndarray, same: bool) -> float:
        gaps = ((one[:, None] - two[None]) ** 2).sum(axis=2)
        values = np.exp(-gaps / (2 * mmd.width))
        return float(values[~np.eye(len(one), dtype=bool)].mean() if same else values.mean())

    direct = mean_kernel(last, last, True) + mean_kernel(reference, reference, True)
    assert scores[29] == pytest.approx(direct - 2 * mean_kernel(last, reference, False), abs=1e-12)


def test_the_discrepancy_has_no_bias() -> None:
    """Over benign windows the mean of an unbiased MMD² is 0, within its error."""
    mmd = Mmd(SMALL)
    mmd.fit(cloud(2000, 5), np.random.default_rng(0))
    ends = []
    for seed in range(200):
        window = mmd.start()
        ends.append([window.update(query) for query in cloud(16, 100 + seed)][-1])
    # The benign images that are compared with are a draw too: 100 of them move the mean by about 0.002.
    assert abs(np.mean(ends)) < 3 * np.std(ends) / math.sqrt(len(ends)) + 0.006
    assert np.mean([_last_of(mmd, shift=1.0) for _ in range(3)]) > 10 * abs(np.mean(ends))


def _last_of(mmd: Mmd, shift: float) -> float:
    window = mmd.start()
    return [window.update(query) for query in cloud(16, 99, shift=shift)][-1]


def test_an_account_that_goes_about_covers_more(detectors: dict[str, Detector]) -> None:
    coverage = detectors["coverage"]
    wide, narrow = coverage.watch(cloud(40, 6, spread=3.0)), coverage.watch(cloud(40, 7, spread=0.1))
    assert wide.alarm is not None and narrow.alarm is None
    assert np.nanmax(narrow.scores) < 0


def test_touched_cells_are_counted_against_benign_accounts() -> None:
    """One plane through the mean: an account can touch two cells and benign ones nearly always have after ten images."""
    coverage = Coverage(DetectorSettings(account_queries=40, accounts=99, planes=1, window=8, least=8))
    coverage.fit(cloud(200, 8), np.random.default_rng(0))
    coverage.places = np.zeros(1)
    coverage.expected, coverage.spread = np.full(40, 2.0), np.full(40, 0.5)
    visited = coverage.start()
    side = coverage.normals[:, 0]
    scores = [visited.update(QueryFeatures(side * way, LOOKS[0])) for way in (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1)]
    assert np.isnan(scores[:9]).all()
    assert scores[9:] == [-2.0, 0.0]  # one cell is one below two, in halves of a cell


def test_prada_sees_distances_of_two_kinds_and_not_natural_ones(detectors: dict[str, Detector]) -> None:
    """Steps along a line that are tiny or huge are far from normal; another cloud has distances as normal as ours."""
    prada = detectors["prada"]
    steps = np.cumsum(np.where(np.arange(40) % 2, 1e-3, 5.0))
    line = Traffic(("x",) * 40, ("one",) * 40, np.outer(steps, np.eye(8)[0]), np.repeat(LOOKS, 40, axis=0))
    assert prada.watch(line).alarm is not None
    assert prada.watch(cloud(40, 9, shift=10.0)).alarm is None


def test_accounts_are_watched_apart_and_begin_anew(detectors: dict[str, Detector]) -> None:
    """Two accounts that take turns: the bad one's window is full after its 16th question, the 32nd of all."""
    bad, good = cloud(40, 10, shift=3.0, account="bad"), cloud(40, 11, account="good")
    order = [place for pair in zip(range(40, 80), range(40), strict=True) for place in pair]
    both = Traffic(
        (*bad.keys, *good.keys),
        (*bad.accounts, *good.accounts),
        np.concatenate([bad.features, good.features]),
        np.concatenate([bad.image_statistics, good.image_statistics]),
    ).take(order)
    found = detectors["mmd"].watch(both)
    assert found.alarm == 32 and sorted(found.periods, key=str) == [16, None]
    twice = detectors["mmd"].watch(cloud(56, 12, shift=3.0))
    assert np.isnan(twice.scores[40:55]).all() and not np.isnan(twice.scores[55])


@pytest.mark.parametrize("name", DETECTORS)
def test_live_and_in_one_piece_are_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    images = cloud(400, 13)
    images = Traffic(images.keys, images.accounts, images.features, rng.standard_normal((400, 80)))
    detector = DETECTORS.load(name)(SMALL)
    detector.calibrate(images.take(range(300)), seed=3)
    stream = images.take(range(300, 400))
    watch = detector.begin()
    seen = [watch.update(query) for query in stream]
    whole = detector.watch(stream)
    assert np.array_equal([one.score for one in seen], whole.scores, equal_nan=True)
    assert whole.alarm == next((place + 1 for place, one in enumerate(seen) if one.alarm), None)
    if whole.flagged is not None:
        assert [one.flagged for one in seen] == whole.flagged.tolist()
    again = DETECTORS.load(name)(SMALL)
    again.calibrate(images.take(range(300)), seed=3)
    assert again.threshold == detector.threshold


def test_drawn_accounts_share_no_image_until_they_must() -> None:
    accounts = list(draw_accounts(10, 3, 5, np.random.default_rng(0)))
    assert len(accounts) == 5 and all(len(set(one.tolist())) == 3 for one in accounts)
    assert len({place for one in accounts[:3] for place in one.tolist()}) == 9


def test_what_cannot_be_watched_is_refused() -> None:
    few, blind = cloud(100, 14), cloud(400, 15)
    with pytest.raises(DataError, match=r"100 benign images .* needs 120; give that many, or account_queries=33"):
        Mmd(SMALL).calibrate(few, seed=1)
    blind = Traffic(blind.keys, blind.accounts, np.zeros((400, 0)), blind.image_statistics)
    with pytest.raises(ConfigError, match="--encoder"):
        Prada(SMALL).calibrate(blind, seed=1)
    same = Traffic(blind.keys, blind.accounts, np.ones((400, 3)), blind.image_statistics)
    with pytest.raises(DataError, match="too similar"):
        Prada(SMALL).calibrate(same, seed=1)
    with pytest.raises(RuntimeError, match="no threshold yet"):
        Prada(SMALL).watch(few)
    with pytest.raises(TypeError, match="must not define calibrate"):
        type("Own", (Prada,), {"calibrate": lambda self, benign, seed: None})


def test_nothing_of_the_fitted_third_sets_the_threshold() -> None:
    """A detector that remembers what it was fitted to has score 0 there; a threshold on those images would be 0."""

    class Remembers(Detector):
        name = "remembers"
        per_image = True

        def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
            self.known = {row.tobytes() for row in benign.features}

        def start(self) -> Scorer:
            return self

        def update(self, query: QueryFeatures) -> float:
            return 0.0 if query.features.tobytes() in self.known else 1.0

    found = Remembers(SMALL)
    found.calibrate(cloud(150, 16), seed=1)
    assert len(found.known) == 50 and found.threshold == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_bound": 0.0}, "fraction above 0"),
        ({"accounts": 50}, "give accounts=99"),
        ({"window": 100}, "never reached in an account of 100"),
        ({"planes": 63}, "at most 62"),
        ({"account_queries": 3}, "at least 12"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DetectorSettings(**settings)  # type: ignore[arg-type]

from __future__ import annotations

import math
import runpy
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.metrics.report_pairs import Batch, Context, Pair
from cxrlab.preference.judges import (
    BASE,
    READERS,
    Opinion,
    ReaderNoise,
    SimulatedReader,
    load_judge,
    metric_judge,
)
from cxrlab.preference.make_pairs import EQUAL, choose_pairs

pytestmark = pytest.mark.slow

EXPERIMENT = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "radpref_reader.py"), run_name="fit")
fit_noise, log_loss, noise_with_interval = (
    EXPERIMENT[name] for name in ("fit_noise", "log_loss", "noise_with_interval")
)

TOLD = "There is a small left pleural effusion."
HALF, CLEAR = f"{TOLD} There is a large right pneumothorax.", "The lungs are clear. There is no effusion."
SAME = "A small left pleural effusion is present."
EXACT, COIN = ReaderNoise(1e-9, 0.0), ReaderNoise(1.0, 1.0)


def opinion(judge: SimulatedReader, *candidates: str, study: str = "s", reference: str | None = TOLD) -> Opinion:
    pairs = [Pair(f"{study}#{number}", reference, text) for number, text in enumerate(candidates)]
    return judge.opinions(Batch(pairs), [range(len(pairs))])[0]


def first_wins(judge: SimulatedReader, one: str, other: str, studies: int) -> int:
    """How often the first of two reports is preferred, over so many studies."""
    pairs = [Pair(f"s{n}#{k}", TOLD, text) for n in range(studies) for k, text in enumerate((one, other))]
    groups = [range(2 * n, 2 * n + 2) for n in range(studies)]
    return sum(found.preferred == ((0, 1),) for found in judge.opinions(Batch(pairs), groups))


def test_a_reader_without_noise_is_the_base_judge() -> None:
    """By GREEN the three are worth 1, 1/2 and 0: every comparison goes with the reward, whatever the seed."""
    for seed in range(20):
        found = opinion(SimulatedReader(seed, [EXACT], "green:rules"), HALF, CLEAR, TOLD)
        assert set(found.preferred) == {(2, 0), (2, 1), (0, 1)}
        assert [part["green:rules"] for part in found.parts] == [0.5, 0.0, 1.0]


def test_a_reader_who_always_lapses_is_a_coin() -> None:
    """Of 2,000 fair draws 1,000 ± 4 standard deviations of 22.4; the right report gets no more than the wrong one."""
    assert 910 <= first_wins(SimulatedReader(7, [COIN]), TOLD, CLEAR, 2000) <= 1090


def test_equal_rewards_are_a_coin_and_not_a_tie() -> None:
    assert metric_judge(BASE).rewards([Pair("a", TOLD, TOLD), Pair("b", TOLD, SAME)]).tolist() == [1.0, 1.0]
    assert 910 <= first_wins(SimulatedReader(7, [EXACT]), TOLD, SAME, 2000) <= 1090


def test_the_better_report_wins_as_often_as_the_noise_says() -> None:
    """GREEN differs by 1/2: with scale 0.5 and lapse 0.2 it wins 0.1 + 0.8 × 0.731 = 0.685 of 2,000, ± 83."""
    noise = ReaderNoise(0.5, 0.2)
    assert float(noise.probability(0.5)) == pytest.approx(0.1 + 0.8 / (1 + math.exp(-1)))
    assert abs(first_wins(SimulatedReader(7, [noise], "green:rules"), TOLD, HALF, 2000) - 1370) < 83


def test_the_same_question_has_the_same_answer() -> None:
    """In any order, beside other candidates, in other letters and spaces, and in another process: it is hashed."""
    texts = (TOLD, HALF, CLEAR)
    for seed in range(10):
        judge = SimulatedReader(seed, [COIN])
        said = {(texts[a], texts[b]) for a, b in opinion(judge, *texts).preferred}
        assert len(said) == 3
        for order in permutations(texts):
            assert {(order[a], order[b]) for a, b in opinion(SimulatedReader(seed, [COIN]), *order).preferred} == said
        assert opinion(judge, TOLD, f" {HALF.upper()}").preferred == opinion(judge, TOLD, HALF).preferred
    assert len({opinion(SimulatedReader(seed, [COIN]), TOLD, HALF).preferred for seed in range(10)}) == 2
    assert len({opinion(judge, TOLD, HALF, study=f"s{n}").preferred for n in range(10)}) == 2


def test_one_reader_judges_a_study_and_each_has_a_share() -> None:
    """A third of 600 studies each, ± 4 standard deviations of 11.5; the exact reader of a study never errs."""
    judge = SimulatedReader(3, (EXACT, COIN, ReaderNoise(2.0, 1.0)))
    who = [judge.reader_of(f"s{n}") for n in range(600)]
    assert all(abs(who.count(one) - 200) < 46 for one in (EXACT, COIN))
    exact = [f"s{n}" for n in range(60) if who[n] == EXACT]
    assert all(opinion(judge, CLEAR, TOLD, study=study).preferred == ((1, 0),) for study in exact)


def test_the_reader_of_a_study_does_not_depend_on_its_number_of_candidates() -> None:
    """`study#k` is the study; an id without a mark is one itself, and one with several loses the last."""
    judge = SimulatedReader(7, [COIN])
    alone = [Pair("s", TOLD, TOLD), Pair("s again", TOLD, HALF)]
    assert judge.opinions(Batch(alone), [range(2)])[0].preferred == opinion(judge, TOLD, HALF).preferred
    several = [opinion(judge, TOLD, HALF, study=f"a#{n}").preferred for n in range(10)]
    assert len(set(several)) == 2, "a#1 and a#2 are two studies"


def test_nothing_is_said_of_equal_texts_or_without_a_reference() -> None:
    judge = SimulatedReader(7, [COIN])
    assert opinion(judge, TOLD, TOLD.lower()).preferred == ()
    assert opinion(judge, TOLD, HALF, reference=None).preferred == ()
    assert judge.opinions(Batch([Pair("s", TOLD, TOLD)]), [range(0)])[0].preferred == ()


def test_a_circle_of_preferences_makes_no_pair() -> None:
    """A coin closes one in four circles of three; wins and losses are then equal, and no report is the best."""
    texts, circles = (TOLD, HALF, CLEAR), 0
    for n in range(200):
        preferred = opinion(SimulatedReader(7, [COIN]), *texts, study=f"s{n}").preferred
        wins = [sum(one == k for one, _ in preferred) - sum(one == k for _, one in preferred) for k in range(3)]
        pairs, reasons = choose_pairs(texts, [float(one) for one in wins], preferred=preferred)
        circles += wins == [0, 0, 0]
        assert (pairs == []) == (wins == [0, 0, 0]) == (reasons[EQUAL] == 1)
    assert 25 <= circles <= 75, "50, with a standard deviation of 6.1"


def test_the_judge_of_the_table_takes_the_seed() -> None:
    batch = Batch([Pair(f"s{n}#{k}", TOLD, text) for n in range(40) for k, text in enumerate((TOLD, SAME))])
    groups = [range(2 * n, 2 * n + 2) for n in range(40)]
    said = [[one.preferred for one in load_judge("reader:rules", seed=seed).verdicts(batch, groups)] for seed in (1, 2)]
    assert said[0] == [one.preferred for one in SimulatedReader(1).opinions(batch, groups)] != said[1]
    signature = load_judge("reader:rules").signature
    assert (
        signature.startswith("reader:rules|noise:0.15/0,0.16/0,0.12/0|by:study|")
        and "base:clinical:rules|" in signature
    )


def test_the_fit_recovers_planted_noise_within_its_interval() -> None:
    """Of ten samples nine or so hold the planted number, as a 95 % interval should: one sample may miss by chance."""
    planted, fits = ReaderNoise(0.4, 0.2), []
    for seed in range(10):
        rng = generator(seed, "planted")
        differences = rng.normal(size=300)
        shares = (rng.random(300) < planted.probability(differences)).astype(np.float64)
        fits.append(noise_with_interval(differences, shares, [str(n) for n in range(300)], trials=40, rng=rng))
        assert log_loss(fits[-1].noise, differences, shares).sum() <= log_loss(planted, differences, shares).sum() + 0.1
    assert sum(fit.scale.low <= 0.4 <= fit.scale.high for fit in fits) >= 8
    assert sum(fit.lapse.low <= 0.2 <= fit.lapse.high for fit in fits) >= 8
    assert np.median([fit.noise.scale for fit in fits]) == pytest.approx(0.4, abs=0.15)
    assert np.median([fit.noise.lapse for fit in fits]) == pytest.approx(0.2, abs=0.1)


def fitted(differences: Sequence[float], shares: Sequence[float]) -> ReaderNoise:
    return fit_noise(differences, shares)[0]


def test_the_fit_of_one_difference_is_its_log_odds() -> None:
    """The better wins 3 of 4, odds of 3: with one size of difference the fit can be no better; a tie is half a win."""
    assert fitted([1, 1, 1, -1], [1, 1, 1, 1]).probability(1.0) == pytest.approx(0.75, abs=0.01)
    assert fitted([1, 1], [1, 0.5]).probability(1.0) == pytest.approx(0.75, abs=0.01)
    assert log_loss(COIN, [5.0], [1.0])[0] == log_loss(COIN, [5.0], [0.5])[0] == pytest.approx(math.log(2))


def test_errors_at_large_differences_are_lapses_and_at_small_ones_scale() -> None:
    """One of ten errors, at the widest or at the narrowest difference."""
    sizes = np.arange(1.0, 11.0).repeat(10)
    wide, narrow = (np.where(np.isin(np.arange(100), wrong), 0.0, 1.0) for wrong in (range(92, 100), range(4)))
    assert fitted(list(sizes), list(wide)).lapse > 0.1 > fitted(list(sizes), list(narrow)).lapse == 0.0


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(DataError, match="no two compared reports differ in reward"):
        fit_noise([0.0, 0.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="lapse=1.5"):
        ReaderNoise(1.0, 1.5)


@pytest.mark.real_data
def test_the_judge_agrees_with_radiologists_as_often_as_reported(real_data: Path) -> None:
    """The fit of each reader is its constant, rounded; 60 rounds of labelling meet 0.882 of their preferences."""
    from cxrlab.evaluation.published_benchmarks import read_radpref

    data = read_radpref(real_data / "radpref")
    batch = Batch([replace(pair, context=Context()) for pair in data.pairs])
    rewards = metric_judge(BASE).rewards(batch.pairs)
    by, shares = rewards[::2] - rewards[1::2], (np.sign(data.ratings[::2] - data.ratings[1::2]) + 1) / 2
    for reader, share in zip(READERS, shares.T, strict=True):
        found = fit_noise(by, share)[0]
        assert reader.scale == pytest.approx(found.scale, rel=0.03) and reader.lapse == found.lapse
    groups = [range(place, place + 2) for place in range(0, len(batch), 2)]
    firsts = np.array(
        [[one.preferred == ((0, 1),) for one in SimulatedReader(n).opinions(batch, groups)] for n in range(60)]
    )
    asked = shares != 0.5
    assert (firsts[:, :, None] == shares)[:, asked].mean() == pytest.approx(0.882, abs=0.01)

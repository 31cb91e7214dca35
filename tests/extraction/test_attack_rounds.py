"""Which pictures are asked: the budget, the rounds, what is moved and how far, and a stop in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import extraction_attacks as helper
import numpy as np
import pytest
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import load_corpus
from cxrlab.extraction import attack_rounds
from cxrlab.extraction.attack_rounds import Attack, plan_round, run_attack, training_queries, was_aligned
from cxrlab.extraction.config import Alignment
from cxrlab.extraction.query_pools import Noise, Pool
from cxrlab.extraction.records import PICTURES, Query, QueryImage
from cxrlab.extraction.report_content import report_content
from cxrlab.extraction.surrogate import write_transcript

pytestmark = pytest.mark.slow

EFFUSION, NO_EFFUSION = "There is a left pleural effusion.", "There is no pleural effusion."
HALF = 0.5 / 255


@pytest.fixture(autouse=True)
def _short_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true one takes half a second to speak."""
    monkeypatch.setattr(attack_rounds, "load_descriptions", lambda name, seed: helper.short_descriptions())


class Smooth(Pool):
    """Pictures of 8 pixels that know 16 numbers: a grid of 4 × 4 greys, each twice as large."""

    kind, takes_argument = "noise", False
    count = None

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        grids = (np.random.default_rng(k).integers(0, 256, (4, 4)) for k in range(skip, skip + n))
        return [
            QueryImage(f"s{k}", np.kron(grid, np.ones((2, 2))).astype(np.uint8)) for k, grid in enumerate(grids, skip)
        ]


class Logistic:
    """Learns two yes-or-no statements from the words of a transcript, by Newton's method with a small ridge."""

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> NDArray[np.float64]:
        corpus = load_corpus(transcript)
        studies = list(corpus.studies())
        x = np.stack([flat(corpus.image(study)) for study in studies])
        texts = [str(study.sections and study.sections.findings) for study in studies]
        names = ({"cardiomegaly"}, {"pleural effusion"})
        y = np.array([[bool(name & {found for found, _ in report_content(text).findings}) for name in names]
                      for text in texts], float)  # fmt: skip
        return np.stack([self._newton(x, y[:, k]) for k in range(2)], axis=1)

    @staticmethod
    def _newton(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        w = np.zeros(x.shape[1])
        for _ in range(25):
            p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
            slope = x.T @ (p - y) + 1e-2 * w
            w = w - np.linalg.solve((x.T * (p * (1 - p))) @ x + 1e-2 * np.eye(len(w)), slope)
        return w


def flat(image: Any) -> NDArray[np.float64]:
    """[65]: pixels around 0, and 1."""
    return np.append(np.asarray(image, float).ravel() - 0.5, 1.0)


def test_a_linear_victim_is_recovered_by_enough_queries(tmp_path: Path) -> None:
    truth = np.random.default_rng(1).normal(size=(65, 2))
    truth[-1] *= 0.1

    def say(pixels: Any) -> str:
        large, fluid = flat(pixels / 255) @ truth > 0
        return f"{helper.LARGE if large else helper.NORMAL} {EFFUSION if fluid else NO_EFFUSION}"

    config = helper.settings(method="knockoff", budget=400)
    pool = Smooth("", size=8, seed=0)
    attack, asked = helper.attack_on(tmp_path, config, say, Logistic(), pool)
    queries = run_attack(attack)
    assert len(asked) == len(queries) == 400 and attack.client.left == 0
    held_out = np.stack([flat(one.pixels / 255) for one in pool.draw(1000, skip=5000)])
    agreement = {}
    for budget in (25, 100, 400):
        place = tmp_path / "copies" / str(budget)
        write_transcript(queries[:budget], tmp_path, place / "transcript", victim="linear")
        copy = attack.learner.fit(place / "transcript", place / "fit")
        agreement[budget] = float(((held_out @ copy > 0) == (held_out @ truth > 0)).mean())
    assert 0.5 < agreement[25] < agreement[100] < agreement[400]
    assert agreement[400] >= 0.95


def test_budgets_are_spread_over_rounds(tmp_path: Path) -> None:
    paper = Attack(Any, Any, Any, helper.settings(), tmp_path)  # type: ignore[arg-type]
    assert paper.shares() == [500, 500, 500]
    assert replace(paper, config=helper.settings(budget=8)).shares() == [3, 3, 2]
    assert replace(paper, config=helper.settings(method="knockoff")).shares() == [1500]


def test_no_method_no_question(tmp_path: Path) -> None:
    attack, asked = helper.attack_on(tmp_path, helper.settings(method="none"))
    assert run_attack(attack) == [] and asked == [] and not (tmp_path / "rounds").exists()


def test_knockoff_asks_the_pool_as_it_is(tmp_path: Path) -> None:
    attack, asked = helper.attack_on(tmp_path, helper.settings(method="knockoff", budget=5))
    queries = run_attack(attack)
    pool = Noise("", size=8, seed=3).draw(5)
    assert [one.key for one in asked] == [one.key for one in pool]
    assert all(np.array_equal(one.pixels, other.pixels) for one, other in zip(asked, pool, strict=True))
    assert [one.report for one in queries] == [helper.heart(one.pixels) for one in pool]
    assert [(one.number, one.round) for one in queries] == [(k, 0) for k in range(5)]
    assert attack.learner.learnt == []  # type: ignore[attr-defined]


def test_a_planned_image_that_was_changed_is_refused(tmp_path: Path) -> None:
    """It would be another query, which may cost money, in place of an answer that the ledger has."""
    attack, _ = helper.attack_on(tmp_path, helper.settings(method="knockoff", budget=5))
    first, second, *_ = plan_round(attack, 0, lambda: [(one, {}) for one in attack.pool.draw(5)])
    (tmp_path / PICTURES / f"{first.sha256}.png").write_bytes(encode_png(second.pixels))
    with pytest.raises(DataError, match="was changed"):
        run_attack(attack)


@pytest.mark.parametrize(("direction", "way"), [("towards", -1), ("away", 1)])
def test_ada_steal_moves_its_pictures_within_the_radius(tmp_path: Path, direction: Any, way: int) -> None:
    config = helper.settings(budget=6, alignment=Alignment(direction=direction))
    attack, asked = helper.attack_on(tmp_path, config)
    queries = run_attack(attack)
    assert [one.round for one in queries] == [0, 0, 1, 1, 2, 2]
    assert [one.key.partition("@")[2] for one in asked] == ["", "", "1", "1", "2", "2"]
    assert [was_aligned(one, attack.config) for one in queries] == [False, False, True, True, True, True]
    sign = np.sign(attack.learner.line.weights.numpy())  # type: ignore[attr-defined]
    for place, after in enumerate(asked[2:]):
        before = asked[place % 2].pixels / 255
        step = after.pixels / 255 - before
        assert np.abs(step).max() <= 0.2 + HALF
        # Every pixel goes the whole way, or to black or white.
        assert np.abs(after.pixels / 255 - np.clip(before + way * 0.2 * sign, 0, 1)).max() <= HALF + 1e-7
    for round in (1, 2):
        rows = [row for _, row in read_jsonl(tmp_path / "rounds" / str(round) / "plan.jsonl")]
        assert all((row["after"] - row["before"]) * way > 0 for row in rows)
        assert all(row["target"]["text"] and row["own"] == helper.NORMAL for row in rows)


def test_every_round_wants_something_else_of_a_picture(tmp_path: Path) -> None:
    attack, _ = helper.attack_on(tmp_path, helper.settings(budget=6))
    run_attack(attack)
    wanted = [
        row["target"]["text"] for k in (1, 2) for _, row in read_jsonl(tmp_path / "rounds" / str(k) / "plan.jsonl")
    ]
    assert len(set(wanted)) == 4


@pytest.mark.parametrize(("transcript", "shown"), [("accumulate", [3, 6]), ("replace", [3, 3])])
def test_what_surrogates_between_rounds_learn_from(tmp_path: Path, transcript: Any, shown: list[int]) -> None:
    config = helper.settings(budget=9, transcript=transcript)
    attack, _ = helper.attack_on(tmp_path, config)
    queries = run_attack(attack)
    learner: Any = attack.learner
    assert [len(one) for one in learner.learnt] == shown and learner.between == [True, True]
    assert learner.learnt[1][-3:] == ["q000003", "q000004", "q000005"]
    assert [one.number for one in training_queries(queries, config)] == list(
        range(6 if transcript == "replace" else 0, 9)
    )
    assert training_queries([], config) == []


@pytest.mark.parametrize(
    ("kind", "keys", "furthest"),
    [
        ("original", ["noise000000", "noise000001"] * 3, 51),
        ("last", ["noise000000", "noise000001"] * 3, 102),
        ("fresh", [f"noise{k:06d}" for k in range(6)], 51),
    ],
)
def test_which_picture_is_moved(tmp_path: Path, kind: Any, keys: list[str], furthest: int) -> None:
    """The line pulls the same way each time: two moves of 51 grey levels add up, where the last picture is moved."""
    attack, asked = helper.attack_on(tmp_path, helper.settings(budget=6, alignment=Alignment(picture=kind)))
    run_attack(attack)
    assert [one.key.partition("@")[0] for one in asked] == keys
    pool = {one.key: one.pixels.astype(int) for one in Noise("", size=8, seed=3).draw(6)}
    moves = [int(np.abs(one.pixels - pool[one.key.partition("@")[0]]).max()) for one in asked]
    assert moves == [0, 0, 51, 51, furthest, furthest]


def test_names_with_a_mark_of_their_own_stay_apart(tmp_path: Path) -> None:
    class Marked(Smooth):
        def _take(self, skip: int, n: int) -> list[QueryImage]:
            return [replace(one, key=f"eye@{k}") for k, one in enumerate(super()._take(skip, n), skip)]

    config = helper.settings(budget=6, alignment=Alignment(picture="last"))
    attack, asked = helper.attack_on(tmp_path, config, pool=Marked("", size=8, seed=0))
    queries = run_attack(attack)
    assert [one.key for one in asked] == ["eye@0", "eye@1", "eye@0@1", "eye@1@1", "eye@0@2", "eye@1@2"]
    assert [was_aligned(one, attack.config) for one in queries] == [False, False, True, True, True, True]


def test_without_an_oracle_and_without_words_pictures_stay(tmp_path: Path) -> None:
    """Nothing is wanted of a picture for which the surrogate writes nothing; the same pixels are then asked again."""
    learner = helper.LinearTrainer(writes="")
    attack, asked = helper.attack_on(tmp_path, helper.settings(budget=4, rounds=2, oracle="none"), learner=learner)
    run_attack(attack)
    assert [one.key for one in asked[2:]] == ["noise000000", "noise000001"]
    assert all(np.array_equal(asked[k].pixels, asked[k + 2].pixels) for k in range(2))


def test_a_victim_that_says_nothing_is_queried_about_fresh_pictures(tmp_path: Path) -> None:
    """A gate in front of it, say; from the first words on there is something to move pictures by."""
    count = iter(range(100))
    attack, asked = helper.attack_on(
        tmp_path, helper.settings(budget=6), say=lambda _: helper.LARGE if next(count) > 1 else "I cannot help."
    )
    queries = run_attack(attack)
    assert [one.key for one in asked[:4]] == [f"noise{k:06d}" for k in range(4)]
    assert [one.key for one in asked[4:]] == ["noise000000@2", "noise000001@2"]
    assert [was_aligned(one, attack.config) for one in queries] == [False] * 4 + [True] * 2
    assert attack.learner.learnt == [["q000002", "q000003"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "breaks_after"), [("original", 1), ("original", 3), ("last", 4), ("fresh", 5)])
def test_a_stopped_attack_goes_on_with_the_same_questions(tmp_path: Path, kind: Any, breaks_after: int) -> None:
    config = helper.settings(budget=6, alignment=Alignment(picture=kind))
    seen: list[str] = []
    learner = helper.LinearTrainer(turns=True)
    with helper.attack_with_ledger(
        tmp_path / "whole", config, helper.FailingVictim(helper.heart, seen), learner
    ) as attack:
        expected = run_attack(attack)
    assert len(set(seen)) == 6
    again: list[str] = []
    victim = helper.FailingVictim(helper.heart, again, breaks_after)
    folder = tmp_path / "stopped"
    with helper.attack_with_ledger(folder, config, victim, learner) as attack, pytest.raises(ConnectionRefusedError):
        run_attack(attack)
    planned = helper.plans(folder)
    assert again == seen[:breaks_after] and len(planned) == breaks_after // 2 + 1
    learner.learnt.clear()
    with helper.attack_with_ledger(folder, config, helper.FailingVictim(helper.heart, again), learner) as attack:
        found = run_attack(attack)
    assert (
        helper.query_rows(found) == helper.query_rows(expected) and again == seen
    )  # no picture reached the victim twice
    assert planned.items() <= helper.plans(folder).items()
    assert helper.plans(folder) == helper.plans(tmp_path / "whole")
    assert len(learner.learnt) == 3 - len(planned)  # a planned round needs no surrogate


def test_blended_pictures_are_queried_and_moved(tmp_path: Path) -> None:
    config = helper.settings(budget=2, rounds=2, blend_chest=1.0)
    attack, asked = helper.attack_on(tmp_path, config)
    run_attack(attack)
    bare = Noise("", size=8, seed=3).draw(1)[0].pixels
    assert not np.array_equal(asked[0].pixels, bare)
    assert 0 < np.abs(asked[1].pixels.astype(int) - asked[0].pixels).max() <= 51  # from the blended one, not the bare


def test_a_query_of_round_0_was_moved_by_a_guide_alone() -> None:
    guided = helper.settings(alignment=Alignment(guide="builtin:encoder"))
    for config, first in ((helper.settings(), False), (guided, True)):
        assert was_aligned(Query(0, 0, "eye@0", "", ""), config) is first
        assert not was_aligned(Query(3, 1, "fresh", "", ""), config)

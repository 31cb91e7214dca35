"""Knockoff that learns which pictures pay: groups, the bandit, what an answer brings, and a stop in the middle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import extraction_attacks as helper
import numpy as np
import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import encode_png
from cxrlab.core.jsonl import read_jsonl
from cxrlab.extraction.adaptive_knockoff import (
    LIMIT,
    Bandit,
    candidate_images,
    certainty,
    cluster_images,
    report_rewards,
)
from cxrlab.extraction.attack_rounds import run_attack
from cxrlab.extraction.config import ExtractConfig, Policy
from cxrlab.extraction.query_pools import Pool, open_pool
from cxrlab.extraction.records import Query, QueryImage
from cxrlab.extraction.report_content import report_content

pytestmark = pytest.mark.slow

SILENT = "I can only help with chest radiographs."


class Halves(Pool):
    """Dark and bright pictures in turn; a few grey levels apart, so that no two are alike."""

    kind, takes_argument = "noise", False
    count: int | None = None

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        return [QueryImage(f"{'bright' if k % 2 else 'dark'}{k}", self._pixels(k)) for k in range(skip, skip + n)]

    def _pixels(self, k: int) -> Any:
        pixels = np.full((8, 8), 200 if k % 2 else 40, np.uint8)
        pixels.flat[:2] += np.array(divmod(k, 32), np.uint8)
        return pixels


def pool() -> Halves:
    return Halves("", size=8, seed=0)


def varied(pixels: Any) -> str:
    """Of bright pictures something else is said each time; of dark ones always the same hedge."""
    if pixels.mean() < 128:
        return "There may be cardiomegaly."
    k = 32 * (int(pixels.flat[0]) - 200) + int(pixels.flat[1]) - 200
    sided = [
        f"{side} {name}" for name in ("pleural effusion", "pneumothorax", "lung nodule") for side in ("left", "right")
    ]
    names = [*sided, "cardiomegaly", "pulmonary edema"]
    return " ".join(f"There is {name}." for place, name in enumerate(names) if k >> place & 1) or "The lungs are clear."


def adaptive(budget: int = 12, **changes: Any) -> ExtractConfig:
    policy = Policy("adaptive", **{"groups": 2, "batch": 2, "rate": 0.1, **changes})
    return helper.settings(method="knockoff", budget=budget, policy=policy)


def dark_share(pictures: Sequence[QueryImage]) -> float:
    return sum(one.key.startswith("dark") for one in pictures) / len(pictures)


def test_like_pictures_are_one_group() -> None:
    labels = cluster_images([one.pixels for one in pool().draw(10)], 2, seed=1)
    assert len(set(labels)) == 2 and labels == [labels[0], labels[1]] * 5


def test_groups_are_at_most_the_pictures_that_differ() -> None:
    black, white = np.zeros((8, 8), np.uint8), np.full((8, 8), 255, np.uint8)
    assert cluster_images([black] * 4, 8, seed=1) == [0] * 4
    labels = cluster_images([black, white, black], 8, seed=1)
    assert sorted(set(labels)) == [0, 1] and labels[0] == labels[2] != labels[1]
    assert cluster_images([black, white, black], 8, seed=1) == labels  # the seed decides


def test_the_bandit_moves_as_worked_out_by_hand() -> None:
    """Rewards 1 and 0, mean 1/2, both drawn with 1/2: one step of 0.4 · (½ · ½ + ½ · ½) up, and the same down."""
    bandit = Bandit(2, rate=0.4)
    shares = bandit.shares([5, 5])
    assert shares.tolist() == [0.5, 0.5]
    bandit.learn([0, 1], [{"certainty": 1.0}, {"certainty": 0.0}], shares)
    assert bandit.preferences.tolist() == pytest.approx([0.2, -0.2])
    e = math.exp(0.4)
    assert bandit.shares([1, 1]).tolist() == pytest.approx([e / (1 + e), 1 / (1 + e)])
    assert bandit.shares([0, 3]).tolist() == [0.0, 1.0]  # nothing left in the better one
    bandit.learn([0], [{"certainty": 1.0}], np.array([0.25, 0.75]))  # 1/3 above the mean of 1, 0 and 1
    assert bandit.preferences.tolist() == pytest.approx([0.2 + 0.4 / 3 * 0.75, -0.2 - 0.4 / 3 * 0.75])


def test_a_reward_that_begins_later_lifts_nobody() -> None:
    bandit = Bandit(2, rate=1.0)
    even = bandit.shares([1, 1])
    bandit.learn([0, 1], [{"certainty": 1.0, "loss": None}] * 2, even)
    bandit.learn([0, 0], [{"certainty": 1.0, "loss": 0.9}] * 2, even)
    assert bandit.preferences.tolist() == [0.0, 0.0]
    bandit.learn([0, 1], [{"loss": None}, {}], even)  # nothing is known of these
    assert bandit.preferences.tolist() == [0.0, 0.0]


def test_equal_rewards_move_nothing_and_the_better_group_gains() -> None:
    bandit = Bandit(3, rate=0.5)
    for _ in range(20):
        bandit.learn([0, 1, 2], [{"diversity": 1.0}] * 3, bandit.shares([9, 9, 9]))
    assert bandit.preferences.tolist() == [0.0] * 3
    for _ in range(20):
        bandit.learn([0, 1, 2], [{"diversity": float(k == 2)} for k in range(3)], bandit.shares([9, 9, 9]))
    assert bandit.shares([9, 9, 9]).argmax() == 2 and bandit.preferences[0] == pytest.approx(bandit.preferences[1])


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e200])
def test_extreme_rewards_leave_shares_that_are_shares(scale: float) -> None:
    """Published bandits overflow here and draw with not-a-number."""
    bandit = Bandit(3, rate=10.0)
    with np.errstate(all="raise", under="ignore"):
        for step in range(50):
            rewards = [{"loss": scale * (step % 2)}, {"loss": -scale}, {"loss": 0.0}]
            bandit.learn([0, 1, 2], rewards, bandit.shares([1, 1, 1]))
            shares = bandit.shares([1, 1, 1])
            assert np.isfinite(shares).all() and shares.sum() == pytest.approx(1.0) and (shares > 0).all()
    assert np.abs(bandit.preferences).max() <= LIMIT


@every_row(
    ("report", "value"),
    [
        ("There is cardiomegaly.", 1.0),
        ("There may be cardiomegaly.", 0.0),
        ("There is cardiomegaly. There may be a left pleural effusion.", 0.5),
        ("There is no pleural effusion. There may be cardiomegaly.", 0.0),  # what is denied does not dilute a hedge
        ("There is no pleural effusion.", 1.0),
        ("The lungs are clear.", 1.0),
        (SILENT, 0.0),
        ("", 0.0),
    ],
)
def test_certainty(report: str, value: float) -> None:
    assert certainty(report) == value


def test_what_answers_bring() -> None:
    reports = ["There is a left pleural effusion.", "A left pleural effusion is seen.", SILENT,
               "There is a right pleural effusion.", "The lungs are clear."]  # fmt: skip
    rows = report_rewards(
        reports, [report_content("The heart is normal in size.").findings], [0.1, 0.2, 0.9, None, 0.4]
    )
    assert [row["diversity"] for row in rows] == [1.0, 0.0, 0.0, 1.0, 0.0]  # a normal report came before
    assert [row["loss"] for row in rows] == [0.1, 0.2, 0.0, None, 0.4]  # a refusal brings nothing, however unforeseen
    assert [row["certainty"] for row in rows] == [1.0, 1.0, 0.0, 1.0, 1.0]


def test_pictures_that_bring_more_are_queried_more(tmp_path: Path) -> None:
    config = adaptive(60, batch=5, rate=0.5, rewards=("certainty", "diversity"))
    attack, asked = helper.attack_on(tmp_path, config, varied, pool=pool())
    queries = run_attack(attack)
    assert len(asked) == len(queries) == len({one.key for one in asked}) == 60
    assert 0 < dark_share(asked[:30]) and dark_share(asked[-30:]) < 0.2
    assert {one.round for one in queries} == {0} and [one.number for one in queries] == list(range(60))
    assert attack.learner.learnt == []  # type: ignore[attr-defined]  # nobody asked for a loss


def test_where_all_is_alike_no_group_gains(tmp_path: Path) -> None:
    config = adaptive(60, batch=5, rate=0.5, rewards=("certainty",))
    attack, asked = helper.attack_on(tmp_path, config, lambda _: helper.LARGE, pool=pool())
    run_attack(attack)
    assert 0.3 < dark_share(asked) < 0.7


def test_a_surrogate_is_trained_at_each_quarter(tmp_path: Path) -> None:
    """12 questions in batches of 2: the batches behind 4, 6 and 10 answers are foreseen by a new one."""
    learner = helper.LinearTrainer()
    attack, asked = helper.attack_on(tmp_path, adaptive(), learner=learner)
    run_attack(attack)
    assert [len(one) for one in learner.learnt] == [4, 6, 10] and all(learner.between)
    rows = [row for k in range(6) for _, row in read_jsonl(tmp_path / "rounds" / str(k) / "rewards.jsonl")]
    assert [row["key"] for row in rows] == [one.key for one in asked]
    assert [row["loss"] for row in rows[:4]] == [None] * 4
    images = [one.pixels.astype(np.float32) / 255 for one in asked[4:]]
    expected = 1 - np.exp(-learner.line.losses(images, [""] * 8).numpy())
    assert [row["loss"] for row in rows[4:]] == pytest.approx(expected.tolist(), rel=1e-5)


def test_a_silent_victim_leaves_no_surrogate_and_no_harm(tmp_path: Path) -> None:
    learner = helper.LinearTrainer()
    attack, asked = helper.attack_on(tmp_path, adaptive(), lambda _: SILENT, learner)
    assert len(run_attack(attack)) == len(asked) == 12 and learner.learnt == []


UNSTEADY = adaptive(12, rate=1.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Query], list[str], dict[str, bytes]]:
    """An attack that nothing stopped: its queries, the pictures that reached the victim, its plans."""
    folder = tmp_path_factory.mktemp("whole")
    seen: list[str] = []
    learner = helper.LinearTrainer(turns=True)
    with helper.attack_with_ledger(folder, UNSTEADY, helper.FailingVictim(helper.heart, seen), learner) as attack:
        return run_attack(attack), seen, helper.plans(folder)


@pytest.mark.parametrize(("breaks_after", "fits"), [(5, 3), (8, 2), (11, 1)])
def test_a_stopped_attack_goes_on_with_the_same_questions(
    tmp_path: Path, whole: tuple[list[Query], list[str], dict[str, bytes]], breaks_after: int, fits: int
) -> None:
    expected, seen, plans = whole
    again: list[str] = []
    victim, learner = helper.FailingVictim(helper.heart, again, breaks_after), helper.LinearTrainer(turns=True)
    with (
        helper.attack_with_ledger(tmp_path, UNSTEADY, victim, learner) as attack,
        pytest.raises(ConnectionRefusedError),
    ):
        run_attack(attack)
    assert again == seen[:breaks_after] and len(helper.plans(tmp_path)) == breaks_after // 2 + 1
    learner.learnt.clear()
    with helper.attack_with_ledger(tmp_path, UNSTEADY, helper.FailingVictim(helper.heart, again), learner) as attack:
        found = run_attack(attack)
    assert (
        helper.query_rows(found) == helper.query_rows(expected) and again == seen
    )  # no picture reached the victim twice
    assert helper.plans(tmp_path) == plans
    assert len(learner.learnt) == fits  # what was foreseen before is on file


def test_a_pool_is_used_up_to_its_last_picture(tmp_path: Path) -> None:
    class Few(Halves):
        count = 12

    attack, asked = helper.attack_on(tmp_path / "a", adaptive(12), varied, pool=Few("", size=8, seed=0))
    run_attack(attack)
    assert len({one.key for one in asked}) == 12
    attack, asked = helper.attack_on(tmp_path / "b", adaptive(13), varied, pool=Few("", size=8, seed=0))
    with pytest.raises(DataError, match="holds 12 images"):
        run_attack(attack)
    assert asked == []


def folder_of(folder: Path, pictures: Sequence[QueryImage]) -> Path:
    """These pictures as files, and one that is none."""
    folder.mkdir()
    for one in pictures:
        (folder / f"{one.key}.png").write_bytes(encode_png(one.pixels))
    (folder / "torn.png").write_bytes(b"no picture")
    return folder


def test_unreadable_pictures_are_not_among_thecandidate_images(tmp_path: Path) -> None:
    opened = open_pool(f"folder:{folder_of(tmp_path / 'folder', pool().draw(7))}", size=8, seed=3)
    attack, asked = helper.attack_on(tmp_path / "run", adaptive(6), varied, pool=opened)
    run_attack(attack)
    assert len({one.key for one in asked}) == 6 and opened.unreadable.keys() == {"torn.png"}


def testcandidate_images_of_a_mixture_are_all_that_its_readable_pictures_make(tmp_path: Path) -> None:
    """A share of a third, three images and six others would make nine pictures; of both one cannot be read.

    With two images it is eight, of which six are others; with five others it is seven.
    """
    images, others = (folder_of(tmp_path / name, part) for name, part in
                     (("images", pool().draw(2)), ("others", pool().draw(5, skip=2))))  # fmt: skip
    opened = open_pool(f"mix:1/3:folder:{images}+folder:{others}", size=8, seed=3)
    assert opened.count == 9
    attack, asked = helper.attack_on(tmp_path / "run", adaptive(6), varied, pool=opened)
    assert len(candidate_images(attack)) == 7
    run_attack(attack)
    assert len({one.key for one in asked}) == 6
    assert read_json(tmp_path / "run" / "unreadable.json").keys() == {"in/torn.png", "out/torn.png"}

"""Pictures in, words out: order, budget, cache, files, and what a failing victim costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recording_victims as helper

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.image_codec import decode
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated
from cxrlab.extraction.query_ledger import BudgetExceeded, Ledger
from cxrlab.extraction.records import AuditScope, QueryImage, fingerprint
from cxrlab.extraction.victim_client import AccountsBlocked, VictimClient
from cxrlab.models.decoding import Decoding


class Victim:
    """Says how bright the first pixel is; keeps what it was shown."""

    name = "test:victim"

    def __init__(self, *, black_box: bool = False) -> None:
        self.capabilities = Capabilities(black_box=black_box)
        self.batches: list[list[Any]] = []
        self.failure: BaseException | None = None

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        self.batches.append(list(images))
        if self.failure:
            raise self.failure
        return [Generated(f"{round(float(image[0, 1]) * 255)}", tokens=2) for image in images]


def opened(folder: Path, budget: int = 10, *, remote: bool = False) -> Ledger:
    terms = AuditScope("test:victim", budget, "the owner, for a test" if remote else None)
    return Ledger.open(folder / "ledger.sqlite", terms, remote=remote)


def test_words_come_in_order_and_pictures_are_kept(tmp_path: Path) -> None:
    victim, pool = Victim(), helper.small_images(5)
    with opened(tmp_path) as ledger:
        client = VictimClient(victim, ledger, tmp_path, batch_size=2, accounts=("one", "two"))
        assert client.query(pool, 0, 0) == ["0", "1", "2", "3", "4"]
        assert client.left == 5
        queries = ledger.queries()
    assert [len(batch) for batch in victim.batches] == [2, 2, 1]
    shown = victim.batches[1][0]
    assert shown.dtype == np.float32 and np.array_equal(shown, pool[2].pixels.astype(np.float32) / np.float32(255))
    assert [(one.number, one.key, one.account, one.tokens) for one in queries][:2] == [
        (0, "p0", "one", 2),
        (1, "p1", "two", 2),
    ]
    for picture in pool:
        file = tmp_path / "pictures" / f"{fingerprint(picture.pixels)}.png"
        assert np.array_equal(decode(file.read_bytes(), file.name), picture.pixels)


def test_a_picture_is_on_file_before_it_is_queried(tmp_path: Path) -> None:
    class Looking(Victim):
        def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
            assert len(list((tmp_path / "pictures").glob("*.png"))) == 3
            assert ledger.statement().spent == 3
            return super().generate(images)

    with opened(tmp_path) as ledger:
        assert len(VictimClient(Looking(), ledger, tmp_path).query(helper.small_images(3), 0, 0)) == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_pixels_are_queried_once(tmp_path: Path, workers: int) -> None:
    victim, pool = Victim(black_box=True), helper.small_images(3)
    with opened(tmp_path) as ledger:
        client = VictimClient(victim, ledger, tmp_path, batch_size=1, workers=workers)
        assert client.query([pool[0], pool[1], pool[0], pool[1]], 0, 0) == ["0", "1", "0", "1"]
        assert client.query([pool[1], pool[2]], 1, 4) == ["1", "2"]
        assert [one.cached for one in ledger.queries()] == [False, False, True, True, True, False]
        assert (ledger.statement().spent, len(victim.batches)) == (3, 3)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    victim, pool = Victim(), helper.small_images(6)
    with opened(tmp_path) as ledger:
        VictimClient(victim, ledger, tmp_path, batch_size=2).query(pool[:4], 0, 0)
    with opened(tmp_path) as ledger:
        assert VictimClient(victim, ledger, tmp_path, batch_size=2).query(pool, 0, 0) == ["0", "1", "2", "3", "4", "5"]
        with pytest.raises(RunError, match="Query 0 "):
            VictimClient(victim, ledger, tmp_path).query(pool[1:2], 0, 0)
    assert [len(batch) for batch in victim.batches] == [2, 2, 2]


@pytest.mark.parametrize("workers", [1, 4])
def test_beyond_the_budget_every_answer_is_kept(tmp_path: Path, workers: int) -> None:
    """A budget of 5 cuts the second batch of 4 after its first picture."""
    victim = Victim(black_box=True)
    with opened(tmp_path, budget=5) as ledger:
        client = VictimClient(victim, ledger, tmp_path, batch_size=4, workers=workers)
        with pytest.raises(BudgetExceeded, match="budget of 5"):
            client.query(helper.small_images(8), 0, 0)
        assert (len(ledger.queries()), client.left) == (5, 0)
    assert sum(map(len, victim.batches)) == 5
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 5


def test_eight_workers_ask_at_once_and_stay_within_the_budget(tmp_path: Path) -> None:
    class Counting(Victim):
        now = most = 0
        turn = threading.Lock()

        def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
            with self.turn:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            with self.turn:
                self.now -= 1
            return super().generate(images)

    remote, local = Counting(black_box=True), Counting()
    with opened(tmp_path / "remote", budget=50) as ledger:
        with pytest.raises(BudgetExceeded):
            VictimClient(remote, ledger, tmp_path / "remote", batch_size=1, workers=8).query(
                helper.small_images(80), 0, 0
            )
        assert (ledger.statement().spent, len(ledger.queries())) == (50, 50)
    assert len(remote.batches) == 50
    assert 1 < remote.most <= 8
    with opened(tmp_path / "local") as ledger:
        VictimClient(local, ledger, tmp_path / "local", batch_size=1, workers=8).query(helper.small_images(4), 0, 0)
    assert local.most == 1  # a model in this process is not asked by two at once


@pytest.mark.parametrize(
    ("failure", "remote", "spent"),
    [
        (TimeoutError("no answer"), False, 2),  # the unit is kept for the next attempt
        (TimeoutError("no answer"), True, 2),
        (ConnectionRefusedError("nobody there"), True, 0),
        (KeyboardInterrupt(), False, 2),
    ],
)
def test_a_failing_victim_costs_what_may_have_been_billed(
    tmp_path: Path, failure: BaseException, remote: bool, spent: int
) -> None:
    victim, pool = Victim(black_box=remote), helper.small_images(2)
    with opened(tmp_path, remote=remote) as ledger:
        client = VictimClient(victim, ledger, tmp_path)
        victim.failure = failure
        with pytest.raises(type(failure)):
            client.query(pool, 0, 0)
        assert ledger.statement().spent == spent
        victim.failure = None
        assert client.query(pool, 0, 0) == ["0", "1"]
        assert ledger.statement().spent == (spent + 2 if remote else 2)
        assert ledger.statement().lost == (spent if remote else 0)


def test_a_picture_that_cannot_be_kept_is_not_queried(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_text("a file in the way")
    victim = Victim()
    with opened(tmp_path) as ledger:
        with pytest.raises(RunError):
            VictimClient(victim, ledger, tmp_path).query(helper.small_images(1), 0, 0)
        assert (ledger.statement().spent, victim.batches) == (0, [])


def test_a_refusal_is_settled_as_one(tmp_path: Path) -> None:
    class Guarded(Victim):
        def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
            return [Generated("Not a chest radiograph.", extra={"refused": True}) for _ in images]

    with opened(tmp_path) as ledger:
        assert VictimClient(Guarded(), ledger, tmp_path).query(helper.small_images(1), 0, 0) == [
            "Not a chest radiograph."
        ]
        assert [(one.refused, one.tokens) for one in ledger.queries()] == [(True, None)]
        assert ledger.statement().spent == 1


def test_words_are_chosen_by_the_settings(tmp_path: Path) -> None:
    class Choosing(Victim):
        def answers(
            self, images: Sequence[Any], indications: Sequence[str | None] | None = None, decoding: Any = None
        ) -> list[list[Generated]]:
            return [[Generated(f"{decoding.strategy} {place}") for place in range(2)] for _ in images]

    wish = Decoding(strategy="beam", answers=2)
    with opened(tmp_path) as ledger:
        assert VictimClient(Choosing(), ledger, tmp_path, decoding=wish).query(helper.small_images(1), 0, 0) == [
            "beam 0"
        ]
        with pytest.raises(ConfigError, match="decoding"):
            VictimClient(Victim(), ledger, tmp_path, decoding=wish)


def test_what_cannot_be_queried_is_a_sentence(tmp_path: Path) -> None:
    class Silent(Victim):
        def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
            return []

    with opened(tmp_path) as ledger:
        client = VictimClient(Silent(), ledger, tmp_path)
        with pytest.raises(RunError, match="0 answers to 1 images"):
            client.query(helper.small_images(1), 0, 0)
        with pytest.raises(DataError, match=r"'x' is float64 \[2, 2\]"):
            client.query([QueryImage("x", np.zeros((2, 2)))], 0, 1)
        assert client.query([], 0, 1) == []
        with pytest.raises(ConfigError, match="batch_size=0"):
            VictimClient(Silent(), ledger, tmp_path, batch_size=0)


class Declining(Victim):
    """Behind a connection; answers the first pictures and refuses all others, but for some that it answers still."""

    def __init__(self, answers: int, still: tuple[int, ...] = ()) -> None:
        super().__init__(black_box=True)
        self.answered, self.still = answers, still

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        declined = Generated("Stopped.", extra={REFUSED: True})
        answered = (*range(self.answered), *self.still)
        return [one if int(one.text) in answered else declined for one in super().generate(images)]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_victim_that_has_blocked_the_account_is_queried_no_more(tmp_path: Path, workers: int) -> None:
    """Pictures 0 to 4 are answered; refusals 5 to 8 are four in a row, and their batch of two is the fifth."""
    victim, pool = Declining(5), helper.small_images(30)
    with opened(tmp_path, 30) as ledger:
        client = VictimClient(victim, ledger, tmp_path, batch_size=2, workers=workers, patience=4)
        with pytest.raises(AccountsBlocked, match="refused 4 images in a row, from query 6 on: Stopped") as end:
            client.query(pool, 0, 0)
        assert (end.value.refusals, end.value.first, end.value.answer) == (4, 5, "Stopped.")
        spent = ledger.statement().spent
    assert spent == 10 if workers == 1 else 10 <= spent <= 10 + 2 * 3 * 2  # two batches of two per worker
    seen = len(victim.batches)
    with opened(tmp_path, 30) as ledger:  # asked again after a stop it ends at the same question, from the ledger
        with pytest.raises(AccountsBlocked) as again:
            VictimClient(victim, ledger, tmp_path, batch_size=2, patience=4).query(pool, 0, 0)
        assert (again.value.refusals, again.value.first) == (4, 5) and ledger.statement().spent == spent
    assert len(victim.batches) == seen


def test_an_answer_in_between_begins_the_count_anew_and_a_repeated_picture_counts_nothing(tmp_path: Path) -> None:
    pool = helper.small_images(12)
    with opened(tmp_path, 30) as ledger:
        client = VictimClient(Declining(0, still=(3, 7, 11)), ledger, tmp_path, batch_size=1, patience=4)
        assert client.query(pool, 0, 0).count("Stopped.") == 9
        asked = [*pool[:3], *pool[:3], pool[4]]  # refused before: answered from the ledger, they are no news
        assert client.query(asked, 0, 12) == ["Stopped."] * 7
        endless = VictimClient(Declining(0), ledger, tmp_path)
        assert endless.query(helper.small_images(20), 1, 19).count("Stopped.") == 17


def test_patience_lasts_over_rounds(tmp_path: Path) -> None:
    with opened(tmp_path, 30) as ledger:
        client = VictimClient(Declining(0), ledger, tmp_path, batch_size=1, patience=4)
        client.query(helper.small_images(3), 0, 0)
        with pytest.raises(AccountsBlocked, match="from query 1 on"):
            client.query(helper.small_images(9)[3:], 1, 3)


class Small(Victim):
    """A victim whose machine holds two pictures at once."""

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        answers = super().generate(images, indications)
        if len(images) > 2:
            raise MemoryError
        return answers


def test_a_batch_that_does_not_fit_is_queried_in_halves_and_costs_nothing_twice(tmp_path: Path) -> None:
    victim, pool = Small(), helper.small_images(10)
    with opened(tmp_path) as ledger:
        client = VictimClient(victim, ledger, tmp_path, batch_size=4)
        assert client.query(pool, 0, 0) == [str(number) for number in range(10)]
        assert client.left == 0 and [one.key for one in ledger.queries()] == [one.key for one in pool]
    assert [len(batch) for batch in victim.batches] == [4, 2, 2, 2, 2, 2]


def test_a_victim_behind_an_address_is_not_queried_a_second_time(tmp_path: Path) -> None:
    victim = Small(black_box=True)
    with opened(tmp_path, remote=True) as ledger, pytest.raises(MemoryError):
        VictimClient(victim, ledger, tmp_path, batch_size=4).query(helper.small_images(4), 0, 0)
    assert [len(batch) for batch in victim.batches] == [4]

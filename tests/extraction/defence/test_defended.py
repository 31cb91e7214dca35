"""A model behind a defence, as an audit meets it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated, ImageToText
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.extraction.defence.base import defended
from cxrlab.extraction.defence.defences import Coarse, Gate, Quota
from cxrlab.extraction.query_ledger import Ledger
from cxrlab.extraction.records import AuditScope, QueryImage
from cxrlab.extraction.victim_client import VictimClient
from cxrlab.models.decoding import Decoding, SupportsDecoding

Image = NDArray[np.float32]


class Victim:
    """Says how bright an image is, and remembers what it was asked."""

    name = "victim"
    capabilities = Capabilities(gradients=True, log_probabilities=True, batch=True)

    def __init__(self) -> None:
        self.asked: list[tuple[float, str | None]] = []

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        self.asked += [(float(i.mean()), r) for i, r in zip(images, indications or [None] * len(images), strict=True)]
        return [Generated(f"A {image.mean() * 100:.0f} mm left nodule is seen.", -0.5, 9) for image in images]


class Chooser(Victim):
    def answers(
        self,
        images: Sequence[Image],
        indications: Sequence[str | None] | None = None,
        decoding: Decoding | None = None,
    ) -> list[list[Generated]]:
        return [[one, one] for one in self.generate(images, indications)]


def images(*tones: float) -> list[Image]:
    return [np.full((4, 4), tone, np.float32) for tone in tones]


def test_refusals_stand_in_their_places_and_the_model_is_not_queried() -> None:
    victim = Victim()
    model = defended(victim, Gate(lambda pixels: bool(pixels[0, 0] > 100)))
    found = model.generate(images(0.1, 0.6, 0.2, 0.8), ["a", "b", "c", "d"])
    assert [bool(answer.extra.get(REFUSED)) for answer in found] == [True, False, True, False]
    assert [reason for _, reason in victim.asked] == ["b", "d"]
    assert "60 mm" in found[1].text and found[1].tokens == 9 and found[1].mean_logprob is None


def test_it_is_a_model_that_gives_words_alone() -> None:
    model = defended(Victim(), Coarse())
    assert isinstance(model, ImageToText) and not isinstance(model, SupportsDecoding)
    assert model.capabilities == Capabilities(batch=True)
    assert model.name == "victim behind coarse"
    assert model.generate(images(0.3))[0].text == "Left nodule is present."


def test_who_chooses_words_still_does() -> None:
    model = defended(Chooser(), Coarse())
    assert isinstance(model, SupportsDecoding)
    assert [[one.text for one in image] for image in model.answers(images(0.3))] == [["Left nodule is present."] * 2]


def test_accounts_take_turns_and_a_restart_goes_on_counting() -> None:
    """Quota 2: one account gets 2 of 6 answers, two accounts 4; after three queries before a restart one is left."""

    def answered(accounts: int, asked: int, count: int) -> int:
        turns = [f"account {number % accounts}" for number in range(asked + count)]
        model = defended(Victim(), Quota(2), earlier=turns[:asked]).for_accounts(turns[asked:])
        return sum(not answer.extra for answer in model.generate(images(*[0.5] * count)))

    assert [answered(1, 0, 6), answered(2, 0, 6), answered(2, 3, 6), answered(1, 2, 6)] == [2, 4, 1, 0]


def test_a_quota_counts_for_the_account_under_which_the_ledger_books(tmp_path: Path) -> None:
    """Two accounts in turn, one answer each; what the second asks first is known, so that it costs no answer.

    The third question is of the first account, whose answer is used, and the fourth of the second, whose is not.
    """
    dark, grey, white = (QueryImage(f"p{tone}", np.full((4, 4), tone, np.uint8)) for tone in (10, 100, 200))
    with Ledger.open(tmp_path / "ledger.sqlite", AuditScope("victim", 9)) as ledger:
        client = VictimClient(defended(Victim(), Quota(1)), ledger, tmp_path, batch_size=2, accounts=("one", "two"))
        client.query([dark, dark], 0, 0)
        client.query([grey, white], 0, 2)
        booked = [(query.account, query.cached, query.refused) for query in ledger.queries()]
        earlier = [query.account for query in ledger.queries() if not query.cached]
        later = VictimClient(defended(Victim(), Quota(1), earlier=earlier), ledger, tmp_path, accounts=("one", "two"))
        later.query([QueryImage("p60", np.full((4, 4), 60, np.uint8))], 0, 4)
        assert ledger.queries()[-1].refused  # also after a restart
    assert booked == [("one", False, False), ("two", True, False), ("one", False, True), ("two", False, False)]


def test_a_batch_that_does_not_fit_counts_each_image_once() -> None:
    """A quota of 4, five images at once, and a machine that holds two: four answers."""
    sizes: list[int] = []

    class Small(Victim):
        def generate(self, all_images: Any, indications: Any = None) -> list[Generated]:
            sizes.append(len(all_images))
            if len(all_images) > 2:
                raise MemoryError
            return super().generate(all_images, indications)

    model = defended(Small(), Quota(4), batch_size=BatchSize(8))
    answers = model.for_accounts(["one"] * 5).generate(images(*[0.5] * 5))
    assert sizes == [4, 2, 2] and sum(not answer.extra for answer in answers) == 4

"""A model behind a defence is again a model, so that an audit can attack it like any other victim."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Self

from cxrlab.core.image_codec import to_uint8
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import REFUSED, Capabilities, Generated
from cxrlab.data.images import grey_image
from cxrlab.extraction.defence.base import Defence
from cxrlab.models.decoding import Decoding, SupportsDecoding

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image, ImageToText

ANYBODY = "anybody"  # who asks where no accounts are told
Ask = Callable[[list["Image"], list[str | None] | None], list[list[Generated]]]


class Defended:
    """Answers as the defence allows; a refusal carries `refused: True` in its extra values.

    Args:
        model: What is defended; it is not asked where the defence refuses.
        defence: What stands before it.
        earlier: Who asked the queries that were put before this process began, in their order; a defence with a memory
            is told of them.
        batch_size: Images that the model answers at once; None takes those of a call together.

    Whoever keeps the books says who asks (`for_accounts`); what is asked without that is asked by `ANYBODY`.
    """

    def __init__(
        self,
        model: ImageToText,
        defence: Defence,
        *,
        earlier: Sequence[str] = (),
        batch_size: BatchSize | None = None,
    ) -> None:
        self._model, self._defence, self._batch_size = model, defence, batch_size
        self._accounts: tuple[str, ...] | None = None
        self._clock = count(len(earlier))  # queries that came before, answered or refused
        for number, account in enumerate(earlier):
            defence.count(account, number)

    def for_accounts(self, accounts: Sequence[str]) -> Self:
        """The same model, with the same clock and memory, for images of which each is asked by one of these accounts."""
        same = copy.copy(self)
        same._accounts = tuple(accounts)
        return same

    @property
    def name(self) -> str:
        """The model's name with the defence behind it."""
        return f"{self._model.name} behind {self._defence.name}"

    @property
    def capabilities(self) -> Capabilities:
        """No gradients and no probabilities: a defended model gives words alone."""
        inner = self._model.capabilities
        return Capabilities(batch=inner.batch, black_box=inner.black_box)

    def generate(self, all_images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer an image, in order."""

        def ask(images: list[Image], why: list[str | None] | None) -> list[list[Generated]]:
            return [[answer] for answer in self._model.generate(images, why)]

        return [answers[0] for answers in self._answered(all_images, indications, ask)]

    def _answered(
        self, images: Sequence[Image], indications: Sequence[str | None] | None, ask: Ask
    ) -> list[list[Generated]]:
        """Refusals in their places, and around them what the model says of the rest in the words of the defence."""
        accounts = self._accounts or (ANYBODY,) * len(images)
        admitted = [self._admits(image, account) for image, account in zip(images, accounts, strict=True)]
        radiographs = [image for image, passes in zip(images, admitted, strict=True) if passes]
        reasons = None
        if indications is not None:
            reasons = [reason for reason, passes in zip(indications, admitted, strict=True) if passes]
        told = iter(self._told(radiographs, reasons, ask) if radiographs else [])
        refusal = Generated(self._defence.refusal, extra={REFUSED: True})
        return [[self._worded(one) for one in next(told)] if passes else [refusal] for passes in admitted]

    def _told(self, images: list[Image], reasons: list[str | None] | None, ask: Ask) -> list[list[Generated]]:
        if self._batch_size is None:
            return ask(images, reasons)

        def some(places: Sequence[int]) -> list[list[Generated]]:
            return ask([images[at] for at in places], None if reasons is None else [reasons[at] for at in places])

        return self._batch_size.map(range(len(images)), some)

    def _admits(self, image: Image, account: str) -> bool:
        return self._defence.admits(to_uint8(grey_image(image)), account, next(self._clock))

    def _worded(self, answer: Generated) -> Generated:
        """The answer in the words of the defence; the probability was that of other words, and is not handed out."""
        return replace(answer, text=self._defence.worded(answer.text), mean_logprob=None)


class DefendedWriter(Defended):
    """The same for a model that can be told how to choose its words."""

    def answers(
        self,
        all_images: Sequence[Image],
        indications: Sequence[str | None] | None = None,
        decoding: Decoding | None = None,
    ) -> list[list[Generated]]:
        """Answers for each image, best first; a refusal is the only answer to its image."""
        model = self._model
        assert isinstance(model, SupportsDecoding)  # `defended` makes no other
        return self._answered(all_images, indications, lambda images, why: model.answers(images, why, decoding))


def defended(
    model: ImageToText, defence: Defence, *, earlier: Sequence[str] = (), batch_size: BatchSize | None = None
) -> Defended:
    """A model behind a defence that keeps what the model can do; see `Defended`."""
    kind = DefendedWriter if isinstance(model, SupportsDecoding) else Defended
    return kind(model, defence, earlier=earlier, batch_size=batch_size)

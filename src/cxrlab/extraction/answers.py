"""Questions to a victim, and of its answers the words and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from cxrlab.core.errors import RunError
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import REFUSED

if TYPE_CHECKING:
    from cxrlab.core.protocols import Generated, Image, ImageToText
    from cxrlab.models.decoding import Decoding

    Voice = Callable[[Sequence[Image], Sequence[str]], "list[Answer]"]


@dataclass(frozen=True)
class Ask:
    """A question that is to be put.

    Args:
        number: Place in the audit, from 0.
        round: Round, from 0.
        key: Name of the pool's picture behind it.
        sha256: Of the pixels; see `records.fingerprint`.
        account: Under which account.
    """

    number: int
    round: int
    key: str
    sha256: str
    account: str = "attacker"


@dataclass(frozen=True)
class Answer:
    """What is kept of one answer.

    Args:
        report: Its words.
        refused: Whether the victim declined; the report is then what it said instead.
        tokens: Tokens of the answer; None when the victim does not tell.
        seconds: Time until it came, this picture's share of its batch.
    """

    report: str
    refused: bool = False
    tokens: int | None = None
    seconds: float = 0.0


@runtime_checkable
class KnowsAccounts(Protocol):
    """A victim to which it matters who asks."""

    def for_accounts(self, accounts: Sequence[str]) -> ImageToText:
        """The victim as it answers its next images, each asked by the account in the same place."""
        ...


def voice(victim: ImageToText, decoding: Decoding | None = None, batch_size: BatchSize | None = None) -> Voice:
    """A function from images [H, W] in [0, 1] and who asks each to answers, in order.

    It has the victim; whoever has it has words alone.

    Args:
        victim: What answers; of its `Generated` the text, the number of tokens and the mark of a refusal are read.
        decoding: How it chooses its words, the best answer is taken; None leaves that to the victim. A `ConfigError`
            where the victim has no choice.
        batch_size: Images at once; None takes those of a call together. A victim that knows accounts splits its batch
            itself, since its defence must count each image once.
    """
    if decoding is None:

        def written(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return model.generate(images)

    else:
        from cxrlab.evaluation.generate import ReportGenerator

        ReportGenerator(victim, decoding)  # one that has no choice is refused before anybody asks

        def written(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return [answers[0] for answers in ReportGenerator(model, decoding).generate(images, [None] * len(images))]

    knows = issubclass(type(victim), KnowsAccounts)  # its class is looked at: of a victim nothing is read but words

    def speak(images: Sequence[Image], accounts: Sequence[str]) -> list[Answer]:
        start = time.monotonic()
        if knows:
            told = written(cast(KnowsAccounts, victim).for_accounts(accounts), images)
        elif batch_size is not None:
            told = batch_size.map(images, partial(written, victim))
        else:
            told = written(victim, images)
        if len(told) != len(images):
            raise RunError(f"the victim gave {len(told)} answers to {len(images)} pictures; it must give one to each.")
        share = (time.monotonic() - start) / max(len(images), 1)
        return [words_of(one, share) for one in told]

    return speak


def words_of(told: Generated, seconds: float = 0.0) -> Answer:
    """The words of an answer, as a plain `str`; probabilities and whatever else came with it are not looked at.

    Half a character (a lone surrogate), which no file can hold, becomes U+FFFD. A count of tokens that is no whole
    number from 0 is unknown.
    """
    text = told.text
    if not isinstance(text, str):
        raise RunError(f"the victim answered with {type(text).__name__} where a text was expected.")
    # A subclass of str could carry anything: through bytes only its characters come.
    report = str.encode(text, "utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Answer(report, told.extra.get(REFUSED) is True, _count(told.tokens), seconds)


def _count(tokens: object) -> int | None:
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0:
        return int(tokens)
    return None

"""The table of defences, and how one of them is opened: built, checked on benign reports, only then handed over."""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Self, final

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import REFUSED, Capabilities, Generated
from cxrlab.core.tables import Table
from cxrlab.data.images import grey_image
from cxrlab.extraction.defence.claims import DROPPABLE, difference
from cxrlab.findings.reader import read
from cxrlab.models.decoding import Decoding, SupportsDecoding

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image, ImageToText
    from cxrlab.extraction.config import DefenceSettings
    from cxrlab.extraction.records import Picture, Pixels

# Each row is a `Defence` class.
DEFENCES = Table(
    "defence",
    {
        "gate": "cxrlab.extraction.defence.defences:Gate",
        "quota": "cxrlab.extraction.defence.defences:Quota",
        "coarse": "cxrlab.extraction.defence.defences:Coarse",
        "plain": "cxrlab.extraction.defence.defences:Plain",
        "watermark": "cxrlab.extraction.defence.watermark:Watermark",
    },
)


@dataclass(frozen=True)
class Benign:
    """Images and reports of people who mean no harm; opened when they are first needed.

    Args:
        settings: Which.
        seed: Decides which of them.
    """

    settings: DefenceSettings
    seed: int

    @cached_property
    def pictures(self) -> list[Picture]:
        """Frontal images as they are stored, drawn with the seed; those that cannot be read are passed over."""
        from cxrlab.core.image_codec import to_uint8
        from cxrlab.data.corpus import load_corpus
        from cxrlab.data.images import grey_image
        from cxrlab.evaluation.generate import Images, select_studies
        from cxrlab.extraction.records import Picture

        corpus = load_corpus(self._folder)
        images, found = Images(corpus), []
        for key in select_studies(corpus, self.settings.benign_split, self.settings.benign_images, self.seed):
            with suppress(DataError):
                found.append(Picture(key, to_uint8(grey_image(images.image(key))), in_domain=True))
        return found

    @cached_property
    def reports(self) -> list[str]:
        """Reference findings of the split, distinct."""
        from cxrlab.data.corpus import load_corpus

        studies = load_corpus(self._folder).studies(self.settings.benign_split)
        texts = (study.sections.findings for study in studies if study.sections)
        found = list(dict.fromkeys(text for text in texts if text and text.strip()))
        if not found:
            raise DataError(f"{self._folder} has no report in its {self.settings.benign_split} split to check with.")
        return found[: self.settings.benign_images]

    @property
    def _folder(self) -> str:
        if self.settings.benign is None:
            raise ConfigError("a defence is set and checked on benign images before it is used; give benign=CORPUS.")
        return str(self.settings.benign)


def open_defence(name: str, settings: DefenceSettings, seed: int) -> tuple[Defence, SafetyReport]:
    """A defence that was checked on benign reports, and what that check came to.

    Args:
        name: A row of the table.
        settings: How strict it is, and the benign corpus.
        seed: Decides which benign images it is set on.

    Raises:
        DefenceRejected: Where it changes a finding of a benign report.
    """
    kind: type[Defence] = DEFENCES.load(name)
    benign = Benign(settings, seed)
    defence = kind.from_settings(settings, benign)
    return defence, check_on_benign(defence, benign.reports)


class FindingChanged(CxrlabError):
    """A defence would have handed out a report that claims something else than the model's."""


class DefenceRejected(CxrlabError):
    """A defence that may not be used, with the first example that shows why."""


@dataclass(frozen=True)
class DefendedResponse:
    """What is handed out.

    Args:
        text: The report, perhaps in other words; of a refusal the sentence that says so.
        refused: Whether there is no report.
    """

    text: str
    refused: bool = False


class Defence(ABC):
    """Stands between a report model and who asks it.

    A subclass says which pictures are answered (`admits`) and in which words (`reword`). Whatever it does, no finding
    is changed, dropped or added: the base class reads both texts and raises before a changed one is handed out.
    """

    name: ClassVar[str]
    refusal: ClassVar[str] = "This request is not answered."
    # Details of present findings that the idea leaves out on purpose; names of `claims.DROPPABLE`.
    drops: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unknown := set(cls.drops) - set(DROPPABLE):
            raise TypeError(f"{cls.__name__} may not drop {', '.join(sorted(unknown))}; only {', '.join(DROPPABLE)}")
        if read(cls.refusal).has_statements:
            raise TypeError(f"the refusal of {cls.__name__} says something of an image: {cls.refusal!r}")

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Defence:
        """A defence that is ready for use, calibrated on benign images where it needs them."""
        return cls()

    def admits(self, asked: Pixels, account: str, number: int) -> bool:
        """Whether this picture is answered.

        Args:
            asked: uint8 [H, W], 255 is white.
            account: Who asks.
            number: Queries that reached the defence before this one, by anybody: the clock.
        """
        return True

    def reword(self, report: str) -> str:
        """The report in the words of the defence."""
        return report

    def count(self, account: str, number: int) -> None:  # noqa: B027 - most defences remember nothing
        """Take note of a query that was put before this process began; only a defence with a memory needs it."""

    @final
    def answer(self, asked: Pixels, report: str | Callable[[], str], account: str, number: int) -> DefendedResponse:
        """What is handed out for a picture.

        Args:
            asked: uint8 [H, W], 255 is white.
            report: What the model wrote, or a function that lets it write.
            account: Who asks.
            number: Queries before this one.

        Raises:
            FindingChanged: Where the words claim something else than the report.
        """
        if not self.admits(asked, account, number):
            return DefendedResponse(self.refusal, refused=True)
        return DefendedResponse(self.worded(report if isinstance(report, str) else report()))

    @final
    def worded(self, report: str) -> str:
        """The report in the words of the defence, after both were read and found to claim the same."""
        text = self.reword(report)
        if fault := difference(report, text, self.drops):
            raise FindingChanged(
                f"the defence '{self.name}' changed a finding: {fault}. Report: {report!r}; instead: {text!r}. "
                "Nothing was handed out."
            )
        return text


@dataclass(frozen=True)
class SafetyReport:
    """A defence that changed no finding.

    Args:
        defence: Its name.
        n: Reports on which it was tried.
        reworded: Reports whose words it changed.
        most_unsafe: Upper end of the exact one-sided 95 % interval of the share of reports whose findings it changes,
            given that none of n was.
    """

    defence: str
    n: int
    reworded: int
    most_unsafe: float


def check_on_benign(defence: Defence, reports: Sequence[str]) -> SafetyReport:
    """Try a defence on reports of benign images.

    Args:
        defence: To be tried; its refusals are no matter here, since a refusal says nothing of an image.
        reports: What the model wrote for benign images, or reference reports; at least one.

    Raises:
        DefenceRejected: At the first report whose findings it changes, drops or adds to.
    """
    if not reports:
        raise DataError(f"the defence '{defence.name}' cannot be checked without a report; give benign images.")
    reworded = 0
    for place, report in enumerate(reports):
        try:
            reworded += defence.worded(report) != report
        except FindingChanged as error:
            raise DefenceRejected(
                f"the defence '{defence.name}' is rejected and was not used: on benign report {place + 1} of "
                f"{len(reports)} {error}"
            ) from None
    return SafetyReport(defence.name, len(reports), reworded, most_unsafe=1 - 0.05 ** (1 / len(reports)))


ANYBODY = "anybody"  # who asks where no accounts are told
Generate = Callable[[list["Image"], list[str | None] | None], list[list[Generated]]]


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
        self, images: Sequence[Image], indications: Sequence[str | None] | None, ask: Generate
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

    def _told(self, images: list[Image], reasons: list[str | None] | None, ask: Generate) -> list[list[Generated]]:
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

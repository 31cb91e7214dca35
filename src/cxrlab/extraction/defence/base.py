"""Base class and table of defences, and the defended model; every defence is checked on benign reports before use.

A new defence is one subclass of `Defence` (in `defences`, or a module of its own) and one row of `DEFENCES`.
"""

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
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.registry import Registry
from cxrlab.data.images import grey_image
from cxrlab.extraction.defence.finding_preservation import DROPPABLE, difference
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import clopper_pearson
from cxrlab.models.decoding import Decoding, SupportsDecoding, decodes_here

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image, ImageToText
    from cxrlab.extraction.config import DefenceSettings
    from cxrlab.extraction.records import Pixels, QueryImage

DEFENCES = Registry(
    "defence",
    {
        "gate": "cxrlab.extraction.defence.defences:Gate",
        "quota": "cxrlab.extraction.defence.defences:Quota",
        "coarse": "cxrlab.extraction.defence.defences:Coarse",
        "plain": "cxrlab.extraction.defence.defences:Plain",
        "watermark": "cxrlab.extraction.defence.watermark:Watermark",
        # Input transformations; see `cxrlab.attacks.input_transformations`
        "jpeg": "cxrlab.extraction.defence.defences:Jpeg",
        "blur": "cxrlab.extraction.defence.defences:Blur",
        "bits": "cxrlab.extraction.defence.defences:Bits",
        "noise": "cxrlab.extraction.defence.defences:Noise",
        "resample": "cxrlab.extraction.defence.defences:Resample",
        "random-resample": "cxrlab.extraction.defence.defences:RandomResample",
    },
)


@dataclass(frozen=True)
class Benign:
    """Benign images and reports, drawn with the seed and loaded when they are first needed."""

    settings: DefenceSettings
    seed: int

    @cached_property
    def pictures(self) -> list[QueryImage]:
        """Frontal images as they are stored; unreadable ones are left out."""
        from cxrlab.data.corpus import load_corpus
        from cxrlab.evaluation.generate import Images, select_studies
        from cxrlab.extraction.records import QueryImage

        corpus = load_corpus(self._folder)
        images, found = Images(corpus), []
        for key in select_studies(corpus, self.settings.benign_split, self.settings.benign_images, self.seed):
            with suppress(DataError):
                found.append(QueryImage(key, to_uint8(grey_image(images.image(key))), in_domain=True))
        return found

    @cached_property
    def reports(self) -> list[str]:
        """Reference findings of the split, distinct."""
        from cxrlab.data.corpus import load_corpus

        studies = load_corpus(self._folder).studies(self.settings.benign_split)
        texts = (study.sections.findings for study in studies if study.sections)
        found = list(dict.fromkeys(text for text in texts if text and text.strip()))
        if not found:
            raise DataError(f"{self._folder} has no report in its {self.settings.benign_split} split.")
        return found[: self.settings.benign_images]

    @property
    def _folder(self) -> str:
        if self.settings.benign is None:
            raise ConfigError("Defences are calibrated and checked on benign images before use; give benign=CORPUS.")
        return str(self.settings.benign)


def open_defence(name: str, settings: DefenceSettings, seed: int) -> tuple[Defence, SafetyReport]:
    """A defence and the result of its check on benign reports.

    Raises:
        DefenceRejected: If it changes a finding of a benign report.
    """
    kind: type[Defence] = DEFENCES.load(name)
    benign = Benign(settings, seed)
    defence = kind.from_settings(settings, benign)
    return defence, check_on_benign(defence, benign.reports)


def rewording_defences() -> tuple[str, ...]:
    """Names of the defences that answer every image and only change the wording of reports."""
    kinds: dict[str, type[Defence]] = {name: DEFENCES.load(name) for name in DEFENCES}
    return tuple(
        name for name, kind in kinds.items() if kind.admits is Defence.admits and kind.transform is Defence.transform
    )


class FindingChanged(CxrlabError):
    """A defence changed the findings of a report; it was not given out."""


class DefenceRejected(CxrlabError):
    """A defence that may not be used, with the first report whose findings it changes."""


@dataclass(frozen=True)
class DefendedResponse:
    """The answer to a client: the report, perhaps reworded, or the text of a refusal."""

    text: str
    refused: bool = False


class Defence(ABC):
    """Base class of defences between a report model and its clients.

    Subclasses implement which images are answered (`admits`), what the model gets of them (`transform`) and in which
    words its report is given out (`reword`). No finding of that report may be changed, dropped or added: this class reads
    both texts and raises before a changed one is given out. A transformed image may have another report, which no check
    of words finds; its cost is measured on benign images.
    """

    name: ClassVar[str]
    refusal: ClassVar[str] = "This request is not answered."
    # Details of present findings that are left out on purpose; names of `finding_preservation.DROPPABLE`.
    drops: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unknown := set(cls.drops) - set(DROPPABLE):
            raise TypeError(f"{cls.__name__} may not drop {', '.join(sorted(unknown))}; only {', '.join(DROPPABLE)}")
        if read(cls.refusal).has_statements:
            raise TypeError(f"the refusal of {cls.__name__} states something about an image: {cls.refusal!r}")

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Defence:
        """A defence, calibrated on benign images if it needs them."""
        return cls()

    def admits(self, pixels: Pixels, account: str, number: int) -> bool:
        """Whether this image (uint8 [H, W]) is answered; `number` counts earlier queries of all accounts: the clock."""
        return True

    def transform(self, images: list[Image]) -> list[Image]:
        """The images (float [H, W] or [H, W, 3]) as the model gets them."""
        return images

    def reword(self, report: str) -> str:
        """The report in the words of the defence."""
        return report

    def count(self, account: str, number: int) -> None:  # noqa: B027 - most defences remember nothing
        """Note a query from before this process began; only a defence with a memory needs it."""

    @final
    def answer(self, pixels: Pixels, report: str | Callable[[], str], account: str, number: int) -> DefendedResponse:
        """The answer to an image (uint8 [H, W]); `report` is the model's report, or a function that generates it.

        Raises:
            FindingChanged: If the reworded report has other findings.
        """
        if not self.admits(pixels, account, number):
            return DefendedResponse(self.refusal, refused=True)
        return DefendedResponse(self.worded(report if isinstance(report, str) else report()))

    @final
    def worded(self, report: str) -> str:
        """The report in the words of the defence; both are read, and a `FindingChanged` is raised if they differ."""
        text = self.reword(report)
        if fault := difference(report, text, self.drops):
            raise FindingChanged(f"The defence '{self.name}' changed a finding: {fault}. No answer was given out.")
        return text


@dataclass(frozen=True)
class SafetyReport:
    """The check of a defence that changed no finding."""

    defence: str
    n: int  # reports that were checked
    reworded: int  # reports whose words it changed
    # Upper end of the exact one-sided 95 % interval of the share of reports whose findings it changes.
    most_unsafe: float


def check_on_benign(defence: Defence, reports: Sequence[str]) -> SafetyReport:
    """Check a defence on generated or reference reports of benign images.

    Raises:
        DefenceRejected: At the first report whose findings it changes, drops or adds to.
    """
    if not reports:
        raise DataError(f"The defence '{defence.name}' cannot be checked without a report; give benign images.")
    reworded = 0
    for place, report in enumerate(reports):
        try:
            reworded += defence.worded(report) != report
        except FindingChanged as error:
            raise DefenceRejected(
                f"The defence '{defence.name}' was rejected on benign report {place + 1} of {len(reports)}: {error}"
            ) from None
    return SafetyReport(defence.name, len(reports), reworded, most_unsafe=clopper_pearson(0, len(reports), 0.1).high)


ANONYMOUS = "anonymous"  # account of queries without one
Generate = Callable[[list["Image"], list[str | None] | None], list[list[Generated]]]


class Defended:
    """A model behind a defence; a refusal carries `refused: True` in its extra values.

    Args:
        model: It gets no image that the defence refuses.
        defence: In front of the model.
        earlier: Accounts of the queries before this process began, in order.
        batch_size: Images that the model answers at once; None for all of a call.
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
        self._clock = count(len(earlier))  # earlier queries, answered or refused
        for number, account in enumerate(earlier):
            defence.count(account, number)

    def for_accounts(self, accounts: Sequence[str]) -> Self:
        """The same model, clock and memory for images of these accounts, one account per image."""
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
        """One answer per image, in order."""

        def generate(images: list[Image], why: list[str | None] | None) -> list[list[Generated]]:
            return [[answer] for answer in self._model.generate(images, why)]

        return [answers[0] for answers in self._answered(all_images, indications, generate)]

    def _answered(
        self, images: Sequence[Image], indications: Sequence[str | None] | None, generate: Generate
    ) -> list[list[Generated]]:
        """The answers of the model in the words of the defence, with refusals in the places of refused images."""
        accounts = self._accounts or (ANONYMOUS,) * len(images)
        admitted = [
            self._defence.admits(to_uint8(grey_image(image)), account, next(self._clock))
            for image, account in zip(images, accounts, strict=True)
        ]
        passed = [place for place, passes in enumerate(admitted) if passes]

        def some(places: Sequence[int]) -> list[list[Generated]]:
            return generate(
                self._defence.transform([images[at] for at in places]),
                None if indications is None else [indications[at] for at in places],
            )

        if passed and self._batch_size is not None:
            answers = iter(self._batch_size.map(passed, some))
        else:
            answers = iter(some(passed) if passed else [])
        refusal = Generated(self._defence.refusal, extra={REFUSED: True})
        # The probability of the answer is dropped: it was that of other words.
        return [
            [replace(one, text=self._defence.worded(one.text), mean_logprob=None) for one in next(answers)]
            if passes
            else [refusal]
            for passes in admitted
        ]


class DefendedWriter(Defended):
    """The same for a model with decoding settings."""

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
    kind = DefendedWriter if decodes_here(model) else Defended
    return kind(model, defence, earlier=earlier, batch_size=batch_size)

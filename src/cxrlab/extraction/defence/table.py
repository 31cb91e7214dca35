"""The table of defences, and how one of them is opened: built, checked on benign reports, only then handed over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from cxrlab.extraction.defence.base import Defence
    from cxrlab.extraction.defence.config import DefenceSettings
    from cxrlab.extraction.defence.safety import SafetyReport
    from cxrlab.extraction.records import Picture

# Each row is a function of settings and benign images that gives a defence.
DEFENCES = Table(
    "defence",
    {
        "gate": "cxrlab.extraction.defence.building:gate",
        "quota": "cxrlab.extraction.defence.building:quota",
        "coarse": "cxrlab.extraction.defence.building:coarse",
        "plain": "cxrlab.extraction.defence.building:plain",
        "watermark": "cxrlab.extraction.defence.building:watermark",
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
    from cxrlab.extraction.defence.safety import check_on_benign

    build: Callable[[DefenceSettings, Benign], Defence] = DEFENCES.load(name)
    benign = Benign(settings, seed)
    defence = build(settings, benign)
    return defence, check_on_benign(defence, benign.reports)

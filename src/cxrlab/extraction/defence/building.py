"""Defences from settings and benign images: one function for each row of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cxrlab.extraction.defence.chest_images import ChestImages
from cxrlab.extraction.defence.coarse import Coarse, Plain
from cxrlab.extraction.defence.gate import Gate
from cxrlab.extraction.defence.keys import load_key
from cxrlab.extraction.defence.quotas import Quota
from cxrlab.extraction.defence.watermark import Watermark

if TYPE_CHECKING:
    from cxrlab.extraction.defence.config import DefenceSettings
    from cxrlab.extraction.defence.table import Benign


def gate(settings: DefenceSettings, benign: Benign) -> Gate:
    """A gate whose rate of false refusals is bounded on benign images."""
    return Gate(ChestImages(benign.pictures, bound=settings.gate_bound, seed=benign.seed))


def quota(settings: DefenceSettings, benign: Benign) -> Quota:
    """A quota; benign images have no part in it."""
    return Quota(settings.quota, settings.window)


def coarse(settings: DefenceSettings, benign: Benign) -> Coarse:
    """Fixed sentences; nothing is to be set."""
    return Coarse()


def plain(settings: DefenceSettings, benign: Benign) -> Plain:
    """Fixed sentences with every detail; nothing is to be set."""
    return Plain()


def watermark(settings: DefenceSettings, benign: Benign) -> Watermark:
    """The mark of the key file."""
    return Watermark(load_key(settings.key_file))

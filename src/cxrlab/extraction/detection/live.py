"""Detectors on a server: one picture at a time, an answer before the model gives its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.data.corpus import load_corpus
from cxrlab.extraction.detection.config import DetectConfig
from cxrlab.extraction.detection.features import measure, open_encoder, traffic_of
from cxrlab.extraction.detection.sources import corpus_shots
from cxrlab.extraction.detection.table import DETECTORS

if TYPE_CHECKING:
    from cxrlab.extraction.detection.base import Detector, Watch
    from cxrlab.extraction.detection.features import SeesImages
    from cxrlab.extraction.records import Pixels


@dataclass(frozen=True)
class Verdict:
    """What is said of one question.

    Args:
        flagged: Detectors by image that flag this picture.
        alarms: Detectors whose alarm has rung for this account, now or before.
        scores: Detector → score; not-a-number while it cannot tell yet.
    """

    flagged: tuple[str, ...]
    alarms: tuple[str, ...]
    scores: Mapping[str, float]

    @property
    def passes(self) -> bool:
        """Neither is the picture flagged nor has an alarm rung."""
        return not self.flagged and not self.alarms


class LiveWatch:
    """Watches every account as questions come in; may be called from several threads.

    A question costs one picture through the encoder and, for each detector, at most as many steps as an account has
    queries. An alarm stays rung until `forgive`. Every account that was ever seen is kept, some kilobytes each.

    Args:
        detectors: Calibrated ones by name.
        encoder: The one that they were calibrated with; None where they were calibrated without.
    """

    def __init__(self, detectors: Mapping[str, Detector], encoder: SeesImages | None = None) -> None:
        self._detectors, self._encoder = dict(detectors), encoder
        self._watches: dict[str, dict[str, Watch]] = {}
        self._rung: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def see(self, pixels: Pixels, account: str = "") -> Verdict:
        """What is said of the next question of an account.

        Args:
            pixels: The picture, uint8 [H, W].
            account: Who asks.
        """
        asked = measure([pixels], self._encoder)[0]
        with self._lock:  # the encoder may run in several threads; the state of an account may not
            if account not in self._watches:
                self._watches[account] = {name: one.begin() for name, one in self._detectors.items()}
            seen = {name: watch.see(asked) for name, watch in self._watches[account].items()}
            rung = self._rung.setdefault(account, [])
            rung += [name for name, one in seen.items() if one.rings and name not in rung]
            alarms = tuple(rung)
        flagged = tuple(name for name, one in seen.items() if one.flagged)
        return Verdict(flagged, alarms, {name: one.score for name, one in seen.items()})

    def forgive(self, account: str) -> None:
        """Begin anew with an account, when a person has looked at it."""
        with self._lock:
            self._watches.pop(account, None)
            self._rung.pop(account, None)


def calibrated(config: DetectConfig, store: Path) -> tuple[dict[str, Detector], SeesImages | None]:
    """Detectors by name, calibrated on benign images, and the encoder that they see with.

    Args:
        config: Corpus, splits, detectors, encoder and bounds; its streams are passed over.
        store: Folder in which what was measured of the images is kept for the next time.
    """
    encoder = open_encoder(config.encoder, config.loading)
    shots = corpus_shots(load_corpus(config.benign), config.calibrate, config.n, config.seed)
    benign = traffic_of(shots, encoder, store, config.batch_size, "benign images")
    found: dict[str, Detector] = {}
    for name in config.detectors:
        found[name] = DETECTORS.load(name)(config.detector)
        found[name].calibrate(benign, config.seed)
    return found, encoder

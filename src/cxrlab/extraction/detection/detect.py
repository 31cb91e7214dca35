"""`cxrlab detect`: how soon streams of queries are recognised, and how often benign traffic is taken for one.

detection.json     bounds, measured false alarms, and what became of each stream
detection.jsonl    scores of every query, and of every held-out image
features/          vectors and statistics of all pictures, computed once
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import connection_operational_fields
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import JsonlAppender
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.extraction.detection.base import DETECTORS, Traffic, draw_accounts
from cxrlab.extraction.detection.config import DetectConfig
from cxrlab.extraction.detection.false_alarm_rates import Share, share
from cxrlab.extraction.detection.features import (
    StreamImage,
    corpus_images,
    load_traffic,
    measure,
    open_encoder,
    stream_images,
)

if TYPE_CHECKING:
    from cxrlab.extraction.detection.base import Detector, StreamResult, Watch
    from cxrlab.extraction.detection.features import ImageEncoder
    from cxrlab.extraction.records import Pixels

DETECTION, SCORES, FEATURES = "detection.json", "detection.jsonl", "features"
HELD_OUT = "benign, held out"
OPERATIONAL = (
    "batch_size",
    "loading.device",
    *connection_operational_fields("loading.connection"),
)  # settings that may change when a run is continued


def detect(config: DetectConfig, out: Path) -> dict[str, Any]:
    """Calibrate detectors on benign images, measure their false alarms on held-out ones, and watch each stream.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        told: dict[str, Any] = read_json(out / DETECTION)
        return told
    names = stream_names(config.stream)
    shots = {name: _stream(config, folder) for name, folder in names.items()}
    held = corpus_images(load_corpus(config.benign), (config.held_out,), config.n, config.seed)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        store = run.path(FEATURES)
        detectors, encoder = calibrated(config, store)
        benign = load_traffic(held, encoder, store, config.batch_size, "held-out images")
        streams = {
            name: load_traffic(some, encoder, store, config.batch_size, f"queries of {name}")
            for name, some in shots.items()
        }
        found: dict[str, Any] = {
            "benign": {"data": str(config.benign), "calibrate": list(config.calibrate), "held_out": config.held_out,
                       "held_out_images": len(benign)},
            "encoder": config.encoder,
            "settings": asdict(config.detector),
            "metric": config.metric,
            "detectors": {name: _described(one, benign, config.seed) for name, one in detectors.items()},
            "streams": {},
        }  # fmt: skip
        run.path(SCORES).unlink(missing_ok=True)  # a stopped run may have left a part of it
        _keep(run, HELD_OUT, benign, {name: one.watch(benign) for name, one in detectors.items() if one.per_image})
        for name, traffic in streams.items():
            watched = {key: one.watch(traffic) for key, one in detectors.items()}
            _keep(run, name, traffic, watched)
            found["streams"][name] = _outcome(names[name], traffic, watched, config.metric)
        found["warnings"] = warnings_of(found)
        run.write(DETECTION, found)
    return found


def stream_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Each stream by the name of its folder; by its whole path where two folders have the same name."""
    last = [folder.name for folder in folders]
    names = {folder.name if last.count(folder.name) == 1 else folder.as_posix(): folder for folder in folders}
    if len(names) < len(folders):
        raise DataError("a stream is named twice; name each run folder once.")
    return names


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """Sentences on bounds that the held-out images show to be broken."""
    return [
        f"{name} flags more benign {kind}s than its bound of {row['bound'][kind]:g} allows: "
        f"{rate['value']:.4f} [{rate['low']:.4f}, {rate['high']:.4f}] of held-out ones; they differ from those it was "
        "calibrated on."
        for name, row in found["detectors"].items()
        for kind, rate in row["false_positives"].items()
        if rate["within"] is False
    ]


def _stream(config: DetectConfig, folder: Path) -> list[StreamImage]:
    return stream_images(folder, split=config.held_out, n=config.n, seed=config.seed)


def _described(detector: Detector, benign: Traffic, seed: int) -> dict[str, Any]:
    """Bound, threshold, and false alarms on held-out images."""
    settings = detector.settings
    bound = {"account": settings.account_bound, **({"image": settings.image_bound} if detector.per_image else {})}
    rates = {"account": false_alarms(detector, benign, seed)}
    if detector.per_image:
        flagged = detector.watch(benign).flagged
        assert flagged is not None
        rates["image"] = share(int(flagged.sum()), len(benign))
    told = {kind: {**asdict(rate), "within": within(rate, bound[kind])} for kind, rate in rates.items()}
    return {
        "per_image": detector.per_image,
        "bound": bound,
        "queries": settings.account_queries,
        "threshold": detector.threshold,
        "alarm_count": detector.count,
        "false_positives": told,
    }


def false_alarms(detector: Detector, benign: Traffic, seed: int) -> Share:
    """Share of benign accounts, drawn from held-out images, in which the alarm rings.

    Accounts share images when there are more of them than the images fill; the interval counts those alone that have
    none in common. Fewer images than one account has give no share.
    """
    settings = detector.settings
    if len(benign) < settings.account_queries:
        return share(0, 0)
    rng = generator(seed, "detect", detector.name, "held out")
    drawn = list(draw_accounts(len(benign), settings.account_queries, settings.accounts, rng))
    rung = sum(detector.watch(_one_account(benign.take(places))).alarm is not None for places in drawn)
    return share(rung, len(drawn), independent=len(benign) // settings.account_queries)


def within(rate: Share, bound: float) -> bool | None:
    """Whether a measured rate is compatible with its bound; None where nothing was measured."""
    return None if rate.low is None else rate.low <= bound


def _one_account(traffic: Traffic) -> Traffic:
    return Traffic(traffic.keys, ("one",) * len(traffic), traffic.features, traffic.looks)


def _outcome(folder: Path, traffic: Traffic, watched: Mapping[str, StreamResult], metric: str) -> dict[str, Any]:
    return {
        "path": str(folder),
        "queries": len(traffic),
        "accounts": len(traffic.by_account()),
        "detectors": {name: _of_one(folder, one, metric) for name, one in watched.items()},
    }


def _of_one(folder: Path, watched: StreamResult, metric: str) -> dict[str, Any]:
    rung = [at for at in watched.periods if at is not None]
    flagged = watched.flagged
    quality = quality_at_alarm(folder, watched.alarm, metric)
    # Who never had enough queries to judge by has not let anybody pass: that rate is unknown, not 0.
    blind = all(isnan(score) for score in watched.scores)
    if blind:
        quality["reason"] = f"{len(watched.scores)} queries are too few for it to tell"
    return {
        "detected": watched.alarm is not None,
        "queries_to_detect": watched.alarm,
        "detection_rate": asdict(share(len(rung), 0 if blind else len(watched.periods))),
        "median_queries": median(rung) if rung else None,
        "share_flagged": None if flagged is None else asdict(share(int(flagged.sum()), len(flagged))),
        "quality": quality,
    }


def _keep(run: Run, stream: str, traffic: Traffic, watched: Mapping[str, StreamResult]) -> None:
    """One line a question with all scores."""
    with JsonlAppender(run.path(SCORES)) as file:
        for place, (key, account) in enumerate(zip(traffic.keys, traffic.accounts, strict=True)):
            scores = {name: float(one.scores[place]) for name, one in watched.items()}
            flagged = [name for name, one in watched.items() if one.flagged is not None and one.flagged[place]]
            row = {"stream": stream, "number": place, "key": key, "account": account}
            file.append({**row, "scores": scores, "flagged": flagged})


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


class LiveMonitor:
    """Watches every account as questions come in; may be called from several threads.

    A question costs one picture through the encoder and, for each detector, at most as many steps as an account has
    queries. An alarm stays rung until `forgive`. Every account that was ever seen is kept, some kilobytes each.

    Args:
        detectors: Calibrated ones by name.
        encoder: The one that they were calibrated with; None where they were calibrated without.
    """

    def __init__(self, detectors: Mapping[str, Detector], encoder: ImageEncoder | None = None) -> None:
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


def calibrated(config: DetectConfig, store: Path) -> tuple[dict[str, Detector], ImageEncoder | None]:
    """Detectors by name, calibrated on benign images, and the encoder that they see with.

    Args:
        config: Corpus, splits, detectors, encoder and bounds; its streams are passed over.
        store: Folder in which what was measured of the images is kept for the next time.
    """
    encoder = open_encoder(config.encoder, config.loading)
    shots = corpus_images(load_corpus(config.benign), config.calibrate, config.n, config.seed)
    benign = load_traffic(shots, encoder, store, config.batch_size, "benign images")
    found: dict[str, Detector] = {}
    for name in config.detectors:
        found[name] = DETECTORS.load(name)(config.detector)
        found[name].calibrate(benign, config.seed)
    return found, encoder


EXTRACTION, CURVE = "extraction.json", "curve"


def quality_at_alarm(run: Path, alarm: int | None, metric: str) -> dict[str, Any]:
    """The copy that the attacker had when the alarm rang: the last one fitted with no more queries.

    Args:
        run: Run folder of an extraction.
        alarm: Queries until the alarm rang; None when it did not.
        metric: Such as `findings.f1`.

    Returns:
        `budget` (queries of that copy), the figures that the extraction gives for the metric, and `reason`, which says
        why where a figure is None. A copy is never taken to be between two fitted ones.
    """
    if alarm is None:
        return _unknown("no alarm rang")
    if not (run / EXTRACTION).is_file():
        return _unknown(f"{run.name} has no {EXTRACTION}")
    found = read_json(run / EXTRACTION)
    curve = found.get(CURVE) if isinstance(found, Mapping) else None
    if not isinstance(curve, Mapping) or not curve:
        return _unknown(f"{EXTRACTION} of {run.name} has no curve over budgets")
    budgets = sorted(_budget(key, run) for key in curve)
    before = [budget for budget in budgets if budget <= alarm]
    if not before:
        return _unknown(f"the first copy was fitted after {budgets[0]} queries")
    figures = next(curve[key] for key in curve if _budget(key, run) == before[-1])
    value = figures.get(metric) if isinstance(figures, Mapping) else None
    if value is None:
        return {**_unknown(f"the curve of {run.name} has no {metric}"), "budget": before[-1]}
    told = dict(value) if isinstance(value, Mapping) else {"value": value}
    return {"budget": before[-1], **told, "reason": None}


def _unknown(reason: str) -> dict[str, Any]:
    return {"budget": None, "value": None, "reason": reason}


def _budget(key: Any, run: Path) -> int:
    if not str(key).isdigit():
        raise DataError(f"the curve in {run / EXTRACTION} has the key '{key}', which is no number of queries.")
    return int(key)

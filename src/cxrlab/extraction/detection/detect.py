"""`cxrlab detect`: how soon extraction attacks are detected in streams of queries, and how often benign traffic is.

detection.json     bounds, measured false alarms, and the result for each stream
detection.jsonl    scores of every query, and of every held-out image
features/          vectors and statistics of all images, computed once
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import connection_operational_fields
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

    An interrupted run is resumed in `out`; a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return dict(read_json(out / DETECTION))
    names = stream_names(config.stream)
    images = {
        name: stream_images(folder, split=config.held_out, n=config.n, seed=config.seed)
        for name, folder in names.items()
    }
    held = corpus_images(load_corpus(config.benign), (config.held_out,), config.n, config.seed)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        store = run.path(FEATURES)
        detectors, encoder = calibrated(config, store)
        benign = load_traffic(held, encoder, store, config.batch_size, "held-out images")
        streams = {
            name: load_traffic(some, encoder, store, config.batch_size, f"queries of {name}")
            for name, some in images.items()
        }
        found: dict[str, Any] = {
            "benign": {"data": str(config.benign), "calibrate": list(config.calibrate), "held_out": config.held_out,
                       "held_out_images": len(benign)},
            "encoder": config.encoder,
            "settings": asdict(config.detector),
            "metric": config.metric,
            "detectors": {name: _measure_false_alarms(one, benign, config.seed) for name, one in detectors.items()},
            "streams": {},
        }  # fmt: skip
        run.path(SCORES).unlink(missing_ok=True)  # an interrupted run may have written a part of it
        _append_scores(
            run, HELD_OUT, benign, {name: one.watch(benign) for name, one in detectors.items() if one.per_image}
        )
        for name, traffic in streams.items():
            watched = {key: one.watch(traffic) for key, one in detectors.items()}
            _append_scores(run, name, traffic, watched)
            found["streams"][name] = {
                "path": str(names[name]),
                "queries": len(traffic),
                "accounts": len(traffic.by_account()),
                "detectors": {key: stream_summary(names[name], one, config.metric) for key, one in watched.items()},
            }
        found["warnings"] = warnings_of(found)
        run.write(DETECTION, found)
    return found


def stream_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Each stream by the name of its folder; by its whole path if two folders have the same name."""
    last = [folder.name for folder in folders]
    names = {folder.name if last.count(folder.name) == 1 else folder.as_posix(): folder for folder in folders}
    if len(names) < len(folders):
        raise DataError(f"Streams: {', '.join(map(str, folders))}. A folder is named twice; name each once.")
    return names


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """A sentence for every bound that the held-out images exceed."""
    return [
        f"{name} flags more benign {kind}s than its bound of {row['bound'][kind]:g} allows: "
        f"{rate['value']:.4f} [{rate['low']:.4f}, {rate['high']:.4f}] of held-out ones, which differ from those of its "
        "calibration."
        for name, row in found["detectors"].items()
        for kind, rate in row["false_positives"].items()
        if rate["within"] is False
    ]


def _measure_false_alarms(detector: Detector, benign: Traffic, seed: int) -> dict[str, Any]:
    """Bound, threshold, and false alarms on held-out images."""
    settings = detector.settings
    bound = {"account": settings.account_bound, **({"image": settings.image_bound} if detector.per_image else {})}
    rates = {"account": false_alarms(detector, benign, seed)}
    if detector.per_image:
        flagged = detector.watch(benign).flagged
        assert flagged is not None
        rates["image"] = share(int(flagged.sum()), len(benign))
    measured = {kind: {**asdict(rate), "within": within(rate, bound[kind])} for kind, rate in rates.items()}
    return {
        "per_image": detector.per_image,
        "bound": bound,
        "queries": settings.account_queries,
        "threshold": detector.threshold,
        "alarm_count": detector.count,
        "false_positives": measured,
    }


def false_alarms(detector: Detector, benign: Traffic, seed: int) -> Share:
    """Share of benign accounts, drawn from held-out images, that raise the alarm.

    Accounts share images if the images do not suffice; the interval counts only those without a common image. Fewer
    images than one account has give no share.
    """
    settings = detector.settings
    if len(benign) < settings.account_queries:
        return share(0, 0)
    rng = generator(seed, "detect", detector.name, "held out")
    drawn = list(draw_accounts(len(benign), settings.account_queries, settings.accounts, rng))
    alarms = 0
    for places in drawn:
        account = replace(benign.take(places), accounts=("one",) * len(places))
        alarms += detector.watch(account).alarm is not None
    return share(alarms, len(drawn), independent=len(benign) // settings.account_queries)


def within(rate: Share, bound: float) -> bool | None:
    """Whether a measured rate is compatible with its bound; None if nothing was measured."""
    return None if rate.low is None else rate.low <= bound


def stream_summary(folder: Path, watched: StreamResult, metric: str) -> dict[str, Any]:
    """What one detector found in one stream, and the quality of the copy at its alarm."""
    alarms = [at for at in watched.periods if at is not None]
    flagged = watched.flagged
    quality = quality_at_alarm(folder, watched.alarm, metric)
    # With too few queries for any score the detection rate is unknown, not 0.
    blind = all(isnan(score) for score in watched.scores)
    if blind:
        quality["reason"] = f"{len(watched.scores)} queries are too few for a score"
    return {
        "detected": watched.alarm is not None,
        "queries_to_detect": watched.alarm,
        "detection_rate": asdict(share(len(alarms), 0 if blind else len(watched.periods))),
        "median_queries": median(alarms) if alarms else None,
        "share_flagged": None if flagged is None else asdict(share(int(flagged.sum()), len(flagged))),
        "quality": quality,
    }


def _append_scores(run: Run, stream: str, traffic: Traffic, watched: Mapping[str, StreamResult]) -> None:
    """Write one line per query with all scores."""
    with JsonlAppender(run.path(SCORES)) as file:
        for place, (key, account) in enumerate(zip(traffic.keys, traffic.accounts, strict=True)):
            scores = {name: float(one.scores[place]) for name, one in watched.items()}
            flagged = [name for name, one in watched.items() if one.flagged is not None and one.flagged[place]]
            row = {"stream": stream, "number": place, "key": key, "account": account}
            file.append({**row, "scores": scores, "flagged": flagged})


@dataclass(frozen=True)
class Verdict:
    """The result for one query."""

    flagged: tuple[str, ...]  # detectors per image that flag this image
    alarms: tuple[str, ...]  # detectors that have raised an alarm for this account, now or before
    scores: Mapping[str, float]  # detector → score; not-a-number while there are too few queries


class LiveMonitor:
    """Watches every account as queries come in; thread-safe.

    A query costs one image through the encoder and, for each detector, at most as many steps as an account has queries.
    An alarm lasts until `reset`. The state of every account is kept, some kilobytes each.

    Args:
        detectors: Calibrated ones by name.
        encoder: The encoder of their calibration, if any.
    """

    def __init__(self, detectors: Mapping[str, Detector], encoder: ImageEncoder | None = None) -> None:
        self._detectors, self._encoder = dict(detectors), encoder
        self._watches: dict[str, dict[str, Watch]] = {}
        self._alarms: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def update(self, pixels: Pixels, account: str = "") -> Verdict:
        """The result for the next image (uint8 [H, W]) of an account."""
        query = measure([pixels], self._encoder)[0]
        with self._lock:  # the encoder may run in several threads; the state of an account may not
            if account not in self._watches:
                self._watches[account] = {name: one.begin() for name, one in self._detectors.items()}
            found = {name: watch.update(query) for name, watch in self._watches[account].items()}
            alarms = self._alarms.setdefault(account, [])
            alarms += [name for name, one in found.items() if one.alarm and name not in alarms]
            flagged = tuple(name for name, one in found.items() if one.flagged)
            return Verdict(flagged, tuple(alarms), {name: one.score for name, one in found.items()})

    def reset(self, account: str) -> None:
        """Reset the state and the alarms of an account."""
        with self._lock:
            self._watches.pop(account, None)
            self._alarms.pop(account, None)


def calibrated(config: DetectConfig, store: Path) -> tuple[dict[str, Detector], ImageEncoder | None]:
    """Detectors by name, calibrated on benign images, and their encoder; `store` caches the image features.

    The streams of the config are not used.
    """
    encoder = open_encoder(config.encoder, config.loading)
    images = corpus_images(load_corpus(config.benign), config.calibrate, config.n, config.seed)
    benign = load_traffic(images, encoder, store, config.batch_size, "benign images")
    found: dict[str, Detector] = {}
    for name in config.detectors:
        found[name] = DETECTORS.load(name)(config.detector)
        found[name].calibrate(benign, config.seed)
    return found, encoder


EXTRACTION, CURVE = "extraction.json", "curve"


def quality_at_alarm(run: Path, alarm: int | None, metric: str) -> dict[str, Any]:
    """The copy that the attacker had at the alarm: the last one of the run that was trained with no more queries.

    Args:
        run: Run folder of an extraction.
        alarm: Queries until the alarm; None if there was none.
        metric: Such as `findings.f1`.

    Returns:
        `budget` (queries of that copy), the figures of the metric in the extraction, and the `reason` for a missing
        figure. Nothing is interpolated between two copies.
    """
    if alarm is None:
        return _unknown("there was no alarm")
    if not (run / EXTRACTION).is_file():
        return _unknown(f"{run.name} has no {EXTRACTION}")
    found = read_json(run / EXTRACTION)
    curve = found.get(CURVE) if isinstance(found, Mapping) else None
    if not isinstance(curve, Mapping) or not curve:
        return _unknown(f"{EXTRACTION} of {run.name} has no curve over budgets")
    budgets = sorted(_budget(key, run) for key in curve)
    before = [budget for budget in budgets if budget <= alarm]
    if not before:
        return _unknown(f"the first copy was trained after {budgets[0]} queries")
    figures = next(curve[key] for key in curve if _budget(key, run) == before[-1])
    value = figures.get(metric) if isinstance(figures, Mapping) else None
    if value is None:
        return {**_unknown(f"the curve of {run.name} has no {metric}"), "budget": before[-1]}
    return {"budget": before[-1], **(value if isinstance(value, Mapping) else {"value": value}), "reason": None}


def _unknown(reason: str) -> dict[str, Any]:
    return {"budget": None, "value": None, "reason": reason}


def _budget(key: Any, run: Path) -> int:
    if not str(key).isdigit():
        raise DataError(f"the curve in {run / EXTRACTION} has the key '{key}'; expected a number of queries.")
    return int(key)

"""`cxrlab detect`: how soon streams of queries are recognised, and how often benign traffic is taken for one.

detection.json     bounds, measured false alarms, and what became of each stream
detection.jsonl    scores of every query, and of every held-out image
features/          vectors and statistics of all pictures, computed once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
from cxrlab.extraction.detection.config import DetectConfig
from cxrlab.extraction.detection.curve_at_alarm import quality_at_alarm
from cxrlab.extraction.detection.features import traffic_of
from cxrlab.extraction.detection.live import calibrated
from cxrlab.extraction.detection.shares import Share, share
from cxrlab.extraction.detection.sources import Shot, corpus_shots, stream_shots
from cxrlab.extraction.detection.traffic import Traffic, drawn_accounts

if TYPE_CHECKING:
    from cxrlab.extraction.detection.base import Detector, Watched

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
    held = corpus_shots(load_corpus(config.benign), (config.held_out,), config.n, config.seed)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        store = run.path(FEATURES)
        detectors, encoder = calibrated(config, store)
        benign = traffic_of(held, encoder, store, config.batch_size, "held-out images")
        streams = {
            name: traffic_of(some, encoder, store, config.batch_size, f"queries of {name}")
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


def _stream(config: DetectConfig, folder: Path) -> list[Shot]:
    return stream_shots(folder, split=config.held_out, n=config.n, seed=config.seed)


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
    drawn = list(drawn_accounts(len(benign), settings.account_queries, settings.accounts, rng))
    rung = sum(detector.watch(_one_account(benign.take(places))).alarm is not None for places in drawn)
    return share(rung, len(drawn), independent=len(benign) // settings.account_queries)


def within(rate: Share, bound: float) -> bool | None:
    """Whether a measured rate is compatible with its bound; None where nothing was measured."""
    return None if rate.low is None else rate.low <= bound


def _one_account(traffic: Traffic) -> Traffic:
    return Traffic(traffic.keys, ("one",) * len(traffic), traffic.features, traffic.looks)


def _outcome(folder: Path, traffic: Traffic, watched: Mapping[str, Watched], metric: str) -> dict[str, Any]:
    return {
        "path": str(folder),
        "queries": len(traffic),
        "accounts": len(traffic.by_account()),
        "detectors": {name: _of_one(folder, one, metric) for name, one in watched.items()},
    }


def _of_one(folder: Path, watched: Watched, metric: str) -> dict[str, Any]:
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


def _keep(run: Run, stream: str, traffic: Traffic, watched: Mapping[str, Watched]) -> None:
    """One line a question with all scores."""
    with JsonlAppender(run.path(SCORES)) as file:
        for place, (key, account) in enumerate(zip(traffic.keys, traffic.accounts, strict=True)):
            scores = {name: float(one.scores[place]) for name, one in watched.items()}
            flagged = [name for name, one in watched.items() if one.flagged is not None and one.flagged[place]]
            row = {"stream": stream, "number": place, "key": key, "account": account}
            file.append({**row, "scores": scores, "flagged": flagged})

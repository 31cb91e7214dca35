"""`cxrlab detect`: would anybody notice that a model is being copied, and how often is the alarm false?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.cli.result import Result, columns
from cxrlab.extraction.detection.config import DetectConfig


def detect(config: DetectConfig, out: Path, streams: tuple[Path, ...] = ()) -> Result:
    """Watch streams of queries with detectors whose thresholds come from benign images alone.

    RUN/detection.json has for each detector its bound, the false alarms measured on held-out images, and for each
    stream the queries until the alarm, the share of flagged images and how good the copy was at that moment;
    RUN/detection.jsonl the scores of every query. Without a stream false alarms alone are measured.

    Args:
        config: Settings.
        out: The run folder.
        streams: Run folders that 'cxrlab extract' wrote; or corpora, to see how images of another place fare.
    """
    from cxrlab.extraction.detection.watch import detect as watch_streams

    found = watch_streams(replace(config, stream=(*streams, *config.stream)), out)
    parts = [_detectors(found), *(f"! {line}" for line in found["warnings"])]
    parts += [_stream(name, row, found["metric"]) for name, row in found["streams"].items()]
    return Result("\n\n".join(parts), found)


def _detectors(found: Mapping[str, Any]) -> str:
    rows = [["detector", "judges", "bound", "false alarms measured", "n"]]
    for name, row in found["detectors"].items():
        for kind, rate in row["false_positives"].items():
            of = kind if kind == "image" else f"accounts of {row['queries']}"
            rows.append([name, of, f"{row['bound'][kind]:g}", _share(rate), str(rate["n"])])
    return columns(rows) + _unmeasured(found)


def _unmeasured(found: Mapping[str, Any]) -> str:
    """Why there is no rate by account, where there is none."""
    images, queries = found["benign"]["held_out_images"], found["settings"]["account_queries"]
    if images >= queries:
        return ""
    return f"\n–: {images} held-out images do not fill one account of {queries}; false alarms by account are unknown"


def _stream(name: str, row: Mapping[str, Any], metric: str) -> str:
    told = f"{row['queries']} queries" + (f" by {row['accounts']} accounts" if row["accounts"] > 1 else "")
    rows = [[f"{name} ({told})", "detected at", "accounts caught", "images flagged", f"{metric} of the copy then"]]
    for detector, one in row["detectors"].items():
        at = "–" if one["queries_to_detect"] is None else str(one["queries_to_detect"])
        rows.append([detector, at, _share(one["detection_rate"]), _share(one["share_flagged"]), _then(one["quality"])])
    return columns(rows)


def _then(quality: Mapping[str, Any]) -> str:
    if quality["value"] is None:
        return f"– ({quality['reason']})"
    return f"{quality['value']:.3f} (fitted to {quality['budget']})"


def _share(value: Mapping[str, Any] | None) -> str:
    if value is None or value["value"] is None:
        return "–"
    ends = "" if value["low"] is None else f" [{value['low']:.4f}, {value['high']:.4f}]"
    return f"{value['value']:.4f}{ends}"

"""`cxrlab extract`, `detect` and `defend`: copying a model by queries, detecting it, and defending against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns, measurement, number
from cxrlab.cli.plans import folder, planned
from cxrlab.core.headline_metrics import ARROWS
from cxrlab.core.terminal import terminal_safe
from cxrlab.extraction.config import DefendConfig, ExtractConfig
from cxrlab.extraction.detection.config import DetectConfig


def extract(config: ExtractConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Copy a model that you own or may test through its answers to queries, and measure the copy.

    RUN/ledger.sqlite records every query with its answer; RUN/extraction.json compares the copy with the victim. Query
    images come from a pool: scenes, noise, folder:DIR, cifar:DIR, corpus:DIR or mix:R:IN+OUT; configs/extraction/
    holds complete recipes. Run the command again to continue an interrupted audit: no query is lost or sent twice.
    'cxrlab page RUN' shows the result, 'cxrlab detect RUN' shows whether detectors would have noticed it.

    Args:
        out: Run folder.
        plan: Time a batch of reports and a few steps of every part, print what the whole audit takes, and write and send
            nothing.
    """
    if plan:
        from cxrlab.extraction.extraction_plan import plan_extraction

        return planned(plan_extraction(config, out))
    out = folder(out)
    from cxrlab.extraction.audit import extract as audit

    found = audit(config, out)
    cost, transcript, metrics = found["cost"], found["transcript"], found["surrogate"]
    probes = ""
    if probing := found.get("probing"):
        probes = f", {probing['queries']:,} spent on probes (share of a radiograph in each image: {probing['blend_chest']:g})"
    abnormal = transcript["abnormal_share"]
    parts = [
        found["threat"],
        f"{found['spent']:,} of {found['budget']:,} queries ({cost['amount']:.2f} {cost['currency']}), "
        f"{found['refused']:,} refused{probes}; {transcript['distinct_finding_sets']:,} distinct sets of findings, "
        f"abnormal {'–' if abnormal is None else f'{100 * abnormal:.0f} %'}",
    ]
    if blocked := found.get("stopped"):
        parts.append(
            f"! the victim blocked the attacker: {blocked['refusals']:,} refusals in a row from query "
            f"{blocked['first']:,} on ('{terminal_safe(str(blocked['answer']))}')"
        )
    if found.get("untouched"):
        parts.append(f"! the copy is the untrained surrogate: {found['untouched']}")
    if found.get("unused_settings"):
        parts.append(f"! settings without effect on {found['method']}: {', '.join(found['unused_settings'])}")
    if oracle := found.get("oracle"):
        kept = sum(count for by_area in oracle["kept"].values() for count in by_area.values())
        parts.append(
            f"oracle {oracle['model']}: {kept:,} descriptions kept, {sum(oracle['dropped'].values()):,} dropped, of "
            f"{oracle['queries']:,} answers ({oracle['answers']['failed']:,} unreadable)"
        )
    rows = [["", "victim", "copy", "copy / victim", "copy against the victim's words"]]
    for name, copy in metrics.items():
        ratio = found["ratio"].get(name) or {}
        if not ratio.get("natural_zero", True):  # a ratio of values that may be negative means nothing
            ratio = None
        cells = [found["victim"].get(name), copy, ratio, found["fidelity"].get(name)]
        rows.append([f"{name} {ARROWS.get(copy.get('direction'), '')}".rstrip(), *map(measurement, cells)])
    patients = "1 patient" if found["patients"] == 1 else f"{found['patients']:,} patients"
    note = f"{found['n']:,} studies of {patients}; intervals of 95 % by patient; ↓ lower is better"
    parts.append(f"{columns(rows)}\n{note}")
    curve = found["curve"]
    if len(curve) > 1:
        first = next(iter(curve.values()))
        names = [name for name in ("findings.f1", "findings.f1.side", "rougeL:coco") if name in first]
        rows = [[budget, *(measurement(row.get(name)) for name in names)] for budget, row in curve.items()]
        parts.append(columns([["queries", *names], *rows]))
    return Result("\n\n".join(parts), found)


def detect(config: DetectConfig, out: Path, streams: tuple[Path, ...] = ()) -> Result:
    """Run detectors on streams of queries; their thresholds come from benign images only.

    For each detector, RUN/detection.json has its bound and the false alarms on held-out images; for each stream, the
    number of queries until the alarm, the share of flagged images and the quality of the copy at that moment.
    RUN/detection.jsonl has the scores of every query. Without streams only false alarms are measured.

    Args:
        streams: Run folders of 'cxrlab extract', or corpora, to measure alarms on images of another source.
    """
    from cxrlab.extraction.detection.detect import detect as run

    found = run(replace(config, stream=(*streams, *config.stream)), out)
    rows = [["detector", "judges", "bound", "false alarms measured", "n"]]
    for name, row in found["detectors"].items():
        for kind, rate in row["false_positives"].items():
            judged = kind if kind == "image" else f"accounts of {row['queries']}"
            rows.append([name, judged, f"{row['bound'][kind]:g}", measurement(rate, digits=4), str(rate["n"])])
    parts = [columns(rows)]
    images, queries = found["benign"]["held_out_images"], found["settings"]["account_queries"]
    if images < queries:
        parts[0] += (
            f"\n–: {images} held-out images do not fill one account of {queries}; false alarms per account are unknown"
        )
    parts += [f"! {line}" for line in found["warnings"]]
    for name, stream in found["streams"].items():
        size = f"{stream['queries']} queries" + (f" by {stream['accounts']} accounts" if stream["accounts"] > 1 else "")
        metric = f"{found['metric']} of the copy then"
        rows = [[f"{name} ({size})", "detected at", "accounts caught", "images flagged", metric]]
        for detector, one in stream["detectors"].items():
            at, quality = one["queries_to_detect"], one["quality"]
            shares = [measurement(one[key], digits=4) for key in ("detection_rate", "share_flagged")]
            copy = f"– ({quality.get('reason')})"
            if quality["value"] is not None:
                copy = f"{quality['value']:.3f} (fitted to {quality['budget']})"
            rows.append([detector, "–" if at is None else str(at), *shares, copy])
        parts.append(columns(rows))
    return Result("\n\n".join(parts), found)


def defend(config: DefendConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Put each defence in front of a model that you own or may test; measure its benign cost and its effect on a copy.

    A defence that changes any finding of a benign report is refused. Each defence is attacked twice: by an attacker
    who does not know it and by one who does. RUN/defence.json has the table and the summary for a security reviewer,
    RUN/attacks the extractions. Run the command again to continue an interrupted run.

    Args:
        out: Run folder.
        plan: Time an extraction without a defence, print what all attacks take, and write and send nothing.
    """
    if plan:
        from cxrlab.extraction.defence.defence_plan import plan_defences

        return planned(plan_defences(config, out))
    out = folder(out)
    from cxrlab.extraction.defence.defend import defend as run

    found = run(config, out)
    rows, probes = [["defence", "refused, benign", "findings F1, benign", "copy, plain", "copy, adaptive", "harm"]], []
    for name, row in found["defences"].items():
        benign = row["benign"]
        refused = benign["quota"]["share_refused"] if "quota" in benign else benign["refused"]["value"]
        gaps = [benign["difference"]["findings.f1"]]
        gaps += [row["attacks"].get(kind, {}).get("loss") for kind in ("plain", "adaptive")]
        differences = (measurement(gap, "difference", "+") for gap in gaps)
        rows.append([name, f"{refused:.1%}", *differences, "; ".join(row["harms"]) or "none measured"])
        probes += [
            f"{name}: the attacker who knows it spent {probing['queries']:,} of its {one['result']['spent']:,} queries "
            f"on probes and blends {probing['blend_chest']:g} of a radiograph into every image"
            for one in row["attacks"].values()
            if (probing := one.get("probing"))
        ]
    note = f"with the defence minus without it, on {found['n']} benign images; copies by findings F1"
    parts = ["\n".join([columns(rows), note, *probes])]
    if evidence := found["defences"].get("watermark", {}).get("evidence"):
        texts = {name: evidence[name] for name in ("unmarked", "marked", "enriched", "reworded") if name in evidence}
        texts |= {f"copy, {kind}": one for kind, one in evidence["copies"].items()}
        parts.append(columns([["watermark in", ""], *([name, _mark(one)] for name, one in texts.items())]))
    parts.append(_summary(found["summary"]))
    return Result("\n\n".join(parts), found)


def _summary(found: Mapping[str, Any]) -> str:
    """The summary for a security reviewer."""
    cost, copied, technique = found["cost_to_copy"], found["copied"], found["techniques"][0]
    price = "no price given" if cost["money"] is None else f"{cost['money']:,.2f} {cost['currency']}"
    share = "an unknown share" if copied["ratio"] is None else measurement(copied, "ratio", digits=2)
    # --n draws the benign images; copies are measured on the studies that the attack file names.
    if copied["ratio"] is not None and copied.get("n") is not None:
        share += f" (measured on {copied['n']:,} studies; --n sets the number of benign images only)"
    missing = [f"to establish it: {found['missing']}"] if found.get("missing") else []
    lines = [
        f"severity: {found['severity'] or 'unknown'} ({found['rule']})",
        *missing,
        f"the copy reaches {share} of the victim's findings F1",
        f"technique: MITRE ATLAS {technique['id']} {technique['name']}",
        f"cost to copy: {cost['queries']:,} queries, {price}",
        f"recommended: {found['recommended']['control'] or 'none'}; {found['recommended']['reason']}",
    ]
    return "\n".join(lines)


def test_watermark(suspect: Path, key_file: Path | None = None) -> Result:
    """Test whether a suspect's reports carry our watermark: one-sided, exact, on the words only.

    Args:
        suspect: Run folder or predictions.jsonl of the suspect's reports.
        key_file: File with our key; when left out, the environment variable CXRLAB_WATERMARK_KEY.
    """
    from cxrlab.core.errors import DataError
    from cxrlab.evaluation.score_inputs import read_predictions
    from cxrlab.extraction.defence.watermark import fingerprint_of, load_key, with_needs

    key = load_key(key_file)
    reports = [text for text in read_predictions(suspect).items.values() if text]
    if not reports:
        raise DataError(
            f"{suspect} holds no report to test; name predictions with reports, or the run that wrote them."
        )
    found = {**with_needs(reports, key), "key_sha256": fingerprint_of(key)}
    return Result(f"{len(reports):,} reports: {_mark(found)}", found)


def _mark(found: Mapping[str, Any]) -> str:
    """The test of one text for the watermark."""
    if found.get("z") is None:
        return str(found.get("reason") or "no sentence has a form that can carry the watermark")
    needed = found.get("contexts_needed")
    more = "" if needed is None else f"; {needed} contexts would do"
    z = number(found["z"], "+", 2)
    return f"{found['green']} of {found['n_choices']} contexts, z {z}, p {found['p']:.2g}{more}"

"""`cxrlab extract`: how much of a model can be copied by queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns
from cxrlab.core.terminal import terminal_safe
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.defence.config import DefendConfig
from cxrlab.extraction.detection.config import DetectConfig

_ARROWS = {"higher": "↑", "lower": "↓"}


def extract(config: ExtractConfig, out: Path) -> Result:
    """Copy a model that you own or may test by asking it, and measure the copy.

    RUN/ledger.sqlite has every question with its answer, RUN/extraction.json the copy beside the victim. Pools are
    scenes, noise, folder:DIR, cifar:DIR, corpus:DIR and mix:R:IN+OUT; configs/extraction/ has whole recipes. A stopped
    audit is continued by running the command again: no question is lost or put twice. 'cxrlab page RUN' shows it,
    'cxrlab detect RUN' tells whether it would have been noticed.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.extraction.audit import extract as audit

    found = audit(config, out)
    transcript = found["transcript"]
    cost = found["cost"]
    asked = (
        f"{found['spent']:,} of {found['budget']:,} queries ({cost['amount']:.2f} {cost['currency']}), "
        f"{found['refused']:,} refused{_probes(found.get('probing'))}; {transcript['distinct_finding_sets']:,} "
        f"different sets of findings, abnormal {_share(transcript['abnormal_share'])}"
    )
    parts = [found["threat"], asked, _table(found)]
    if found.get("untouched"):
        parts.insert(2, f"! the surrogate is as it was before any query: {found['untouched']}")
    if found.get("unused_settings"):
        parts.insert(2, f"! {found['method']} had no use for: {', '.join(found['unused_settings'])}")
    if found.get("stopped"):
        parts.insert(2, _stopped(found["stopped"]))
    if found.get("oracle"):
        parts.insert(2, _oracle(found["oracle"]))
    if len(found["curve"]) > 1:
        parts.append(_curve(found["curve"]))
    return Result("\n\n".join(parts), found)


def _stopped(stopped: Mapping[str, Any]) -> str:
    """Why the budget was not spent."""
    return (
        f"! the victim shut the attacker out: {stopped['refusals']:,} refusals in a row from query "
        f"{stopped['first']:,} on ('{terminal_safe(str(stopped['said']))}')"
    )


def _oracle(told: Mapping[str, Any]) -> str:
    """What a language model gave as oracle."""
    kept = sum(count for by in told["kept"].values() for count in by.values())
    return (
        f"oracle {told['model']}: {kept:,} descriptions kept, {sum(told['dropped'].values()):,} dropped, of "
        f"{told['asked']:,} answers ({told['answers']['failed']:,} could not be read)"
    )


def _table(found: Mapping[str, Any]) -> str:
    rows = [["", "victim", "copy", "copy / victim", "copy against the victim's words"]]
    for metric, row in found["surrogate"].items():
        cells = [found["victim"].get(metric), row, _meant(found["ratio"].get(metric)), found["fidelity"].get(metric)]
        rows.append([f"{metric} {_ARROWS.get(row.get('direction'), '')}".rstrip(), *(_cell(cell) for cell in cells)])
    patients = "1 patient" if found["patients"] == 1 else f"{found['patients']:,} patients"
    told = f"{found['n']:,} studies of {patients}; intervals of 95 % by patient; ↓ lower is better"
    return f"{columns(rows)}\n{told}"


def _meant(ratio: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The ratio; None of a metric that may be negative, half of which is not half of anything."""
    return ratio if ratio and ratio.get("natural_zero", True) else None


def _curve(curve: Mapping[str, Mapping[str, Any]]) -> str:
    names = [name for name in ("findings.f1", "findings.f1.side", "rougeL:coco") if name in next(iter(curve.values()))]
    rows = [["queries", *names]]
    rows += [[budget, *(_cell(row.get(name)) for name in names)] for budget, row in curve.items()]
    return columns(rows)


def _probes(probing: Mapping[str, Any] | None) -> str:
    """What was spent on the way through a gate; nothing where nobody looked for one."""
    return f", {probing['queries']:,} spent on probes (a chest of {probing['dress']:g})" if probing else ""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _cell(value: Mapping[str, Any] | None) -> str:
    if not value or value.get("value") is None:
        return "–"
    ends = [value.get("low"), value.get("high")]
    interval = "" if None in ends else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{value['value']:.3f}{interval}"


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
    from cxrlab.extraction.detection.detect import detect as watch_streams

    found = watch_streams(replace(config, stream=(*streams, *config.stream)), out)
    parts = [_detectors(found), *(f"! {line}" for line in found["warnings"])]
    parts += [_stream(name, row, found["metric"]) for name, row in found["streams"].items()]
    return Result("\n\n".join(parts), found)


def _detectors(found: Mapping[str, Any]) -> str:
    rows = [["detector", "judges", "bound", "false alarms measured", "n"]]
    for name, row in found["detectors"].items():
        for kind, rate in row["false_positives"].items():
            of = kind if kind == "image" else f"accounts of {row['queries']}"
            rows.append([name, of, f"{row['bound'][kind]:g}", _share_detecting(rate), str(rate["n"])])
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
        rows.append(
            [
                detector,
                at,
                _share_detecting(one["detection_rate"]),
                _share_detecting(one["share_flagged"]),
                _then(one["quality"]),
            ]
        )
    return columns(rows)


def _then(quality: Mapping[str, Any]) -> str:
    if quality["value"] is None:
        return f"– ({quality['reason']})"
    return f"{quality['value']:.3f} (fitted to {quality['budget']})"


def _share_detecting(value: Mapping[str, Any] | None) -> str:
    if value is None or value["value"] is None:
        return "–"
    ends = "" if value["low"] is None else f" [{value['low']:.4f}, {value['high']:.4f}]"
    return f"{value['value']:.4f}{ends}"


def defend(config: DefendConfig, out: Path) -> Result:
    """Put each defence before a model that you own or may test: benign cost, and what it takes from a copy.

    A defence that changes any finding of a benign report is refused. Each is attacked by who does not know it and by
    who does. RUN/defence.json has the table and the summary for a security reviewer; RUN/attacks the extractions. A
    stopped run is continued by running the command again.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.extraction.defence.defend import defend as run

    found = run(config, out)
    parts = [_table_defending(found), _marks(found["defences"].get("watermark")), _summary(found["summary"])]
    return Result("\n\n".join(part for part in parts if part), found)


def test_watermark(suspect: Path, key_file: Path | None = None) -> Result:
    """Test whether a suspect's reports carry our mark; one-sided, exact, on its words alone.

    Args:
        suspect: Run folder or predictions.jsonl of the suspect's reports.
        key_file: File with our key; the environment variable CXRLAB_WATERMARK_KEY when left out.
    """
    from cxrlab.core.errors import DataError
    from cxrlab.evaluation.score_inputs import read_predictions
    from cxrlab.extraction.defence.watermark import fingerprint_of, load_key, with_needs

    key = load_key(key_file)
    reports = [text for text in read_predictions(suspect).items.values() if text]
    if not reports:
        raise DataError(f"{suspect} holds no report to test.")
    found = {**with_needs(reports, key), "key_sha256": fingerprint_of(key)}
    told = "no sentence of the suspect has a form that can carry the mark" if found["z"] is None else _mark(found)
    return Result(f"{len(reports):,} reports: {told}", found)


def _table_defending(found: Mapping[str, Any]) -> str:
    rows = [["defence", "refused, benign", "findings F1, benign", "copy, plain", "copy, adaptive", "harm"]]
    for name, row in found["defences"].items():
        cost = row["benign"]
        refused = cost["quota"]["share_refused"] if "quota" in cost else cost["refused"]["value"]
        attacks = [_gap(row["attacks"].get(kind, {}).get("loss")) for kind in ("plain", "adaptive")]
        harm = "; ".join(row["harms"]) or "none measured"
        rows.append([name, f"{refused:.1%}", _gap(cost["difference"]["findings.f1"]), *attacks, harm])
    note = f"behind the defence minus without it, on {found['n']} benign images; copies by findings F1"
    return "\n".join((columns(rows), note, *_probes_defending(found["defences"])))


def _probes_defending(rows: Mapping[str, Any]) -> Iterator[str]:
    """What the way through a gate has cost whoever looked for it."""
    for name, row in rows.items():
        for one in row["attacks"].values():
            if probing := one.get("probing"):
                yield (
                    f"{name}: the attacker who knows it spent {probing['queries']:,} of its {one['result']['spent']:,} "
                    f"queries on probes and blends {probing['dress']:g} of a chest into every picture"
                )


def _gap(one: Mapping[str, Any] | None) -> str:
    if not one or one.get("difference") is None:
        return "–"
    ends = "" if one["low"] is None or one["high"] is None else f" [{one['low']:+.3f}, {one['high']:+.3f}]"
    return f"{one['difference']:+.3f}{ends}"


def _marks(row: Mapping[str, Any] | None) -> str:
    if not row or "evidence" not in row:
        return ""
    found = row["evidence"]
    texts = {name: found[name] for name in ("unmarked", "marked", "enriched", "reworded")}
    texts |= {f"copy, {kind}": one for kind, one in found["copies"].items()}
    rows = [["watermark in", ""], *([name, _mark(one)] for name, one in texts.items())]
    return columns(rows)


def _mark(one: Mapping[str, Any]) -> str:
    if one.get("z") is None:
        return str(one.get("reason", "no form that can carry it"))
    needed = one.get("contexts_needed")
    more = "" if needed is None else f"; {needed} contexts would do"
    return f"{one['green']} of {one['n_choices']} contexts, z {one['z']:+.2f}, p {one['p']:.2g}{more}"


def _summary(found: Mapping[str, Any]) -> str:
    cost = found["cost_to_copy"]
    money = "no price given" if cost["money"] is None else f"{cost['money']:,.2f} {cost['currency']}"
    first = found["techniques"][0]
    missing = [f"to establish it: {found['missing']}"] if found.get("missing") else []
    lines = [
        f"severity: {found['severity'] or 'unknown'} ({found['rule']})",
        *missing,
        f"the copy reaches {_reached(found['copied'])} of the victim's findings F1",
        f"technique: MITRE ATLAS {first['id']} {first['name']}",
        f"cost to copy: {cost['queries']:,} queries, {money}",
        f"recommended: {found['recommended']['control'] or 'none'}; {found['recommended']['reason']}",
    ]
    return "\n".join(lines)


def _reached(copied: Mapping[str, Any]) -> str:
    if copied["ratio"] is None:
        return "an unknown share"
    ends = "" if None in (copied["low"], copied["high"]) else f" [{copied['low']:.2f}, {copied['high']:.2f}]"
    # Not `--n`, which draws the benign images: copies are measured on what the attack file says.
    studies = (
        "" if copied.get("n") is None else f" (measured on {copied['n']:,} studies; --n counts benign images alone)"
    )
    return f"{copied['ratio']:.2f}{ends}{studies}"

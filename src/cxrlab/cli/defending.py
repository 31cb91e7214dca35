"""`cxrlab defend`: what stops a copy, what that costs, and whether a suspect carries our mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.result import Result, columns
from cxrlab.extraction.defence.config import DefendConfig


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
    parts = [_table(found), _marks(found["defences"].get("watermark")), _summary(found["summary"])]
    return Result("\n\n".join(part for part in parts if part), found)


def test_watermark(suspect: Path, key_file: Path | None = None) -> Result:
    """Test whether a suspect's reports carry our mark; one-sided, exact, on its words alone.

    Args:
        suspect: Run folder or predictions.jsonl of the suspect's reports.
        key_file: File with our key; the environment variable CXRLAB_WATERMARK_KEY when left out.
    """
    from cxrlab.core.errors import DataError
    from cxrlab.evaluation.score_inputs import read_predictions
    from cxrlab.extraction.defence.evidence import with_needs
    from cxrlab.extraction.defence.keys import fingerprint_of, load_key

    key = load_key(key_file)
    reports = [text for text in read_predictions(suspect).items.values() if text]
    if not reports:
        raise DataError(f"{suspect} holds no report to test.")
    found = {**with_needs(reports, key), "key_sha256": fingerprint_of(key)}
    told = "no sentence of the suspect has a form that can carry the mark" if found["z"] is None else _mark(found)
    return Result(f"{len(reports):,} reports: {told}", found)


def _table(found: Mapping[str, Any]) -> str:
    rows = [["defence", "refused, benign", "findings F1, benign", "copy, plain", "copy, adaptive", "harm"]]
    for name, row in found["defences"].items():
        cost = row["benign"]
        refused = cost["quota"]["share_refused"] if "quota" in cost else cost["refused"]["value"]
        attacks = [_gap(row["attacks"].get(kind, {}).get("loss")) for kind in ("plain", "adaptive")]
        harm = "; ".join(row["harms"]) or "none measured"
        rows.append([name, f"{refused:.1%}", _gap(cost["difference"]["findings.f1"]), *attacks, harm])
    note = f"behind the defence minus without it, on {found['n']} benign images; copies by findings F1"
    return "\n".join((columns(rows), note, *_probes(found["defences"])))


def _probes(rows: Mapping[str, Any]) -> Iterator[str]:
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

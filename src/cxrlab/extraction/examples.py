"""Pictures before and after they were moved, with the victim's words on both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.jsonl import read_jsonl
from cxrlab.extraction.diversity import answer_of
from cxrlab.extraction.records import Query
from cxrlab.findings.changed import changed_spans

MOST = 6


def examples(run: Path, queries: Sequence[Query], most: int = MOST) -> list[dict[str, Any]]:
    """Pairs of a picture as it was and as it was asked later; those whose answer names more new findings come first.

    Args:
        run: Run folder, for what was wanted of each picture.
        queries: All that was answered.
        most: Pairs.
    """
    plain = {query.key: query for query in queries if query.round == 0}
    rows = []
    for query in queries:
        source = plain.get(query.key.removesuffix(f"@{query.round}"))
        if query.round and source is not None:
            new = answer_of(query.report).findings - answer_of(source.report).findings
            rows.append((-len(new), query.number, source, query))
    rows.sort(key=lambda row: row[:2])
    targets = {round: _targets(run, round) for round in {row[3].round for row in rows[:most]}}
    return [
        {
            "key": before.key,
            "round": after.round,
            "before": {"sha256": before.sha256, "report": before.report},
            "after": {"sha256": after.sha256, "report": after.report},
            "spans": changed_spans(before.report, after.report),
            "wanted": targets[after.round].get(after.key),
        }
        for _, _, before, after in rows[:most]
    ]


def _targets(run: Path, round: int) -> dict[str, str]:
    """Key → the enriched report that the picture was moved towards."""
    plan = run / "rounds" / str(round) / "plan.jsonl"
    return {str(row["key"]): row["target"]["text"] for _, row in read_jsonl(plan) if "target" in row}

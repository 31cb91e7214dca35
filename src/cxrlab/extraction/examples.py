"""Pictures that were moved, with the victim's words, beside what it said before where it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.jsonl import read_jsonl
from cxrlab.extraction.diversity import answer_of
from cxrlab.extraction.records import Query
from cxrlab.findings.excerpts import changed_spans

MOST = 6


def examples(run: Path, queries: Sequence[Query], most: int = MOST) -> list[dict[str, Any]]:
    """Moved pictures, each beside what it was before where that was asked too; the most telling come first.

    Those pairs tell most whose second answer names most new findings; of pictures that were never asked as they were,
    as a guide moves them, those whose answer has most of the wanted findings.

    Args:
        run: Run folder, for what was wanted of each picture.
        queries: All that was answered.
        most: Pictures.
    """
    plain = {query.key: query for query in queries if query.round == 0}
    wanted = {round: _targets(run, round) for round in {query.round for query in queries}}
    rows = []
    for query in queries:
        if query.key not in wanted[query.round]:
            continue
        before = plain.get(query.key.removesuffix(f"@{query.round}")) if query.round else None
        said = answer_of(query.report).findings
        if before is not None:
            telling = said - answer_of(before.report).findings
        else:
            telling = said & answer_of(wanted[query.round][query.key]).findings
        rows.append((before is None, -len(telling), query.number, before, query))
    rows.sort(key=lambda row: row[:3])
    return [
        {
            "key": after.key.removesuffix(f"@{after.round}"),
            "round": after.round,
            "before": {"sha256": before.sha256, "report": before.report} if before else None,
            "after": {"sha256": after.sha256, "report": after.report},
            "spans": changed_spans(before.report, after.report) if before else {},
            "wanted": wanted[after.round][after.key],
        }
        for *_, before, after in rows[:most]
    ]


def _targets(run: Path, round: int) -> dict[str, str]:
    """Key → the enriched report that the picture was moved towards; empty for a round without a plan."""
    plan = run / "rounds" / str(round) / "plan.jsonl"
    rows = (row for _, row in read_jsonl(plan)) if plan.is_file() else ()
    return {str(row["key"]): row["target"]["text"] for row in rows if "target" in row}

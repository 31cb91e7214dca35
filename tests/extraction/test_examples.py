"""Pairs for a page: which picture belongs to which, what was wanted, and which pairs come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cxrlab.core.json_values import dumps
from cxrlab.extraction.records import Query
from cxrlab.extraction.transcript_analysis import examples

CLEAR, LARGE = "The lungs are clear.", "There is cardiomegaly."
BOTH = "There is cardiomegaly and a left pleural effusion."


def plan(run: Path, round: int, wanted: dict[str, str]) -> None:
    place = run / "rounds" / str(round)
    place.mkdir(parents=True)
    rows: list[dict[str, Any]] = [{"key": key, "target": {"text": text}} for key, text in wanted.items()]
    (place / "plan.jsonl").write_text("".join(f"{dumps(row)}\n" for row in rows))


def test_pairs_with_more_new_findings_come_first(tmp_path: Path) -> None:
    plan(tmp_path, 1, {"a@1": "want a", "b@1": "want b", "c@1": "want c"})
    before = [Query(0, 0, "a", "0", CLEAR), Query(1, 0, "b", "1", LARGE), Query(2, 0, "c", "2", CLEAR)]
    after = [Query(3, 1, "a@1", "3", LARGE), Query(4, 1, "b@1", "4", LARGE), Query(5, 1, "c@1", "5", BOTH)]
    found = examples(tmp_path, before + after)
    assert [row["key"] for row in found] == ["c", "a", "b"]  # 2, 1 and 0 new findings
    assert found[0] == {
        "key": "c",
        "round": 1,
        "before": {"sha256": "2", "report": CLEAR},
        "after": {"sha256": "5", "report": BOTH},
        "spans": {"before": [], "after": [[9, 21, "new"], [28, 49, "new"]]},
        "wanted": "want c",
    }
    assert [row["key"] for row in examples(tmp_path, before + after, most=1)] == ["c"]


def test_pictures_that_were_not_moved_make_no_pair(tmp_path: Path) -> None:
    assert examples(tmp_path, []) == []
    assert examples(tmp_path, [Query(0, 0, "a", "0", CLEAR), Query(1, 0, "b", "1", LARGE)]) == []


def test_a_picture_that_was_never_queried_as_it_was_stands_alone(tmp_path: Path) -> None:
    """Those with more of what was wanted come first; what else was said counts for nothing."""
    plan(tmp_path, 0, {"a@0": LARGE, "b@0": CLEAR})
    plan(tmp_path, 1, {"c@1": BOTH})
    found = examples(
        tmp_path, [Query(0, 0, "b@0", "0", BOTH), Query(1, 0, "a@0", "1", LARGE), Query(2, 1, "c@1", "2", BOTH)]
    )
    assert [row["key"] for row in found] == ["c", "a", "b"]
    assert found[1] == {
        "key": "a",
        "round": 0,
        "before": None,
        "after": {"sha256": "1", "report": LARGE},
        "spans": {},
        "wanted": LARGE,
    }


def test_names_with_a_mark_of_their_own_find_their_picture(tmp_path: Path) -> None:
    plan(tmp_path, 1, {"eye@1@1": "want 1", "eye@2@1": "want 2"})
    queries = [Query(0, 0, "eye@1", "0", CLEAR), Query(1, 0, "eye@2", "1", CLEAR)]
    queries += [Query(2, 1, "eye@1@1", "2", LARGE), Query(3, 1, "eye@2@1", "3", BOTH)]
    found = examples(tmp_path, queries)
    assert [(row["key"], row["before"]["sha256"], row["wanted"]) for row in found] == [
        ("eye@2", "1", "want 2"),
        ("eye@1", "0", "want 1"),
    ]

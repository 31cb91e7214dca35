from __future__ import annotations

from cxrlab.evaluation.select_metrics import describe_metrics
from cxrlab.metrics.base import cards, default_names


def test_every_metric_has_a_row_and_what_needs_something_says_so() -> None:
    rows = {row["name"]: row for row in describe_metrics()}
    assert set(cards()) <= set(rows)
    assert {name for name, row in rows.items() if row["default"]} == set(default_names())
    assert rows["radcliq1"]["needs"] and rows["radgraph.partial"]["needs"] == "--graphs" and rows["bertscore"]["needs"]
    assert rows["radcliq1"]["direction"] == "lower" and rows["radcliq1"]["range"] == [None, None]
    assert all(row["signature"].startswith(name) for name, row in rows.items())


def test_what_needs_something_is_found_by_name_too() -> None:
    names = [row["name"] for row in describe_metrics(["radgraph.*", "bertscore", "bleu1:coco"])]
    assert names[0] == "bleu1:coco" and {"radgraph.partial", "radgraph.combined", "bertscore"} <= set(names)
    assert not any(name.startswith(("chex", "radcliq")) for name in names)
    assert [row["needs"] for row in describe_metrics(["bertscore"])] == ["--encoder"]


def test_chosen_ones_in_table_order() -> None:
    assert [row["name"] for row in describe_metrics(["bleu4:coco", "bleu1:coco"])] == ["bleu1:coco", "bleu4:coco"]

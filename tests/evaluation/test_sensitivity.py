import json
import math
import re

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.json_values import dumps
from cxrlab.evaluation.phantom_benchmark import Sensitivity, measure_sensitivity
from cxrlab.findings.report_edits import EDITS
from cxrlab.metrics.base import Metric, mean_tally

pytestmark = pytest.mark.slow


class Measure:
    """A metric from a function of two texts."""

    def __init__(self, name, value, direction="higher", low=0.0, high=1.0, by_pair=True):
        self.value = value
        self.metrics = [Metric(name, direction, (low, high), None, "none", by_pair=by_pair)]

    def tallies(self, batch):
        pairs = zip(batch.references, batch.candidates, strict=True)
        return [mean_tally(self.metrics[0], [self.value(a, b) for a, b in pairs])]


def same_words(a, b):
    """Share of words in common, blind to case, order and marks."""
    one, two = (set(re.findall(r"[a-z0-9]+(?:\.\d+)?", text.lower().replace("xxxx", " "))) for text in (a, b))
    return len(one & two) / len(one | two)


@pytest.fixture(scope="module")
def table() -> Sensitivity:
    families = [
        Measure("equal", lambda a, b: float(a == b)),
        Measure("constant", lambda a, b: 0.5),
        Measure("never", lambda a, b: math.nan),
        Measure("words", same_words),
        Measure("distance", lambda a, b: float(a != b), "lower", 0.0, math.inf),
        Measure("corpus", lambda a, b: 1.0, by_pair=False),
    ]
    return measure_sensitivity(families, seed=2, n=12, quiet=True)


def test_every_edit_is_a_row_and_metrics_of_corpora_are_left_out(table):
    assert list(table.rows) == list(EDITS)
    assert all(row.n == 12 for row in table.rows.values())
    assert all("corpus" not in row.metrics for row in table.rows.values())


def test_string_equality_falls_for_everything(table):
    """Right in all harmful rows, wrong in all harmless ones; a count that points down is turned round."""
    for metric in ("equal", "distance"):
        assert table.wrong(metric) == tuple(name for name, row in EDITS.items() if not row.must_fall)
        assert table.rows["side flip"].metrics[metric].mean_change == -1.0


def test_a_constant_never_moves(table):
    assert table.wrong("constant") == tuple(name for name, row in EDITS.items() if row.must_fall)


def test_a_metric_without_a_value_is_right_nowhere(table):
    assert table.wrong("never") == tuple(EDITS)
    assert table.rows["casing"].metrics["never"].n == 0


def test_words_in_common_prefer_a_flipped_negation_to_a_paraphrase(table):
    """It notices a flipped side, and still ranks it above other words for the truth."""
    cell = table.rows["side flip"].metrics["words"]
    assert cell.mean_change < -0.01 and cell.worse_than_paraphrase == 0.0
    assert not table.rows["paraphrase"].metrics["words"].right
    assert {"casing", "sentence order", "mask tokens"}.isdisjoint(table.wrong("words"))
    assert table.rows["casing"].metrics["words"].worse_than_paraphrase is None


def test_the_table_as_json(table):
    form = json.loads(dumps(table))
    cell = form["rows"]["omission"]["metrics"]["equal"]
    assert form["rows"]["omission"]["must"] == "fall" and cell["right"] is True and cell["n"] == 12
    assert form["rows"]["casing"]["metrics"]["never"]["mean_change"] is None, "undefined, not zero"


def test_only_wanted_metrics():
    families = [Measure("a", same_words), Measure("b", same_words)]
    table = measure_sensitivity(families, seed=2, n=2, names=["b"], quiet=True)
    assert all(set(row.metrics) == {"b"} for row in table.rows.values())


def test_no_cases_are_refused():
    with pytest.raises(ConfigError, match="n=0"):
        measure_sensitivity([], seed=1, n=0)


def test_our_metrics_are_right_in_every_row():
    """The promise of the table, on a seed used nowhere else."""
    from cxrlab.metrics.base import families

    names = ["errors.total", "errors.significant", "green:rules", "crimson:rules", "clinical:rules"]
    table = measure_sensitivity(families(names), seed=860281, n=60, names=names, quiet=True)
    assert {name: table.wrong(name) for name in names} == dict.fromkeys(names, ())

import json
import math

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.json_values import dumps
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.evaluation.phantom_benchmark import CELLS, Counting, draw_cases, run_error_benchmark
from cxrlab.evaluation.validate_metrics import higher_is_better
from cxrlab.metrics.base import Metric, mean_tally


class Known:
    """A metric whose value of each pair is given beforehand, by id."""

    def __init__(self, name, values, direction="higher", by_pair=True):
        self.values = values
        self.metrics = [Metric(name, direction, (-math.inf, math.inf), None, "none", by_pair=by_pair)]

    def tallies(self, batch):
        return [mean_tally(self.metrics[0], [self.values[pair.id] for pair in batch.pairs])]


@pytest.fixture(scope="module")
def cases():
    return draw_cases(11, 80)


def totals(cases, significant=False):
    return {c.pair.id: float(sum(e.significant or not significant for e in c.errors)) for c in cases}


def test_the_true_count_has_tau_one_whichever_way_it_points(cases):
    """More errors are worse: the count itself points down, its negative up, and both order perfectly."""
    count = totals(cases)
    down = Known("down", count, "lower")
    up = Known("up", {key: -value for key, value in count.items()})
    wrong = Known("wrong", count)
    found = run_error_benchmark(cases, [down, up, wrong], seed=1, trials=50).metrics
    assert found["down"].total.tau == pytest.approx(1.0) and found["up"].total.tau == pytest.approx(1.0)
    assert found["wrong"].total.tau == pytest.approx(-1.0)
    # Every resample has 1: what is left is the exact bound, a share of the range from -1 to 1.
    assert found["down"].total.low == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / len(cases))))


def test_total_and_significant_are_ranked_apart(cases):
    found = run_error_benchmark(cases, [Known("s", totals(cases, True), "lower")], seed=1, trials=50).metrics["s"]
    assert found.significant.tau == pytest.approx(1.0)
    assert found.total.tau < 0.9
    assert found.total.low < found.total.tau < found.total.high


def test_a_constant_has_no_tau_and_an_undefined_pair_stays_out(cases):
    constant = Known("constant", dict.fromkeys(totals(cases), 0.5))
    holes = {key: math.nan if index < 30 else -value for index, (key, value) in enumerate(totals(cases).items())}
    found = run_error_benchmark(cases, [constant, Known("holes", holes)], seed=1, trials=50)
    assert math.isnan(found.metrics["constant"].total.tau)
    assert found.metrics["holes"].total.n == 50 and found.metrics["holes"].total.tau == pytest.approx(1.0)


def test_a_metric_of_whole_corpora_is_named_and_left_out(cases):
    found = run_error_benchmark(cases, [Known("corpus", totals(cases), by_pair=False)], seed=1, trials=10)
    assert found.corpus_only == ("corpus",) and found.metrics == {}


def test_only_wanted_metrics_are_ranked(cases):
    families = [Known("a", totals(cases), "lower"), Known("b", totals(cases), "lower")]
    assert set(run_error_benchmark(cases, families, seed=1, trials=10, names=["b"]).metrics) == {"b"}


def test_the_result_is_json_with_the_keys_of_the_contract(cases):
    found = run_error_benchmark(cases, [Known("a", totals(cases), "lower")], seed=1, trials=10)
    form = json.loads(dumps(found))
    assert form["benchmark"] == "phantom" and form["n"] == 80
    assert set(form["metrics"]["a"]) >= {"tau", "low", "high", "n", "tau_significant"}
    assert len(form["counts"]) == len(CELLS) == 12


def test_true_counts_add_up(cases):
    found = run_error_benchmark(cases, [], seed=1)
    assert sum(row.true for row in found.counts.values()) == sum(len(case.errors) for case in cases)
    assert all(row.hit <= min(row.true, row.counted) for row in found.counts.values())


def test_counting_by_hand():
    """Three of four made, three of six counted."""
    assert Counting(4, 6, 3).recall == 0.75 and Counting(4, 6, 3).precision == 0.5
    assert math.isnan(Counting(0, 2, 0).recall) and math.isnan(Counting(2, 0, 0).precision)


def test_cases_are_drawn_one_by_one():
    """More cases of a seed begin with the fewer; another seed gives others."""
    assert draw_cases(3, 2) == draw_cases(3, 5)[:2]
    assert draw_cases(3, 2) != draw_cases(4, 2)


def test_metrics_see_the_texts_alone_unless_exact_findings_are_asked_for():
    assert all(case.pair.findings is None for case in draw_cases(3, 3))
    exact = draw_cases(3, 3, exact=True)
    assert all(case.pair.findings is not None and case.pair.context.age for case in exact)


def test_no_cases_are_refused():
    with pytest.raises(ConfigError, match="n=0"):
        draw_cases(1, 0)


def test_better_turns_a_count_round():
    tally = mean_tally(Metric("x", "lower", (0, 9), 0, "none"), [1.0, math.nan])
    assert higher_is_better(tally)[0] == -1.0 and np.isnan(higher_is_better(tally)[1])


def test_the_rules_find_the_errors_that_were_made():
    """The reader and the comparison against the truth, on a seed used nowhere else."""
    from cxrlab.metrics.base import families

    found = run_error_benchmark(draw_cases(90210, 150), families(["errors"]), seed=1, trials=100)
    assert found.metrics["errors.total"].total.tau >= 0.85
    assert found.metrics["errors.significant"].significant.tau >= 0.85
    for kind in ErrorKind:
        assert found.counts[f"{kind.value}.significant"].recall >= 0.8, kind

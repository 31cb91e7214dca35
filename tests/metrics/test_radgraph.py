from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import every_row

from cxrlab.metrics.radgraph import (
    LEVELS,
    Entity,
    Graph,
    RadGraphF1,
    Relation,
    Side,
    combined,
    lowered,
    parse_graph,
    reward,
)
from cxrlab.metrics.report_pairs import Batch, Pair

CASES = json.loads((Path(__file__).parent / "cases" / "radgraph" / "rewards.json").read_text())["cases"]


def process_of(place: str) -> Graph:
    """ "No acute PLACE process", as RadGraph draws it."""
    return (
        Entity("acute", "OBS-DA"),
        Entity(place, "ANAT-DP"),
        Entity("process", "OBS-DA", (Relation("located_at", place, "ANAT-DP"),)),
    )


class Drawn:
    """Graphs by text."""

    name = "drawn"

    def __init__(self, graphs: dict[str, Graph]) -> None:
        self.by_text = graphs

    def graphs(self, pairs: Sequence[Pair], side: Side) -> list[Graph]:
        return [self.by_text.get(getattr(pair, side) or "", ()) for pair in pairs]


def test_the_published_vector_without_weights() -> None:
    """One of three entities differs; at the complete level the relation to it differs too."""
    reference, candidate = process_of("cardiopulmonary"), process_of("pulmonary")
    assert [reward(reference, candidate, level) for level in LEVELS] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


@every_row("case", CASES)
def test_rewards_equal_those_of_the_released_package(case: dict[str, Any]) -> None:
    reference, candidate = (parse_graph({"entities": case[side]}, side) for side in ("reference", "candidate"))
    assert {level: reward(reference, candidate, level) for level in LEVELS} == pytest.approx(case["expected"], abs=1e-9)


def test_partial_asks_whether_a_relation_starts_and_complete_which() -> None:
    """The same entities, the second with another kind of relation."""
    modify = (Entity("left", "ANAT-DP", (Relation("modify", "lung", "ANAT-DP"),)), Entity("lung", "ANAT-DP"))
    located = (Entity("left", "ANAT-DP", (Relation("located_at", "lung", "ANAT-DP"),)), Entity("lung", "ANAT-DP"))
    bare = (Entity("left", "ANAT-DP"), Entity("lung", "ANAT-DP"))
    assert [reward(modify, located, level) for level in LEVELS] == [1.0, 1.0, 0.5]
    assert [reward(modify, bare, level) for level in LEVELS] == [1.0, 0.5, 0.5]


def test_an_entity_named_twice_counts_once() -> None:
    assert reward((Entity("edema", "OBS-DP"),) * 3, (Entity("edema", "OBS-DP"),), "simple") == 1


def test_nothing_on_both_sides_is_undefined_and_on_one_side_0() -> None:
    for level in LEVELS:
        assert math.isnan(reward((), (), level))
        assert reward(process_of("lung"), (), level) == reward((), process_of("lung"), level) == 0
    assert math.isnan(combined((), ()))


def test_combined_halves_equal_reports_without_a_relation() -> None:
    """Entity F1 is 1 and relation F1 is 0, as published; with a relation both are 1."""
    assert combined((Entity("effusion", "OBS-DP"),), (Entity("effusion", "OBS-DP"),)) == 0.5
    assert combined(process_of("lung"), process_of("lung")) == 1
    assert combined(process_of("lung"), process_of("heart")) == pytest.approx((2 / 3 + 0) / 2)


def test_case_matters_only_where_the_name_says_so() -> None:
    """ "Large" against "large", one of two entities; the package lowers the tokens of relations alone."""
    small = (Entity("large", "OBS-DP", (Relation("modify", "Effusion", "OBS-DP"),)), Entity("effusion", "OBS-DP"))
    large = (Entity("Large", "OBS-DP", (Relation("modify", "effusion", "OBS-DP"),)), Entity("effusion", "OBS-DP"))
    family = RadGraphF1(Drawn({"a": small, "b": large}))
    tallies = {tally.metric.name: tally for tally in family.tallies(Batch([Pair("1", "a", "b")]))}
    assert [tallies[f"radgraph.{level}"].value for level in LEVELS] == [1, 1, 1]
    assert [tallies[f"radgraph.{level}:cased"].value for level in LEVELS] == [0.5, 0.5, 1.0]
    assert "case:lower" in tallies["radgraph.partial"].metric.signature
    assert lowered(large) == lowered(small)


def test_one_capital_among_three_entities_costs_a_third_in_the_released_package() -> None:
    """Measured on the package: 2/3 at all three levels where the entity has no relation."""
    plain = [Entity(word, "OBS-DP") for word in ("large", "left", "effusion")]
    capital = [Entity("Large", "OBS-DP"), *plain[1:]]
    assert [reward(tuple(plain), tuple(capital), level) for level in LEVELS] == pytest.approx([2 / 3] * 3)


def test_undefined_pairs_stay_out_of_the_mean_and_no_pair_is_lost() -> None:
    graph = process_of("lung")
    family = RadGraphF1(Drawn({"a": graph}))
    pairs = [
        Pair("1", "a", "a"),
        Pair("2", "a", None),
        Pair("3", None, "a"),
        Pair("4", "nothing here", ""),
        Pair("5", "", "a"),
    ]
    tallies = {tally.metric.name: tally for tally in family.tallies(Batch(pairs))}
    partial = tallies["radgraph.partial"]
    np.testing.assert_array_equal(partial.by_pair, [1, 0, np.nan, np.nan, 0])
    assert (partial.n, partial.undefined) == (3, 2) and partial.value == pytest.approx(1 / 3)
    np.testing.assert_array_equal(family.combined(Batch(pairs)), tallies["radgraph.combined"].by_pair)
    assert [tally.metric for tally in tallies.values()] == list(family.metrics)
    assert set(family.default) <= set(tallies)

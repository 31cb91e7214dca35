"""The table by label: original, perturbed, difference."""

from __future__ import annotations

import math
from typing import Any

import pytest
from small_evidence import EFFUSION, NORMAL, OEDEMA, audit, image, lines, truth

from cxrlab.robustness.condition_results import ALL, by_label

STUDIES = [truth("s1", e=1, o=0), truth("s2", e=0), truth("s3", e=1, o=1)]
BEFORE = {"s1": image(e=0.9, o=0.2), "s2": image(e=0.1), "s3": image(e=0.8, o=0.7)}
AFTER = {"s1": image(e=0.2, o=0.2), "s2": image(e=0.4), "s3": image(e=0.6, o=0.1)}


def table(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The table of an attack."""
    made = audit(STUDIES, lines("a", "clean", before), lines("a", "pgd@2/255", after))
    now, clean = made.tables("a")["pgd@2/255"].image, made.evidence.clean("a").image
    return by_label(made.evidence, now, clean, made.resamples)


def test_by_hand() -> None:
    """Effusion: three right of three, then two. Oedema: two of two, then one. Together five of five, then three."""
    found = table(BEFORE, AFTER)
    counts = {name: (row["n"], row["positives"]) for name, row in found.items()}
    assert counts == {EFFUSION: (3, 2), OEDEMA: (2, 1), ALL: (5, 3)}
    for name, before, after in ((EFFUSION, 1, 2 / 3), (OEDEMA, 1, 1 / 2), (ALL, 1, 3 / 5)):
        row = found[name]["closed_questions"]["accuracy"]
        assert row["original"]["value"] == before
        assert row["perturbed"]["value"] == pytest.approx(after)
        assert row["difference"]["value"] == pytest.approx(after - before)
    sure = found[EFFUSION]["closed_questions"]["confidence"]
    assert sure["original"]["value"] == pytest.approx((0.9 + 0.9 + 0.8) / 3)
    assert sure["perturbed"]["value"] == pytest.approx((0.8 + 0.6 + 0.6) / 3)


def test_a_fall_has_an_interval_that_holds_it() -> None:
    """No answer of three patients gets better, which does not show that none would."""
    row = table(BEFORE, AFTER)[ALL]["closed_questions"]["accuracy"]["difference"]
    assert row["low"] < row["value"] and row["value"] < 0 < row["high"] <= 1


def test_both_columns_are_over_the_same_answers() -> None:
    """The third study is not asked about effusion any more: it leaves the original column as well."""
    row = table(BEFORE, {**AFTER, "s3": image(o=0.1)})[EFFUSION]
    assert row["n"] == 3
    assert row["closed_questions"]["n"] == 2
    assert row["closed_questions"]["confidence"]["original"]["value"] == pytest.approx(0.9)


def test_reports_have_a_column_of_their_own() -> None:
    answers = [image(NORMAL, labels={EFFUSION: value}) for value in (1, 0)]
    found = table(dict.fromkeys(BEFORE, answers[0]), dict.fromkeys(BEFORE, answers[1]))
    row = found[EFFUSION]["reports"]["accuracy"]
    assert (row["original"]["value"], row["perturbed"]["value"]) == pytest.approx((2 / 3, 1 / 3))
    assert math.isnan(found[OEDEMA]["reports"]["accuracy"]["difference"]["value"])
    assert math.isnan(found[EFFUSION]["closed_questions"]["accuracy"]["original"]["value"])

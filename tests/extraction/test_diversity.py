import json
import math

import pytest

from cxrlab.extraction.records import Query
from cxrlab.extraction.transcript_analysis import (
    diversity_by_round,
    entropy_bits,
    expected_distinct,
    transcript_diversity,
)

NORMAL = "The lungs are clear. No pleural effusion."
LEFT = "Small left pleural effusion."
RIGHT = "Small right pleural effusion."
ENDS = ("Cardiomegaly.", "Scoliosis.", "Small left pleural effusion.", "Hiatal hernia.", "Pulmonary edema.")
WORDED = "There is a large left pleural effusion."


def test_a_transcript_that_a_person_can_count():
    found = transcript_diversity([NORMAL, NORMAL, LEFT, WORDED, RIGHT, "Purple elephants.", LEFT, LEFT])
    assert (found["n"], found["silent"], found["distinct_reports"]) == (8, 1, 5)
    assert found["distinct_finding_sets"] == 3  # none, left, right; the degree is no part of the set
    assert found["abnormal_share"] == pytest.approx(5 / 7) and found["abnormal_share_n"] == 7
    assert found["findings"] == {"pleural effusion": 5}
    assert found["commonest_report"] == 3 / 8
    # the lungs are clear no pleural effusion | small left | there is a large | right | purple elephants
    assert found["vocabulary"] == 7 + 2 + 4 + 1 + 2
    assert found["words"] == (7 + 7 + 4 + 7 + 4 + 2 + 4 + 4) / 8
    assert found["words_low"] < found["words"] < found["words_high"]
    json.dumps(found, allow_nan=False)


def test_one_answer_to_everything_has_no_entropy_but_a_wide_enough_interval():
    """0 of 40 abnormal: Wilson's upper end is z²/(n + z²) = 3.841 / 43.841."""
    found = transcript_diversity([NORMAL] * 40)
    assert found["finding_entropy"] == found["finding_entropy_low"] == 0
    assert found["finding_entropy_high"] == pytest.approx((1 - 0.025 ** (1 / 40)) * math.log2(40))
    assert (found["abnormal_share"], found["abnormal_share_low"]) == (0, 0)
    assert found["abnormal_share_high"] == pytest.approx(3.8415 / 43.8415, abs=1e-4)


def test_entropy_of_even_sets_is_the_logarithm_of_their_number():
    assert entropy_bits([5, 5, 5, 5]) == 2 and entropy_bits([7]) == 0 and entropy_bits([]) == 0
    assert entropy_bits([3, 1]) == pytest.approx(0.811278, abs=1e-6)
    assert transcript_diversity([NORMAL, LEFT, RIGHT, "Cardiomegaly."])["finding_entropy"] == 2


def test_the_interval_of_the_entropy_holds_it_where_every_set_is_rare():
    """A resample repeats sets and so has less entropy; without a correction the interval would lie below the value."""
    reports = [f"{side} rib {n} fracture. {end}" for side in ("Left", "Right") for n in range(3, 10) for end in ENDS]
    found = transcript_diversity(reports)
    assert found["finding_entropy_low"] < found["finding_entropy"] < found["finding_entropy_high"]
    assert found["finding_entropy_high"] <= math.log2(found["n"])


def test_intervals_depend_on_the_seed_alone():
    reports = [NORMAL, LEFT, RIGHT] * 5 + [WORDED]
    assert transcript_diversity(reports, 1) == transcript_diversity(reports, 1) != transcript_diversity(reports, 2)


def test_expected_kinds_of_a_sample():
    """Two of {a, a, b, b}: one kind with probability 2/6, two with 4/6."""
    assert expected_distinct([2, 2], 2) == pytest.approx(1 * 2 / 6 + 2 * 4 / 6)
    assert expected_distinct([2, 2], 4) == 2 and expected_distinct([2, 2], 5) is None


def test_nothing_queried_is_unknown_and_not_zero():
    found = transcript_diversity([])
    assert found["n"] == found["distinct_finding_sets"] == 0
    assert found["abnormal_share"] is found["finding_entropy"] is found["words"] is found["commonest_report"] is None


def test_rounds_are_distinguished_and_refusals_left_out():
    answers = [(0, NORMAL, False), (0, NORMAL, False), (1, LEFT, False), (1, RIGHT, False), (1, "No image.", True)]
    queries = [Query(i, r, f"k{i}", "", report, refused) for i, (r, report, refused) in enumerate(answers)]
    found = diversity_by_round(queries)
    assert (found["n"], found["refused"], found["distinct_finding_sets"]) == (4, 1, 3)
    assert {key: row["abnormal_share"] for key, row in found["rounds"].items()} == {"0": 0, "1": 1}
    assert found["rounds"]["1"]["n"] == 2

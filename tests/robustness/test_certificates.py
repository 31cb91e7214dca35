"""What votes certify, counted on fingers."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_evidence as hand

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run
from cxrlab.robustness.smoothing import CERTIFICATES, Smoothing, certified_accuracy, vote_of_share, write_certificates

SETTINGS = Smoothing(sigma=0.5, n=20, alpha=0.01)


def test_right_answers_with_their_radius_abstentions_and_unknown_labels(tmp_path: Path) -> None:
    """Of five known labels: two right with all votes, one right with few, one wrong, one without an answer."""
    truths = [hand.truth("s1", e=1, o=0), hand.truth("s2", e=1, o=0), hand.truth("s3", e=0)]
    clean = {
        "s1": hand.image(e=1.0, o=0.0),
        "s2": hand.image(e=0.85, o=0.95),  # 17 of 20 are enough for a short radius; 19 say that there is oedema
        "s3": hand.image(e=0.5, o=1.0),  # ten of twenty tell nothing; of oedema nothing is known
    }
    with Run.open(tmp_path / "run", {}) as run:
        for _ in range(2):  # what is on file is not written again
            write_certificates(run, "b", clean, SETTINGS)
        write_certificates(run, "c", {"s1": clean["s3"], "s2": clean["s3"], "s3": clean["s3"]}, SETTINGS)
        row = certified_accuracy(run, "b", truths, SETTINGS, trials=20, seed=7)
        lines = [record for _, record in read_jsonl(run.path(CERTIFICATES))]
    assert [line["id"] for line in lines] == ["b|s1", "b|s2", "b|s3", "c|s1", "c|s2", "c|s3"]
    assert lines[2]["answers"][hand.EFFUSION] == {"yes": 10, "n": 20, "answer": None, "radius": 0.0}
    assert row["abstained"]["value"] == 1 / 5 and row["abstained"]["n"] == 5
    short, longest = vote_of_share(0.85, SETTINGS).radius, vote_of_share(1.0, SETTINGS).radius
    # Radii of 0, σ/4, σ/2 and σ.
    assert 0 < short < 0.125 and 0.25 < longest < 0.5 and row["largest"] == longest
    assert {size: one["value"] for size, one in row["right_within"].items()} == {
        "0": 3 / 5, "0.125": 2 / 5, "0.25": 2 / 5, "0.5": 0.0,
    }  # fmt: skip


def test_a_share_is_a_number_of_votes_again() -> None:
    for yes in range(21):
        assert vote_of_share(yes / 20, SETTINGS).yes == yes
    assert vote_of_share(1.0, SETTINGS).radius == pytest.approx(vote_of_share(0.0, SETTINGS).radius)

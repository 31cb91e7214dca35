"""The figures of a study of extraction, from lines and counts that were made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.evaluation.scored_runs import ScoredRun
from cxrlab.metrics.base import Metric, mean_tally
from cxrlab.studies.extraction_study import ExtractionStudyConfig, extraction_table, join_defences, pairwise_row
from cxrlab.studies.over_seeds import paired_seeds

VARIANTS = {
    "none": {"changes": "No query.", "published": {"RG-L": 10.5}},
    "ada": {"changes": "Moved.", "extract": {"victim": "made:other"}, "published": {"RG-L": 24.7, "BLEU": 3}},
}


def config(**changes: Any) -> ExtractionStudyConfig:
    base: dict[str, Any] = {
        "corpora": {"drawn": "there"},
        "data": "drawn",
        "extract": {"victim": "made:main", "surrogate": "made:start", "pool": "corpus:drawn@train"},
        "variants": VARIANTS,
        "seeds": (1, 2),
        "metrics": ("m",),
    }
    return ExtractionStudyConfig(**{**base, **changes})


def trial(variant: str, seed: int, value: float | None, **more: Any) -> dict[str, Any]:
    """A line of trials.jsonl: the victim is at 0.8, the copy where it is said to be."""
    result = {"value": value, "low": 0.1, "high": 0.9, "direction": "higher"}
    found = {
        **{"n": 10, "patients": 7 + seed, "method": "ada-steal", "budget": 30, "spent": 30 - seed, "answered": 28},
        **{"refused": 0, "cost": {"amount": 0.5 * seed, "currency": "EUR"}, "untouched": None},
        "surrogate": {"m": result},
        "victim": {"m": {"value": 0.8, "low": 0.7, "high": 0.9}},
        "ratio": {"m": {"value": None if value is None else value / 0.8}},
        "fidelity": {"m": {"value": 0.25}},
        "curve": {"10": {"m": {"value": 0.1}}, "30": {"m": result}} if seed == 1 else {"30": {"m": result}},
        "transcript": {"abnormal_share": 0.25 * seed, "rounds": {"0": {"abnormal_share": 0.0}}},
        "options": {"surrogate": "hf:/a/machine/start", "pool": "corpus:/a/machine@train", "eps": "0.2"},
        **more,
    }
    return {"variant": variant, "seed": seed, "extract": f"seed{seed}/extract/{variant}", "extraction": found}


def lines() -> list[dict[str, Any]]:
    return [
        *(trial("none", seed, 0.0, untouched="nothing was asked", transcript={}) for seed in (1, 2)),
        *(trial("ada", seed, value) for seed, value in ((1, 0.2), (2, 0.6))),
    ]


def test_the_table_by_hand() -> None:
    """Copies at 0.2 and 0.6: their mean is 0.4, half of the victim's 0.8."""
    found = extraction_table(config(), lines())
    assert found["n"] == 10 and found["patients"] == 9 and found["directions"] == {"m": "higher"}
    row = found["variants"]["ada"]
    assert row["metrics"]["m"]["surrogate"]["mean"] == pytest.approx(0.4)
    # Student's with one degree of freedom: 12.706 times half the distance of the two.
    assert row["metrics"]["m"]["surrogate"]["high"] - 0.4 == pytest.approx(12.706 * 0.2, rel=1e-3)
    assert row["metrics"]["m"]["ratio"]["values"] == pytest.approx([0.25, 0.75])
    assert row["metrics"]["m"]["victim"]["mean"] == 0.8 and row["metrics"]["m"]["fidelity"]["seeds"] == 2
    assert row["metrics"]["m"]["surrogate"]["by_seed"][1] == {"seed": 2, "value": 0.6, "low": 0.1, "high": 0.9}
    assert row["curve"]["10"]["m"]["values"] == [0.1, None] and row["curve"]["30"]["m"]["mean"] == pytest.approx(0.4)
    assert row["transcript"]["abnormal_share"]["mean"] == 0.375
    assert row["transcript"]["rounds"]["0"]["abnormal_share"]["mean"] == 0.0
    assert row["spent"]["values"] == [29, 28] and row["cost"]["mean"] == 0.75 and row["currency"] == "EUR"
    assert row["folders"] == ["seed1/extract/ada", "seed2/extract/ada"]


def test_what_was_asked_is_reported_in_names_of_the_study_and_not_in_folders() -> None:
    asked = extraction_table(config(), lines())["variants"]["ada"]["asked"]
    assert (asked["victim"], asked["surrogate"], asked["pool"]) == ("made:other", "made:start", "corpus:drawn@train")
    assert asked["eps"] == "0.2" and asked["method"] == "ada-steal" and "machine" not in str(asked)


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    found = extraction_table(config(), [*lines()[:2], trial("ada", 1, None), trial("ada", 2, 0.6)])["variants"]
    copy = found["ada"]["metrics"]["m"]["surrogate"]
    assert copy["values"] == [None, 0.6] and copy["seeds"] == 1 and copy["low"] is None
    assert found["none"]["transcript"]["abnormal_share"]["mean"] is None and found["none"]["transcript"]["rounds"] == {}
    assert found["none"]["untouched"] == ["nothing was asked"] * 2


def test_published_figures_are_divided_by_the_published_victim_of_the_table() -> None:
    """A table may have other figures for a variant than the variant itself."""
    tables = {
        "T3": {"variants": ["none", "ada"], "published": {"victim": {"RG-L": 26.5}}},
        "T4": {
            "variants": ["none"],
            "published": {"victim": {"RG-L": 20.0}, "none": {"RG-L": 15.0}, "the": {"F1": 4.7}},
        },
        "plain": {"variants": ["ada"], "about": "No victim."},
    }
    found = extraction_table(config(tables=tables), lines())["tables"]
    assert found["T3"]["variants"] == ["none", "ada"]
    assert found["T3"]["published_ratio"] == {
        "none": {"RG-L": pytest.approx(10.5 / 26.5)},
        "ada": {"RG-L": pytest.approx(24.7 / 26.5)},  # BLEU has no victim
    }
    assert found["T4"]["published_ratio"] == {"none": {"RG-L": 0.75}} and found["T4"]["published"]["the"] == {"F1": 4.7}
    assert found["plain"]["published_ratio"] == {} and found["plain"]["about"] == "No victim."


def test_wins_over_seeds() -> None:
    def result(won: float, lost: float) -> dict[str, Any]:
        shares = {"a_better": won, "equal": 1 - won - lost, "b_better": lost, "net": won - lost}
        return {
            "judge": "rules",
            "n": 4,
            **{key: {"value": one, "low": 0.0, "high": 1.0} for key, one in shares.items()},
        }

    found = pairwise_row("ada", "none", [result(0.5, 0.25), result(1.0, 0.0)], [1, 2])
    assert found["a_better"]["mean"] == 0.75 and found["net"]["values"] == [0.25, 1.0] and found["n"] == [4, 4]
    assert found["b_better"]["by_seed"][0] == {"seed": 1, "value": 0.25, "low": 0.0, "high": 1.0}


# --- paired over seeds -----------------------------------------------------------------------------------------------

CARD = Metric("m", "higher", (0.0, 1.0), 1.0, "never")


def scored(*values: float, patients: str = "") -> ScoredRun:
    """A run with one study a patient; a, b, c … unless they are named."""
    names = tuple(patients or "abcdefgh"[: len(values)])
    return ScoredRun(Path("x"), names, names, "digest", {"m": mean_tally(CARD, values)}, {"m": CARD.signature})


def paired(*pairs: tuple[ScoredRun, ScoredRun]) -> dict[str, Any]:
    found: dict[str, Any] = paired_seeds(pairs, range(1, len(pairs) + 1), ["m"], swaps=100)["m"]
    return found


def test_patients_that_agree_leave_the_seeds_alone_to_differ() -> None:
    """Every patient gains 1 with one seed and 0.5 with the other: resamples give 0.5, 0.75 or 1.

    Of three patients the distance from 0.75 to either end counts √(3 / 2) · 4.303 / 1.96 = 2.69 times.
    """
    found = paired((scored(0, 0, 0), scored(1, 1, 1)), (scored(0, 0, 0), scored(0.5, 0.5, 0.5)))
    assert found["pooled"] == {
        **{"value": 0.75, "low": pytest.approx(0.0778, abs=1e-3), "high": 1.0, "excludes_zero": True},
        **{"seeds": 2, "patients": 3},
    }
    assert [one["difference"] for one in found["by_seed"]] == [1.0, 0.5] and found["difference"]["mean"] == 0.75
    assert found["ratio"] == {"value": None, "low": None, "high": None}  # nothing can be divided by 0


def test_one_seed_leaves_the_patients_alone_to_differ() -> None:
    """One of two patients gains: that shows nothing."""
    found = paired((scored(0, 0), scored(1, 0)))
    assert (found["pooled"]["value"], found["pooled"]["low"], found["pooled"]["high"]) == (0.5, -1.0, 1.0)
    assert found["pooled"]["excludes_zero"] is False and found["difference"]["low"] is None


def test_the_share_of_the_ceiling_is_that_of_the_means() -> None:
    """0.2 and 0.3 of 0.4 and 0.6: half of it each time; the ends are those of two patients."""
    found = paired((scored(0.4, 0.4), scored(0.2, 0.2)), (scored(0.6, 0.6), scored(0.3, 0.3)))
    share = 1 - 0.025 ** (1 / 2)
    assert found["ratio"] == pytest.approx({"value": 0.5, "low": 0.5 - 0.5 * share, "high": 0.5 + share})


def test_seeds_that_were_measured_on_other_patients_are_pooled_by_patient() -> None:
    """Four patients, two a seed; whoever is drawn gains 0.5, and the ends are the exact ones of four patients."""
    one = (scored(0.1, 0.3, patients="ab"), scored(0.6, 0.8, patients="ab"))
    two = (scored(0.2, 0.4, patients="cd"), scored(0.7, 0.9, patients="cd"))
    found = paired(one, two)["pooled"]
    assert found["patients"] == 4 and found["value"] == pytest.approx(0.5)
    share = 1 - 0.025 ** (1 / 4)
    assert (found["low"], found["high"]) == pytest.approx((0.5 - share * 1.5, 0.5 + share * 0.5))


def test_a_seed_without_a_value_makes_the_whole_unknown() -> None:
    found = paired((scored(0, 0), scored(np.nan, np.nan)), (scored(0, 0), scored(1, 1)))
    assert found["pooled"]["value"] is None and found["pooled"]["low"] is None
    assert found["pooled"]["excludes_zero"] is None and found["difference"]["seeds"] == 1


def test_other_studies_on_the_two_sides_are_refused() -> None:
    with pytest.raises(DataError):
        paired((scored(0, 0, patients="ab"), scored(0, 0, patients="ac")))


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_defences_that_were_measured_one_by_one_become_one_table(tmp_path: Path) -> None:
    """The defence that takes most from the copy is recommended among all of them."""
    for name, loss in (("coarse", -0.1), ("gate", -0.3)):
        lost = {"difference": loss, "low": loss - 0.05, "high": loss + 0.05}
        row = {"harms": [], "attacks": {"plain": {"loss": lost}}}
        undefended = {"spent": 500, "ratio": {"findings.f1": {"value": 0.6, "n": 100}}}
        price = {"per_query": 0.0, "per_1k_tokens": 0.0, "currency": "EUR"}
        result = {
            "victim": "v",
            "n": 4,
            "undefended": undefended,
            "defences": {name: row},
            "price": price,
            "summary": {},
        }
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "defence.json", result)
    join_defences([tmp_path / "coarse", tmp_path / "gate"], tmp_path / "all")
    found = read_json(tmp_path / "all" / "defence.json")
    assert list(found["defences"]) == ["coarse", "gate"] and found["n"] == 4
    assert found["summary"]["recommended"]["control"] == "gate" and found["summary"]["severity"] == "medium"
    join_defences([], tmp_path / "none")
    assert not (tmp_path / "none").exists()

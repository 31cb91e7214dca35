from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.core.model_interfaces import TokenVectors
from cxrlab.evaluation.config import MetricResources
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.preference.judges import PAIRWISE, Verdict, length_controlled, load_judge, metric_judge, parse_mix

TOLD = "There is a small left pleural effusion."
# Right; one true finding and one invented, significant one; nothing found; two significant errors; nothing said.
RIGHT, HALF, CLEAR = TOLD, f"{TOLD} There is a large right pneumothorax.", "The lungs are clear. There is no effusion."
WORSE = "There is a large right pneumothorax."
SILENT = "Two views were obtained."


def pairs(*candidates: str, reference: str | None = TOLD) -> list[Pair]:
    return [Pair(f"s#{number}", reference, text) for number, text in enumerate(candidates)]


def verdict(judge: str, *candidates: str, reference: str | None = TOLD) -> Verdict:
    found = load_judge(judge).verdicts(Batch(pairs(*candidates, reference=reference)), [range(len(candidates))])
    assert len(found) == 1
    return found[0]


def test_a_metric_is_a_judge() -> None:
    """One finding matched, none or one significant error: GREEN is 1, 1/2 and 0."""
    found = verdict("green:rules", RIGHT, HALF, CLEAR)
    assert found.rewards == (1.0, 0.5, 0.0) and found.preferred is None
    assert [part["green:rules"] for part in found.parts] == [1.0, 0.5, 0.0]
    assert (
        load_judge("green:rules").signature
        == "green:rules|formula:green|nothing-to-match:1|reader:rules|weights:table|v:1"
    )


def test_lower_is_better_counts_negatively() -> None:
    """The part is the metric's own number; the reward is its negative, and no error is 0, not −0."""
    found = verdict("errors.significant", RIGHT, HALF)
    assert found.rewards == (0.0, -1.0) and math.copysign(1, found.rewards[0]) == 1.0
    assert [part["errors.significant"] for part in found.parts] == [0.0, 1.0]


def test_a_mix_is_the_weighted_sum() -> None:
    """0.7 × 1/2 + 0.3 × 2/3 = 0.55: one finding right, one invented, none missed; and less 0.1 for the error."""
    found = verdict("0.7*green:rules+0.3*findings.f1.side", HALF)
    assert found.rewards[0] == pytest.approx(0.55)
    assert found.parts[0] == pytest.approx({"green:rules": 0.5, "findings.f1.side": 2 / 3})
    assert verdict(" 0.7 * green:rules + 0.1*errors.significant", HALF).rewards[0] == pytest.approx(0.25)
    assert verdict("green:rules+findings.f1.side", HALF).rewards[0] == pytest.approx(0.5 + 2 / 3)
    signature = load_judge("0.7*green:rules+0.3*findings.f1.side").signature
    assert signature.startswith("0.7*green:rules|") and " + 0.3*findings.f1.side|" in signature


def test_a_candidate_is_undefined_where_a_part_is() -> None:
    found = verdict("green:rules+rougeL:google", RIGHT, reference=None)
    assert math.isnan(found.rewards[0]) and math.isnan(found.parts[0]["green:rules"])


def test_rewards_of_pairs_are_those_of_the_verdict() -> None:
    found = metric_judge("green:rules").rewards(pairs(RIGHT, HALF, CLEAR))
    assert found.tolist() == [1.0, 0.5, 0.0]


def test_groups_are_kept_apart() -> None:
    batch = Batch([*pairs(HALF, RIGHT), Pair("t#0", TOLD, CLEAR)])
    assert [found.rewards for found in load_judge("green:rules").verdicts(batch, [range(2), range(2, 3)])] == [
        (0.5, 1.0),
        (0.0,),
    ]
    both = load_judge("errors:rules").verdicts(batch, [range(2), range(2, 3)])
    assert [found.preferred for found in both] == [((1, 0),), ()] and both[0].rewards == (-1.0, 1.0)


def test_fewer_significant_errors_win_then_fewer_errors_at_all() -> None:
    """RIGHT 0 of 0, HALF 1 of 1, WORSE 2 of 2 significant errors: every comparison is decided."""
    found = verdict("errors:rules", WORSE, RIGHT, HALF)
    assert set(found.preferred or ()) == {(1, 0), (1, 2), (2, 0)}
    assert found.rewards == (-2.0, 2.0, 0.0)
    assert found.parts[1] == {"errors.significant": 0.0, "errors.total": 0.0}
    # A degree that is off by one step is an error that does not matter: it decides only where nothing else does.
    larger = "There is a moderate left pleural effusion."
    counts = verdict("errors:rules", larger, RIGHT)
    assert counts.parts[0] == {"errors.significant": 0.0, "errors.total": 1.0}
    assert counts.preferred == ((1, 0),)
    assert set(verdict("errors:rules", larger, HALF).preferred or ()) == {(0, 1)}


def test_equal_counts_are_a_tie_and_equal_texts_are_one() -> None:
    tied = verdict("errors:rules", RIGHT, "A small left pleural effusion is present.")
    assert tied.preferred == () and tied.rewards == (0.0, 0.0)
    twice = verdict("errors:rules", RIGHT, HALF, HALF.upper(), "")
    assert twice.rewards[:3] == (1.0, -1.0, -1.0), "one win, since the other two are the same report"
    assert math.isnan(twice.rewards[3])


def test_a_report_that_says_nothing_loses_although_it_makes_no_error() -> None:
    normal = "The lungs are clear. The heart is normal in size."
    wrong = "The lungs are clear. There is a small left pleural effusion."
    found = verdict("errors:rules", SILENT, wrong, reference=normal)
    assert found.parts[0]["errors.total"] == 0.0 < found.parts[1]["errors.total"]
    assert found.preferred == ((1, 0),)


def test_a_pairwise_judge_has_nothing_to_say_without_a_reference() -> None:
    found = verdict("errors:rules", RIGHT, HALF, reference=None)
    assert found.preferred == () and all(map(math.isnan, found.rewards)) and found.parts == ({}, {})


@pytest.mark.parametrize(
    ("reward", "report", "expected"),
    [
        (0.8, "one two", 0.8),  # shorter: as it is
        (0.8, "one two three four", 0.8),
        (0.8, "one " * 8, 0.4),  # twice as long: half
        (-0.8, "one " * 8, -1.6),  # twice as long: twice the harm
        (-0.8, "one", -0.8),
        (0.0, "one " * 8, 0.0),
    ],
)
def test_length_control_never_pays_for_length(reward: float, report: str, expected: float) -> None:
    assert length_controlled(reward, report, "a b c d") == pytest.approx(expected)


def test_length_control_of_no_reward_is_no_reward() -> None:
    assert math.isnan(length_controlled(math.nan, "one two three", "two"))


def test_a_mix_is_read_as_it_is_written() -> None:
    assert parse_mix("a") == {"a": 1.0}
    assert parse_mix("2*a.b:c + .5*d") == {"a.b:c": 2.0, "d": 0.5}


@every_row(
    ("name", "message"),
    [
        ("", "'' is not a judge: '' is not WEIGHT\\*METRIC"),
        ("green:rules+", "'' is not WEIGHT"),
        ("x*green:rules", "'x\\*green:rules' is not WEIGHT\\*METRIC with a weight above 0; write it as 0.7\\*green"),
        ("0*green:rules", "is not WEIGHT"),
        ("-1*green:rules", "is not WEIGHT"),
        ("inf*green:rules", "is not WEIGHT"),
        ("nan*green:rules", "is not WEIGHT"),
        ("0.5*green:rules+0.5*green:rules", "names 'green:rules' twice"),
        ("green:rule", "there is no judge 'green:rule'. Did you mean 'green:rules'"),
        ("errors:rule", "Did you mean 'errors:rules'"),
        ("coco", "there is no judge 'coco'"),
        ("bleu*", "'bleu\\*' is not WEIGHT|there is no judge"),
        ("0.5*errors:rules+0.5*green:rules", "'errors:rules' compares two reports and cannot be part of a mix"),
        ("chexpert14.macro.f1:uncertain-positive", "cannot judge: it is an average over labels, and its value for a"),
        ("cider:coco", "cannot judge: its value for a report depends on the other reports of a batch"),
        ("bertscore", "'bertscore' needs --extras.encoder FOLDER"),
        ("radgraph.partial", "'radgraph.partial' needs --extras.graphs FILE"),
        ("radcliq1", "needs --extras.graphs, --extras.encoder, --extras.chexbert and --extras.bert"),
    ],
)
def test_what_cannot_judge_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_judge(name)


def test_every_other_metric_of_the_table_judges() -> None:
    """What is not refused gives a right report at least as much as a useless one, and a number to both."""
    from cxrlab.metrics.base import cards

    refused = []
    for card in cards().values():
        try:
            judge = load_judge(card.name)
        except ConfigError:
            refused.append(card)
            continue
        right, wrong = judge.verdicts(Batch(pairs(RIGHT, WORSE)), [range(2)])[0].rewards
        assert math.isnan(right) or math.isnan(wrong) or right >= wrong, card.name
    assert {card.name for card in refused if card.by_pair} == {"cider:coco"}


def test_graphs_of_the_user_judge(tmp_path: Path) -> None:
    """By text; one of two entities is shared: F1 is 2/3."""

    def graph(text: str, *words: str) -> dict[str, object]:
        rows = {str(n): {"tokens": word, "label": "OBS-DP", "relations": []} for n, word in enumerate(words)}
        return {"text": text, "entities": rows}

    file = tmp_path / "graphs.json"
    file.write_text(json.dumps([graph(TOLD, "effusion"), graph(HALF, "effusion", "pneumothorax")]))
    extras = MetricResources(graphs=file)
    assert metric_judge("radgraph.simple", extras).rewards(pairs(HALF, RIGHT)) == pytest.approx([2 / 3, 1.0])
    with pytest.raises(ConfigError, match="'green:rules' needs nothing of --extras"):
        load_judge("green:rules", extras)
    with pytest.raises(UnknownName, match="'bertscore' needs --extras.encoder"):
        load_judge("0.5*radgraph.simple+0.5*bertscore", extras)
    with pytest.raises(UnknownName, match="there is no judge 'radgraf'"):
        load_judge("radgraf", extras)


def test_an_encoder_of_the_user_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in whose words are orthogonal: half the candidate's words are the reference's, so F is 2/3."""

    class Words:
        def __init__(self, folder: Path, layer: int) -> None:
            self.name = f"{folder.name}/{layer}"

        def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
            known = sorted({word for text in texts for word in text.split()})
            rows = np.eye(len(known), dtype=np.float32)
            return [
                TokenVectors(
                    tuple(text.split()),
                    rows[[known.index(word) for word in text.split()]],
                    np.zeros(len(text.split()), bool),
                )
                for text in texts
            ]

    monkeypatch.setattr("cxrlab.models.text_encoders.LocalTokenEncoder", Words)
    judge = metric_judge("bertscore", MetricResources(encoder=tmp_path / "mine", layer=4))
    assert judge.rewards([Pair("a", "x y", "x y"), Pair("b", "x y", "x y z w")]) == pytest.approx([1.0, 2 / 3])
    assert "encoder:mine/4" in judge.signature


def test_weights_are_not_loaded_to_learn_that_a_name_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrlab.preference.judges.build_extra_families", lambda _: pytest.fail("weights were loaded"))
    with pytest.raises(UnknownName, match="there is no judge 'bertscor'. Did you mean"):
        load_judge("bertscor", MetricResources(encoder=tmp_path))


def test_every_pairwise_judge_of_the_table_has_a_name_and_an_opinion() -> None:
    for name in PAIRWISE:
        judge = load_judge(name)
        assert judge.name == name and judge.signature.startswith(f"{name}|") and judge.pairwise
        found = judge.verdicts(Batch(pairs(WORSE, RIGHT)), [range(2)])[0]
        # One that draws may err: which way a given seed falls is no property of a judge.
        assert found.preferred == ((1, 0),) or (name == "reader:rules" and found.preferred == ((0, 1),))

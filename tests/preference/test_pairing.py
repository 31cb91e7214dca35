from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.preference.candidate_files import same_text, word_count
from cxrlab.preference.judges import copeland
from cxrlab.preference.make_pairs import Picked, Rules, choose_pairs, ranked

NAN = math.nan


def chosen(
    reports: list[str], rewards: list[float], preferred: set[tuple[int, int]] | None = None, **rules: float | None
) -> tuple[list[tuple[str, str]], Counter[str]]:
    picked, reasons = choose_pairs(reports, rewards, Rules(**rules), preferred)  # type: ignore[arg-type]
    return [(reports[one.chosen], reports[one.rejected]) for one in picked], +reasons


def test_the_best_stands_against_the_worst() -> None:
    assert choose_pairs(["b", "a", "c"], [0.5, 1.0, 0.0]) == ([Picked(1, 2, 1.0, 0.0)], Counter())


def test_the_second_best_stands_against_the_second_worst() -> None:
    """Five reports make two pairs; the middle one is in none, however many are asked for."""
    reports, rewards = ["c", "a", "e", "b", "d"], [3.0, 5.0, 1.0, 4.0, 2.0]
    assert chosen(reports, rewards, pairs=2) == ([("a", "e"), ("b", "d")], Counter())
    assert chosen(reports, rewards, pairs=9) == ([("a", "e"), ("b", "d")], Counter())


def test_equal_rewards_make_no_pair() -> None:
    assert chosen(["a", "b", "c"], [0.5, 0.5, 0.5]) == ([], Counter(ties=1))
    assert chosen(["a", "b", "c"], [0.5, 0.5, 0.5], margin=0.0) == ([], Counter(ties=1)), "nor without a margin"
    # The second pair is a tie; the first is none.
    assert chosen(["a", "b", "c", "d"], [1.0, 0.5, 0.5, 0.0], pairs=2) == ([("a", "d")], Counter(ties=1))


def test_among_equal_rewards_the_order_of_the_reports_decides() -> None:
    assert chosen(["a", "b", "c", "d"], [1.0, 1.0, 0.0, 0.0])[0] == [("a", "d")]


def test_a_difference_below_the_margin_makes_no_pair() -> None:
    assert chosen(["a", "b"], [0.75, 0.5], margin=0.5) == ([], Counter(below_margin=1))
    assert chosen(["a", "b"], [0.75, 0.25], margin=0.5) == ([("a", "b")], Counter()), "the margin itself is enough"
    assert chosen(["a", "b"], [1e-9, 0.0]) == ([], Counter(below_margin=1)), "the default is 1e-8"


def test_reports_that_are_the_same_are_one_candidate() -> None:
    """Case and white space do not count; the one with the higher reward is kept, else the first."""
    assert chosen(["x y", " X  Y\n", "z"], [0.0, 1.0, 0.5]) == ([(" X  Y\n", "z")], Counter(duplicates=1))
    assert chosen(["x y", "X Y", "z"], [1.0, 1.0, 0.5]) == ([("x y", "z")], Counter(duplicates=1))
    assert chosen(["x", "X", "x "], [0.0, 1.0, 2.0]) == ([], Counter(duplicates=2, alone=1))


def test_empty_and_undefined_reports_are_no_candidates() -> None:
    """Neither the best nor the worst, whatever their reward."""
    reports, rewards = ["", "a", " . ", "b", "c", "___"], [9.0, 1.0, -9.0, NAN, 0.5, 0.0]
    assert chosen(reports, rewards) == ([("a", "c")], Counter(empty=3, undefined=1))
    assert chosen(["a", ""], [1.0, 0.0]) == ([], Counter(empty=1, alone=1))
    assert chosen(["a", "b"], [NAN, 0.0]) == ([], Counter(undefined=1, alone=1))
    assert chosen([], []) == ([], Counter(alone=1))


def test_an_undefined_twin_does_not_stand_for_a_report() -> None:
    assert chosen(["a", "A", "b"], [NAN, 1.0, 0.0]) == ([("A", "b")], Counter(undefined=1))


def test_negative_rewards_are_ordered_as_numbers_are() -> None:
    assert chosen(["a", "b", "c"], [-3.0, -1.0, -2.0])[0] == [("b", "a")]


def test_a_best_report_that_is_too_long_gives_way_to_the_next_best() -> None:
    """Against four words 1.25 times as many are five: six are too many."""
    reports, rewards = ["a " * 6, "b " * 5, "c " * 4], [3.0, 2.0, 1.0]
    assert chosen(reports, rewards)[0] == [(reports[0], reports[2])]
    assert chosen(reports, rewards, longest_ratio=1.25) == ([(reports[1], reports[2])], Counter())
    assert chosen(reports, rewards, longest_ratio=1.0) == ([], Counter(too_long=1))
    assert chosen(reports, rewards, longest_ratio=1.5)[0] == [(reports[0], reports[2])]


def test_a_report_too_long_for_one_pair_may_stand_in_another() -> None:
    """Too long against the worst of two words, not against the second worst of six."""
    reports, rewards = ["a " * 6, "b " * 2, "c " * 6, "d " * 2], [4.0, 3.0, 2.0, 1.0]
    found, reasons = chosen(reports, rewards, pairs=2, longest_ratio=1.0)
    assert found == [(reports[1], reports[3]), (reports[0], reports[2])] and not reasons


def test_what_kept_the_best_out_is_the_reason() -> None:
    """The best is too long and the next is not better than the worst: it is the length that cost the pair."""
    assert chosen(["a " * 6, "b", "c"], [3.0, 1.0, 1.0], longest_ratio=1.0) == ([], Counter(too_long=1))


def test_a_chosen_report_must_be_good_enough() -> None:
    assert chosen(["a", "b"], [0.4, 0.1], least_reward=0.5) == ([], Counter(too_low=1))
    assert chosen(["a", "b"], [0.5, 0.1], least_reward=0.5) == ([("a", "b")], Counter())


def test_a_pairwise_judge_must_prefer_the_pair_itself() -> None:
    """Two wins − losses above the other, and yet never compared with success: the next best was."""
    reports, rewards = ["a", "b", "c"], [2.0, 1.0, -3.0]
    assert chosen(reports, rewards, preferred={(0, 1), (1, 2)}) == ([("b", "c")], Counter())
    assert chosen(reports, rewards, preferred={(0, 1)}) == ([], Counter(not_preferred=1))
    assert chosen(reports, rewards, preferred=set()) == ([], Counter(not_preferred=1))


def cut(reports: list[str], rewards: list[float], numbers: set[int], **rules: int) -> object:
    picked, reasons = choose_pairs(reports, rewards, Rules(**rules), cut=numbers)
    return [(reports[one.chosen], reports[one.rejected]) for one in picked], +reasons


def test_a_report_that_was_cut_is_never_chosen() -> None:
    """The next best is; where every better one was cut there is no pair, and that is the reason."""
    reports, rewards = ["a", "b", "c"], [3.0, 2.0, 1.0]
    assert cut(reports, rewards, {0}) == ([("b", "c")], Counter())
    assert cut(reports, rewards, {1}) == ([("a", "c")], Counter())
    assert cut(reports, rewards, {0, 1}) == ([], Counter(cut=1))
    assert cut(reports, rewards, {0, 1, 2}) == ([], Counter(cut=1))


def test_a_report_that_was_cut_may_be_rejected() -> None:
    assert cut(["a", "b", "c"], [3.0, 2.0, 1.0], {2}) == ([("a", "c")], Counter())
    # The second best was cut: the third of five, else in no pair, is chosen over the second worst, cut as well.
    assert cut(list("abcde"), [5.0, 4.0, 3.0, 2.0, 1.0], {1, 3}, pairs=2) == ([("a", "e"), ("c", "d")], Counter())


def test_equal_rewards_are_reported_before_the_cut() -> None:
    """What was cut is no better than the rest: there would be no pair in any case."""
    assert cut(["a", "b"], [1.0, 1.0], {0}) == ([], Counter(ties=1))


def test_of_a_text_that_was_cut_and_was_not_the_one_that_is_kept_counts() -> None:
    """That with the higher reward, else the first."""
    assert cut(["x", "X", "z"], [1.0, 1.0, 0.0], {0}) == ([], Counter(duplicates=1, cut=1))
    assert cut(["x", "X", "z"], [1.0, 1.0, 0.0], {1}) == ([("x", "z")], Counter(duplicates=1))
    assert cut(["x", "X", "z"], [1.0, 2.0, 0.0], {0}) == ([("X", "z")], Counter(duplicates=1))


def test_wins_less_losses() -> None:
    assert copeland(["a", "b", "c"], {(0, 1), (0, 2), (1, 2)}) == [2.0, 0.0, -2.0]
    assert copeland(["a", "b"], set()) == [0.0, 0.0]
    cycle = {(0, 1), (1, 2), (2, 0)}
    assert copeland(["a", "b", "c"], cycle) == [0.0, 0.0, 0.0]
    assert chosen(["a", "b", "c"], copeland(["a", "b", "c"], cycle), cycle) == ([], Counter(ties=1))


def test_wins_over_copies_and_over_nothing_count_once_or_not() -> None:
    found = copeland(["a", "b", "B ", ""], {(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)})
    assert found[:3] == [1.0, -1.0, -1.0] and math.isnan(found[3])


words = st.sampled_from(["a", "b", "c", "d d", "e e e", "f f f f f", "A", "", "."])
values = st.one_of(st.sampled_from([0.0, 0.5, 1.0, -1.0, NAN]), st.floats(-10, 10))
rules = st.builds(
    Rules,
    pairs=st.integers(1, 4),
    margin=st.sampled_from([0.0, 1e-8, 0.3]),
    longest_ratio=st.sampled_from([None, 0.5, 1.0, 2.0]),
    least_reward=st.sampled_from([None, 0.0]),
)


@given(st.lists(st.tuples(words, values), max_size=9), rules, st.sets(st.integers(0, 8)))
def test_every_pair_keeps_every_rule(study: list[tuple[str, float]], rules: Rules, cut: set[int]) -> None:
    reports, rewards = [text for text, _ in study], [value for _, value in study]
    picked, reasons = choose_pairs(reports, rewards, rules, cut=cut)
    for one in picked:
        assert one.chosen not in cut
        assert one.chosen_reward > one.rejected_reward and one.chosen_reward >= one.rejected_reward + rules.margin
        assert (one.chosen_reward, one.rejected_reward) == (rewards[one.chosen], rewards[one.rejected])
        texts = reports[one.chosen], reports[one.rejected]
        assert same_text(texts[0]) != same_text(texts[1]) and all(any(map(str.isalnum, text)) for text in texts)
        if rules.longest_ratio is not None:
            assert word_count(texts[0]) <= rules.longest_ratio * word_count(texts[1])
        assert rules.least_reward is None or one.chosen_reward >= rules.least_reward
    used = [same_text(reports[number]) for one in picked for number in (one.chosen, one.rejected)]
    assert len(used) == len(set(used)) and len(picked) <= rules.pairs
    left, lost = ranked(reports, rewards)
    assert len(left) + lost.total() == len(study), "every report is a candidate, or counted with the reason"
    looked = sum(reasons[name] for name in ("ties", "below_margin", "too_long", "too_low", "cut")) + len(picked)
    assert (looked == 0) == (reasons["alone"] == 1) == (len(left) < 2)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=7, unique=True), rules, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_changes_nothing(rewards: list[float], rules: Rules, chance: object) -> None:
    """Without exact ties the same texts are chosen and rejected."""
    study = [("w" * (place + 1) + " x" * (place * 5 % 7), value) for place, value in enumerate(rewards)]
    other = list(study)
    chance.shuffle(other)  # type: ignore[attr-defined]
    found = []
    for order in (study, other):
        picked, reasons = choose_pairs([text for text, _ in order], [value for _, value in order], rules)
        found.append(([(order[one.chosen][0], order[one.rejected][0]) for one in picked], reasons))
    assert found[0] == found[1]


@given(st.permutations(["x y", "X Y", "z", "w"]))
def test_which_of_two_equal_texts_comes_first_does_not_matter(order: list[str]) -> None:
    values = {"x y": 0.0, "X Y": 1.0, "z": 0.5, "w": 0.75}
    assert chosen(order, [values[text] for text in order]) == ([("X Y", "z")], Counter(duplicates=1))


def test_rewards_and_reports_must_be_equally_many() -> None:
    with pytest.raises(ValueError, match="shorter|longer"):
        choose_pairs(["a", "b"], [1.0])

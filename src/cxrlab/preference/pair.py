"""`cxrlab prefer pair`: preference pairs from rewards or from readers' feedback."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from cxrlab.core import fields
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.fields import Record
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import PreferencePair
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import SUMMARY
from cxrlab.metrics.pairs import wordless
from cxrlab.preference import feedback as people
from cxrlab.preference.candidates import same_text, word_count
from cxrlab.preference.config import PAIRS_FILE, TIE, UNPAIRED_FILE, PairConfig
from cxrlab.preference.feedback import Feedback, read_feedback
from cxrlab.preference.judges import Preference
from cxrlab.preference.rewards import REWARDS, check_inputs, digests, keep_inputs, read_rewards


@dataclass(frozen=True)
class Pairing:
    """What a run of `prefer pair` came to.

    Candidates that are none are counted by candidate; what stood against a pair is counted by pair looked for, and is
    what kept the best candidate out.

    Args:
        judge: What preferred.
        studies: Studies with a judgement.
        candidates: Reports judged.
        duplicates: Reports equal to another one of their study up to case and white space.
        empty: Reports without a word.
        undefined: Reports without a reward.
        alone: Studies with fewer than two candidates left.
        ties: Pairs of equal rewards.
        below_margin: Pairs whose rewards differ by too little.
        too_long: Pairs whose chosen report has too many words.
        too_low: Pairs whose chosen report has too small a reward.
        cut: Pairs that were not made, since the better report was cut at max_new_tokens.
        not_preferred: Pairs on which a judge that compares two was undecided itself.
        contradicted: Pairs on which as many readers hold the one as the other.
        kept: Pairs written.
        single: Single reports written.
        undecided: Reports chosen as often as rejected, which are not written as single ones.
        chosen_words: Words of a chosen report, on average.
        rejected_words: Words of a rejected one.
        chosen_longer: Share of pairs whose chosen report has more words.
        mean_margin: Difference of the two scores, on average.
    """

    judge: str
    studies: int
    candidates: int
    duplicates: int
    empty: int
    undefined: int
    alone: int
    ties: int
    below_margin: int
    too_long: int
    too_low: int
    cut: int
    not_preferred: int
    contradicted: int
    kept: int
    single: int
    undecided: int
    chosen_words: float
    rejected_words: float
    chosen_longer: float
    mean_margin: float

    @classmethod
    def from_json(cls, summary: dict[str, Any]) -> Pairing:
        """Read back what summary.json holds; an older one does not count what was cut."""
        values: dict[str, Any] = {key: math.nan if value is None else value for key, value in summary.items()}
        return cls(**{"cut": 0, **values})


@dataclass(frozen=True)
class _Study:
    """Pairs of one study, and what was left out."""

    candidates: int
    pairs: tuple[PreferencePair, ...]
    reasons: Counter[str]


def pair(config: PairConfig, out: Path) -> Pairing:
    """Make pairs into RUN/pairs.jsonl, and the same reports one by one into RUN/unpaired.jsonl.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed):
        check_inputs(out)
        return Pairing.from_json(read_json(out / SUMMARY))
    judge, files, studies, contradicted = _source(config)
    with Run.open(out, config, seed=config.seed) as run:
        keep_inputs(run, digests(files))
        sums: Counter[str] = Counter(contradicted=contradicted)
        pairs, singles = _Tail(run, PAIRS_FILE), _Tail(run, UNPAIRED_FILE)
        for study in track(studies, "choosing pairs"):
            rows, undecided = single_reports(study.pairs)
            for chosen in study.pairs:
                pairs.append(chosen)
            for row in rows:
                singles.append(row)
            sums.update(studies=1, candidates=study.candidates, single=len(rows), undecided=undecided)
            sums.update(study.reasons)
            sums.update(_lengths(study.pairs))
        summary = _summary(judge, sums)
        run.write(SUMMARY, summary)
    return summary


def _source(config: PairConfig) -> tuple[str, list[Path], Iterable[_Study], int]:
    """Name of the judge, files behind the pairs, studies with their pairs, and pairs on which readers are at odds."""
    if config.rewards is not None:
        file, judge = _judged_run(config.rewards)
        return judge, [file], _from_rewards(file, judge, config), 0
    assert config.feedback is not None and config.data is not None
    corpus = load_corpus(config.data)
    found = read_feedback(config.feedback, corpus, config.minor_weight)
    _refuse_unheeded(config, found)
    studies = _from_pairs(found, config) if found.form == people.PAIRS else _from_ratings(found, _rules(config))
    return found.judge, [config.feedback, corpus.file], studies, found.contradicted


def _judged_run(folder: Path) -> tuple[Path, str]:
    """The rewards of a finished run of `prefer judge`, and the name of its judge."""
    file = folder / REWARDS
    if not file.is_file():
        raise DataError(f"{folder} has no {REWARDS}; name the folder of a run of 'cxrlab prefer judge'.")
    if state(folder) != "finished":
        raise DataError(f"{folder} is a run that has not finished; run its command again to finish it.")
    return file, str(read_json(folder / SUMMARY)["judge"]["name"])


def _rules(config: PairConfig) -> Rules:
    return Rules(config.pairs, config.margin, config.longest_ratio, config.least_reward)


def _from_rewards(file: Path, judge: str, config: PairConfig) -> Iterator[_Study]:
    rules = _rules(config)
    for study in read_rewards(file):
        reports = [candidate.report for candidate in study.candidates]
        preferred = None if study.preferred is None else frozenset(study.preferred)
        cut = frozenset[int]() if config.allow_cut else study.cut
        yield _chosen(study.id, judge, reports, study.rewards, rules, preferred, cut)


def _from_ratings(found: Feedback, rules: Rules) -> Iterator[_Study]:
    for study in found.rated:
        yield _chosen(study.id, found.judge, study.reports, study.rewards, rules)


def _chosen(
    key: str,
    judge: str,
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules,
    preferred: frozenset[Preference] | None = None,
    cut: frozenset[int] = frozenset(),
) -> _Study:
    picked, reasons = choose_pairs(reports, rewards, rules, preferred, cut)
    return _Study(len(reports), tuple(_record(key, judge, reports, one) for one in picked), reasons)


def _record(key: str, judge: str, reports: Sequence[str], one: Picked) -> PreferencePair:
    texts = (reports[one.chosen].strip(), reports[one.rejected].strip())
    return PreferencePair(key, *texts, judge, one.chosen_reward, one.rejected_reward)


def _from_pairs(found: Feedback, config: PairConfig) -> Iterator[_Study]:
    """Every pair that a majority of readers holds; only its length is asked about."""
    for pairs in found.pairs.values():
        short = tuple(one for one in pairs if not too_long(one.chosen, one.rejected, config.longest_ratio))
        reports = {same_text(text) for one in pairs for text in (one.chosen, one.rejected)}
        yield _Study(len(reports), short, Counter({LONG: len(pairs) - len(short)}))


def _refuse_unheeded(config: PairConfig, found: Feedback) -> None:
    """Refuse settings that this form of feedback leaves unheard."""
    unheeded = {people.PAIRS: ("pairs", "margin", "least_reward", "minor_weight"), people.RATINGS: ("minor_weight",)}
    for name in unheeded.get(found.form, ()):
        if getattr(config, name) != getattr(PairConfig, name):
            raise ConfigError(f"{name} is not heeded where the feedback is {found.form}; leave it out.")


def _lengths(pairs: Sequence[PreferencePair]) -> dict[str, Any]:
    """What the pairs of a study add to the sums."""
    words = [(word_count(one.chosen), word_count(one.rejected)) for one in pairs]
    return {
        "kept": len(pairs),
        "chosen_words": sum(chosen for chosen, _ in words),
        "rejected_words": sum(rejected for _, rejected in words),
        "chosen_longer": sum(chosen > rejected for chosen, rejected in words),
        "mean_margin": sum((one.chosen_score or 0.0) - (one.rejected_score or 0.0) for one in pairs),
    }


def _summary(judge: str, sums: Counter[str]) -> Pairing:
    means = ("chosen_words", "rejected_words", "chosen_longer", "mean_margin")
    found: dict[str, Any] = {each.name: sums[each.name] for each in dataclasses.fields(Pairing)}
    found |= {name: sums[name] / sums["kept"] if sums["kept"] else math.nan for name in means}
    return Pairing(**{**found, "judge": judge})


class _Tail:
    """The end of a file of a run: records that an earlier part of the run wrote are passed over.

    Args:
        run: The open run.
        name: Of the file.
    """

    def __init__(self, run: Run, name: str) -> None:
        run.done(name)  # cuts off what a kill has torn
        self._run, self._name = run, name
        self._written = sum(1 for _ in read_jsonl(run.path(name)))

    def append(self, record: Any) -> None:
        """Write a record that is not there yet."""
        if self._written:
            self._written -= 1
        else:
            self._run.append(self._name, record)


# Why a candidate is none, counted by candidate.
EMPTY, UNDEFINED, DUPLICATE = "empty", "undefined", "duplicates"
# Why there is no pair, counted by pair that was looked for.
ALONE, EQUAL, CLOSE, LONG, LOW, OPEN = "alone", "ties", "below_margin", "too_long", "too_low", "not_preferred"
CUT = "cut"


@dataclass(frozen=True)
class Picked:
    """One pair: numbers of two candidates of a study and their rewards."""

    chosen: int
    rejected: int
    chosen_reward: float
    rejected_reward: float


@dataclass(frozen=True)
class Rules:
    """Which pairs are wanted.

    Args:
        pairs: At most so many a study.
        margin: Least difference of the rewards; equal ones never make a pair.
        longest_ratio: Most words of the chosen report, as a multiple of those of the rejected one; None for any.
        least_reward: Of the chosen report; None for any.
    """

    pairs: int = 1
    margin: float = TIE
    longest_ratio: float | None = None
    least_reward: float | None = None


def choose_pairs(
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules | None = None,
    preferred: Collection[Preference] | None = None,
    cut: Collection[int] = (),
) -> tuple[list[Picked], Counter[str]]:
    """The pairs of one study, and how often what was left out for which reason.

    Candidates are the reports with a word and a reward. Of texts that are equal up to case and white space the one
    with the highest reward is kept, the first of those. The best candidate stands against the worst, then of those
    left the best against the worst, and so on. Where the best may not be chosen (cut short, too long, not preferred
    by the judge itself) the next best is tried; no report stands in two pairs. Equal rewards keep the order of the
    reports.

    Args:
        reports: Of one study.
        rewards: One a report; not-a-number where it has none.
        rules: Which pairs are wanted; the default ones when None.
        preferred: What a pairwise judge said; a pair must be among it. None for rewards of single reports.
        cut: Numbers of the reports that end in mid-sentence: they may be rejected and are never chosen.
    """
    rules = rules or Rules()
    left, reasons = ranked(reports, rewards)
    if len(left) < 2:
        reasons[ALONE] += 1
    found: list[Picked] = []
    for _ in range(rules.pairs):
        if len(left) < 2:
            break
        worst = left.pop()
        best, reason = _best_against(worst, left, reports, rewards, rules, preferred, cut)
        if best is None:
            reasons[reason] += 1
        else:
            left.remove(best)
            found.append(Picked(best, worst, rewards[best], rewards[worst]))
    return found, reasons


def ranked(reports: Sequence[str], rewards: Sequence[float]) -> tuple[list[int], Counter[str]]:
    """Numbers of the candidates, best first, and how many reports are none; see `choose_pairs`."""
    reasons: Counter[str] = Counter()
    kept: dict[str, int] = {}
    for number, (report, reward) in enumerate(zip(reports, rewards, strict=True)):
        key = same_text(report)
        if wordless(report):
            reasons[EMPTY] += 1
        elif math.isnan(reward):
            reasons[UNDEFINED] += 1
        elif key not in kept:
            kept[key] = number
        else:
            reasons[DUPLICATE] += 1
            if reward > rewards[kept[key]]:
                kept[key] = number
    return sorted(sorted(kept.values()), key=lambda number: -rewards[number]), reasons


def _best_against(
    worst: int,
    left: Sequence[int],
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules,
    preferred: Collection[Preference] | None,
    cut: Collection[int],
) -> tuple[int | None, str]:
    """The first of `left` (best first) that may be chosen over `worst`; or None and why the best of them may not."""
    reasons: list[str] = []
    for best in left:
        reason = _by_reward(rewards[best], rewards[worst], rules)
        if reason is not None:
            # Those after it have no higher reward; what kept the best one out is the reason that is told.
            reasons.append(reason)
            break
        if best in cut:
            reasons.append(CUT)
        elif preferred is not None and (best, worst) not in preferred:
            reasons.append(OPEN)
        elif too_long(reports[best], reports[worst], rules.longest_ratio):
            reasons.append(LONG)
        else:
            return best, ""
    return None, reasons[0]


def _by_reward(best: float, worst: float, rules: Rules) -> str | None:
    if not best > worst:
        return EQUAL
    if not best >= worst + rules.margin:
        return CLOSE
    return LOW if rules.least_reward is not None and best < rules.least_reward else None


def too_long(chosen: str, rejected: str, longest_ratio: float | None) -> bool:
    """Whether the chosen report has more words than the ratio allows against the rejected one."""
    return longest_ratio is not None and word_count(chosen) > longest_ratio * word_count(rejected)


@dataclass(frozen=True)
class SingleReport(Record):
    """One report that is good or bad by itself: KTO's form.

    Args:
        id: Of the study.
        report: The text.
        desirable: Whether it was chosen more often than rejected.
        score: Its reward, None where nobody gave one.
    """

    what = "a single report"
    checks = {"id": fields.non_empty_text, "report": fields.text, "desirable": fields.boolean, "score": fields.number()}

    id: str
    report: str
    desirable: bool
    score: float | None = None


def single_reports(pairs: Sequence[PreferencePair]) -> tuple[list[SingleReport], int]:
    """The reports of a study's pairs, each once, and how many were chosen as often as rejected and are left out.

    A report of several pairs is good when it was chosen more often; its score is the mean of its scores. Texts that are
    equal up to case and white space are one report.

    Args:
        pairs: Of one study.
    """
    votes: Counter[str] = Counter()
    scores: dict[str, list[float]] = {}
    spelled: dict[str, str] = {}
    for one in pairs:
        sides = ((one.chosen, one.chosen_score, 1), (one.rejected, one.rejected_score, -1))
        for text, score, vote in sides:
            key = same_text(text)
            spelled.setdefault(key, text)
            votes[key] += vote
            scores.setdefault(key, []).extend([] if score is None else [score])
    study = pairs[0].id if pairs else ""
    rows = [
        SingleReport(study, text, votes[key] > 0, fmean(scores[key]) if scores[key] else None)
        for key, text in spelled.items()
        if votes[key]
    ]
    return rows, len(spelled) - len(rows)

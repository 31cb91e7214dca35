"""Make preference pairs from the rewards of a judge or from readers' feedback."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.record_fields import Record
from cxrlab.core.records import PreferencePair
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import SUMMARY
from cxrlab.metrics.report_pairs import wordless
from cxrlab.preference.candidate_files import same_text, word_count
from cxrlab.preference.config import PAIRS_FILE, TIE, UNPAIRED_FILE, PairConfig
from cxrlab.preference.human_feedback import PAIRS, RATINGS, read_feedback
from cxrlab.preference.judges import Preference
from cxrlab.preference.reward_files import REWARDS, check_inputs, digests, keep_inputs, read_rewards


@dataclass(frozen=True)
class Pairing:
    """Summary of a run of `prefer pair`.

    Excluded candidates are counted per candidate. Rejected pairs are counted per pair that was tried, with the reason
    that excluded the best candidate.
    """

    judge: str  # name of the judge
    studies: int  # judged studies
    candidates: int  # reports judged
    duplicates: int  # reports equal to another one of their study up to case and white space
    empty: int  # reports without a word
    undefined: int  # reports without a reward
    alone: int  # studies with fewer than two candidates left
    ties: int  # pairs of equal rewards
    below_margin: int  # pairs whose rewards differ by too little
    too_long: int  # pairs whose chosen report has too many words
    too_low: int  # pairs whose chosen report has too small a reward
    cut: int  # pairs whose better report was cut at max_new_tokens
    not_preferred: int  # pairs on which a pairwise judge was undecided
    contradicted: int  # pairs on which the readers' votes are equal
    kept: int  # pairs written
    single: int  # single reports written
    undecided: int  # reports chosen as often as rejected, which are not written as single reports
    chosen_words: float  # mean words per chosen report
    rejected_words: float  # mean words per rejected report
    chosen_longer: float  # share of pairs whose chosen report has more words
    mean_margin: float  # mean difference of the two scores

    @classmethod
    def from_json(cls, summary: dict[str, Any]) -> Pairing:
        """Read back what summary.json holds; an older one does not count what was cut."""
        values: dict[str, Any] = {key: math.nan if value is None else value for key, value in summary.items()}
        return cls(**{"cut": 0, **values})


# Why a candidate is excluded, counted per candidate.
EMPTY, UNDEFINED, DUPLICATE = "empty", "undefined", "duplicates"
# Why there is no pair, counted per pair that was tried.
ALONE, EQUAL, CLOSE, LONG, LOW, OPEN = "alone", "ties", "below_margin", "too_long", "too_low", "not_preferred"
CUT = "cut"


@dataclass(frozen=True)
class _Study:
    """Pairs of one study, and the counts of what was excluded."""

    candidates: int
    pairs: tuple[PreferencePair, ...]
    reasons: Counter[str]


def pair(config: PairConfig, out: Path) -> Pairing:
    """Make pairs into RUN/pairs.jsonl, and the same reports one by one into RUN/unpaired.jsonl.

    Args:
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed):
        check_inputs(out)
        return Pairing.from_json(read_json(out / SUMMARY))
    rules = Rules(config.pairs, config.margin, config.longest_ratio, config.least_reward)
    judge, files, studies, contradicted = (_from_feedback if config.rewards is None else _from_rewards)(config, rules)
    with Run.open(out, config, seed=config.seed) as run:
        keep_inputs(run, digests(files))
        sums: Counter[str] = Counter(contradicted=contradicted)
        pairs, singles = _ResumedFile(run, PAIRS_FILE), _ResumedFile(run, UNPAIRED_FILE)
        for study in track(studies, "choosing pairs"):
            rows, undecided = single_reports(study.pairs)
            for one in study.pairs:
                pairs.append(one)
            for row in rows:
                singles.append(row)
            words = [(word_count(one.chosen), word_count(one.rejected)) for one in study.pairs]
            sums.update(studies=1, candidates=study.candidates, single=len(rows), undecided=undecided)
            sums.update(study.reasons)
            margin: Any = sum((one.chosen_score or 0.0) - (one.rejected_score or 0.0) for one in study.pairs)
            sums.update(
                kept=len(study.pairs),
                chosen_words=sum(chosen for chosen, _ in words),
                rejected_words=sum(rejected for _, rejected in words),
                chosen_longer=sum(chosen > rejected for chosen, rejected in words),
                mean_margin=margin,
            )
        found: dict[str, Any] = {each.name: sums[each.name] for each in dataclasses.fields(Pairing)}
        for name in ("chosen_words", "rejected_words", "chosen_longer", "mean_margin"):
            found[name] = sums[name] / sums["kept"] if sums["kept"] else math.nan
        summary = Pairing(**{**found, "judge": judge})
        run.write(SUMMARY, summary)
    return summary


_Source = tuple[str, list[Path], Iterable[_Study], int]  # judge, files, studies, pairs with equal votes of readers


def _from_rewards(config: PairConfig, rules: Rules) -> _Source:
    """The pairs of a finished run of `prefer judge`."""
    folder = config.rewards
    assert folder is not None
    file = folder / REWARDS
    if not file.is_file():
        raise DataError(f"{folder} has no {REWARDS}; name the folder of a run of 'cxrlab prefer judge'.")
    if state(folder) != "finished":
        raise DataError(f"{folder} is a run that has not finished; run its command again to finish it.")
    judge = str(read_json(folder / SUMMARY)["judge"]["name"])
    studies = (
        _chosen(
            study.id,
            judge,
            [candidate.report for candidate in study.candidates],
            study.rewards,
            rules,
            None if study.preferred is None else frozenset(study.preferred),
            frozenset() if config.allow_cut else study.cut,
        )
        for study in read_rewards(file)
    )
    return judge, [file], studies, 0


def _from_feedback(config: PairConfig, rules: Rules) -> _Source:
    """The pairs of readers: those that a majority prefers, or those of their mean ratings."""
    assert config.feedback is not None and config.data is not None
    corpus = load_corpus(config.data)
    found = read_feedback(config.feedback, corpus, config.minor_weight)
    unused = {PAIRS: ("pairs", "margin", "least_reward", "minor_weight"), RATINGS: ("minor_weight",)}
    for name in unused.get(found.form, ()):
        if getattr(config, name) != getattr(PairConfig, name):
            raise ConfigError(f"{name} has no effect on feedback in the form of {found.form}; leave it out.")
    studies = [_chosen(study.id, found.judge, study.reports, study.rewards, rules) for study in found.rated]
    for pairs in found.pairs.values():
        short = tuple(one for one in pairs if not too_long(one.chosen, one.rejected, rules.longest_ratio))
        reports = {same_text(text) for one in pairs for text in (one.chosen, one.rejected)}
        studies.append(_Study(len(reports), short, Counter({LONG: len(pairs) - len(short)})))
    return found.judge, [config.feedback, corpus.file], studies, found.contradicted


def _chosen(
    key: str,
    judge: str,
    reports: Sequence[str],
    rewards: Sequence[float],
    rules: Rules,
    preferred: Collection[Preference] | None = None,
    cut: Collection[int] = (),
) -> _Study:
    picked, reasons = choose_pairs(reports, rewards, rules, preferred, cut)
    pairs = tuple(
        PreferencePair(
            key,
            reports[one.chosen].strip(),
            reports[one.rejected].strip(),
            judge,
            one.chosen_reward,
            one.rejected_reward,
        )
        for one in picked
    )
    return _Study(len(reports), pairs, reasons)


class _ResumedFile:
    """A file of a resumed run: records that an earlier part of the run wrote are skipped."""

    def __init__(self, run: Run, name: str) -> None:
        run.done(name)  # removes an incomplete last line
        self._run, self._name = run, name
        self._written = sum(1 for _ in read_jsonl(run.path(name)))

    def append(self, record: Any) -> None:
        """Write a record that is not there yet."""
        if self._written:
            self._written -= 1
        else:
            self._run.append(self._name, record)


@dataclass(frozen=True)
class Picked:
    """One pair: numbers of two candidates of a study and their rewards."""

    chosen: int
    rejected: int
    chosen_reward: float
    rejected_reward: float


@dataclass(frozen=True)
class Rules:
    """Which pairs are made; see `PairConfig`."""

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
    """The pairs of one study, and counts of what was excluded for which reason.

    The best candidate is paired with the worst, then of those left the best with the worst, and so on. Where the best
    may not be chosen (cut, too long, not preferred by the judge itself) the next best is tried. No report is in two
    pairs.

    Args:
        rewards: Per report; NaN where it has none.
        rules: Which pairs are made; the default ones when None.
        preferred: Pairs by a pairwise judge, to which the result is limited; None for rewards of single reports.
        cut: Numbers of the reports that were cut at max_new_tokens: they may be rejected and are never chosen.
    """
    rules = rules or Rules()
    left, reasons = ranked(reports, rewards)
    if len(left) < 2:
        reasons[ALONE] += 1
    found: list[Picked] = []
    for _ in range(rules.pairs):
        if len(left) < 2:
            break
        worst, refused = left.pop(), None
        for best in left:
            low = rules.least_reward is not None and rewards[best] < rules.least_reward
            close = not rewards[best] >= rewards[worst] + rules.margin
            if close or low or not rewards[best] > rewards[worst]:
                reason = EQUAL if not rewards[best] > rewards[worst] else CLOSE if close else LOW
                refused = refused or reason  # what excluded the best one is what is counted
                reasons[refused] += 1
                break  # those after it have no higher reward
            if best in cut:
                refused = refused or CUT
            elif preferred is not None and (best, worst) not in preferred:
                refused = refused or OPEN
            elif too_long(reports[best], reports[worst], rules.longest_ratio):
                refused = refused or LONG
            else:
                left.remove(best)
                found.append(Picked(best, worst, rewards[best], rewards[worst]))
                break
        else:
            reasons[str(refused)] += 1
    return found, reasons


def ranked(reports: Sequence[str], rewards: Sequence[float]) -> tuple[list[int], Counter[str]]:
    """Numbers of the candidates, best first, and counts of the excluded reports.

    Candidates are the reports with a word and a reward. Of texts that are equal up to case and white space the one
    with the highest reward is kept, the first of those. Equal rewards keep the order of the reports.
    """
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


def too_long(chosen: str, rejected: str, longest_ratio: float | None) -> bool:
    """Whether the chosen report has more words than the ratio allows against the rejected one."""
    return longest_ratio is not None and word_count(chosen) > longest_ratio * word_count(rejected)


@dataclass(frozen=True)
class SingleReport(Record):
    """One report that is desirable or not, for losses without pairs; `score` is its reward, where it has one."""

    what = "a single report"
    checks = {"id": fields.non_empty_text, "report": fields.text, "desirable": fields.boolean, "score": fields.number()}

    id: str
    report: str
    desirable: bool
    score: float | None = None


def single_reports(pairs: Sequence[PreferencePair]) -> tuple[list[SingleReport], int]:
    """The reports of a study's pairs, each once, and how many were chosen as often as rejected and are left out.

    A report is desirable when it was chosen more often than rejected; its score is the mean of its scores. Texts that
    are equal up to case and white space are one report.
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

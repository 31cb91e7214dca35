"""Checks of a set of reports beside their references: variety, content, label prevalence and copies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.json_values import plain
from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.duplicates import NEAR_SHARE, Phrases, closest, words
from cxrlab.evaluation.certificate import DETECTED, OWN_REFERENCE, SAME_FINDINGS, SEEN, Check, Verdict
from cxrlab.metrics.base import Metric, mean_tally
from cxrlab.metrics.report_pairs import Batch, wordless
from cxrlab.metrics.statistics.intervals import Estimate, Resamples

Flags = NDArray[np.float64]  # 1, 0 or not-a-number for each pair
MIN_DISTINCTIVE = (
    20  # references with a finding and a text of their own, before only these are compared with the reports
)
LEAST_WORDS = 5  # with which nine in ten reports begin, before that is worth a note
NORMAL = "No Finding"
EXAMPLES = 3
HALF = 0.5  # share of phrases from which a report may be copied in part
_SHARE = Metric("share", "higher", (0.0, 1.0), None, "")
_MASK = re.compile(r"x{3,}|_{2,}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:;][\"')\]]*\s*$")


@dataclass(frozen=True)
class Sample:
    """Reports and references, and the resamples behind every interval."""

    batch: Batch  # matched pairs
    resamples: Resamples  # of their patients
    level: float  # of the intervals
    # Ways to give each patient's studies the reports of others; none where that cannot be done.
    shuffles: Sequence[Sequence[int]]

    def share(self, flags: Flags) -> Estimate:
        """The share of pairs with the flag, of those that have one."""
        return self.resamples.estimates([mean_tally(_SHARE, flags)], self.level)[0]

    def shares(self, predictions: Flags, references: Flags) -> dict[str, Estimate]:
        """The shares of both sides and their paired difference."""
        mine, other = self.resamples.resample([mean_tally(_SHARE, predictions), mean_tally(_SHARE, references)])
        found = {"predictions": mine, "references": other, "difference": mine.minus(other)}
        return {name: value.estimate(self.level) for name, value in found.items()}

    def compare(self, test: Callable[[str], bool], *, with_words: bool = False) -> dict[str, Estimate]:
        """The shares of texts that pass a test; `with_words` a text without words does not count."""
        sides = (self.batch.candidates, self.batch.references)
        return self.shares(
            *(
                np.array([np.nan if with_words and wordless(text) else float(test(text)) for text in side])
                for side in sides
            )
        )

    @cached_property
    def normal(self) -> tuple[Flags, Flags]:
        """Reports and references that state nothing but devices and incidental findings, as CheXpert's No Finding does.

        A report without words is neither normal nor abnormal.
        """
        batch = self.batch
        mine, other = [], []
        for pair, stated, expected in zip(batch.pairs, batch.candidate_findings, batch.reference_findings, strict=True):
            has_words = pair.answerable and not wordless(pair.candidate or "")
            mine.append(float(_labels(stated).get(NORMAL) == 1) if has_words else np.nan)
            other.append(float(_labels(expected).get(NORMAL) == 1) if pair.answerable else np.nan)
        return np.array(mine), np.array(other)

    @cached_property
    def texts(self) -> tuple[list[str], list[str]]:
        """Words of reports and references, without case and punctuation."""
        mine, other = (
            [" ".join(words(text)) for text in side] for side in (self.batch.candidates, self.batch.references)
        )
        return mine, other

    @cached_property
    def elsewhere(self) -> tuple[Flags, Flags]:
        """Whether each report, and each reference, is word for word the reference of another study."""
        mine, references = self.texts
        times = Counter(references)
        found = [float(bool(one) and times[one] - (one == two) > 0) for one, two in zip(mine, references, strict=True)]
        return np.array(found), np.array([float(bool(text) and times[text] > 1) for text in references])

    @cached_property
    def _own_shares(self) -> list[Flags]:
        """The share of phrases that each report has in common with its own reference, then with those that it is shuffled to.

        Only references that state a finding and are unlike all others count where there are enough: common normal reports
        are met by chance.
        """
        batch = self.batch
        known = np.array([not wordless(text) for text in batch.references])
        distinctive = known & (self.normal[1] == 0) & (self.elsewhere[1] == 0)
        counted = distinctive if distinctive.sum() >= MIN_DISTINCTIVE else known
        phrases = {text: Phrases(text) for text in {*batch.candidates, *batch.references}}

        def common(candidates: Iterable[str]) -> Flags:
            pairs = zip(candidates, batch.references, counted, strict=True)
            return np.array([phrases[one].share(phrases[two]) if compared else np.nan for one, two, compared in pairs])

        shuffled = ([batch.candidates[place] for place in shuffle] for shuffle in self.shuffles)
        return [common(batch.candidates), *map(common, shuffled)]

    def own(self, least: float) -> tuple[Flags, Flags]:
        """Whether each report shares so many phrases with its own reference, and how often with those that it is shuffled to."""
        mine, *shuffled = (np.where(np.isnan(shares), np.nan, shares >= least) for shares in self._own_shares)
        return mine, np.mean(shuffled, axis=0) if shuffled else np.full(len(mine), np.nan)

    @cached_property
    def detected(self) -> Flags:
        """Of the studies whose reference states a finding, whether the report states any."""
        mine, other = self.normal
        return np.where(other == 0, mine == 0, np.nan)


def check_variety(sample: Sample) -> Check:
    """How many different texts and findings there are, and how often the most frequent ones occur."""
    batch, (mine, other) = sample.batch, sample.texts
    numbers: dict[str, Any] = {
        name: {"n": len(side), "distinct": len(set(side)), "shared_first_words": _shared_beginning(side)}
        for name, side in (("reports", mine), ("references", other))
    }
    stated = [
        [frozenset((one.observation, one.side) for one in findings if one.present) for findings in side]
        for side in (batch.candidate_findings, batch.reference_findings)
    ]
    text = sample.shares(_is_most_frequent(mine), _is_most_frequent(other))
    same = sample.shares(*map(_is_most_frequent, stated))
    numbers |= {"most_frequent": text, "most_frequent_findings": same}
    sentence = (
        f"Different texts: {numbers['reports']['distinct']:,} of {len(mine):,} reports, "
        f"{numbers['references']['distinct']:,} of {len(other):,} references; "
        f"the most frequent is {text['predictions'].value:.1%} of the reports ({text['references'].value:.1%} of the references). "
        f"The most frequent findings are those of {same['predictions'].value:.1%} of the reports ({same['references'].value:.1%})."
    )
    begin, usual = (numbers[side]["shared_first_words"] for side in ("reports", "references"))
    framed = begin >= LEAST_WORDS > usual and numbers["reports"]["distinct"] > 1
    if framed:
        sentence += f" Nine in ten reports begin with the same {begin} words."
    constant = numbers["reports"]["distinct"] == 1 < numbers["references"]["distinct"]
    alike = same["predictions"].value >= SAME_FINDINGS and same["difference"].low > 0
    verdict: Verdict = "fail" if constant or alike else "note" if framed or text["difference"].low > 0 else "pass"
    return Check("variety", verdict, sentence, numbers)


def check_content(sample: Sample) -> Check:
    """Share of normal reports, also where references are not; of empty and cut ones, and of those with masks."""
    normal, detected = sample.shares(*sample.normal), sample.share(sample.detected)
    numbers: dict[str, Any] = {
        "normal": normal,
        "empty": sample.compare(wordless),
        "without_sentence_end": sample.compare(_is_cut, with_words=True),
        "masks": sample.compare(_is_masked),
        "silent": sample.compare(lambda text: not sample.batch.read(text).findings, with_words=True),
        "detected": detected,
    }
    gap = normal["difference"]
    sentence = (
        f"Normal: {normal['predictions'].value:.1%} of the reports, {normal['references'].value:.1%} of the references "
        f"(difference {format_points(gap)})."
    )
    if not np.isnan(detected.value):
        sentence += f" Of the studies whose reference states a finding, {detected.value:.1%} have a report with any."
    worse = [
        f"{numbers[key]['predictions'].value:.1%} {what}"
        for key, what in (
            ("empty", "without words"),
            ("without_sentence_end", "without the end of a sentence"),
            ("silent", "without any observation that is recognised, affirmed or denied"),
        )
        if numbers[key]["difference"].low > 0
    ]
    if numbers["masks"]["predictions"].value > 0:
        worse.append(f"{numbers['masks']['predictions'].value:.1%} with masks (XXXX, ___)")
    sentence += f" Reports: {', '.join(worse)}." if worse else ""
    none = normal["predictions"].value == 1 and gap.low > 0
    off = gap.low > 0.1 or gap.high < -0.1 or detected.high < DETECTED
    verdict: Verdict = "fail" if none else "warning" if off or worse else "pass"
    return Check("content", verdict, sentence, numbers)


def check_prevalence(sample: Sample) -> Check:
    """How often each CheXpert label is stated, certain or not, and which labels never are."""
    batch = sample.batch
    known = np.array([pair.answerable for pair in batch.pairs])
    labels = [[_labels(one) for one in side] for side in (batch.candidate_findings, batch.reference_findings)]
    numbers: dict[str, Any] = {}
    for name in CHEXPERT_14:
        mine, other = (np.where(known, [float(one.get(name, 0) != 0) for one in side], np.nan) for side in labels)
        numbers[name] = {**sample.shares(mine, other), "count": int(np.nansum(mine)), "present": int(np.nansum(other))}
    never = [name for name, found in numbers.items() if not found["count"] and found["present"]]
    gaps = {name: found["difference"] for name, found in numbers.items()}
    differ = sorted(
        (name for name in gaps if not gaps[name].low <= 0 <= gaps[name].high), key=lambda n: -abs(gaps[n].value)
    )
    sentence = f"Never reported though present in references: {', '.join(never) or 'none of the 14 labels'}."
    if differ:
        parts = [f"{name} {format_points(gaps[name])}" for name in differ[:EXAMPLES]]
        sentence += f" Largest differences: {', '.join(parts)}."
    common = [name for name in never if numbers[name]["present"] >= 5]
    verdict: Verdict = "warning" if common else "note" if never or differ else "pass"
    return Check("label prevalence", verdict, sentence, {"labels": numbers, "never_reported": never})


def check_own_references(sample: Sample) -> Check:
    """How many reports are the text of their own reference, or of another one in the file."""
    own, shuffled = sample.own(NEAR_SHARE)
    compared, share = int((~np.isnan(own)).sum()), sample.share(own)
    gap = sample.shares(own, shuffled)["difference"] if sample.shuffles else None
    half = sample.shares(*sample.own(HALF)) if sample.shuffles else None
    elsewhere = sample.shares(*sample.elsewhere)
    at_random = "" if gap is None else f", {share.value - gap.value:.1%} when shuffled among patients"
    sentence = (
        f"{share.value:.1%} of {compared:,} compared reports are the text of their own reference{at_random}; "
        f"{elsewhere['predictions'].value:.1%} of all are the reference of another study word for word "
        f"({elsewhere['references'].value:.1%} of the references are)."
    )
    close = half is not None and half["difference"].low > OWN_REFERENCE
    if half is not None and close:
        sentence += (
            f" {half['predictions'].value:.1%} share half of their phrases with their own reference "
            f"({half['references'].value:.1%} when shuffled)."
        )
    copied = gap is not None and gap.low > OWN_REFERENCE
    verdict: Verdict = "fail" if copied else "warning" if close or elsewhere["difference"].low > 0.2 else "pass"
    numbers = {
        "compared": compared,
        "own_reference": share,
        "difference": gap,
        "half": half,
        "other_reference": elsewhere,
    }
    return Check("copied references", verdict, sentence, numbers)


def check_training_overlap(sample: Sample, training: Sequence[str]) -> tuple[Check, Flags]:
    """How many reports are training reports, beside how many references are; and the closest match of each report."""
    title = "overlap with training reports"
    if not training:
        return Check(title, "not tested", "Not tested: give them with --training.", {}), np.full(
            len(sample.batch), np.nan
        )
    mine, other = closest(sample.batch.candidates, training), closest(sample.batch.references, training)
    verbatim = sample.shares((mine == 1).astype(float), (other == 1).astype(float))
    near = sample.shares((mine >= NEAR_SHARE).astype(float), (other >= NEAR_SHARE).astype(float))
    sentence = (
        f"Of the reports {verbatim['predictions'].value:.1%} are one of {len(training):,} training reports word for word "
        f"and {near['predictions'].value:.1%} nearly; of the references {verbatim['references'].value:.1%} and "
        f"{near['references'].value:.1%}."
    )
    verdict: Verdict = "warning" if max(verbatim["difference"].low, near["difference"].low) > 0.1 else "pass"
    if verbatim["references"].value >= SEEN:
        verdict, sentence = "warning", f"{sentence} Nearly all references are among the training reports."
    return Check(
        title, verdict, sentence, {"training_reports": len(training), "verbatim": verbatim, "near": near}
    ), mine


def collect_evidence(sample: Sample, training: Flags) -> list[dict[str, Any]]:
    """One record for each study: its id and what was found, without any text."""
    mine, _ = sample.texts
    times, (own, _) = Counter(mine), sample.own(NEAR_SHARE)
    return [
        {
            "id": pair.id,
            "same_text": times[mine[k]],
            "normal": plain(sample.normal[0][k]),
            "reference_normal": plain(sample.normal[1][k]),
            "own_reference": plain(own[k]),
            "other_reference": plain(sample.elsewhere[0][k]),
            "closest_training_report": plain(training[k]),
            "without_sentence_end": not wordless(text) and _is_cut(text),
            "masks": _is_masked(text),
        }
        for k, (pair, text) in enumerate(zip(sample.batch.pairs, sample.batch.candidates, strict=True))
    ]


def format_points(found: Estimate) -> str:
    """A difference of shares with its interval."""
    return f"{found.value:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"


def _labels(findings: Sequence[Finding]) -> dict[str, int]:
    return chexpert_labels(findings, complete=False)


def _is_most_frequent(items: Sequence[Any]) -> Flags:
    """1 for the items that equal the most frequent one."""
    (item, _), *_ = Counter(items).most_common(1)
    return np.array([float(one == item) for one in items])


def _shared_beginning(texts: Sequence[str]) -> int:
    """The most first words that nine in ten texts share."""
    length, kept = 0, [text.split() for text in texts]
    while nexts := Counter(text[length] for text in kept if len(text) > length):
        word, count = nexts.most_common(1)[0]
        if count < 0.9 * len(texts):
            break
        kept = [text for text in kept if len(text) > length and text[length] == word]
        length += 1
    return length


def _is_cut(text: str) -> bool:
    return not _SENTENCE_END.search(text)


def _is_masked(text: str) -> bool:
    return bool(_MASK.search(text))

"""The certificate of a prediction file: its checks, and the verdict by an ordered table of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cxrlab.core.tables import Column, Table, as_html, as_text, output_width
from cxrlab.metrics.statistics.intervals import Estimate
from cxrlab.metrics.statistics.paired_tests import MINIMUM_PATIENTS

Verdict = Literal["pass", "note", "warning", "fail", "not tested"]
Severity = Literal["ok", "caution", "severe"]
SEVERITIES: tuple[Severity, ...] = ("ok", "caution", "severe")

# Shares and differences from which a rule applies; docs/certify.md explains each.
OWN_REFERENCE = 0.05  # by so much more often does a report equal its own reference than another patient's
EMPTY = 0.1  # by so much more often is a report empty than a reference
# By so much more often does the most frequent report occur than the most frequent reference, or a report name nothing.
MOSTLY = 0.5
SAME_FINDINGS = 0.95  # share of reports that state the same findings
COPIED = 0.5  # share of reports that are training reports word for word
SEEN = 0.9  # share of references that are training reports; real reports repeat, but not that often
DETECTED = 0.25  # share of the studies with a finding whose report states any, below which reports are mostly normal
MARGIN = 0.05  # a gain of the deciding metric below this counts as none
DECIDING = "findings.f1"


@dataclass(frozen=True)
class Check:
    """One check: its verdict, a sentence, and the numbers behind it."""

    name: str
    verdict: Verdict
    sentence: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """Inputs of the verdict rules; gaps and gains are paired differences with an interval by patient."""

    n: int  # matched pairs
    patients: int  # their patients
    predictions: int  # all of them, matched or not
    references: int  # likewise
    extra: int  # predictions without a reference
    missing: int  # references without a prediction
    distinct: int  # different texts of the reports
    repeated: Estimate  # share of the most frequent report
    repeated_gap: Estimate  # this share minus that of the most frequent reference
    abnormal: int  # reports that state a finding
    abnormal_references: int  # references that state a finding
    normal_gap: Estimate  # share of normal reports minus share of normal references
    empty: Estimate  # share of reports without words
    empty_gap: Estimate  # this share minus the same of the references
    silent: Estimate  # share of reports in which no observation is recognised, affirmed or denied
    silent_gap: Estimate  # this share minus the same of the references
    same: Estimate  # share of the reports with the most frequent findings
    same_gap: Estimate  # this share minus the same of the references
    compared: int  # reports that were compared with their own reference
    own: Estimate  # share of these that are its text
    # This share minus the same when the reports are shuffled among patients; None where they cannot be shuffled.
    own_gap: Estimate | None
    half: Estimate | None  # like `own`, for half of the phrases in common
    half_gap: Estimate | None  # like `own_gap`
    detected: Estimate  # of the studies whose reference states a finding, the share of those whose report states any
    value: float  # deciding metric of the reports
    shuffled: float  # the same when they are shuffled among patients
    gain: Estimate | None  # their difference; None where the reports cannot be shuffled
    wording: tuple[str, ...]  # lexical metrics that are higher than those of one normal report for all
    errors_gap: Estimate  # significant errors per report minus those of one normal report for all
    copied: Estimate | None  # share of the reports that are training reports; None without training reports
    copied_references: Estimate | None  # the same of the references
    copied_gap: Estimate | None  # their difference
    # Verdict on image dependence; None where it was not tested.
    image: Literal["uses_image", "ignores_image", "unclear"] | None
    image_sentence: str  # the same in words
    untested: tuple[str, ...]  # what was not tested, in words

    @property
    def fits(self) -> bool:
        """Whether the reports are shown to fit their own studies better than other patients'."""
        return self.gain is not None and self.gain.low > 0

    @property
    def is_copied(self) -> bool:
        """Whether most reports are training reports, and more of them than of the references."""
        known = self.copied is not None and self.copied_gap is not None
        return known and self.copied.value >= COPIED and self.copied_gap.low > 0  # type: ignore[union-attr]


@dataclass(frozen=True)
class Rule:
    """One row of the table of verdicts: the headline where it applies, and how severe that is."""

    name: str
    severity: Severity
    applies: Callable[[Facts], bool]
    headline: Callable[[Facts], str]


def decide(facts: Facts) -> tuple[Rule, str]:
    """The first rule of `RULES` that applies, and its headline."""
    rule = next(rule for rule in RULES if rule.applies(facts))
    return rule, rule.headline(facts)


def _unmatched(f: Facts) -> str:
    parts = []
    if f.extra:
        parts.append(f"{f.extra:,} of {f.predictions:,} predictions belong to no reference")
    if f.missing:
        parts.append(f"{f.missing:,} of {f.references:,} references have no prediction")
    return f"{_sentence(' and '.join(parts))} The other checks describe the {f.n:,} that match."


def _references(f: Facts) -> str:
    shuffled = "" if f.own_gap is None else f" ({f.own.value - f.own_gap.value:.0%} when shuffled among patients)"
    share = f"{f.own.value:.0%} of {f.compared:,} compared reports are the text of their own reference{shuffled}."
    return f"These are the references: {share}" if f.own.value >= 0.9 else f"Partly copied from the references: {share}"


def _close(f: Facts) -> str:
    assert f.half is not None and f.half_gap is not None
    return (
        f"{f.half.value:.0%} of {f.compared:,} compared reports share half of their phrases with their own reference "
        f"({f.half.value - f.half_gap.value:.0%} when shuffled among patients): they are copied from it in part, or both "
        "are written in fixed phrases."
    )


def _no_finding(f: Facts) -> str:
    texts = (
        "one text, which reports no" if f.distinct == 1 else f"{f.distinct:,} different texts, none of which reports a"
    )
    found = f"These {f.n:,} reports are {texts} finding; {f.abnormal_references:,} references do."
    if f.wording:
        found += f" Their lead over one normal report for all ({', '.join(f.wording)}) is due to wording."
    if f.silent_gap.low > MOSTLY:
        found += f" {f.silent.value:.0%} of them name no observation at all, not even to deny it: are they in English?"
    return found


def _copied(f: Facts) -> str:
    assert f.copied is not None and f.copied_references is not None
    return (
        f"{f.copied.value:.0%} of the reports are training reports word for word "
        f"({f.copied_references.value:.0%} of the references)"
    )


def _gain(f: Facts) -> str:
    if f.gain is None:
        return f"the gain in {DECIDING} could not be measured"
    return (
        f"{DECIDING} {f.value:.3f} against {f.shuffled:.3f} when shuffled among patients, "
        f"difference {f.gain.value:+.3f} [{f.gain.low:+.3f}, {f.gain.high:+.3f}]"
    )


def _fits(f: Facts) -> str:
    beyond = " They were better with the right image than with control images." if f.image == "uses_image" else ""
    untested = f" Not tested: {'; '.join(f.untested)}." if f.untested else ""
    return f"The reports fit their studies: {_gain(f)}.{beyond}{untested}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


# From the worst to the best: the first row that applies is the verdict.
RULES: tuple[Rule, ...] = (
    Rule("unmatched", "severe", lambda f: bool(f.extra or f.missing), _unmatched),
    Rule(
        "references",
        "severe",
        lambda f: f.own_gap is not None and f.own_gap.low > OWN_REFERENCE,
        _references,
    ),
    Rule(
        "constant",
        "severe",
        lambda f: f.distinct == 1 and f.repeated_gap.low > 0,
        lambda f: (
            f"All {f.n:,} reports are empty."
            if f.empty.value == 1
            else f"All {f.n:,} reports are one and the same text{', without any finding' * (not f.abnormal)}."
        ),
    ),
    Rule("no findings", "severe", lambda f: not f.abnormal and f.normal_gap.low > 0, _no_finding),
    Rule(
        "same findings",
        "severe",
        lambda f: f.same.value >= SAME_FINDINGS and f.same_gap.low > 0,
        lambda f: f"{f.same.value:.0%} of the reports state the same findings, in {f.distinct:,} different texts.",
    ),
    Rule(
        "copied at random",
        "severe",
        lambda f: f.is_copied and not f.fits,
        lambda f: f"{_copied(f)}, and they are not shown to fit their studies: {_gain(f)}.",
    ),
    Rule(
        "not about these studies",
        "severe",
        lambda f: f.gain is not None and f.gain.low <= 0 and f.gain.high < MARGIN,
        lambda f: (
            f"The reports fit other patients as well as their own: {_gain(f)}."
            + f" {f.image_sentence}" * (f.image == "ignores_image")
        ),
    ),
    Rule("ignores the image", "severe", lambda f: f.image == "ignores_image", lambda f: f.image_sentence),
    Rule(
        "few patients",
        "caution",
        lambda f: f.patients < MINIMUM_PATIENTS,
        lambda f: f"Fewer than {MINIMUM_PATIENTS} patients ({f.patients}): intervals are too narrow for a verdict.",
    ),
    Rule(
        "not shown",
        "caution",
        lambda f: not f.fits,
        lambda f: f"It is not shown that the reports fit their studies: {_gain(f)}.",
    ),
    Rule(
        "seen in training",
        "caution",
        lambda f: f.copied_references is not None and f.copied_references.value >= SEEN,
        lambda f: (
            f"{f.copied_references.value:.0%} of the references are among the training reports, "  # type: ignore[union-attr]
            "so that these studies test nothing that is new to the model."
        ),
    ),
    Rule(
        "close to the references",
        "caution",
        lambda f: f.half_gap is not None and f.half_gap.low > OWN_REFERENCE,
        _close,
    ),
    Rule(
        "empty reports",
        "caution",
        lambda f: f.empty_gap.low > EMPTY,
        lambda f: f"{f.empty.value:.0%} of the reports are empty; over all of them {_gain(f)}.",
    ),
    Rule(
        "mostly one text",
        "caution",
        lambda f: f.repeated_gap.low > MOSTLY,
        lambda f: f"{f.repeated.value:.0%} of the reports are one and the same text; over all of them {_gain(f)}.",
    ),
    Rule(
        "mostly called normal",
        "caution",
        lambda f: f.detected.high < DETECTED,
        lambda f: (
            f"Of the studies whose reference states a finding, {f.detected.value:.0%} have a report that states any; "
            f"over all studies {_gain(f)}."
        ),
    ),
    Rule(
        "copied",
        "caution",
        lambda f: f.is_copied,
        lambda f: f"{_copied(f)}; as a choice among them they fit their studies: {_gain(f)}.",
    ),
    Rule(
        "more errors than a normal report",
        "caution",
        lambda f: f.errors_gap.low > 0,
        lambda f: (
            f"{_fits(f)} But they make {f.errors_gap.value:.2f} more significant errors per report than one normal "
            f"report for all [{f.errors_gap.low:+.2f}, {f.errors_gap.high:+.2f}]."
        ),
    ),
    Rule("fits", "ok", lambda f: True, _fits),
)


@dataclass(frozen=True)
class Certificate:
    """The verdict on a prediction file."""

    rule: str  # name of the rule that decided
    severity: Severity  # ok, caution or severe
    headline: str  # the verdict in words
    checks: tuple[Check, ...]  # every check, in order
    n: int  # matched pairs
    patients: int  # their patients
    digest: str  # SHA-256 of every input

    def __str__(self) -> str:
        return as_text(self.parts(), output_width())

    def _repr_html_(self) -> str:
        return as_html(self.parts())

    def parts(self) -> list[str | Table]:
        """The verdict, and a table of the checks."""
        return [f"{self.severity.upper()}: {self.headline}", "", self._table()]

    def to_frame(self) -> Any:
        """A pandas data frame with a row per check: verdict, name, sentence."""
        return self._table().to_frame()

    def _table(self) -> Table:
        columns = (Column("verdict"), Column("check"), Column("finding"))
        return Table(columns, tuple((check.verdict, check.name, check.sentence) for check in self.checks))

    def check(self, name: str) -> Check:
        """The check of this name."""
        return next(check for check in self.checks if check.name == name)

    def fails(self, on: Severity) -> bool:
        """Whether the verdict is as severe as `on`, or more."""
        return SEVERITIES.index(self.severity) >= SEVERITIES.index(on)

    def to_json(self) -> dict[str, Any]:
        """The content of `certificate.json`."""
        return {
            "rule": self.rule, "severity": self.severity, "headline": self.headline, "n": self.n,
            "patients": self.patients, "checks": list(self.checks), "inputs_sha256": self.digest,
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Certificate:
        """The certificate in the content of `certificate.json`."""
        checks: Sequence[Mapping[str, Any]] = stored["checks"]
        return cls(
            stored["rule"], stored["severity"], stored["headline"], tuple(Check(**check) for check in checks),
            stored["n"], stored["patients"], stored["inputs_sha256"],
        )  # fmt: skip

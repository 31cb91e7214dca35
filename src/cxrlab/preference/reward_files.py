"""The file of rewards: the judged candidates of each study, and their statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import DataError, RunError, short_repr
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.record_fields import Record
from cxrlab.core.runs import Run
from cxrlab.preference.config import TIE

REWARDS = "rewards.jsonl"
UNDECIDED = "undecided"  # part of a reward: number of unreadable comparisons


@dataclass(frozen=True)
class RewardedReport(Record):
    """One candidate."""

    what = "a judged candidate"
    checks = {
        "report": fields.text,
        "words": fields.integer(),
        "reward": fields.number(or_undefined=True),
        "parts": fields.mapping_of(fields.number(or_undefined=True)),
        "truncated": fields.boolean,
    }

    report: str
    words: int  # number of words, split at white space
    reward: float  # higher is better; NaN (null in the file) where the judge gives none
    parts: Mapping[str, float] = field(default_factory=dict)  # metric → value behind the reward
    truncated: bool = False  # whether it was cut at max_new_tokens; in the file only if true

    def to_json(self) -> dict[str, Any]:
        """Plain values; `truncated` only if true."""
        values = super().to_json()
        return values if self.truncated else {key: value for key, value in values.items() if key != "truncated"}


def _two(value: Any, key: str) -> tuple[int, int]:
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(item) is int for item in value):
        return value[0], value[1]
    raise DataError(f"'{key}' is {short_repr(value)}; it must be the numbers of two candidates, the better one first.")


@dataclass(frozen=True)
class JudgedStudy(Record):
    """The candidates of one study with their rewards."""

    what = "a judged study"
    checks = {
        "id": fields.non_empty_text,
        "reference_words": fields.integer(),
        "candidates": fields.list_of(fields.parsed_by(RewardedReport.from_json)),
        "preferred": fields.list_of(_two),
    }

    id: str  # of the study
    reference_words: int  # words of the reference, split at white space; 0 without a reference
    candidates: tuple[RewardedReport, ...]  # in the order of the files
    # Numbers of the better and the worse candidate, of a pairwise judge; else None.
    preferred: tuple[tuple[int, int], ...] | None = None

    @property
    def rewards(self) -> list[float]:
        """Of each candidate."""
        return [candidate.reward for candidate in self.candidates]

    @property
    def cut(self) -> frozenset[int]:
        """Numbers of the candidates that were cut at max_new_tokens."""
        return frozenset(number for number, one in enumerate(self.candidates) if one.truncated)

    def __post_init__(self) -> None:
        super().__post_init__()
        for pair in self.preferred or ():
            if not all(0 <= number < len(self.candidates) for number in pair) or pair[0] == pair[1]:
                raise DataError(f"'preferred' holds {list(pair)}; there are {len(self.candidates)} candidates, from 0.")


@dataclass(frozen=True)
class Judging:
    """Summary of a run of `prefer judge`; rewards are averaged over studies with a reward."""

    judge: dict[str, str]  # its name and signature
    studies: int  # judged studies
    candidates: int  # their candidates
    undefined: int  # candidates without a reward
    first: float  # mean reward of a study's first candidate that has one: the value of a single sample
    best: float  # mean reward of the best candidate: the value of best-of-n
    worst: float  # mean reward of the worst candidate
    mean: float  # mean of the studies' mean rewards
    equal: float  # share of the studies with several rewards whose rewards are all equal
    mean_words: float  # mean words per candidate
    reference_words: float  # mean words per reference that has any
    # Pearson's correlation of reward and words, centred per study; NaN where either is constant.
    length_correlation: float
    undecided: int = 0  # unreadable comparisons of two candidates; they are no ties

    @classmethod
    def from_json(cls, summary: dict[str, Any]) -> Judging:
        """Read back what summary.json holds."""
        values: dict[str, Any] = {key: math.nan if value is None else value for key, value in summary.items()}
        return cls(**values)


def read_rewards(file: Path) -> Iterator[JudgedStudy]:
    """The judged studies of a file, one at a time."""
    for number, record in read_jsonl(file):
        try:
            yield JudgedStudy.from_json(record)
        except DataError as error:
            raise DataError(f"{file}:{number}: {error}") from None


def summarize(studies: Iterable[JudgedStudy], name: str, signature: str) -> Judging:
    """Statistics of the rewards by the judge with this name and signature, one study at a time."""
    sums: dict[str, float] = defaultdict(float)
    for study in studies:
        found: dict[str, float] = {
            "studies": 1,
            "candidates": len(study.candidates),
            "undefined": sum(map(math.isnan, study.rewards)),
            "words": sum(one.words for one in study.candidates),
            # Each comparison is counted at both of its candidates.
            UNDECIDED: int(sum(one.parts.get(UNDECIDED, 0.0) for one in study.candidates)),
            "references": int(study.reference_words > 0),
            "reference words": study.reference_words,
        }
        known = [(one.reward, one.words) for one in study.candidates if not math.isnan(one.reward)]
        if known:
            rewards, words = ([pair[side] for pair in known] for side in (0, 1))
            mean, mean_words = sum(rewards) / len(known), sum(words) / len(known)
            equal = max(rewards) - min(rewards) < TIE
            # Equal rewards differ from their mean by rounding alone, which must not count as a correlation.
            off = [0.0 if equal else reward - mean for reward in rewards]
            found |= {"valued": 1, "first": rewards[0], "best": max(rewards), "worst": min(rewards), "mean": mean}
            found |= {
                "several": len(known) > 1,
                "equal": len(known) > 1 and equal,
                "product": sum(one * (length - mean_words) for one, length in zip(off, words, strict=True)),
                "rewards squared": sum(one**2 for one in off),
                "words squared": sum((length - mean_words) ** 2 for length in words),
            }
        for key, value in found.items():
            sums[key] += value
    return Judging(
        judge={"name": name, "signature": signature},
        studies=int(sums["studies"]),
        candidates=int(sums["candidates"]),
        undefined=int(sums["undefined"]),
        **{key: _share(sums[key], sums["valued"]) for key in ("first", "best", "worst", "mean")},
        equal=_share(sums["equal"], sums["several"]),
        mean_words=_share(sums["words"], sums["candidates"]),
        reference_words=_share(sums["reference words"], sums["references"]),
        length_correlation=_share(sums["product"], math.sqrt(sums["rewards squared"] * sums["words squared"])),
        undecided=int(sums[UNDECIDED]) // 2,
    )


def _share(above: float, below: float) -> float:
    return above / below if below else math.nan


INPUTS = "inputs.json"


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Path → SHA-256 of each file's content."""
    return {file.as_posix(): sha256_of(file) for file in files}


def keep_inputs(run: Run, found: dict[str, str]) -> None:
    """Record the inputs of a run, from `digests`; a resumed run is refused when they have changed."""
    if run.resumed and run.path(INPUTS).is_file():
        check_inputs(run.folder)
    else:
        run.write(INPUTS, found)


def check_inputs(folder: Path) -> None:
    """Refuse a run whose input files have changed; missing files pass."""
    for path, digest in read_json(folder / INPUTS).items():
        if Path(path).is_file() and sha256_of(path) != digest:
            raise RunError(f"{path} has changed since the run in {folder} read it; choose another folder.")

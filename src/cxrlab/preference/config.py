"""Settings of sampling, judging and pairing; none of this imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.asking import Asking
from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SPLITS
from cxrlab.evaluation.config import Extras
from cxrlab.metrics.judging.table import JudgeSettings
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

TIE = 1e-8  # rewards that differ by less count as equal, as in CheXalign
LEARNT_FROM = ("train", "val")


@dataclass(frozen=True)
class SampleConfig:
    """Several reports from one model for every study of a split.

    Args:
        model: Name of a model that can draw its words, such as hf:runs/finetune/checkpoint or builtin:reporter.
        data: Folder of the corpus.
        split: train or val; pairs of test studies would teach the model what it is tested on.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        answers: Reports drawn a study.
        temperature: 1 is the model's own distribution; above 0.
        top_p: Smallest set of tokens that holds this share of the probability, above 0 up to 1.
        max_new_tokens: Longest report, in tokens.
        greedy: Add the report of the likeliest words as one more candidate, marked "greedy".
        seed: Decides which studies and which words are drawn.
        batch_size: Images given to the model at once; halved where they do not fit in memory.
        allow_missing: Finish although some studies have no readable frontal image, or the model refused to write on
            them; they stay without candidates.
        loading: How the model is loaded.
    """

    model: str
    data: Path
    split: str = "train"
    n: int | None = None
    answers: int = 4
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    greedy: bool = False
    seed: int = 7
    batch_size: int = 16
    allow_missing: bool = False
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{nearest(self.split, LEARNT_FROM)} Use {' or '.join(LEARNT_FROM)}."
            )
        if self.split not in LEARNT_FROM:
            raise ConfigError(
                f"split={self.split!r} is kept for measuring: a model aligned with pairs of its studies would be "
                f"tested on what it has learnt; use {' or '.join(LEARNT_FROM)}."
            )
        _check_least(self, n=1, answers=1, max_new_tokens=1, seed=0, batch_size=1)
        if not self.temperature > 0.0:
            raise ConfigError(f"temperature={self.temperature} is not usable; give a number above 0.")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p={self.top_p} is not usable; give a share above 0 up to 1.")

    @property
    def decoding(self) -> Decoding:
        """How the candidates are drawn."""
        return Decoding(
            strategy="sample",
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            answers=self.answers,
            seed=self.seed,
        )


@dataclass(frozen=True)
class JudgeConfig:
    """A reward for every candidate report.

    Args:
        candidates: Runs of `prefer sample` or `generate`, or files of predictions; those of one study are joined.
        data: Folder of the corpus with the references.
        judge: A metric with a value a report (green:rules), a mix (0.7*green:rules+0.3*findings.f1.side), or a judge
            that compares two reports (errors:rules; reader:rules errs as people do). Language models judge as
            green:MODEL, chexprompt:MODEL and the like, alone or in a mix, and as pairwise:MODEL.
        section: Section of the reference report; several joined with +.
        length_control: Divide the reward of a candidate by how many times as long as the reference it is, where it is
            longer; a negative reward is multiplied.
        seed: For judges that draw (reader:rules); the others do not.
        extras: Graphs and weights of yours, for metrics that need them.
        asking: How a language model is asked, where one judges.
        judging: Other wordings for judges by language models, and their longest answers.
    """

    candidates: tuple[Path, ...]
    data: Path
    judge: str = "green:rules"
    section: str = "findings"
    length_control: bool = False
    seed: int = 7
    extras: Extras = Extras()
    asking: Asking = Asking()
    judging: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("candidates is empty; name at least one run of 'cxrlab prefer sample'.")
        if twice := [path for path in self.candidates if self.candidates.count(path) > 1]:
            raise ConfigError(f"candidates names {twice[0]} twice; name it once.")
        _check_least(self, seed=0)


@dataclass(frozen=True)
class PairConfig:
    """Preference pairs from rewards, or from what people said.

    Args:
        rewards: Run of `prefer judge`; or give feedback.
        feedback: CSV or JSONL with the judgements of people: pairs, ratings or error counts.
        data: Folder of the corpus that the feedback is about.
        pairs: Pairs a study, at most: the best with the worst, the second best with the second worst, ….
        margin: Least difference of the two rewards; equal ones never make a pair.
        longest_ratio: Most words of the chosen report, as a multiple of those of the rejected one; any when left out.
        least_reward: Of the chosen report; any when left out.
        allow_cut: Let a draft that was cut at max_new_tokens be the chosen one, although it ends in mid-sentence.
        minor_weight: What an insignificant error costs in counts by people, where a significant one costs 1.
        seed: Written down; no pair is chosen by chance.
    """

    rewards: Path | None = None
    feedback: Path | None = None
    data: Path | None = None
    pairs: int = 1
    margin: float = TIE
    longest_ratio: float | None = None
    least_reward: float | None = None
    allow_cut: bool = False
    minor_weight: float = 0.1
    seed: int = 7

    def __post_init__(self) -> None:
        if (self.rewards is None) == (self.feedback is None):
            raise ConfigError("give one source of pairs: --rewards RUN, or --feedback FILE with --data CORPUS.")
        if (self.feedback is None) != (self.data is None):
            given, missing = ("feedback", "data") if self.data is None else ("data", "feedback")
            raise ConfigError(f"--{given} needs --{missing} beside it: the file, and the corpus that it is about.")
        if self.feedback is None and self.minor_weight != PairConfig.minor_weight:
            raise ConfigError("--minor-weight is for error counts by people; give --feedback with it.")
        if self.feedback is not None and self.allow_cut:
            raise ConfigError("--allow-cut is for drafts of a model; leave it out with --feedback.")
        _check_least(self, pairs=1, seed=0)
        for name in ("margin", "minor_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number of at least 0.")
        if self.longest_ratio is not None and not self.longest_ratio > 0:
            raise ConfigError(f"longest_ratio={self.longest_ratio} is not usable; give a number above 0, such as 1.2.")


def _check_least(config: Any, **least: int) -> None:
    for name, low in least.items():
        value = getattr(config, name)
        if value is not None and value < low:
            raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")

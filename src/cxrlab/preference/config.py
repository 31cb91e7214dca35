"""Settings of sampling, judging, pairing and preference training; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Literal

from cxrlab.core.config import check_at_least
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm_requests import LLMConfig, llm_operational_fields
from cxrlab.core.records import SPLITS
from cxrlab.data.config import ContextConfig
from cxrlab.evaluation.config import MetricResources
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.training.config import OPERATIONAL as TRAINING_OPERATIONAL
from cxrlab.training.config import AdapterConfig, Optimisation

PAIRS_FILE, UNPAIRED_FILE = "pairs.jsonl", "unpaired.jsonl"  # what `prefer pair` writes
TIE = 1e-8  # rewards that differ by less count as equal, as in CheXalign
LEARNT_FROM = ("train", "val")


@dataclass(frozen=True)
class SampleConfig(ContextConfig):
    """Several reports from one model for every study of a split.

    Args:
        model: Name of a model that can sample, such as hf:runs/finetune/checkpoint or builtin:reporter.
        data: Corpus folder.
        split: train or val; pairs of test studies would train the model on what it is tested on.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        answers: Reports per study.
        temperature: Sampling temperature, above 0.
        top_p: Smallest set of tokens that holds this share of the probability, above 0 up to 1.
        max_new_tokens: Longest report, in tokens.
        greedy: Add the greedy report as one more candidate, marked "greedy".
        seed: Decides which studies and which tokens are drawn.
        batch_size: Images per batch; halved where they do not fit in memory.
        allow_missing: Finish although some studies have no readable frontal image, or the model refused them; they
            have no candidates.
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
        super().__post_init__()
        self.check_single_image()
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{did_you_mean(self.split, LEARNT_FROM)} Use {' or '.join(LEARNT_FROM)}."
            )
        if self.split not in LEARNT_FROM:
            raise ConfigError(
                f"split={self.split!r} is kept for measuring: a model aligned with pairs of its studies would be "
                f"tested on what it has learnt; use {' or '.join(LEARNT_FROM)}."
            )
        check_at_least(self, n=1, answers=1, max_new_tokens=1, seed=0, batch_size=1)
        if not self.temperature > 0.0:
            raise ConfigError(f"temperature={self.temperature} is not usable; give a number above 0.")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p={self.top_p} is not usable; give a share above 0 up to 1.")

    @property
    def decoding(self) -> Decoding:
        """Decoding of the candidates."""
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
        candidates: Runs of `prefer sample` or `generate`, or files of predictions; candidates of a study are joined.
        data: Corpus folder with the references.
        judge: A metric with a value per report (green:rules), a mix (0.7*green:rules+0.3*findings.f1.side), or a
            pairwise judge (errors:rules; reader:rules simulates a reader). Language models judge as green:MODEL,
            chexprompt:MODEL and the like, alone or in a mix, and as pairwise:MODEL.
        section: Section of the reference report; several joined with +.
        length_control: Divide the reward of a candidate that is longer than the reference by the ratio of their
            lengths; a negative reward is multiplied.
        seed: For judges that draw (reader:rules).
        extras: Your own graphs and weights, for metrics that need them.
        llm: Endpoint and requests of a language model that judges.
        judging: Other prompts for judges by language models, and their longest answers.
    """

    candidates: tuple[Path, ...]
    data: Path
    judge: str = "green:rules"
    section: str = "findings"
    length_control: bool = False
    seed: int = 7
    extras: MetricResources = MetricResources()
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("candidates is empty; name at least one run of 'cxrlab prefer sample'.")
        if twice := [path for path in self.candidates if self.candidates.count(path) > 1]:
            raise ConfigError(f"candidates names {twice[0]} twice; name it once.")
        check_at_least(self, seed=0)


@dataclass(frozen=True)
class PairConfig:
    """Preference pairs from rewards, or from the feedback of readers.

    Args:
        rewards: Run of `prefer judge`; or give feedback.
        feedback: CSV or JSONL with the feedback of readers: pairs, ratings or error counts.
        data: Corpus folder that the feedback is about.
        pairs: Most pairs per study: the best with the worst, the second best with the second worst, ….
        margin: Least difference of the two rewards; equal ones never make a pair.
        longest_ratio: Most words of the chosen report, as a multiple of those of the rejected one; any when left out.
        least_reward: Least reward of the chosen report; any when left out.
        allow_cut: Allow a chosen report that was cut at --max-new-tokens of 'prefer sample'.
        minor_weight: Cost of an insignificant error in the error counts of readers; a significant one costs 1.
        seed: Recorded; no pair depends on it.
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
            raise ConfigError("--minor-weight applies to error counts of readers; give --feedback with it.")
        if self.feedback is not None and self.allow_cut:
            raise ConfigError("--allow-cut applies to reports of a model; leave it out with --feedback.")
        check_at_least(self, pairs=1, seed=0)
        for name in ("margin", "minor_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number of at least 0.")
        if self.longest_ratio is not None and not self.longest_ratio > 0:
            raise ConfigError(f"longest_ratio={self.longest_ratio} is not usable; give a number above 0, such as 1.2.")


# Settings that may differ when a run is continued: they change speed and what is kept, not the result.
OPERATIONAL = (*TRAINING_OPERATIONAL, "validation.batch_size", *llm_operational_fields())


@dataclass(frozen=True)
class LossKind:
    """A row of the table of losses.

    Args:
        function: From `LogProbabilities` and `LossSettings` to one value per pair or report.
        strength: Default of beta.
        settings: Fields of `LossSettings` that it uses besides beta.
        paired: Compares two reports of one study; otherwise it learns from single reports that are desirable or not.
        needs_reference: Needs the log-probabilities of the reference model.
    """

    function: str
    strength: float = 0.1
    settings: tuple[str, ...] = ()
    paired: bool = True
    needs_reference: bool = True


LOSSES: Mapping[str, LossKind] = {
    "dpo": LossKind("cxrlab.preference.losses:dpo"),
    "ipo": LossKind("cxrlab.preference.losses:ipo"),
    "kto": LossKind("cxrlab.preference.losses:kto", settings=("desirable_weight", "undesirable_weight"), paired=False),
    "orpo": LossKind("cxrlab.preference.losses:orpo", needs_reference=False),
    "simpo": LossKind("cxrlab.preference.losses:simpo", 2.0, ("gamma",), needs_reference=False),
    "rdpo": LossKind("cxrlab.preference.losses:rdpo", settings=("alpha",)),
    "robust": LossKind("cxrlab.preference.losses:robust_dpo", settings=("flipped",)),
}


@dataclass(frozen=True)
class LossSettings:
    """The preference loss and its strength.

    Args:
        name: dpo, ipo, kto (single reports that are desirable or not), orpo and simpo (no reference model), rdpo
            (penalises length), or robust (expects flipped pairs).
        beta: Weight of the KL penalty towards the start; for simpo and orpo the weight of the preference. Each loss has
            its own default.
        alpha: For rdpo; penalty per token of difference in length.
        gamma: For simpo; margin that the scaled difference should exceed.
        flipped: For robust; share of pairs that are flipped, below one half.
        desirable_weight: For kto; weight of desirable reports.
        undesirable_weight: For kto; weight of undesirable reports.
    """

    name: str = "dpo"
    beta: float | None = None
    alpha: float = 0.05
    gamma: float = 0.5
    flipped: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ConfigError(
                f"loss.name='{self.name}' is not a preference loss.{did_you_mean(self.name, LOSSES)} "
                f"Known: {', '.join(LOSSES)}."
            )
        used = ("name", "beta", *self.kind.settings)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in used and value != field.default:
                able = [name for name, kind in LOSSES.items() if field.name in kind.settings]
                raise ConfigError(
                    f"{field.name}={value} has no effect on loss.name={self.name}; give loss.name="
                    f"{' or '.join(able)} with it."
                )
        if not self.strength > 0:
            raise ConfigError(f"beta={self.beta} is not usable; give a number above 0.")
        if not 0.0 <= self.flipped < 0.5:
            raise ConfigError(f"flipped={self.flipped} is not usable; give a share from 0 to below 0.5.")
        for name in ("desirable_weight", "undesirable_weight", "alpha", "gamma"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number of at least 0.")

    @property
    def kind(self) -> LossKind:
        """The row of the loss."""
        return LOSSES[self.name]

    @property
    def strength(self) -> float:
        """Beta, or the default of the loss."""
        return self.kind.strength if self.beta is None else self.beta


@dataclass(frozen=True)
class Validation:
    """Reports that are generated and judged during training, by which the best checkpoint is selected.

    Args:
        split: Split to generate for; its studies must not be among the pairs.
        n: Number of studies, drawn with the seed; 0 switches validation off and keeps the last step.
        judge: A metric with a value per report, or a mix of them; see `cxrlab prefer judge`. A language model
            (green:MODEL, chexprompt:MODEL) is best named by its address: on this machine it shares the memory.
        select: Keep the step with the best length-controlled reward (length-controlled), the best reward (reward), or
            the last step (last).
        every: Steps between validations; only before the first and after the last step when left out.
        patience: Stop after this many validations in a row without a better reward; train to the end when left out.
        max_new_tokens: Longest report, in tokens.
        batch_size: Images per batch.
    """

    split: Literal["val"] = "val"
    n: int = 100
    judge: str = "green:rules"
    select: Literal["length-controlled", "reward", "last"] = "length-controlled"
    every: int | None = None
    patience: int | None = None
    max_new_tokens: int = 256
    batch_size: int = 16

    def __post_init__(self) -> None:
        check_at_least(self, n=0, every=1, patience=1, max_new_tokens=1, batch_size=1)
        if self.patience is not None and (self.select == "last" or not self.n or self.every is None):
            raise ConfigError(
                f"patience={self.patience} needs validations that select a step; give every, n of at least 1, and "
                "select=length-controlled or reward."
            )


@dataclass(frozen=True)
class Measure:
    """Comparison of the model before and after alignment.

    Args:
        data: Corpus folder; that of the pairs when left out.
        split: Split to generate for; its studies must not be among the pairs.
        n: Number of studies, drawn with the seed; 0 measures nothing.
        metrics: Names, patterns or groups of metrics, over which the verdicts are corrected; errors by kind are
            counted in addition.
        drift: Estimate KL(after ‖ before) from one drawn report of the aligned model per study.
        questions: Ask closed questions with known answers: whether another task has suffered.
        encoder: Name of a contrastive encoder for image retrieval by report; no retrieval when left out.
        control_studies: Most studies that are also answered with control images.
        max_new_tokens: Longest report, in tokens.
        batch_size: Images per batch.
    """

    data: Path | None = None
    split: Literal["val", "test"] = "test"
    n: int = 200
    metrics: tuple[str, ...] = (
        "green:rules",
        "green:rules-lc",
        "crimson:rules",
        "clinical:rules",
        "findings.f1",
        "findings.f1.side",
        "findings.f1.full",
        "chexpert14.micro.f1:uncertain-positive",
        "errors.total",
        "errors.significant",
        "rougeL:google",
        "bleu4:coco",
    )
    drift: bool = True
    questions: bool = True
    encoder: str | None = None
    control_studies: int = 50
    max_new_tokens: int = 256
    batch_size: int = 16

    def __post_init__(self) -> None:
        check_at_least(self, n=0, max_new_tokens=1, batch_size=1, control_studies=0)


@dataclass(frozen=True)
class PreferConfig(AdapterConfig, ContextConfig):
    """Preference training: align a report model with pairs of better and worse reports.

    Args:
        data: Corpus folder with the images of the pairs.
        n: Number of pairs, drawn with the seed; all when left out.
        pairs: Run of `prefer pair`, or a file of pairs; for a loss without pairs (kto) also a file of single reports
            that are good or bad.
        start: The model to align, which is also the reference: a run of `train finetune`, hf:FOLDER (an adapter is
            allowed) or builtin:NAME.
        loss: Which preference loss, and its strength.
        prompts: Row of the prompts table, or a YAML file of that form; that of the start when left out. The start is
            measured with its own.
        validation: Evaluation during training.
        measure: Comparison of the model before and after.
        llm: Endpoint and requests of a language model that judges in the validation.
        judging: Other prompts for judges by language models, and their longest answers.
        optimisation: Optimiser settings; a sample is a pair.
    """

    pairs: Path
    start: str
    _: KW_ONLY
    loss: LossSettings = LossSettings()
    train_projector: bool = False
    lora_dropout: float = 0.0
    prompts: str | None = None
    validation: Validation = Validation()
    measure: Measure = Measure()
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()
    optimisation: Optimisation = Optimisation(learning_rate=5e-6, warmup=0.1, batch_size=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        ContextConfig.__post_init__(self)
        self.check_single_image()
        if self.missing == "drop" and not self.is_single and (self.measure.n or self.validation.n):
            raise ConfigError(
                "missing=drop leaves studies without a report, which cannot be measured; give measure.n=0 and "
                "validation.n=0, or missing=placeholder."
            )
        if not self.loss.kind.paired and self.optimisation.batch_size < 2:
            raise ConfigError(
                f"optimisation.batch_size={self.optimisation.batch_size} is not usable; give at least 2 with "
                f"loss.name={self.loss.name}, which compares reports with those of other studies."
            )

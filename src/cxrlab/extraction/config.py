"""Settings of an extraction audit: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cxrlab.attacks.config import parse_eps
from cxrlab.core.endpoints import is_address, parse_address
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm import LLMConfig
from cxrlab.core.records import SPLITS
from cxrlab.evaluation.config import MetricResources
from cxrlab.extraction.defence.base import DEFENCES
from cxrlab.extraction.oracles import ORACLES
from cxrlab.extraction.records import Price
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import TEXT_KINDS


@dataclass(frozen=True)
class PaperDecoding(Decoding):
    """Settings of generation; the default is ADA-Steal's diverse beam search.

    Args:
        strategy: greedy, sample, beam, or diverse (group beam search with a penalty for words of other groups).
        max_new_tokens: Longest answer, in tokens.
        temperature: For sample; 1 is the model's own distribution, above 0.
        top_p: For sample; smallest set of tokens that holds this share of the probability, above 0 up to 1.
        answers: Answers an image, of which the first counts.
        beams: For beam and diverse; sequences kept, over all groups: the paper's 3 groups of 6.
        groups: For diverse; it divides `beams`.
        diversity_penalty: For diverse; taken off a token's log-probability for each earlier group that chose it.
        length_penalty: For beam and diverse; the sum of log-probabilities is divided by length to this power.
        early_stopping: For beam and diverse; stop as soon as every beam has ended, though a better one might come.
        seed: For sample.
    """

    strategy: str = "diverse"
    max_new_tokens: int = 512
    beams: int = 18
    groups: int = 3


METRICS = (
    "findings.f1",
    "findings.f1.side",
    "rougeL:coco",
    "bleu4:coco",
    "chexpert14.micro.f1:uncertain-positive",
    "chexpert14.macro.f1:uncertain-positive",
    "errors.significant",
    "green:rules",
    "crimson:rules",
)


@dataclass(frozen=True)
class FidelityConfig:
    """How a copy is measured.

    Args:
        metrics: Names, patterns (bleu*) or groups (coco) of metrics; what the extras make possible comes on top.
        section: Section of the reference report; several joined with +.
        swaps: Swaps of the permutation test behind each p.
        seed: Decides resamples and swaps.
        extras: Graphs and weights of yours, for RadGraph, BERTScore and CheXbert.
    """

    metrics: tuple[str, ...] = METRICS
    section: str = "findings"
    swaps: int = 10_000
    seed: int = 7
    extras: MetricResources = MetricResources()

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ConfigError(f"metrics is empty; name at least one, such as {METRICS[0]}.")
        for name, least in (("swaps", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not usable; give a whole number of at least {least}."
                )


SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of a chest, with which a gate is probed in turn


def _check_split(name: str, split: str) -> None:
    if split not in SPLITS:
        raise ConfigError(f"{name}='{split}' is unknown.{did_you_mean(split, SPLITS)} There are: {', '.join(SPLITS)}.")


def _check_least(config: object, least: dict[str, int]) -> None:
    for name, low in least.items():
        value = getattr(config, name)
        if value is not None and value < low:
            raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")


@dataclass(frozen=True)
class DefenceSettings:
    """How strict defences are, and the benign images on which they are set and checked.

    Args:
        benign: Corpus folder of benign images with reports; no defence is used before it was checked on them.
        benign_split: Its split.
        benign_images: Images and reports of it that are used, at most.
        gate_bound: Share of benign images that the gate may refuse, at most, with 95 % confidence; it needs about
            4.5/bound images.
        quota: Answers that one account gets in a window.
        window: Queries of all accounts together after which quotas begin anew; never when left out.
        images_per_window: Images that benign accounts send in a window, one number an account, for the cost of a quota.
        key_file: File with the key of the watermark; the environment variable CXRLAB_WATERMARK_KEY when left out.
    """

    benign: Path | None = None
    benign_split: str = "train"
    benign_images: int = 1000
    gate_bound: float = 0.005
    quota: int = 100
    window: int | None = None
    images_per_window: tuple[float, ...] = (20.0, 60.0)
    key_file: Path | None = None

    def __post_init__(self) -> None:
        _check_split("benign_split", self.benign_split)
        least = {"benign_images": 1, "quota": 1, "window": 1}
        _check_least(self, least)
        if not 0 < self.gate_bound < 1:
            raise ConfigError(f"gate_bound={self.gate_bound} is not usable; give a share between 0 and 1.")
        if not self.images_per_window or min(self.images_per_window) <= 0:
            raise ConfigError(
                "images_per_window is empty or holds a number that is not above 0; give one for each benign account."
            )


@dataclass(frozen=True)
class OraclePrompts:
    """How an oracle that is a language model is asked.

    Args:
        questions: YAML file with other questions than the built-in ones.
        count: Descriptions that each question asks for.
        times: Times that each question is put, each time with another seed; a model that always answers alike is best
            asked once.
        max_tokens: Longest answer, in tokens.
    """

    questions: Path | None = None
    count: int = 12
    times: int = 1
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        for name in ("count", "times", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from 1.")


Source = Literal["abnormal", "normal", "own"]


SOURCES: tuple[Source, ...] = ("abnormal", "normal", "own")


@dataclass(frozen=True)
class Shares:
    """How often a category of a report is told by each source.

    Args:
        abnormal: By an abnormal description of the oracle, 0 to 1.
        normal: By a normal description of the oracle, 0 to 1.
        own: By what the surrogate wrote of it, 0 to 1; the three sum to 1.
    """

    abnormal: float = 0.8
    normal: float = 0.1
    own: float = 0.1

    def __post_init__(self) -> None:
        values = (self.abnormal, self.normal, self.own)
        if not all(0.0 <= value <= 1.0 for value in values) or not math.isclose(sum(values), 1.0, abs_tol=1e-9):
            told = ", ".join(f"{name}={getattr(self, name)}" for name in SOURCES)
            raise ConfigError(f"the shares {told} must each be 0 to 1 and sum to 1; change one of them.")

    def draw(self, rng: np.random.Generator) -> Source:
        """One source, by these shares."""
        u = rng.random()
        return "abnormal" if u < self.abnormal else "normal" if u < self.abnormal + self.normal else "own"


METHODS = ("none", "knockoff", "ada-steal", "in-domain")
REWARDS = ("certainty", "diversity", "loss")
MOST_QUERIES = 10_000_000
NO_ORACLE, TRANSCRIPT = "none", "transcript"


@dataclass(frozen=True)
class Fitting:
    """How a surrogate learns from a transcript.

    Args:
        learning_rate: Constant after the warm-up, without decay of weights. When left out 1e-5 for a surrogate of a
            billion weights or more, as in the paper, and 3e-3 for a smaller one; what was used is recorded.
        schedule: How the rate falls: constant, cosine or linear.
        epochs: Passes through the transcript.
        steps: Optimiser steps in place of epochs; of every fit.
        round_steps: The same for the fits between rounds, where they should differ from the last one.
        batch_size: Queries a step.
        lora_rank: Rank of adapters on the language model; 0 trains it whole.
        train_vision_encoder: Train the vision encoder too.
        precision: float32 or bfloat16.
        max_length: Most tokens of a sample, those of the picture included.
        wordings: Wordings in which each answer is learnt, the victim's own the first; more than one is an extra of
            ours: a surrogate then learns what was said rather than how.
        repeats: Most queries with the same answer that are learnt from, the first of them; all when left out. A victim
            that answers everything without a chest alike teaches one answer, and that once.
        prompts: Row of the prompts' table by which the surrogate is asked; without an indication, always the same.
    """

    learning_rate: float | None = None
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    epochs: float = 15.0
    steps: int | None = None
    round_steps: int | None = None
    batch_size: int = 32
    lora_rank: int = 32
    train_vision_encoder: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    max_length: int = 1024
    wordings: int = 1
    repeats: int | None = None
    prompts: str = "llava-rad/1"

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_length", "wordings", "repeats", "steps", "round_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not usable; give a whole number from 1.")
        if self.lora_rank < 0 or not self.epochs > 0 or not (self.learning_rate is None or self.learning_rate > 0):
            raise ConfigError(
                f"lora_rank={self.lora_rank} epochs={self.epochs} learning_rate={self.learning_rate} is not usable; "
                "give a rank of at least 0, and epochs and a rate above 0."
            )


@dataclass(frozen=True)
class Alignment:
    """How pictures are moved towards an enriched report: the third phase of ADA-Steal.

    Args:
        eps: Most that a pixel may change, where black is 0 and white 1.
        steps: Gradient steps; one of the whole radius is the paper's.
        direction: towards lowers the loss of the enriched report; away raises it, as the sign in the paper's equation 6
            says.
        picture: What is moved: the original pictures of the first round again and again, the last round's, or fresh
            ones of the pool.
        guide: What says how near a picture is to a report: the surrogate when left out, as in the paper, or a
            contrastive encoder by name (builtin:encoder, hf:FOLDER), an extra of ours. That needs no transcript, so
            that the pictures of the first round are moved too and no surrogate is trained between rounds.
        batch_size: Images moved at once; halved where they do not fit in memory.
    """

    eps: str = "0.2"
    steps: int = 1
    direction: Literal["towards", "away"] = "towards"
    picture: Literal["original", "last", "fresh"] = "original"
    guide: str | None = None
    batch_size: int = 32

    def __post_init__(self) -> None:
        parse_eps(self.eps)
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from 1.")


@dataclass(frozen=True)
class Policy:
    """How Knockoff chooses its pictures.

    Args:
        kind: random, or adaptive: groups of the pool's pictures are drawn more often the more they brought.
        rewards: What a picture brings, for adaptive: certainty (findings without a hedge), diversity (a set of findings
            not seen before), loss (how badly the last surrogate foresaw the answer).
        groups: Groups of like pictures.
        batch: Pictures between two updates of the preferences.
        rate: How fast preferences move.
    """

    kind: Literal["random", "adaptive"] = "random"
    rewards: tuple[str, ...] = REWARDS
    groups: int = 8
    batch: int = 50
    rate: float = 0.1

    def __post_init__(self) -> None:
        for name in self.rewards:
            if name not in REWARDS:
                raise ConfigError(f"rewards holds '{name}', which is unknown.{did_you_mean(name, REWARDS)} "
                                  f"There are: {', '.join(REWARDS)}.")  # fmt: skip
        if not self.rewards or self.groups < 2 or self.batch < 1 or not self.rate > 0:
            raise ConfigError(
                f"rewards={','.join(self.rewards)} groups={self.groups} batch={self.batch} rate={self.rate} is not "
                "usable; name a reward, at least 2 groups, a batch from 1 and a rate above 0."
            )


@dataclass(frozen=True)
class ExtractConfig:
    """How much of a report model can be copied by queries, and at which price.

    For models that you own or may test. The attacker gets words alone.

    Args:
        victim: The attacked model.
        data: Corpus on which victim and surrogate are measured, with references; its images are never asked.
        surrogate: What is trained into a copy: a LLaVA by name (hf:FOLDER, builtin:NAME, a run folder of a training),
            or parts:VISION_ENCODER+LANGUAGE_MODEL with a new projector between them.
        method: knockoff, ada-steal, in-domain (Knockoff with a pool of chest images, the ceiling), or none (no query).
        pool: Pictures to ask with: scenes, noise, folder:DIR, cifar:DIR, corpus:DIR, mix:R:IN+OUT.
        budget: Most queries.
        rounds: Rounds of ada-steal; the budget is spread evenly over them.
        at: Smaller budgets at which a new surrogate is trained and measured too, for a curve.
        transcript: accumulate learns from all rounds, replace from the last one alone.
        oracle: Where descriptions come from: rules, rules-weak, a language model by name (hf:FOLDER,
            http://127.0.0.1:8000/v1#MODEL), transcript for what the victim has said so far (an extra of ours), or none,
            which keeps the surrogate's own report.
        shares: How often each source speaks in an enriched report.
        size: Side of the pictures in pixels; they are asked and moved at this resolution.
        split: Of the corpus: train, val or test.
        n: Studies of it that are measured on; all when left out.
        seed: Decides pictures, draws, weights and resamples.
        batch_size: Images put to the victim at once; halved where they do not fit in memory.
        workers: Batches under way at once, for a victim behind a connection.
        stop_after_refusals: Refusals in a row after which a victim behind a connection is taken to have shut the
            accounts out, and the rest of the budget stays unspent; never when left out. Probes do not count.
        map_sentences: Different sentences on the map of what the victim said; 0 draws none.
        i_am_authorised: Who may test this model and why; needed for a model that runs elsewhere, kept and shown.
        victim_run: Folder for what the victim writes on the corpus, where audits of one victim share it.
        defence: Put this defence in front of the victim.
        accounts: Accounts that take turns in asking.
        dress: Share of a chest that is blended into every picture, for a victim behind a gate.
        probes: Pictures with which the least share that passes is looked for first; with each share that is tried each
            of them is a query of the budget.
        chest: The chest radiograph that is blended in; a drawing when left out.
        rewrite: Retell every answer in other words before it is learnt, against a watermark.
        price: What the victim charges.
        policy: How Knockoff chooses.
        alignment: How pictures are moved.
        fitting: How the surrogate learns.
        measure: What copies are measured by.
        victim_decoding: How the victim chooses its words; the paper's diverse beam search.
        surrogate_decoding: How the surrogate does.
        defence_settings: Of the defence.
        consulting: How an oracle that is a language model is asked.
        oracle_llm: What is kept of its answers, what they may cost, and how it is reached.
        loading: How both are loaded.
    """

    victim: str
    data: Path
    surrogate: str = "parts:builtin:encoder+builtin:general"
    method: str = "ada-steal"
    pool: str = "scenes"
    budget: int = 1500
    rounds: int = 3
    at: tuple[int, ...] = ()
    transcript: Literal["accumulate", "replace"] = "accumulate"
    oracle: str = "rules"
    shares: Shares = Shares()
    size: int = 128
    split: str = "test"
    n: int | None = None
    seed: int = 7
    batch_size: int = 16
    workers: int = 1
    stop_after_refusals: int | None = 50
    map_sentences: int = 300
    i_am_authorised: str | None = None
    victim_run: Path | None = None
    defence: str | None = None
    accounts: int = 1
    dress: float = 0.0
    probes: int = 0
    chest: Path | None = None
    rewrite: bool = False
    price: Price = Price()
    policy: Policy = Policy()
    alignment: Alignment = Alignment()
    fitting: Fitting = Fitting()
    measure: FidelityConfig = FidelityConfig()
    victim_decoding: PaperDecoding = PaperDecoding()
    surrogate_decoding: PaperDecoding = PaperDecoding()
    defence_settings: DefenceSettings = DefenceSettings()
    consulting: OraclePrompts = OraclePrompts()
    oracle_llm: LLMConfig = LLMConfig()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("split", SPLITS), ("oracle", (NO_ORACLE, TRANSCRIPT, *ORACLES))):
            value = getattr(self, name)
            if value not in known and not (name == "oracle" and self.oracle_is_a_model):
                more = ", and text models by name" if name == "oracle" else ""
                raise ConfigError(
                    f"{name}='{value}' is unknown.{did_you_mean(value, known)} There are: {', '.join(known)}{more}."
                )
        if self.defence is not None and self.defence not in DEFENCES:
            raise ConfigError(f"defence='{self.defence}' is unknown.{did_you_mean(self.defence, DEFENCES)} "
                              f"There are: {', '.join(DEFENCES)}.")  # fmt: skip
        least = {"budget": 1, "rounds": 1, "size": 8, "n": 1, "batch_size": 1, "workers": 1, "accounts": 1, "seed": 0}
        for name, low in {**least, "map_sentences": 0, "probes": 0, "stop_after_refusals": 1}.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")
        if self.budget > MOST_QUERIES:
            raise ConfigError(f"budget={self.budget} is more than {MOST_QUERIES:,}, which no audit asks.")
        if not 0.0 <= self.dress <= 1.0:
            raise ConfigError(f"dress={self.dress} is not a share; give a number from 0 to 1.")
        if self.method == "ada-steal" and self.rounds > self.budget:
            raise ConfigError(f"rounds={self.rounds} is more than budget={self.budget}; a round needs a query.")
        if self.alignment.guide and (self.oracle == NO_ORACLE or self.shares.own == 1.0):
            raise ConfigError("alignment.guide moves pictures towards what an oracle says, and no surrogate says "
                              "anything then; give an --oracle and a --shares.own below 1.")  # fmt: skip
        self._check_probes()
        self._check_oracle()
        if self.method == "in-domain" and not self.pool.startswith("corpus:"):
            raise ConfigError(
                "method=in-domain asks with chest radiographs; give --pool corpus:DIR, or --method knockoff."
            )
        if wrong := [budget for budget in self.at if not 0 < budget < self.budget]:
            raise ConfigError(f"at holds {wrong[0]}, which does not lie between 0 and the budget of {self.budget}.")

    @property
    def oracle_is_a_model(self) -> bool:
        """Whether the oracle is a language model rather than rules or the transcript."""
        return is_address(self.oracle) or self.oracle.partition(":")[0] in TEXT_KINDS and ":" in self.oracle

    def _check_oracle(self) -> None:
        """A language model that can be named, and that is not the victim."""
        if is_address(self.oracle):
            parse_address(self.oracle)
        if self.oracle == self.victim:
            raise ConfigError(f"oracle='{self.oracle}' is the victim, and an oracle knows nothing of it; name another.")

    def _check_probes(self) -> None:
        """They must leave something to ask with, whichever share of a chest passes."""
        most, needed = self.probes * len(SHARES), self.rounds if self.method == "ada-steal" else 1
        if self.probes and self.dress:
            raise ConfigError(f"probes={self.probes} look for what dress={self.dress} gives; give one of the two.")
        if self.probes and most + needed > self.budget:
            raise ConfigError(f"probes={self.probes} may take {most} queries, too many of budget={self.budget}; "
                              f"give at most {max(0, self.budget - needed) // len(SHARES)}.")  # fmt: skip

"""Settings of `extract` and `defend`: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cxrlab.attacks.config import parse_eps
from cxrlab.attacks.input_transformations import TRANSFORMATIONS, InputTransformation, parse_transformation
from cxrlab.core.config import check_at_least, check_choice
from cxrlab.core.egress import is_address, parse_address
from cxrlab.core.errors import ConfigError
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.records import SPLITS
from cxrlab.evaluation.config import MetricResources
from cxrlab.extraction.defence.base import DEFENCES
from cxrlab.extraction.defence.security_summary import MINIMUM_QUERIES, MINIMUM_STUDIES
from cxrlab.extraction.records import Price
from cxrlab.extraction.rule_oracles import ORACLES
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import TEXT_KINDS
from cxrlab.training.config import Tracker, check_quantise


@dataclass(frozen=True)
class PaperDecoding(Decoding):
    """Decoding settings; the default is ADA-Steal's diverse beam search.

    Args:
        answers: Answers per image, of which the first counts.
        beams: For beam and diverse; sequences kept, over all groups: the paper's "three beam groups, each containing six
            beams" are read as 18 in 3 groups. In the other reading, 6 in all, it is 6.
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
        metrics: Names, patterns (bleu*) or groups (coco) of metrics; those of the extras are added.
        section: Section of the reference report; several joined with +.
        swaps: Swaps of the permutation test behind each p.
        seed: Seed of resamples and swaps.
        extras: Your graphs and weights for RadGraph, BERTScore and CheXbert.
    """

    metrics: tuple[str, ...] = METRICS
    section: str = "findings"
    swaps: int = 10_000
    seed: int = 7
    extras: MetricResources = MetricResources()

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ConfigError(f"metrics is empty; name at least one, such as {METRICS[0]}.")
        check_at_least(self, swaps=1, seed=0)


SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of a chest, with which an attacker probes a gate in turn


@dataclass(frozen=True)
class DefenceSettings:
    """How strict defences are, and the benign images on which they are calibrated and checked.

    Args:
        benign: Corpus folder of benign images with reports; every defence is checked on them before it is used.
        benign_split: Split of that corpus.
        benign_images: Most images and reports of that split that are used.
        gate_bound: Share of benign images that the gate may refuse, at most, with 95 % confidence; it needs about
            4.5/bound images.
        quota: Answers per account and window.
        window: Queries of all accounts together after which quotas are reset; never by default.
        images_per_window: Images that benign accounts send per window, one number per account, for the cost of a quota.
        key_file: File with the key of the watermark; the environment variable CXRLAB_WATERMARK_KEY when left out.
        strengths: Strengths of input transformations where they are not jpeg:50, blur:1, bits:4, noise:0.05, resample:0.5
            and random-resample:0.5.
    """

    benign: Path | None = None
    benign_split: str = "train"
    benign_images: int = 1000
    gate_bound: float = 0.005
    quota: int = 100
    window: int | None = None
    images_per_window: tuple[float, ...] = (20.0, 60.0)
    key_file: Path | None = None
    strengths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [parse_transformation(text).name for text in self.strengths]
        if len(set(names)) < len(names):
            raise ConfigError(f"strengths={','.join(self.strengths)} names a transformation twice; name each once.")
        check_choice("benign_split", self.benign_split, SPLITS)
        check_at_least(self, benign_images=1, quota=1, window=1)
        if not 0 < self.gate_bound < 1:
            raise ConfigError(f"gate_bound={self.gate_bound} is not usable; give a share between 0 and 1.")
        if not self.images_per_window or min(self.images_per_window) <= 0:
            raise ConfigError(
                "images_per_window is empty or holds a number that is not above 0; give one for each benign account."
            )

    def transformation(self, name: str) -> InputTransformation:
        """The input transformation of this name."""
        given = {one.name: one for one in map(parse_transformation, self.strengths)}
        return given.get(name) or parse_transformation(name)


@dataclass(frozen=True)
class OraclePrompts:
    """How an oracle that is a language model is prompted.

    Args:
        questions: YAML file with other questions than the built-in ones, or a text file (.txt) with one prompt for all
            categories, normal and abnormal, as in the paper; then every description is sorted as it is read.
        count: Descriptions that each question asks for; a text file states its own number.
        times: Repetitions of each question, each with another seed; 1 for a model without sampling.
        max_tokens: Longest answer, in tokens.
        keep: readable drops descriptions that the rules that score reports do not read as what was asked for; all keeps
            them, for an attacker who does not know these rules.
    """

    questions: Path | None = None
    count: int = 12
    times: int = 1
    max_tokens: int = 1024
    keep: Literal["readable", "all"] = "readable"

    def __post_init__(self) -> None:
        check_at_least(self, count=1, times=1, max_tokens=1)


@dataclass(frozen=True)
class OracleConfig:
    """An oracle that is a language model, asked once for several attacks.

    Args:
        oracle: The model by name, as in `extract`.
        seed: Decides its answers, where it samples.
        consulting: How it is prompted.
        oracle_llm: Cache, cost limit and connection.
    """

    oracle: str
    seed: int = 7
    consulting: OraclePrompts = OraclePrompts()
    oracle_llm: LLMConfig = LLMConfig()


Source = Literal["abnormal", "normal", "own"]
SOURCES: tuple[Source, ...] = ("abnormal", "normal", "own")


@dataclass(frozen=True)
class Shares:
    """Probability of each source for a category of an enriched report.

    Args:
        abnormal: Probability of an abnormal description of the oracle.
        normal: Probability of a normal description of the oracle.
        own: Probability of the surrogate's own sentences; the three sum to 1.
    """

    abnormal: float = 0.8
    normal: float = 0.1
    own: float = 0.1

    def __post_init__(self) -> None:
        values = (self.abnormal, self.normal, self.own)
        if not all(0.0 <= value <= 1.0 for value in values) or not math.isclose(sum(values), 1.0, abs_tol=1e-9):
            given = ", ".join(f"{name}={getattr(self, name)}" for name in SOURCES)
            raise ConfigError(f"The shares {given} must each be 0 to 1 and sum to 1.")

    def draw(self, rng: np.random.Generator) -> Source:
        """One source, with these probabilities."""
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
        learning_rate: Constant after the warm-up, without weight decay. By default 1e-5 for a surrogate of a billion
            weights or more, as in the paper, and 3e-3 for a smaller one; the value used is recorded.
        schedule: Course of the learning rate: constant, cosine or linear.
        epochs: Passes through the transcript.
        steps: Optimiser steps in place of epochs, for every fit.
        round_steps: Optimiser steps of the fits between rounds, if they should differ from the last fit.
        batch_size: Queries per forward pass.
        accumulate: Forward passes per step.
        gradient_checkpointing: Recompute activations in the backward pass; saves memory, takes a third more time.
        lora_rank: Rank of adapters on the language model; 0 trains it whole.
        train_vision_encoder: Train the vision encoder too.
        quantise: 4bit stores the frozen language model in 4 bits (QLoRA); needs a GPU and bitsandbytes.
        precision: float32 or bfloat16.
        max_length: Most tokens per sample, image tokens included.
        wordings: Wordings in which each answer is learnt, the victim's own first; more than one (our addition) teaches
            a surrogate the findings rather than the words.
        repeats: Most queries with the same answer that are learnt from, the first of them; all by default. A victim
            gives many images without a chest the same answer.
        prompts: Row of the prompt table for the surrogate; without an indication, always the same.
        track: Experiment trackers that get the history of every fit: tensorboard, wandb, mlflow, trackio. It stays on
            this machine.
    """

    learning_rate: float | None = None
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    epochs: float = 15.0
    steps: int | None = None
    round_steps: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    gradient_checkpointing: bool = False
    lora_rank: int = 32
    train_vision_encoder: bool = False
    quantise: Literal["none", "4bit"] = "none"
    precision: Literal["float32", "bfloat16"] = "float32"
    max_length: int = 1024
    wordings: int = 1
    repeats: int | None = None
    prompts: str = "llava-rad/1"
    track: tuple[Tracker, ...] = ()

    def __post_init__(self) -> None:
        check_at_least(self, batch_size=1, accumulate=1, max_length=1, wordings=1, repeats=1, steps=1, round_steps=1)
        if self.lora_rank < 0 or not self.epochs > 0 or not (self.learning_rate is None or self.learning_rate > 0):
            raise ConfigError(
                f"lora_rank={self.lora_rank} epochs={self.epochs} learning_rate={self.learning_rate} is not usable; "
                "give a rank of at least 0, and epochs and a rate above 0."
            )
        check_quantise(self.quantise, self.lora_rank, train_vision_encoder=self.train_vision_encoder)


@dataclass(frozen=True)
class Alignment:
    """How images are moved towards an enriched report: the third phase of ADA-Steal.

    Args:
        eps: Largest change of a pixel, where black is 0 and white 1.
        steps: Gradient steps; the paper takes one of the whole radius.
        direction: towards lowers the loss of the enriched report; away raises it, as the sign in the paper's equation 6.
        picture: Which images are moved: in every round the original images of the first, those of the last round, or
            fresh ones of the pool.
        guide: Model whose gradients move the images: the surrogate by default, as in the paper, or a contrastive
            encoder by name (builtin:encoder, hf:FOLDER), our addition. An encoder needs no transcript: the images of
            the first round are moved too and no surrogate is trained between rounds.
        batch_size: Images moved at once; halved where they do not fit in memory.
        through: Input transformation of the victim that the attacker knows, such as jpeg:50: images are moved so that the
            change survives it.
        draws: Draws of a random one whose mean gradient is followed.
    """

    eps: str = "0.2"
    steps: int = 1
    direction: Literal["towards", "away"] = "towards"
    picture: Literal["original", "last", "fresh"] = "original"
    guide: str | None = None
    batch_size: int = 32
    through: str | None = None
    draws: int = 8

    def __post_init__(self) -> None:
        parse_eps(self.eps)
        if self.through is not None:
            parse_transformation(self.through)
        check_at_least(self, steps=1, batch_size=1, draws=1)


@dataclass(frozen=True)
class Policy:
    """How Knockoff chooses its images.

    Args:
        kind: random, or adaptive: a bandit draws groups of images with higher rewards more often.
        rewards: Rewards of an answer, for adaptive: certainty (findings without a hedge), diversity (a new set of findings),
            loss (how badly the last surrogate predicted the answer).
        groups: Groups of similar images.
        batch: Images between two updates of the preferences.
        rate: Learning rate of the preferences.
    """

    kind: Literal["random", "adaptive"] = "random"
    rewards: tuple[str, ...] = REWARDS
    groups: int = 8
    batch: int = 50
    rate: float = 0.1

    def __post_init__(self) -> None:
        for reward in self.rewards:
            check_choice("rewards", reward, REWARDS)
        if not self.rewards or self.groups < 2 or self.batch < 1 or not self.rate > 0:
            raise ConfigError(
                f"rewards={','.join(self.rewards)} groups={self.groups} batch={self.batch} rate={self.rate} is not "
                "usable; name a reward, at least 2 groups, a batch from 1 and a rate above 0."
            )


@dataclass(frozen=True)
class ExtractConfig:
    """How much of a report model can be copied by queries, and at which price.

    For models that you own or may test. The attacker sees only text.

    Args:
        victim: The attacked model.
        data: Corpus with references on which victim and surrogate are measured; its images are never queried.
        surrogate: Model that is trained into a copy: one of any family by name (hf:FOLDER, builtin:NAME, the run folder
            of a training), or parts:VISION_ENCODER+LANGUAGE_MODEL with a new projector between them.
        method: knockoff, ada-steal, in-domain (Knockoff with a pool of chest images, the ceiling), or none (no query).
        pool: Query images: scenes, noise, folder:DIR, cifar:DIR, corpus:DIR, mix:R:IN+OUT.
        budget: Maximum number of queries.
        rounds: Rounds of ada-steal; the budget is spread evenly over them.
        at: Smaller budgets at which a new surrogate is trained and measured too, for a curve.
        transcript: accumulate learns from all rounds, replace from the last one alone.
        oracle: Source of descriptions: rules, rules-weak, a language model by name (hf:FOLDER,
            http://127.0.0.1:8000/v1#MODEL), transcript for the victim's own answers so far (our addition), or none,
            which keeps the surrogate's own report.
        shares: Probability of each source in an enriched report.
        size: Side of the images in pixels; they are sent and moved at this resolution.
        colour: rgb keeps the colours of the pool's images: they are moved, sent and learnt in colour, and a victim that
            wants grey converts them itself. grey turns them into their luminance first.
        split: Split of the corpus that is measured on: train, val or test.
        n: Number of its studies; all by default.
        seed: Seed of images, draws, weights and resamples.
        batch_size: Images sent to the victim at once; halved if they do not fit in memory.
        workers: Parallel batches, for a victim behind a connection.
        stop_after_refusals: Refusals in a row after which a victim behind a connection is taken to have blocked the
            accounts, and the rest of the budget stays unspent; null never stops. Probes do not count.
        map_sentences: Different sentences on the map of the victim's answers; 0 for no map.
        i_am_authorised: Who may test this model and why; required for a model that runs elsewhere, kept and shown.
        victim_run: Folder for the victim's reports on the corpus, if audits of one victim share it.
        oracle_run: Folder with the oracle.json of an oracle that was asked before, if audits share it; then nothing is asked.
        defence: Defence in front of the victim.
        accounts: Accounts that take turns in querying.
        blend_chest: Share of a chest that is blended into every image, for a victim behind a gate.
        probes: Images with which the smallest share that passes is searched first; each image and share takes a query.
        chest: The chest radiograph that is blended in; a drawing by default.
        rewrite: Reword every answer before it is learnt, against a watermark.
        price: What the victim charges.
        policy: How Knockoff chooses images.
        alignment: How images are moved.
        fitting: How the surrogate learns.
        measure: How copies are measured.
        victim_decoding: Decoding of the victim; the paper's diverse beam search.
        surrogate_decoding: Decoding of the surrogate.
        defence_settings: Settings of the defence.
        consulting: Prompts of an oracle that is a language model.
        oracle_llm: Cache, cost limit and connection of that model.
        loading: How both are loaded. loading.prompts is the fixed prompt of both, as a row of the table or a file (a .txt
            is the prompt itself); give the same to fitting.prompts.
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
    colour: Literal["rgb", "grey"] = "rgb"
    split: str = "test"
    n: int | None = None
    seed: int = 7
    batch_size: int = 16
    workers: int = 1
    stop_after_refusals: int | None = 50
    map_sentences: int = 300
    i_am_authorised: str | None = None
    victim_run: Path | None = None
    oracle_run: Path | None = None
    defence: str | None = None
    accounts: int = 1
    blend_chest: float = 0.0
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
        check_choice("method", self.method, METHODS)
        check_choice("split", self.split, SPLITS)
        if self.defence:
            check_choice("defence", self.defence, DEFENCES.names())
        if not self.oracle_is_a_model:
            oracles = (NO_ORACLE, TRANSCRIPT, *ORACLES)
            check_choice("oracle", self.oracle, oracles, ", or a text model by name")
        check_at_least(
            self, budget=1, rounds=1, size=8, n=1, batch_size=1, workers=1, accounts=1, seed=0, map_sentences=0,
            probes=0, stop_after_refusals=1,
        )  # fmt: skip
        if self.budget > MOST_QUERIES:
            raise ConfigError(f"budget={self.budget} is above the limit of {MOST_QUERIES:,}.")
        if not 0.0 <= self.blend_chest <= 1.0:
            raise ConfigError(f"blend_chest={self.blend_chest} is not usable; give a fraction from 0 to 1.")
        if self.method == "ada-steal" and self.rounds > self.budget:
            raise ConfigError(f"rounds={self.rounds} is more than budget={self.budget}; every round needs a query.")
        if self.alignment.guide and (self.oracle == NO_ORACLE or self.shares.own == 1.0):
            raise ConfigError("alignment.guide needs descriptions of an oracle: give --oracle and a --shares.own "
                              "below 1.")  # fmt: skip
        if self.probes and self.blend_chest:
            raise ConfigError(
                f"probes={self.probes} and blend_chest={self.blend_chest} both set the blended share; give one of them."
            )
        most, needed = self.probes * len(SHARES), self.rounds if self.method == "ada-steal" else 1
        if self.probes and most + needed > self.budget:
            raise ConfigError(f"probes={self.probes} may take {most} queries, too many of budget={self.budget}; "
                              f"give at most {max(0, self.budget - needed) // len(SHARES)}.")  # fmt: skip
        if is_address(self.oracle):
            parse_address(self.oracle)
        if self.oracle == self.victim:
            raise ConfigError(f"oracle='{self.oracle}' is the victim; an oracle must be another model.")
        if self.method == "in-domain" and not self.pool.startswith("corpus:"):
            raise ConfigError("method=in-domain needs chest radiographs: give --pool corpus:DIR, or --method knockoff.")
        if wrong := [budget for budget in self.at if not 0 < budget < self.budget]:
            raise ConfigError(f"at={wrong[0]} is not between 0 and the budget of {self.budget}.")

    @property
    def oracle_is_a_model(self) -> bool:
        """Whether the oracle is a language model rather than rules or the transcript."""
        return is_text_model(self.oracle)


def is_text_model(oracle: str) -> bool:
    """Whether an oracle of this name is a language model."""
    return is_address(oracle) or oracle.partition(":")[0] in TEXT_KINDS and ":" in oracle


@dataclass(frozen=True)
class DefendConfig:
    """What each defence costs benign users, how much worse it makes a copy, and how much if the attacker knows it.

    For models that you own or may test.

    Args:
        victim: The model to be defended.
        data: Corpus folder: benign images for the cost of a defence; copies are measured on it too.
        surrogate: Model that the attacker trains; that of the attack file by default.
        attack: YAML file of 'cxrlab extract' with the rest of the attack; its defaults if left out.
        defences: Any of gate (answers chest radiographs alone), quota, coarse (fixed sentences without degree and place), plain
            (fixed sentences with all details), watermark; and input transformations, which are measured where they are
            named: jpeg, blur, bits, noise, resample, random-resample (settings.strengths).
        method: Method of the attack: knockoff, ada-steal or in-domain.
        pool: Query images.
        budget: Maximum number of queries of one attack.
        adaptive: Attack each defence also with an attacker that knows it.
        accounts: Accounts of the attacker that knows of a quota.
        blend_chest: Share of a chest in each image that passes the gate; searched by probes if left out.
        chest: Chest radiograph that the attacker who knows of the gate blends in; a drawing by default.
        probes: Images with which that share is searched; each image and share takes a query.
        split: Split of the corpus that holds the benign images.
        n: Number of benign images, drawn with the seed; null takes all. Copies are measured on the n studies of the attack file, by
            default on the whole test split.
        section: Section of the reference report.
        batch_size: Images answered at once; halved if they do not fit in memory.
        tolerated: Share of benign images that may be refused before that counts as harm.
        minimum_queries: Fewest queries of the attack without a defence for which a severity is stated.
        minimum_studies: Fewest studies of its measurement for which a severity is stated.
        trials: Bootstrap resamples behind each interval.
        seed: Seed of images, pool and resamples.
        i_am_authorised: Who may test this model and why; required for a model that runs elsewhere, kept and shown.
        price: What the victim's owner charges.
        settings: How strict defences are.
        decoding: Decoding of the victim; the paper's diverse beam search.
        loading: How the victim is loaded.
    """

    victim: str
    data: Path
    surrogate: str | None = None
    attack: Path | None = None
    defences: tuple[str, ...] = tuple(name for name in DEFENCES if name not in TRANSFORMATIONS)
    method: str = "ada-steal"
    pool: str = "scenes"
    budget: int = 1500
    adaptive: bool = True
    accounts: int = 4
    blend_chest: float | None = None
    chest: Path | None = None
    probes: int = 40
    split: str = "test"
    n: int | None = 200
    section: str = "findings"
    batch_size: int = 16
    tolerated: float = 0.01
    minimum_queries: int = MINIMUM_QUERIES
    minimum_studies: int = MINIMUM_STUDIES
    trials: int = 1000
    seed: int = 7
    i_am_authorised: str | None = None
    price: Price = Price()
    settings: DefenceSettings = DefenceSettings()
    decoding: PaperDecoding = PaperDecoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        check_choice("split", self.split, SPLITS)
        for defence in self.defences:
            check_choice("defences", defence, DEFENCES.names())
        if not self.defences or len(set(self.defences)) < len(self.defences):
            raise ConfigError("defences is empty or names one twice; name each once.")
        check_at_least(
            self, budget=1, accounts=1, probes=1, n=1, batch_size=1, trials=1, seed=0, minimum_queries=1,
            minimum_studies=1,
        )  # fmt: skip
        for name in ("blend_chest", "tolerated"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name}={value} is not usable; give a share from 0 to 1.")

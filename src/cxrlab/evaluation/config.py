"""Settings of the evaluation room: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SPLITS


@dataclass(frozen=True)
class GenerateConfig:
    """A report from one model for every study of a split.

    Args:
        model: Name of the model, such as stub:normal or retrieval:corpora/phantom.
        data: Folder of the corpus.
        split: train, val or test.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        seed: Decides which studies are drawn, and which are shown as examples.
        batch_size: Films given to the model at once.
        examples: Studies whose film and reference are kept in the run folder for a page.
        allow_missing: Finish although some studies have no readable frontal film; they stay without a prediction.
        external: Refuse a corpus of a collection that the model has learnt from, or a model that does not tell.
    """

    model: str
    data: Path
    split: str = "test"
    n: int | None = None
    seed: int = 7
    batch_size: int = 16
    examples: int = 8
    allow_missing: bool = False
    external: bool = False

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(f"split={self.split!r} is unknown.{nearest(self.split, SPLITS)} Use {', '.join(SPLITS)}.")
        for name, least in (("n", 1), ("seed", 0), ("batch_size", 1), ("examples", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")


@dataclass(frozen=True)
class Extras:
    """What the user has.

    Args:
        graphs: JSON with RadGraph graphs of references and candidates, by id or text, or a model of that package.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Of the encoder.
        chexbert: The published checkpoint, chexbert.pth.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
    """

    graphs: Path | None = None
    encoder: Path | None = None
    layer: int = 5
    chexbert: Path | None = None
    bert: Path | None = None

    def __post_init__(self) -> None:
        if (self.chexbert is None) != (self.bert is None):
            given, missing = ("chexbert", "bert") if self.bert is None else ("bert", "chexbert")
            raise ConfigError(f"--{given} needs --{missing} beside it: the weights and the tokenizer's folder.")
        if self.layer < 1:
            raise ConfigError(f"layer={self.layer} is not usable; give a whole number of at least 1.")


@dataclass(frozen=True)
class ScoreConfig:
    """Predictions against references.

    Args:
        references: Corpus folder, or a file: JSONL, JSON, CSV with id and report, or text with one report a line.
        predictions: Run folder or file; left out when the references' file has a candidate beside each.
        section: Section of the reference report, where it has sections; several joined with +.
        split: Split of the corpus; every split that holds a predicted study when left out.
        unit: study, or image for predictions with ids study#k; auto looks at the ids.
        metrics: Names (bleu4:coco), patterns (bleu*) or groups (coco) of metrics; the default ones when left out.
        all: Every metric that needs nothing extra.
        allow_missing: Score a missing prediction as an empty report.
        floors: Score five controls too: a repeated word, nothing, unrelated text, a normal report, shuffled references.
        slices: Score by view, sex, age band and device too, where they are known.
        trials: Bootstrap resamples behind each interval.
        level: Share of resamples inside the interval.
        seed: Decides the resamples and the shuffled control.
        graphs: JSON with RadGraph graphs of references and candidates, for RadGraph F1; or radgraph-xl, radgraph or
            modern-radgraph-xl to have the installed radgraph package draw them.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Layer of the encoder.
        chexbert: The published checkpoint chexbert.pth, for labels by CheXbert; with the other two also RadCliQ.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
    """

    references: Path
    predictions: Path | None = None
    section: str = "findings"
    split: str | None = None
    unit: Literal["auto", "study", "image"] = "auto"
    metrics: tuple[str, ...] = ()
    all: bool = False
    allow_missing: bool = False
    floors: bool = True
    slices: bool = True
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    graphs: Path | None = None
    encoder: Path | None = None
    layer: int = 5
    chexbert: Path | None = None
    bert: Path | None = None

    @property
    def extras(self) -> Extras:
        """What the user has beyond the two texts."""
        return Extras(self.graphs, self.encoder, self.layer, self.chexbert, self.bert)

    def __post_init__(self) -> None:
        self.extras  # noqa: B018 - refuses what does not belong together
        for name, least in (("trials", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not usable; give a whole number of at least {least}."
                )
        if not 0 < self.level < 1:
            raise ConfigError(f"level={self.level} is not usable; give a share between 0 and 1, such as 0.95.")
        if self.all and self.metrics:
            raise ConfigError("--all and --metrics contradict each other; give one of them.")


@dataclass(frozen=True)
class ValidateConfig:
    """Metrics against judgements that are not theirs.

    Args:
        benchmark: radpref, radjudge or rexval (a folder of theirs), or phantom (made here from the seed).
        root: Folder of the benchmark's files; phantom needs none.
        metrics: Names or groups of metrics; the default ones when left out.
        n: Number of cases; of phantom alone.
        tie: Largest difference at which two values count as equal in a ranking; of radjudge alone.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples, and the cases of phantom.
    """

    benchmark: Literal["radpref", "radjudge", "rexval", "phantom"]
    root: Path | None = None
    metrics: tuple[str, ...] = ()
    n: int = 500
    tie: float = 0.05
    trials: int = 1000
    seed: int = 7

    def __post_init__(self) -> None:
        if self.root is None and self.benchmark != "phantom":
            raise ConfigError(f"--root is missing; name the folder with the files of {self.benchmark}.")
        for name, least in (("n", 2), ("trials", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not usable; give a whole number of at least {least}."
                )
        if self.tie < 0:
            raise ConfigError(f"tie={self.tie} is not usable; give a difference of at least 0.")

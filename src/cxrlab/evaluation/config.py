"""Settings of the evaluation room: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm import LLMConfig
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.evaluation.report_files import parse_columns
from cxrlab.evaluation.word_maps import SHEET, parse_map
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

# What the control of image dependence shows a model in place of the image.
CONTROL_IMAGES = ("noise", "blank", "swapped")


@dataclass(frozen=True)
class GenerateConfig:
    """A report from one model for every study of a split.

    Args:
        model: Name of the model, such as stub:normal or retrieval:corpora/phantom.
        data: Folder of the corpus.
        split: train, val or test.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        seed: Decides which studies are drawn, and which are shown as examples.
        batch_size: Images given to the model at once; halved where they do not fit in memory.
        examples: Studies whose image and reference are kept in the run folder for a page.
        allow_missing: Finish although some studies have no readable frontal image, or the model refused to write on
            them; they stay without a prediction.
        external: Refuse a corpus of a collection that the model has learnt from, or a model that does not tell.
        indication: Give the model the reason for the examination; false asks about every image in the same words.
        controls: Wrong images that some studies are answered with too, to see whether the image matters: noise, blank
            (mid grey) and swapped (another patient's).
        control_studies: Studies that are answered with wrong images, at most; each costs one report a control, 0 none.
        decoding: How words are chosen.
        loading: How the model is loaded.
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
    indication: bool = True
    controls: tuple[str, ...] = CONTROL_IMAGES
    control_studies: int = 100
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{did_you_mean(self.split, SPLITS)} Use {', '.join(SPLITS)}."
            )
        for name, least in (("n", 1), ("seed", 0), ("batch_size", 1), ("examples", 0), ("control_studies", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")
        for name in self.controls:
            if name not in CONTROL_IMAGES:
                raise ConfigError(
                    f"controls holds '{name}', which is unknown.{did_you_mean(name, CONTROL_IMAGES)} Use "
                    f"{', '.join(CONTROL_IMAGES)}; --control-studies 0 leaves them out."
                )


@dataclass(frozen=True)
class MetricResources:
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
        references: Corpus folder, or a file: JSONL, JSON, CSV or TSV with id and report, or text with one report per
            line.
        predictions: Run folder or file; left out when the references' file has a candidate beside each.
        columns: Columns of files that name theirs otherwise: candidate=NAME,reference=NAME,id=NAME.
        by_row: Match two files row by row, whatever ids they have; else files without any id are matched so.
        section: Section of the reference report, where it has sections; several joined with +.
        split: Split of the corpus; every split that holds a predicted study when left out.
        unit: study, or image for predictions with ids study#k; auto looks at the ids.
        metrics: Names (bleu4:coco), patterns (bleu*) or groups (coco) of metrics, and judges by language models
            (chexprompt:http://127.0.0.1:8000/v1#MODEL); the default ones when left out.
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
        llm: How the language models are asked that judges (chexprompt:MODEL) stand on.
        judging: Other wordings for judges by language models, and their longest answers.
    """

    references: Path
    predictions: Path | None = None
    columns: tuple[str, ...] = ()
    by_row: bool = False
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
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()

    @property
    def extras(self) -> MetricResources:
        """What the user has beyond the two texts."""
        return MetricResources(self.graphs, self.encoder, self.layer, self.chexbert, self.bert)

    def __post_init__(self) -> None:
        self.extras  # noqa: B018 - refuses what does not belong together
        parse_columns(self.columns)
        if self.by_row and any(word.partition("=")[0].strip() == "id" for word in self.columns):
            raise ConfigError("--by-row and --columns id=NAME contradict each other; give one of them.")
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
class ExplainConfig:
    """Where a model looked when it wrote a word.

    Args:
        model: Name of a model with weights here, such as hf:runs/finetune/checkpoint.
        image: An image (PNG, JPEG or DICOM); or give data and study.
        data: Folder of a corpus.
        study: Id of a study in it.
        word: Words or phrases of the report, all their occurrences; every word when left out.
        indication: Reason for the examination; that of the study when left out.
        report: Explain these words instead of those that the model writes.
        maps: layer:K, max-mean, relative:layer:K, relative:max-mean, sheet, gradient, input-gradient or
            integrated-gradient.
        smooth: Blur of gradient maps, its deviation in shares of the image's longer side; 0 for none.
        alpha: How much the hottest spot covers the image, 0 to 1.
        decoding: How the model writes the report.
        loading: How the model is loaded; attention is set to eager where a map needs it.
    """

    model: str
    image: Path | None = None
    data: Path | None = None
    study: str | None = None
    word: tuple[str, ...] = ()
    indication: str | None = None
    report: str | None = None
    maps: tuple[str, ...] = ("max-mean", "integrated-gradient")
    smooth: float = 1 / 32
    alpha: float = 0.65
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        if (self.image is None) == (self.data is None) or (self.data is None) != (self.study is None):
            raise ConfigError("name one image: --image FILE, or --data CORPUS with --study ID.")
        if self.report is not None and not self.report.strip():
            raise ConfigError("--report is empty; give the words to explain, or leave it out.")
        if not self.maps:
            raise ConfigError("maps is empty; name at least one, such as max-mean.")
        _check_maps(self.maps, self.smooth)
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha={self.alpha} is not usable; give a share above 0 up to 1.")


@dataclass(frozen=True)
class PointingConfig:
    """Whether maps point at what the words name, on images whose findings have exact masks.

    Args:
        model: Name of a model with weights here, such as hf:runs/finetune/checkpoint.
        data: Folder of a corpus with exact findings and masks (phantoms).
        split: train, val or test.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        report: generated, what the model itself writes; or reference, the corpus's report put into its mouth.
        maps: layer:K, max-mean, relative:layer:K, relative:max-mean, gradient, input-gradient or
            integrated-gradient; all when left out.
        smooth: Blur of gradient maps, its deviation in shares of the image's longer side; 0 for none.
        localised: Largest share of the image that the mask of a localised finding covers.
        trials: Bootstrap resamples behind each interval.
        seed: Decides which studies are drawn, and the resamples.
        batch_size: Images that reports are written for at once.
        decoding: How the model writes the report.
        loading: How the model is loaded; attention is set to eager where a map needs it.
    """

    model: str
    data: Path
    split: str = "test"
    n: int | None = None
    report: Literal["generated", "reference"] = "generated"
    maps: tuple[str, ...] = ()
    smooth: float = 1 / 32
    localised: float = 0.1
    trials: int = 1000
    seed: int = 7
    batch_size: int = 16
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{did_you_mean(self.split, SPLITS)} Use {', '.join(SPLITS)}."
            )
        for name, least in (("n", 1), ("trials", 1), ("seed", 0), ("batch_size", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")
        if not 0 < self.localised <= 1:
            raise ConfigError(f"localised={self.localised} is not usable; give a share above 0 up to 1.")
        _check_maps(self.maps, self.smooth)
        if SHEET in self.maps:
            raise ConfigError(f"'{SHEET}' is no single map, so that it points nowhere; name layer:K or max-mean.")


def _check_maps(maps: tuple[str, ...], smooth: float) -> None:
    for name in maps:
        parse_map(name)
    if repeated := [name for name in maps if maps.count(name) > 1]:
        raise ConfigError(f"map '{repeated[0]}' is named twice; name it once.")
    if not 0 <= smooth <= 1:
        raise ConfigError(f"smooth={smooth} is not usable; give a share of the image's side from 0 to 1, such as 0.03.")


@dataclass(frozen=True)
class RetrieveConfig:
    """Images find their reports, and reports their images, by the vectors of a contrastive encoder.

    Args:
        model: Name of the encoder, such as hf:runs/encoder/checkpoint.
        data: Folder of the corpus.
        split: train, val or test.
        section: Section of the report that is looked for.
        statements: all sentences of it, or present: those alone that state something present or possible, as for an
            encoder that learnt from these.
        n: Number of studies, drawn from the split with the seed; every study when left out. Recall falls as n grows.
        ks: How many candidates may be looked at, one recall each.
        zero_shot: Sentences of zero-shot classification, a row of the table or a file of that form; null leaves it out.
        batch_size: Images given to the encoder at once.
        allow_missing: Finish although some studies have no readable image; they are left out.
        trials: Bootstrap resamples behind each interval.
        level: Share of resamples inside the interval.
        seed: Decides which studies are drawn, and the resamples.
        loading: How the encoder is opened.
    """

    model: str
    data: Path
    split: str = "test"
    section: str = "findings"
    statements: Literal["all", "present"] = "all"
    n: int | None = None
    ks: tuple[int, ...] = (1, 5, 10)
    zero_shot: str | None = "report/1"
    batch_size: int = 32
    allow_missing: bool = False
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        for name, known in (("split", SPLITS), ("section", SECTIONS)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"{name}={value!r} is unknown.{did_you_mean(value, known)} Use {', '.join(known)}.")
        for name, least in (("n", 2), ("seed", 0), ("batch_size", 1), ("trials", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")
        if not self.ks or min(self.ks) < 1:
            raise ConfigError(f"ks={list(self.ks)} is not usable; give whole numbers from 1, such as 1,5,10.")
        if not 0 < self.level < 1:
            raise ConfigError(f"level={self.level} is not usable; give a share between 0 and 1, such as 0.95.")


@dataclass(frozen=True)
class ValidateConfig:
    """Metrics against judgements that are not theirs.

    Args:
        benchmark: radpref, radjudge or rexval (a folder of theirs), or phantom (made here from the seed).
        root: Folder of the benchmark's files; phantom needs none.
        metrics: Names or groups of metrics, and judges by language models (chexprompt:http://127.0.0.1:8000/v1#MODEL),
            several side by side; the default ones when left out.
        n: Number of cases; of phantom alone.
        tie: Largest difference at which two values count as equal in a ranking; of radjudge alone.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples, and the cases of phantom.
        llm: How the language models are asked that judges stand on.
        judging: Other wordings for judges by language models, and their longest answers.
    """

    benchmark: Literal["radpref", "radjudge", "rexval", "phantom"]
    root: Path | None = None
    metrics: tuple[str, ...] = ()
    n: int = 500
    tie: float = 0.05
    trials: int = 1000
    seed: int = 7
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()

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

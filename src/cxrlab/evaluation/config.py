"""Settings of the evaluation commands: every field is also a command-line flag and a key of a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.evaluation.report_files import parse_columns
from cxrlab.evaluation.saliency_maps import SHEET, parse_map
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.statistics.intervals import check_share
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

# What a model gets in place of the image, to test image dependence.
CONTROL_IMAGES = ("noise", "blank", "swapped")


@dataclass(frozen=True)
class GenerateConfig:
    """A report from one model for every study of a split, or for every frontal image of it.

    Args:
        model: Name of the model, such as stub:normal or retrieval:corpora/phantom.
        data: Folder of the corpus.
        split: train, val or test.
        unit: study (its first PA, AP or frontal image), or image: every PA, AP and frontal image, with ids study#k.
        n: Number of studies (or images), drawn from the split with the seed; all of them when left out.
        seed: Decides which studies are drawn, and which are shown as examples.
        batch_size: Images per batch; halved where they do not fit in memory.
        examples: Studies whose image and reference are stored in the run folder for a page.
        allow_missing: Finish although some studies have no readable frontal image, or the model refused them; they
            stay without a prediction.
        external: Refuse a corpus of a collection that the model was trained on, or a model that does not list them.
        indication: Give the model the reason for the examination; false gives every image the same prompt.
        controls: Control images for some studies, to test whether the image matters: noise, blank (mid grey) and
            swapped (another patient's).
        control_studies: Most studies with control images; each costs one report per control, 0 for none.
        decoding: Sampling or beam search, and the length of a report.
        loading: How the model is loaded.
    """

    model: str
    data: Path
    split: str = "test"
    unit: Literal["study", "image"] = "study"
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
        _check_known("split", self.split, SPLITS)
        _check_known("unit", self.unit, ("study", "image"))
        _check_least(self, n=1, seed=0, batch_size=1, examples=0, control_studies=0)
        for name in self.controls:
            if name not in CONTROL_IMAGES:
                raise ConfigError(
                    f"controls contains '{name}', which is unknown.{did_you_mean(name, CONTROL_IMAGES)} Use "
                    f"{', '.join(CONTROL_IMAGES)}; --control-studies 0 leaves them out."
                )


def _check_least(config: object, **least: int) -> None:
    for name, bound in least.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {bound}.")


def _check_known(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{name}={value!r} is unknown.{did_you_mean(value, known)} Use {', '.join(known)}.")


@dataclass(frozen=True)
class MetricResources:
    """Files and models of the user for further metrics.

    Args:
        graphs: JSON with RadGraph graphs of references and candidates, by id or text, or a model of that package.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Layer of the encoder.
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
class ScoreSettings:
    """How matched pairs are scored: with which controls and slices, and how intervals are computed; see `ScoreConfig`."""

    floors: bool = True
    slices: bool = True
    trials: int = 1000
    level: float = 0.95
    seed: int = 7


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
        unit: study, or image for predictions with ids study#k; auto decides by the ids.
        metrics: Names (bleu4:coco), patterns (bleu*) or groups (coco) of metrics, and judges by language models
            (chexprompt:http://127.0.0.1:8000/v1#MODEL); the default ones when left out.
        preset: The columns that papers (paper), LLaVA-Rad (llava-rad) or the leaderboard ReXrank (rexrank) print, each by
            their convention. What cannot be computed is listed with what it needs; --metrics adds to it.
        all: Every metric that needs nothing extra.
        allow_missing: Score a missing prediction as an empty report.
        floors: Score five controls too: a repeated word, nothing, unrelated text, a normal report, shuffled references.
        slices: Score by view, sex, age band and device too, where they are known.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides the resamples and the shuffled control.
        graphs: JSON with RadGraph graphs of references and candidates, for RadGraph F1; or radgraph-xl, radgraph or
            modern-radgraph-xl for a model of the installed radgraph package.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Layer of the encoder.
        chexbert: The published checkpoint chexbert.pth, for labels by CheXbert; with the other two also RadCliQ.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
        llm: Cache, limits and connection of the language models of judges (chexprompt:MODEL).
        judging: Other prompts for judges by language models, and the length of their answers.
    """

    references: Path
    predictions: Path | None = None
    columns: tuple[str, ...] = ()
    by_row: bool = False
    section: str = "findings"
    split: str | None = None
    unit: Literal["auto", "study", "image"] = "auto"
    metrics: tuple[str, ...] = ()
    preset: Literal["paper", "llava-rad", "rexrank"] | None = None
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
        """Files and models of the user."""
        return MetricResources(self.graphs, self.encoder, self.layer, self.chexbert, self.bert)

    @property
    def settings(self) -> ScoreSettings:
        """How matched pairs are scored."""
        return ScoreSettings(self.floors, self.slices, self.trials, self.level, self.seed)

    def __post_init__(self) -> None:
        self.extras  # noqa: B018 - checks them
        parse_columns(self.columns)
        if self.by_row and any(word.partition("=")[0].strip() == "id" for word in self.columns):
            raise ConfigError("--by-row and --columns id=NAME contradict each other; give one of them.")
        _check_least(self, trials=1, seed=0)
        check_share("level", self.level)
        if self.all and (self.metrics or self.preset):
            flag = "--metrics" if self.metrics else "--preset"
            raise ConfigError(f"--all and {flag} contradict each other; give one of them.")


@dataclass(frozen=True)
class CertifyConfig:
    """Whether a prediction file is what it claims to be.

    Args:
        predictions: Run folder or file, as for 'cxrlab score'.
        references: Corpus folder or file; left out when the predictions' file has a reference beside each.
        training: Corpus folder or file with the reports that the model was or may have been trained on; of a corpus with
            splits, its train split.
        controls: Run folders with predictions for control images, where PREDICTIONS is not such a run itself.
        model: Name of the model that is said to have written the predictions: it generates again, with control images.
        control_studies: Most studies for which this model generates.
        columns: Columns of files that name theirs otherwise: candidate=NAME,reference=NAME,id=NAME.
        by_row: Match two files row by row, whatever ids they have; else files without any id are matched so.
        section: Section of the reference report, where it has sections; several joined with +.
        split: Split of the corpus; every split that holds a predicted study when left out.
        unit: study, or image for predictions with ids study#k; auto looks at the ids.
        allow_missing: Take a missing prediction for an empty report.
        metrics: Metrics for scores.json, beside those of the checks; the default ones when left out.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides the resamples and how reports are shuffled among patients.
        decoding: How the model generates.
        loading: How the model is loaded.
    """

    predictions: Path
    references: Path | None = None
    training: Path | None = None
    controls: tuple[Path, ...] = ()
    model: str | None = None
    control_studies: int = 100
    columns: tuple[str, ...] = ()
    by_row: bool = False
    section: str = "findings"
    split: str | None = None
    unit: Literal["auto", "study", "image"] = "auto"
    allow_missing: bool = False
    metrics: tuple[str, ...] = ()
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        parse_columns(self.columns)
        _check_least(self, trials=1, seed=0, control_studies=1)
        check_share("level", self.level)
        if self.model is not None and self.controls:
            raise ConfigError("--model and --controls contradict each other; give one of them.")
        if self.model is not None and self.references is None:
            raise ConfigError("--model generates from images; give their corpus with --references.")


@dataclass(frozen=True)
class ExplainConfig:
    """Attention and gradient maps of words of a report over the image.

    Args:
        model: Name of a model with weights here, such as hf:runs/finetune/checkpoint.
        image: An image (PNG, JPEG or DICOM); or give data and study.
        data: Folder of a corpus.
        study: Id of a study in it.
        word: Words or phrases of the report, all their occurrences; every word when left out.
        indication: Reason for the examination; that of the study when left out.
        report: Explain this report instead of the model's own.
        maps: layer:K, max-mean, relative:layer:K, relative:max-mean, sheet, gradient, input-gradient or
            integrated-gradient.
        smooth: Standard deviation of the blur of gradient maps, as a share of the image's longer side; 0 for none.
        alpha: How much the hottest spot covers the image, 0 to 1.
        decoding: How the model generates the report.
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
    """Whether the maps of words hit the findings that they name, on images with exact masks.

    Args:
        model: Name of a model with weights here, such as hf:runs/finetune/checkpoint.
        data: Folder of a corpus with exact findings and masks (phantoms).
        split: train, val or test.
        n: Number of studies, drawn from the split with the seed; every study when left out.
        report: generated, the model's own report; or reference, that of the corpus.
        maps: layer:K, max-mean, relative:layer:K, relative:max-mean, gradient, input-gradient or
            integrated-gradient; all when left out.
        smooth: Standard deviation of the blur of gradient maps, as a share of the image's longer side; 0 for none.
        localised: Largest share of the image that the mask of a localised finding covers.
        trials: Bootstrap resamples behind each interval.
        seed: Decides which studies are drawn, and the resamples.
        batch_size: Images per batch.
        decoding: How the model generates the report.
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
        _check_known("split", self.split, SPLITS)
        _check_least(self, n=1, trials=1, seed=0, batch_size=1)
        if not 0 < self.localised <= 1:
            raise ConfigError(f"localised={self.localised} is not usable; give a share above 0 up to 1.")
        _check_maps(self.maps, self.smooth)
        if SHEET in self.maps:
            raise ConfigError(f"'{SHEET}' is not a single map and cannot point; name layer:K or max-mean.")


def _check_maps(maps: tuple[str, ...], smooth: float) -> None:
    for name in maps:
        parse_map(name)
    if repeated := [name for name in maps if maps.count(name) > 1]:
        raise ConfigError(f"map '{repeated[0]}' is named twice; name it once.")
    if not 0 <= smooth <= 1:
        raise ConfigError(f"smooth={smooth} is not usable; give a share of the image's side from 0 to 1, such as 0.03.")


@dataclass(frozen=True)
class RetrieveConfig:
    """Image–report retrieval and zero-shot classification with a contrastive encoder.

    Args:
        model: Name of the encoder, such as hf:runs/encoder/checkpoint.
        data: Folder of the corpus.
        split: train, val or test.
        section: Section of the report to retrieve.
        statements: all sentences of it, or present: only those that state something present or possible, as for an
            encoder trained on these.
        n: Number of studies, drawn from the split with the seed; every study when left out. Recall falls as n grows.
        ks: Ranks k of recall@k.
        zero_shot: Sentences of zero-shot classification, a row of the table or a file of that form; null leaves it out.
        batch_size: Images per batch.
        allow_missing: Finish although some studies have no readable image; they are left out.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides which studies are drawn, and the resamples.
        loading: How the encoder is loaded.
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
        _check_known("split", self.split, SPLITS)
        _check_known("section", self.section, SECTIONS)
        _check_least(self, n=2, seed=0, batch_size=1, trials=1)
        if not self.ks or min(self.ks) < 1:
            raise ConfigError(f"ks={list(self.ks)} is not usable; give whole numbers from 1, such as 1,5,10.")
        check_share("level", self.level)


@dataclass(frozen=True)
class ValidateConfig:
    """Metrics against radiologists' ratings, ranking cases, or reports with known errors.

    Args:
        benchmark: radpref, radjudge or rexval (with --root), or phantom (generated from the seed).
        root: Folder of the benchmark's files; phantom needs none.
        metrics: Names or groups of metrics, and judges by language models (chexprompt:http://127.0.0.1:8000/v1#MODEL),
            several side by side; the default ones when left out.
        n: Number of cases; only for phantom.
        tie: Largest difference at which two values count as equal in a ranking; only for radjudge.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples, and the cases of phantom.
        graphs: RadGraph graphs or the name of a model, as in 'score'; not for phantom, as for the next four.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Layer of the encoder.
        chexbert: The published checkpoint chexbert.pth; with graphs and encoder also RadCliQ.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
        llm: Cache, limits and connection of the language models of judges.
        judging: Other prompts for judges by language models, and the length of their answers.
    """

    benchmark: Literal["radpref", "radjudge", "rexval", "phantom"]
    root: Path | None = None
    metrics: tuple[str, ...] = ()
    n: int = 500
    tie: float = 0.05
    trials: int = 1000
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
        """Files and models of the user."""
        return MetricResources(self.graphs, self.encoder, self.layer, self.chexbert, self.bert)

    def __post_init__(self) -> None:
        if self.root is None and self.benchmark != "phantom":
            raise ConfigError(f"--root is missing; name the folder with the files of {self.benchmark}.")
        _check_least(self, n=2, trials=1, seed=0)
        if self.benchmark == "phantom" and self.extras != MetricResources(layer=self.layer):
            raise ConfigError("--benchmark phantom uses no --graphs, --encoder or --chexbert; leave them out.")
        if self.tie < 0:
            raise ConfigError(f"tie={self.tie} is not usable; give a difference of at least 0.")

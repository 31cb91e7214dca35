"""Settings of the evaluation commands: every field is also a command-line flag and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import check_at_least, check_choice
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.data.config import ContextConfig
from cxrlab.evaluation.report_files import parse_columns
from cxrlab.evaluation.saliency_maps import SHEET, parse_map
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.metrics.statistics.intervals import check_share
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

# What a model gets in place of the image, to test image dependence.
CONTROL_IMAGES = ("noise", "blank", "swapped")


@dataclass(frozen=True)
class GenerateConfig(ContextConfig):
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
        super().__post_init__()
        check_choice("split", self.split, SPLITS)
        check_choice("unit", self.unit, ("study", "image"))
        if self.unit == "image" and (self.views or self.prior):
            raise ConfigError("unit=image gives each image alone; leave out views and prior.")
        self.check_single_image()
        check_at_least(self, n=1, seed=0, batch_size=1, examples=0, control_studies=0)
        for name in self.controls:
            if name not in CONTROL_IMAGES:
                raise ConfigError(
                    f"controls contains '{name}', which is unknown.{did_you_mean(name, CONTROL_IMAGES)} Use "
                    f"{', '.join(CONTROL_IMAGES)}; --control-studies 0 leaves them out."
                )


@dataclass(frozen=True, kw_only=True)
class MetricResources:
    """Files and models of the user for further metrics.

    Args:
        graphs: JSON with RadGraph graphs of references and candidates, by id or text, for RadGraph F1; or radgraph-xl,
            radgraph or modern-radgraph-xl for a model of the installed radgraph package.
        encoder: Folder of a transformers encoder, for BERTScore.
        layer: Layer of the encoder.
        chexbert: The published checkpoint chexbert.pth, for labels by CheXbert; with graphs and encoder also RadCliQ.
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
        check_at_least(self, layer=1)


@dataclass(frozen=True, kw_only=True)
class MatchSettings:
    """How references and predictions are read and matched.

    Args:
        columns: Columns of files that name theirs otherwise: candidate=NAME,reference=NAME,id=NAME.
        by_row: Match two files row by row, whatever ids they have; else files without any id are matched so.
        section: Section of the reference report, where it has sections; several joined with +.
        split: Split of the corpus; every split that holds a predicted study when left out.
        unit: study, or image for predictions with ids study#k; auto decides by the ids.
        allow_missing: Score a missing prediction as an empty report.
    """

    columns: tuple[str, ...] = ()
    by_row: bool = False
    section: str = "findings"
    split: str | None = None
    unit: Literal["auto", "study", "image"] = "auto"
    allow_missing: bool = False

    def __post_init__(self) -> None:
        parse_columns(self.columns)
        if self.by_row and any(word.partition("=")[0].strip() == "id" for word in self.columns):
            raise ConfigError("--by-row and --columns id=NAME contradict each other; give one of them.")

    @property
    def matching(self) -> dict[str, Any]:
        """These settings as the arguments of `load_inputs`."""
        return {field.name: getattr(self, field.name) for field in fields(MatchSettings)}


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """How matched pairs are scored.

    Args:
        floors: Score five controls too: a repeated word, nothing, unrelated text, a normal report, shuffled references.
        slices: Score by view, sex, age band and device too, where they are known.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides the resamples and the shuffled control.
        workers: Processes that read and compare reports, from 1,024 pairs on; 0 for one per core, which is the maximum.
            The numbers do not depend on it.
    """

    floors: bool = True
    slices: bool = True
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, trials=1, seed=0, workers=0)
        check_share("level", self.level)


@dataclass(frozen=True)
class ScoreConfig(MatchSettings, ScoreSettings, MetricResources):
    """Predictions against references.

    Args:
        references: Corpus folder, or a table (CSV, TSV, JSONL, JSON, Excel, Parquet) with id and report, or text with one
            report per line.
        predictions: Run folder or file; left out when the references' file has a candidate beside each.
        metrics: Names (bleu4:coco), patterns (bleu*) or groups (coco) of metrics, and judges by language models
            (chexprompt:http://127.0.0.1:8000/v1#MODEL); the default ones when left out.
        preset: The columns that papers (paper), LLaVA-Rad (llava-rad) or the leaderboard ReXrank (rexrank) print, each by
            their convention. What cannot be computed is listed with what it needs; --metrics adds to it.
        all: Every metric that needs nothing extra.
        llm: Cache, limits and connection of the language models of judges (chexprompt:MODEL).
        judging: Other prompts for judges by language models, and the length of their answers.
    """

    references: Path
    predictions: Path | None = None
    metrics: tuple[str, ...] = ()
    preset: Literal["paper", "llava-rad", "rexrank"] | None = None
    all: bool = False
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        for base in (MatchSettings, ScoreSettings, MetricResources):
            base.__post_init__(self)
        if self.all and (self.metrics or self.preset):
            flag = "--metrics" if self.metrics else "--preset"
            raise ConfigError(f"--all and {flag} contradict each other; give one of them.")


@dataclass(frozen=True)
class CertifyConfig(MatchSettings):
    """Whether a prediction file is what it claims to be.

    Args:
        predictions: Run folder or file, as for 'cxrlab score'.
        references: Corpus folder or file; left out when the predictions' file has a reference beside each.
        training: Corpus folder or file with the reports that the model was or may have been trained on; of a corpus with
            splits, its train split.
        controls: Run folders with predictions for control images, where PREDICTIONS is not such a run itself.
        model: Name of the model that is said to have written the predictions: it generates again, with control images.
        control_studies: Most studies for which this model generates.
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
    metrics: tuple[str, ...] = ()
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, trials=1, seed=0, control_studies=1)
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
        maps: layer:K, max-mean (over layers, then heads; likewise mean-mean, mean-max, max-max), relative: before one
            of these, sheet, gradient, input-gradient or integrated-gradient.
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
        maps: layer:K, max-mean (over layers, then heads; likewise mean-mean, mean-max, max-max), relative: before one
            of these, gradient, input-gradient or integrated-gradient; when left out, max-mean, every layer and every
            gradient.
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
        check_choice("split", self.split, SPLITS)
        check_at_least(self, n=1, trials=1, seed=0, batch_size=1)
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
        check_choice("split", self.split, SPLITS)
        check_choice("section", self.section, SECTIONS)
        check_at_least(self, n=2, seed=0, batch_size=1, trials=1)
        if not self.ks or min(self.ks) < 1:
            raise ConfigError(f"ks={list(self.ks)} is not usable; give whole numbers from 1, such as 1,5,10.")
        check_share("level", self.level)


@dataclass(frozen=True)
class ClassifyConfig:
    """Observations from images: area under the ROC curve of each label, and calibration.

    Args:
        data: Folder of the corpus.
        model: Name of an encoder of `train encoder --objective findings`, such as hf:runs/findings/best.
        probabilities: In place of a model: files with its probabilities of each study, as this command writes them
            (`{"id": …, "probabilities": {"cardiomegaly": 0.1, …}}`); several are joined, such as those of all folds.
        split: train, val or test; with `probabilities` the studies are those of the files.
        truth: What labels come from: findings (exact), report (as `cxrlab read` finds them) or labels (of the source's
            table); when left out the first that a study has.
        section: Section of the report.
        unmentioned: An observation that a report does not mention is absent (negative), or unknown (ignored).
        views: Views of a study that the model receives; when left out those that it was trained on. An empty list of
            views is one frontal image.
        min_positives: Fewest positive studies of a label for it to be measured.
        calibrate: Split of the corpus on which one temperature is fitted for all labels; none when left out.
        batch_size: Studies per batch.
        trials: Bootstrap resamples behind each interval.
        level: Confidence level of the intervals.
        seed: Decides the resamples.
        loading: How the encoder is loaded.
    """

    data: Path
    model: str | None = None
    probabilities: tuple[Path, ...] = ()
    split: str = "test"
    truth: Literal["findings", "report", "labels"] | None = None
    section: str = "findings"
    unmentioned: Literal["negative", "ignored"] = "negative"
    views: tuple[Literal["PA", "AP", "frontal", "lateral", "other"], ...] | None = None
    min_positives: int = 20
    calibrate: str | None = None
    batch_size: int = 32
    trials: int = 1000
    level: float = 0.95
    seed: int = 7
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        check_choice("split", self.split, SPLITS)
        check_choice("section", self.section, SECTIONS)
        check_at_least(self, min_positives=1, batch_size=1, trials=1, seed=0)
        check_share("level", self.level)
        if (self.model is None) != bool(self.probabilities):
            raise ConfigError("give either --model or --probabilities.")
        if self.calibrate is not None:
            check_choice("calibrate", self.calibrate, SPLITS)
            if self.model is None or self.calibrate == self.split:
                raise ConfigError(
                    f"--calibrate {self.calibrate} needs --model, and another split than the one that is measured."
                )


@dataclass(frozen=True)
class ValidateConfig(MetricResources):
    """Metrics against radiologists' ratings, ranking cases, or reports with known errors.

    Args:
        benchmark: radpref, radjudge or rexval (with --root), or phantom (generated from the seed), which takes none of
            --graphs, --encoder and --chexbert.
        root: Folder of the benchmark's files; phantom needs none.
        metrics: Names or groups of metrics, and judges by language models (chexprompt:http://127.0.0.1:8000/v1#MODEL),
            several side by side; the default ones when left out.
        n: Number of cases; only for phantom.
        tie: Largest difference at which two values count as equal in a ranking; only for radjudge.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples, and the cases of phantom.
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
    llm: LLMConfig = LLMConfig()
    judging: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.root is None and self.benchmark != "phantom":
            raise ConfigError(f"--root is missing; name the folder with the files of {self.benchmark}.")
        check_at_least(self, n=2, trials=1, seed=0)
        if self.benchmark == "phantom" and (self.graphs or self.encoder or self.chexbert):
            raise ConfigError("--benchmark phantom uses no --graphs, --encoder or --chexbert; leave them out.")
        if self.tie < 0:
            raise ConfigError(f"tie={self.tie} is not usable; give a difference of at least 0.")

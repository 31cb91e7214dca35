"""LLaVA-Rad's Analysis #1: text that a language model processed, against text that rules extracted, on a test split.

    rule.jsonl processed.jsonl   both texts of the studies that have both
    answers.sqlite               answers of the language model, where one was asked, and requests.jsonl
    texts/                       the processed text scored against the rule text, as if a model had written it
    NAME/rule NAME/processed     predictions of a run scored against either text
    analysis.json page.html      the end

The first table says how much of a score is the choice of the reference's wording; the others say by how much a
model's scores move when the reference is the other text. Text of a language model is never put into a corpus'
test split: it stays in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import is_address
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm import llm_operational_fields
from cxrlab.core.randomness import generator
from cxrlab.core.records import SPLITS, Study
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import track
from cxrlab.data.config import StructureConfig
from cxrlab.render.page import PAGE, write_page

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus
    from cxrlab.models.text_model_cache import CachedTextModel

RULE, PROCESSED, TEXTS, ANALYSIS = "rule", "processed", "texts", "analysis.json"
OPERATIONAL = llm_operational_fields("structure.llm")  # settings that may change when a run is continued
_BATCH = 16
_FILES = (".jsonl", ".json", ".csv")


@dataclass(frozen=True)
class AnalysisConfig:
    """Processed test text against rule-processed test text.

    Args:
        references: Folder of the corpus; its source's text by rule is one of the two.
        processed: The other: a file of reports with ids (JSONL, JSON, CSV), rules for the built-in structurer, or the
            name of a text model that is asked here.
        predictions: Runs of 'generate' on the same split, to be scored against both.
        split: train, val or test.
        metrics: Names or groups of metrics; the default ones when left out.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples; handed to a text model.
        structure: How a text model is asked; its model, split, limit and workers are not used.
        chexbert: The published checkpoint chexbert.pth, for labels by CheXbert.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
    """

    references: Path
    processed: str = "rules"
    predictions: tuple[Path, ...] = ()
    split: str = "test"
    metrics: tuple[str, ...] = ()
    trials: int = 1000
    seed: int = 7
    structure: StructureConfig = field(default_factory=StructureConfig)
    chexbert: Path | None = None
    bert: Path | None = None

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{did_you_mean(self.split, SPLITS)} Use {', '.join(SPLITS)}."
            )
        for name, least in (("trials", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from {least}.")
        names = [path.name for path in self.predictions]
        taken = {TEXTS, *(name for name in names if names.count(name) > 1)}
        if clash := sorted(taken & set(names)):
            raise ConfigError(f"predictions has '{clash[0]}' twice or as a reserved name; name the run folders apart.")


@dataclass(frozen=True)
class Texts:
    """How many studies of the split have which text; only those with both are scored."""

    studies: int
    both: int
    rule_only: int
    processed_only: int
    neither: int


def run_analysis(config: AnalysisConfig, out: Path) -> Path:
    """Score the two texts against each other, and predictions against both; ends with a page.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one is shown again.
    """
    if not finished(out, config, seed=config.seed, operational=OPERATIONAL):
        from cxrlab.data.corpus import load_corpus

        corpus = load_corpus(config.references)  # a wrong name leaves no folder behind
        if not corpus.ids(config.split):
            raise DataError(f"{corpus.path} has no study in its {config.split} split.")
        with (
            _model(config, corpus, out) as model,
            Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run,
        ):
            counts = _write_texts(run, config, corpus, model)
            _score(config, out / TEXTS, run.path(f"{RULE}.jsonl"), run.path(f"{PROCESSED}.jsonl"))
            both = {str(row["id"]) for _, row in read_jsonl(run.path(f"{RULE}.jsonl"))}
            moved = {path.name: _against_both(run, config, path, both) for path in config.predictions}
            run.write("summary.json", {"about": f"Two texts of {counts.both} studies, one by rule, one processed."})
            run.write(ANALYSIS, {"texts": plain(counts), "metrics": _values(out / TEXTS), "predictions": moved})
    parts = [out / TEXTS] + [out / path.name / text for path in config.predictions for text in (RULE, PROCESSED)]
    return write_page([out, *parts], out / PAGE, title="Processed text against rule text")


@contextmanager
def _model(config: AnalysisConfig, corpus: Corpus, out: Path) -> Iterator[CachedTextModel | None]:
    """The text model that is asked, where one is; what may not be sent to it is told before the folder is made."""
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.evaluation.open_models import open_text_model

    if config.processed == RULES or _is_file(config.processed):
        yield None
        return
    llm, flag = config.structure.llm, "structure.llm.connection"
    with open_text_model(config.processed, llm, [corpus.egress_data], out, flag) as model:
        yield model


def _write_texts(run: Run, config: AnalysisConfig, corpus: Corpus, model: CachedTextModel | None) -> Texts:
    """Write both texts of the studies that have both, in corpus order."""
    rule, processed, seen = [], [], {"both": 0, "rule_only": 0, "processed_only": 0, "neither": 0}
    for study, made in _made(config, corpus, model):
        own = _text(study.sections.findings if study.sections else None)
        kind = {(True, True): "both", (True, False): "rule_only", (False, True): "processed_only"}
        seen[kind.get((own is not None, made is not None), "neither")] += 1
        if own is not None and made is not None:
            rule.append({"id": study.id, "patient": study.patient, "report": own})
            processed.append({"id": study.id, "patient": study.patient, "report": made})
    if not rule:
        raise DataError(
            f"no study of the {config.split} split of {config.references} has both texts ({seen['rule_only']} have the "
            f"rule text alone, {seen['processed_only']} the other alone); is '{config.processed}' of this corpus?"
        )
    for name, rows in ((RULE, rule), (PROCESSED, processed)):
        run.write(f"{name}.jsonl", "".join(_line(row) for row in rows))
    return Texts(studies=sum(seen.values()), **seen)


def _is_file(processed: str) -> bool:
    """Whether the name is that of a file of reports, not of a text model."""
    from cxrlab.models.names import TEXT_KINDS

    return processed.endswith(_FILES) and not is_address(processed) and processed.partition(":")[0] not in TEXT_KINDS


def _of(reference: Any) -> str | None:
    return None if reference is None else reference.text


def _made(config: AnalysisConfig, corpus: Corpus, model: CachedTextModel | None) -> Iterator[tuple[Study, str | None]]:
    """Each study with its other text: from a file, by a language model, or by the rules."""
    from cxrlab.data.structuring.by_model import structuring_source
    from cxrlab.data.structuring.rules import structure
    from cxrlab.evaluation.score_inputs import read_references

    if _is_file(config.processed):
        file = read_references(Path(config.processed))
        if file.numbered:
            raise DataError(f"{file.name} has no ids, so that no text belongs to a study; give each report its id.")
        texts = file.items
        yield from ((study, _text(_of(texts.get(study.id)))) for study in corpus.studies(config.split))
        return
    studies = track(corpus.studies(config.split), "processing test text", total=len(corpus.ids(config.split)))
    if model is not None:
        yield from _by_model(config, corpus, model, iter(studies))
        return
    for study in studies:
        source = structuring_source(study)
        yield study, _text(structure(source.report).report.findings) if source and source.english else None


def _by_model(
    config: AnalysisConfig, corpus: Corpus, model: CachedTextModel, studies: Iterator[Study]
) -> Iterator[tuple[Study, str | None]]:
    """Asked in batches; answers are kept, so that a run that goes on asks nothing twice."""
    from cxrlab.data.structuring.by_model import ModelStructurer, load_prompt

    asked = config.structure
    structurer = ModelStructurer(
        model, load_prompt(asked.prompt), corpus.card.name, asked.retries, asked.max_tokens, config.seed
    )
    while batch := list(islice(studies, _BATCH)):
        for study, done in zip(batch, structurer.structure(batch), strict=True):
            # Text that fell back on the rules is not the model's: it counts as none.
            yield study, _text(done.texts.get(model.name, {}).get("findings"))


def _against_both(run: Run, config: AnalysisConfig, predictions: Path, both: set[str]) -> dict[str, Any]:
    """A run's predictions scored against either text, and what the other text changes, study by study."""
    from cxrlab.evaluation.score_inputs import read_predictions
    from cxrlab.evaluation.scored_runs import read_tallies
    from cxrlab.metrics.statistics.bootstrap import Clusters
    from cxrlab.metrics.statistics.paired_tests import paired_differences

    texts = read_predictions(predictions).items
    if absent := sorted(both - set(texts)):
        raise DataError(f"{predictions} has no prediction for {len(absent)} studies (for example '{absent[0]}').")
    folder = run.path(predictions.name)
    rows = "".join(_line({"id": key, "report": texts[key]}) for key in sorted(both))
    file = run.write(f"{predictions.name}.jsonl", rows)
    for text in (RULE, PROCESSED):
        _score(config, folder / text, run.path(f"{text}.jsonl"), file)
    first, second = read_tallies(folder / RULE), read_tallies(folder / PROCESSED)
    names = [name for name in first.tallies if name in second.tallies]
    found = paired_differences(
        [first.tallies[name] for name in names],
        [second.tallies[name] for name in names],
        Clusters(first.patients),
        rng=generator(config.seed, "analysis", predictions.name),
    )
    return {one.metric: plain(one) for one in found}


def _score(config: AnalysisConfig, out: Path, references: Path, predictions: Path) -> None:
    from cxrlab.evaluation.config import ScoreConfig
    from cxrlab.evaluation.score import run_score

    if state(out) == "finished":
        return
    run_score(
        ScoreConfig(
            references=references,
            predictions=predictions,
            metrics=config.metrics,
            slices=False,
            trials=config.trials,
            seed=config.seed,
            chexbert=config.chexbert,
            bert=config.bert,
        ),
        out,
    )


def _values(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = read_json(folder / "scores.json")["metrics"]
    keys: Sequence[str] = ("value", "low", "high", "n", "direction")
    return {name: {key: score[key] for key in keys} for name, score in metrics.items()}


def _text(text: str | None) -> str | None:
    """The text without white space around it; None where there is no word."""
    return text.strip() or None if text else None


def _line(row: dict[str, Any]) -> str:
    from cxrlab.core.json_values import dumps

    return dumps(row) + "\n"

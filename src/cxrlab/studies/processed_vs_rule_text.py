"""LLaVA-Rad's Analysis #1: text that a language model processed, against text that rules extracted, on a test split.

    inputs/                      both texts of the studies that have both, the predictions for them, a text model's answers
    texts/                       the processed text scored against the rule text, as if a model had written it
    NAME/rule NAME/processed     predictions of a run scored against either text
    analysis.json                scores of the texts, and what the other text changes in a model's scores

The first table shows how much of a score is the choice of the reference's wording. A language model's text never goes
into the corpus: it stays in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from cxrlab.core.egress import is_address
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.llm_requests import llm_operational_fields
from cxrlab.core.randomness import generator
from cxrlab.core.records import SPLITS, Study
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.structuring.by_model import ModelStructurer, load_prompt, structuring_source
from cxrlab.data.structuring.rules import RULES, structure
from cxrlab.evaluation.load_model import open_text_model
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.evaluation.scored_runs import read_tallies
from cxrlab.metrics.statistics.intervals import Clusters
from cxrlab.metrics.statistics.paired_tests import paired_differences
from cxrlab.models.model_registry import TEXT_KINDS
from cxrlab.studies.engine import SUMMARY, Kind, Part, StudyRecipe

if TYPE_CHECKING:
    from cxrlab.models.llm_cache import CachedTextModel

RULE, PROCESSED, TEXTS, INPUTS = "rule", "processed", "texts", "inputs"
ANALYSIS, COUNTS = "analysis.json", "counts.json"
SCORED_WITH = ("metrics", "preset", "trials", "seed", "chexbert", "bert", "graphs")  # settings of 'score' too


@dataclass(frozen=True)
class AnalysisConfig:
    """Processed test text against rule-processed test text.

    Args:
        references: Folder of the corpus; its source's text by rule is one of the two.
        processed: The other: a file of reports with ids (JSONL, JSON, CSV), rules for the built-in structurer, or the
            name of a text model that processes it here.
        predictions: Runs of 'generate' on the same split, to be scored against both.
        split: train, val or test.
        metrics: Names or groups of metrics; the default ones when left out.
        preset: The columns of a paper, as in 'score', beside these metrics.
        trials: Bootstrap resamples behind each interval.
        seed: Decides the resamples; passed to a text model.
        structure: Settings of a text model; its model, split, limit and workers are not used.
        chexbert: The published checkpoint chexbert.pth, for labels by CheXbert.
        bert: Folder with the tokenizer of bert-base-uncased, for CheXbert.
        graphs: JSON with RadGraph graphs of all texts, or a model of the installed radgraph package, for RadGraph F1.
    """

    references: Path
    processed: str = "rules"
    predictions: tuple[Path, ...] = ()
    split: str = "test"
    metrics: tuple[str, ...] = ()
    preset: Literal["paper", "llava-rad", "rexrank"] | None = None
    trials: int = 1000
    seed: int = 7
    structure: StructureConfig = field(default_factory=StructureConfig)
    chexbert: Path | None = None
    bert: Path | None = None
    graphs: Path | None = None

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split={self.split!r} is unknown.{did_you_mean(self.split, SPLITS)} Use {', '.join(SPLITS)}."
            )
        for name, least in (("trials", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from {least}.")
        names = [path.name for path in self.predictions]
        taken = {TEXTS, INPUTS, RULE, PROCESSED, *(name for name in names if names.count(name) > 1)}
        if clash := sorted(taken & set(names)):
            raise ConfigError(
                f"predictions has '{clash[0]}' twice or as a reserved name; rename one of the run folders."
            )


class TextAnalysis(StudyRecipe):
    """Scores the two texts against each other, and predictions against both."""

    config: AnalysisConfig
    config_class = AnalysisConfig
    title = "Processed text against rule text"
    kinds = MappingProxyType(
        {"scores": Kind("cxrlab.evaluation.config:ScoreConfig", "cxrlab.evaluation.score:run_score")}
    )
    operational = llm_operational_fields("structure.llm")

    def corpus_rows(self) -> Mapping[str, Any]:
        """The corpus of the references."""
        return {"references": str(self.config.references)}

    def plan(self) -> None:
        """The inputs, then a score of the texts and two of each run of predictions."""
        config, self.seed = self.config, self.config.seed
        self.parts.append(Part(INPUTS, config.seed, INPUTS, config))
        self._add_scores(TEXTS, RULE, PROCESSED)
        for path in config.predictions:
            for text in (RULE, PROCESSED):
                self._add_scores(f"{path.name}/{text}", text, path.name)

    def _add_scores(self, folder: str, references: str, predictions: str) -> None:
        texts = {"references": references, "predictions": predictions}
        own = {
            **{key: str(self.out / INPUTS / f"{name}.jsonl") for key, name in texts.items()},
            **{key: plain(getattr(self.config, key)) for key in SCORED_WITH},
            "slices": False,
        }
        given = {key: value for key, value in own.items() if value is not None}
        self.add("scores", folder, given, {}, seed=self.config.seed, place=f"scores of '{folder}'")

    def check(self) -> None:
        """Refuse an empty split, and a text model that cannot be used or may not get the text."""
        super().check()
        corpus = load_corpus(self.config.references)
        if not corpus.ids(self.config.split):
            raise DataError(f"{corpus.path} has no study in its {self.config.split} split.")
        self._model = self._text_model(corpus)  # it makes no folder before the first answer

    def make(self, part: Part) -> None:
        """Write the inputs, or score."""
        if part.kind == INPUTS:
            self._write_inputs(self.out / INPUTS)
        else:
            super().make(part)

    def _write_inputs(self, folder: Path) -> None:
        """Both texts of the studies that have both, in corpus order, and the predictions for them."""
        config = self.config
        if finished(folder, config, seed=config.seed, operational=self.operational):
            return
        corpus = load_corpus(config.references)
        predictions = {path: read_predictions(path).items for path in config.predictions}
        with (
            self._model as model,
            Run.open(folder, config, seed=config.seed, operational=self.operational) as run,
        ):
            rows: dict[str, list[dict[str, Any]]] = {RULE: [], PROCESSED: []}
            counts = dict.fromkeys(("both", "rule_only", "processed_only", "neither"), 0)
            for study, processed in self._processed(corpus, model):
                rule = _stripped(study.sections.findings if study.sections else None)
                if rule is not None and processed is not None:
                    counts["both"] += 1
                    for name, text in ((RULE, rule), (PROCESSED, processed)):
                        rows[name].append({"id": study.id, "patient": study.patient, "report": text})
                else:
                    counts["rule_only" if rule else "processed_only" if processed else "neither"] += 1
            if not rows[RULE]:
                raise DataError(
                    f"no study of the {config.split} split of {config.references} has both texts "
                    f"({counts['rule_only']} have the rule text alone, {counts['processed_only']} the other alone); is "
                    f"'{config.processed}' of this corpus?"
                )
            both = sorted(str(row["id"]) for row in rows[RULE])
            for path, reports in predictions.items():
                if absent := [name for name in both if name not in reports]:
                    raise DataError(f"{path} has no prediction for {len(absent)} studies (for example '{absent[0]}').")
                rows[path.name] = [{"id": name, "report": reports[name]} for name in both]
            for name, lines in rows.items():
                run.write(f"{name}.jsonl", "".join(dumps(line) + "\n" for line in lines))
            run.write(COUNTS, {"studies": sum(counts.values()), **counts})

    def _text_model(self, corpus: Corpus) -> AbstractContextManager[CachedTextModel | None]:
        """The text model that processes, if one does."""
        processed, llm = self.config.processed, self.config.structure.llm
        if processed == RULES or _is_file(processed):
            return nullcontext()
        return open_text_model(processed, llm, [corpus.egress_data], self.out / INPUTS, "structure.llm.connection")

    def _processed(self, corpus: Corpus, model: CachedTextModel | None) -> Iterator[tuple[Study, str | None]]:
        """Each study with its processed text: from a file, by a text model, or by the rules."""
        config = self.config
        if _is_file(config.processed):
            file = read_references(Path(config.processed))
            if file.numbered:
                raise DataError(f"{file.name} has no ids, so that no text belongs to a study; give each report its id.")
            for study in corpus.studies(config.split):
                reference = file.items.get(study.id)
                yield study, _stripped(None if reference is None else reference.text)
            return
        total = len(corpus.ids(config.split))
        studies = iter(track(corpus.studies(config.split), "processing test text", total=total))
        if model is None:
            for study in studies:
                source = structuring_source(study)
                english = source is not None and source.english
                yield study, _stripped(structure(source.report).report.findings) if source and english else None
            return
        settings = config.structure
        structurer = ModelStructurer(
            model,
            load_prompt(settings.prompt),
            corpus.card.name,
            settings.retries,
            settings.max_tokens,
            config.seed,
            settings.mode,
            settings.batch,
        )
        # Answers are kept, so that a resumed run repeats no request.
        for study, done in structurer.structured((study, None) for study in studies):
            # Text that fell back on the rules is not the model's: it counts as none.
            yield study, _stripped(done.texts.get(model.name, {}).get("findings"))

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Scores of the processed text, and each run's paired differences between the texts."""
        predictions = {}
        for path in self.config.predictions:
            first, second = (read_tallies(self.out / path.name / text) for text in (RULE, PROCESSED))
            names = [name for name in first.tallies if name in second.tallies]
            found = paired_differences(
                [first.tallies[name] for name in names],
                [second.tallies[name] for name in names],
                Clusters(first.patients),
                rng=generator(self.config.seed, "analysis", path.name),
            )
            predictions[path.name] = {one.metric: plain(one) for one in found}
        scores = read_json(self.out / TEXTS / "scores.json")["metrics"]
        keys = ("value", "low", "high", "n", "direction")
        metrics = {name: {key: score[key] for key in keys} for name, score in scores.items()}
        counts = read_json(self.out / INPUTS / COUNTS)
        return {
            ANALYSIS: {"texts": counts, "metrics": metrics, "predictions": predictions},
            SUMMARY: {"about": f"Two texts of {counts['both']} studies, one by rule, one processed."},
        }

    def page_runs(self) -> list[Path]:
        """Every scored run."""
        return [self.out / part.folder for part in self.parts if part.kind == "scores"]


def _is_file(processed: str) -> bool:
    """Whether the name is that of a file of reports, not of a text model."""
    named = is_address(processed) or processed.partition(":")[0] in TEXT_KINDS
    return processed.endswith((".jsonl", ".json", ".csv")) and not named


def _stripped(text: str | None) -> str | None:
    """The text without white space around it; None where there is no word."""
    return (text or "").strip() or None

"""Two reference texts: what is scored, what is left out, and that a language model's text stays out of the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_model import answer

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.studies.engine import run_recipe
from cxrlab.studies.processed_vs_rule_text import AnalysisConfig, TextAnalysis


def run_analysis(config: AnalysisConfig, out: Path) -> Path:
    return run_recipe(TextAnalysis(config, out))


METRICS = ("bleu1:coco", "findings.f1", "rougeL:google")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysis") / "corpus"
    make_phantom(PhantomConfig(n=50, size=32, seed=3, workers=1, masks=False), folder)
    return folder


def texts_of(corpus: Path) -> dict[str, str]:
    return {study.id: study.sections.findings for study in load_corpus(corpus).studies("test")}  # type: ignore[union-attr,misc]


def write_file(path: Path, texts: dict[str, str]) -> str:
    path.write_text("".join(json.dumps({"id": key, "report": text}) + "\n" for key, text in texts.items()))
    return str(path)


def found(out: Path) -> dict[str, Any]:
    return json.loads((out / "analysis.json").read_text())  # type: ignore[no-any-return]


def test_the_same_text_scores_one_and_moves_nothing(corpus: Path, tmp_path: Path) -> None:
    """A processor that changes no word: every overlap is whole, and no prediction's score moves."""
    normal = tmp_path / "normal"
    generate(GenerateConfig(model="stub:normal", data=corpus, control_studies=0), normal)
    same = write_file(tmp_path / "same.jsonl", texts_of(corpus))
    config = AnalysisConfig(corpus, processed=same, predictions=(normal,), metrics=METRICS, trials=20)
    page = run_analysis(config, tmp_path / "out")
    result = found(tmp_path / "out")
    assert all(result["metrics"][name]["value"] == pytest.approx(1.0) for name in METRICS)
    assert all(row["difference"] == 0.0 for row in result["predictions"]["normal"].values())
    assert result["texts"]["both"] == result["texts"]["studies"] == len(texts_of(corpus))
    assert "Two reference texts" in page.read_text()
    assert run_analysis(config, tmp_path / "out") == page  # a finished one is shown again


def test_only_studies_with_both_texts_are_scored(corpus: Path, tmp_path: Path) -> None:
    """One study without a processed text, and one processed text of no word: counted, not scored as empty reports."""
    texts = texts_of(corpus)
    first, second = list(texts)[:2]
    del texts[first]
    texts[second] = " "
    file = write_file(tmp_path / "some.jsonl", texts)
    run_analysis(AnalysisConfig(corpus, processed=file, metrics=METRICS, trials=20), tmp_path / "out")
    result = found(tmp_path / "out")
    assert result["texts"]["rule_only"] == 2
    assert result["metrics"]["bleu1:coco"]["n"] == result["texts"]["both"] == len(texts) - 1


def test_the_rules_keep_the_findings_and_change_the_words(corpus: Path, tmp_path: Path) -> None:
    """As in the paper: labels hardly move, n-grams do."""
    run_analysis(AnalysisConfig(corpus, metrics=METRICS, trials=20), tmp_path / "out")
    metrics = found(tmp_path / "out")["metrics"]
    assert metrics["findings.f1"]["value"] > 0.95 > metrics["bleu1:coco"]["value"] > 0.5


def scripted(path: Path, corpus: Path, good: int) -> str:
    """A model that gives back the source's own words for the first few studies and nothing usable for the others."""
    texts = list(texts_of(corpus).values())
    lines = [{"contains": text.split(". ")[0], "answer": answer(findings=text)} for text in texts[:good]]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"contains": "", "answer": "no"}]))
    return f"scripted:{path}"


def test_a_language_models_text_is_scored_and_stays_out_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    """Text that the structurer had to make by rule, since the model's was refused, is not the model's."""
    before = (corpus / "studies.jsonl").read_bytes()
    model = scripted(tmp_path / "answers.jsonl", corpus, 99)
    run_analysis(AnalysisConfig(corpus, processed=model, metrics=METRICS, trials=20), tmp_path / "out")
    result = found(tmp_path / "out")
    assert result["texts"]["both"] + result["texts"]["rule_only"] == len(texts_of(corpus))
    assert result["texts"]["both"] > 0
    assert result["metrics"]["bleu1:coco"]["value"] == pytest.approx(1.0)
    assert (corpus / "studies.jsonl").read_bytes() == before


def test_a_language_model_without_a_usable_answer_leaves_nothing_to_score(corpus: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path / "answers.jsonl", corpus, 0)
    with pytest.raises(DataError, match="has both texts"):
        run_analysis(AnalysisConfig(corpus, processed=model), tmp_path / "out")


def test_predictions_of_other_studies_are_refused(corpus: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    generate(GenerateConfig(model="stub:normal", data=corpus, n=2, control_studies=0), part)
    with pytest.raises(DataError, match="no prediction for"):
        run_analysis(AnalysisConfig(corpus, predictions=(part,), metrics=METRICS, trials=5), tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "tets"}, "Did you mean 'test'"),
        ({"trials": 0}, "trials=0"),
        ({"predictions": (Path("a/x"), Path("b/x"))}, "'x' twice"),
        ({"predictions": (Path("a/texts"),)}, "'texts'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AnalysisConfig(Path("c"), **settings)


def test_a_split_without_studies_is_refused_before_a_folder_is_made(corpus: Path, tmp_path: Path) -> None:
    import shutil

    bare = shutil.copytree(corpus, tmp_path / "bare")
    lines = [json.loads(line) for line in (bare / "studies.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["split"] != "test"]
    (bare / "studies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    with pytest.raises(DataError, match="no study in its test split"):
        run_analysis(AnalysisConfig(bare), tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""ReXrank's JSON in and out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import toy_corpus

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.rexrank import select_sections, write_rexrank
from cxrlab.evaluation.score import score

ENTRIES = {
    "CXR1_IM-1": {
        "key_image_path": "CXR1_IM-1/0.png",
        "image_path": ["CXR1_IM-1/0.png", "CXR1_IM-1/1.png"],
        "report": "Findings: Small left effusion. Impression: Effusion.",
        "section_findings": "Small left effusion.",
        "section_impression": "Effusion.",
        "split": "test",
        "frontal_lateral": ["Frontal", "Lateral"],
        "context": "Indication: Cough Comparison: None.",
    },
    "CXR2_IM-2": {
        "key_image_path": "CXR2_IM-2/0.png",
        "image_path": ["CXR2_IM-2/0.png"],
        "report": "Findings: The lungs are clear. Impression: None",
        "section_findings": "The lungs are clear.",
        "section_impression": None,
        "split": "test",
        "frontal_lateral": ["Frontal"],
        "context": "",
    },
}
PREDICTIONS = ("Findings:Small left effusion. Impression:Effusion.", "Findings: Large pneumothorax. Impression: Air.")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The references, and predictions beside them, as a submission holds them."""
    references, predictions = tmp_path / "test.json", tmp_path / "predictions.json"
    references.write_text(json.dumps(ENTRIES))
    rows = zip(ENTRIES.items(), PREDICTIONS, strict=True)
    predictions.write_text(json.dumps({key: {**entry, "model_prediction": text} for (key, entry), text in rows}))
    return references, predictions


def test_one_file_is_scored_section_by_section(files: tuple[Path, Path]) -> None:
    """Findings against findings: an impression in the prediction is no word too many."""
    sheet = score(files[1], metrics=["rouge1:google"])
    assert [study.pair.candidate for study in sheet.studies] == ["Small left effusion.", "Large pneumothorax."]
    assert [study.pair.reference for study in sheet.studies] == ["Small left effusion.", "The lungs are clear."]
    assert [study.values["rouge1:google"] for study in sheet.studies] == [1.0, 0.0]
    assert sheet.matching["predictions"]["report"] == ["findings of model_prediction"]


def test_two_files_give_the_same(files: tuple[Path, Path]) -> None:
    one, two = score(files[1], metrics=["rouge1:google"]), score(*files, metrics=["rouge1:google"])
    assert one["rouge1:google"].value == two["rouge1:google"].value == 0.5
    whole = score(*files, section="findings+impression", metrics=["rouge1:google"])
    assert whole.studies[0].pair.candidate == whole.studies[0].pair.reference == "Small left effusion. Effusion."


def test_the_whole_report_is_scored_where_it_is_named(files: tuple[Path, Path]) -> None:
    """As the leaderboard does: headings included on both sides."""
    sheet = score(*files, columns=("reference=report",), metrics=["rouge1:google"])
    assert sheet.studies[0].pair.reference == "Findings: Small left effusion. Impression: Effusion."
    assert sheet.studies[0].pair.candidate == PREDICTIONS[0] and sheet.studies[0].values["rouge1:google"] == 1.0


def test_sections_of_a_prediction() -> None:
    cases = [
        ("Findings: a b Impression: c", ("findings",), "a b"),
        ("FINDINGS:a\nIMPRESSION:c", ("impression",), "c"),
        ("Findings: a Impression: c", ("findings", "impression"), "a c"),
        ("Impression: c", ("findings",), ""),
        ("No acute findings: clear. Impression: c", ("findings",), "No acute findings: clear. Impression: c"),
        ("plain", ("findings",), "plain"),
        ("Findings: a", (), "Findings: a"),
        (None, ("findings",), None),
    ]
    for text, sections, expected in cases:
        assert select_sections(text, sections) == expected, text


def test_predictions_are_written_beside_the_references(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    (tmp_path / "p.json").write_text(json.dumps({"CXR2_IM-2": "Clear.", "CXR1_IM-1": "Effusion."}))
    words = ["score", str(files[0]), str(tmp_path / "p.json"), "--write-rexrank", str(out), "--quiet"]
    assert main([*words, "--metrics", "bleu1:coco"]) == 0
    written = json.loads(out.read_text())
    assert list(written) == list(ENTRIES)
    assert written["CXR1_IM-1"] == {**ENTRIES["CXR1_IM-1"], "model_prediction": "Effusion."}
    again = score(out, metrics=["bleu1:coco"])
    assert [study.pair.candidate for study in again.studies] == ["Effusion.", "Clear."]


def test_a_corpus_is_written_in_that_form(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "corpus")
    studies = list(corpus.studies())
    write_rexrank(tmp_path / "out.json", tmp_path / "corpus", {studies[0].id: None, studies[1].id: "Clear."})
    written = json.loads((tmp_path / "out.json").read_text())
    first = written[studies[0].id]
    assert set(first) == {*ENTRIES["CXR1_IM-1"], "model_prediction"} and first["model_prediction"] == ""
    assert len(first["image_path"]) == len(first["frontal_lateral"]) == len(studies[0].images)
    report = studies[0].sections
    assert report is not None and first["section_findings"] == report.findings
    assert first["report"] == f"Findings: {report.findings} Impression: {report.impression}"


def test_what_cannot_be_written_is_refused_before_scoring(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"a": "x"}))
    out = tmp_path / "out.json"
    with pytest.raises(ConfigError, match="corpus"):
        write_rexrank(out, tmp_path / "r.json", {"a": "x"})
    with pytest.raises(ConfigError, match="'s#0'"):
        write_rexrank(out, files[0], {"s#0": "x"})
    words = ["score", str(tmp_path / "r.json"), str(tmp_path / "r.json"), "--write-rexrank", str(out), "--quiet"]
    assert main(words) == 1 and not out.exists()

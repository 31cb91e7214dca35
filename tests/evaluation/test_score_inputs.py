from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from corpora import toy_corpus
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.records import ImageFile, Report
from cxrlab.core.runs import Run
from cxrlab.core.vocabulary import View
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.evaluation.score import select_slices
from cxrlab.evaluation.score_inputs import Inputs, load_inputs
from cxrlab.metrics.report_pairs import Status


def jsonl(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, head: str, *rows: tuple[object, ...]) -> Path:
    """Rows under a comma-separated head, as CSV, TSV, JSON or JSONL by the ending of the name."""
    names = head.split(",")
    if path.suffix in (".json", ".jsonl"):
        objects = [dict(zip(names, row, strict=True)) for row in rows]
        path.write_text(json.dumps(objects))
        return path if path.suffix == ".json" else jsonl(path, *objects)
    with path.open("w", newline="") as stream:
        csv.writer(stream, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([names, *rows])
    return path


STUDIES = (("50", "A"), ("51", "B"), ("52", "C"), ("53", "D"))
SHUFFLED = tuple(STUDIES[place] for place in (2, 0, 3, 1))


def texts(inputs: Inputs) -> list[tuple[str | None, str | None]]:
    return [(pair.reference, pair.candidate) for pair in inputs.pairs]


PERFECT = [(text, text) for _, text in STUDIES]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Six studies s0…s5, two of each split; s2 and s5 are the test split and s5 has two images."""
    images = (ImageFile("images/s5.png", View.AP), ImageFile("images/s5.png", View.LATERAL))
    changes = {
        5: {"images": images, "sex": "M", "sections": Report(findings="Clear.", impression="Fine.", indication="Cough")}
    }
    return toy_corpus(tmp_path / "corpus", changes=changes).path


def test_lists_are_paired_by_place() -> None:
    inputs = load_inputs(["a", None, float("nan")], ["x", "", "z"])
    assert [(pair.id, pair.reference, pair.candidate) for pair in inputs.pairs] == [
        ("1", "a", "x"), ("2", None, ""), ("3", None, "z"),
    ]  # fmt: skip
    assert inputs.pairs[1].status is Status.NO_REFERENCE


def test_mappings_are_paired_by_id_whatever_their_order() -> None:
    inputs = load_inputs({"a": "A", "b": "B"}, {"b": "y", "a": "x"})
    assert [(pair.id, pair.candidate) for pair in inputs.pairs] == [("a", "x"), ("b", "y")]
    again = load_inputs({"a": "A", "b": "B"}, {"a": "x", "b": "y"})
    assert inputs.digest == again.digest != load_inputs({"a": "A", "b": "B"}, {"a": "x", "b": "Y"}).digest


@pytest.mark.parametrize("text", ["The lungs are clear.", "clear lungs " * 1_000, "", "x" * 5_000])
def test_a_report_in_the_place_of_a_path_is_refused_as_such(text: str) -> None:
    with pytest.raises(DataError, match="put single reports into a list"):
        load_inputs(text, ["x"])


@pytest.mark.parametrize("bad", [[3], [True], [{"a": 1}]])
def test_a_list_with_something_else_than_text_is_refused(bad: list[object]) -> None:
    with pytest.raises(DataError, match="references, report 1 is"):
        load_inputs(bad, ["x"])  # type: ignore[arg-type]


@every_row(
    ("references", "predictions", "said"),
    [
        (["a", "b"], ["x"], "2 reports in .* and 1 in"),
        (["a"], {"a": "x"}, "give both ids.*--by-row"),
        (
            {"a": "A", "b": "B"},
            {"a": "x"},
            r"1 of 2 references have no prediction \(for example 'b'\).*--allow-missing",
        ),
        ({"a": "A"}, {"a": "x", "b": "y"}, r"1 of 2 predictions have no reference \(for example 'b'\)"),
        ({"a": "A", "c": "C"}, {"a": "x", "b": "y"}, "1 of 2 predictions.*1 of 2 references"),
        ({"a": "A"}, {"b": "y"}, "no prediction of the predictions belongs to a reference"),
        ({1: "A", "1": "B"}, {"1": "x"}, "the id '1' twice"),
        ({"a": "A", "b": "B"}, {"a#0": "x", "a#00": "y", "b#0": "z"}, r"1 of 3 predictions .*'a#00'"),
        ([], [], "nothing to score: the references hold no report"),
        ({}, {"a": "x"}, "nothing to score"),
        (None, ["x"], "the references are null; give a list"),
        (3, ["x"], "the references are 3; give a list"),
        ({"A", "B"}, ["x", "y"], "give a list of reports"),
        (["A", "B"], {"x", "y"}, "the predictions are .*give a list of reports"),
    ],
)
def test_what_does_not_match_is_refused_with_count_and_examples(references, predictions, said) -> None:
    with pytest.raises(DataError, match=said):
        load_inputs(references, predictions)


def test_a_missing_prediction_may_be_scored_as_an_empty_report() -> None:
    """An extra one may not: nobody can say what it should have been."""
    inputs = load_inputs({"a": "A", "b": "B"}, {"a": "x"}, allow_missing=True)
    assert [pair.status for pair in inputs.pairs] == [Status.SCORED, Status.MISSING_CANDIDATE]
    with pytest.raises(DataError, match="have no reference"):
        load_inputs({"a": "A", "b": "B"}, {"a": "x", "z": "?"}, allow_missing=True)


def test_text_files_and_one_file_with_both(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("A\nB\n")
    (tmp_path / "p.txt").write_text("x\n\n")
    assert [pair.candidate for pair in load_inputs(tmp_path / "r.txt", tmp_path / "p.txt").pairs] == ["x", ""]
    both = tmp_path / "both.csv"
    both.write_text("id,reference,candidate,patient,age,sex\na,A,x,p1,070Y,female\nb,B,y,p1,,\n")
    for inputs in (load_inputs(both), load_inputs(both, both)):
        assert [(p.id, p.reference, p.candidate, p.patient) for p in inputs.pairs] == [
            ("a", "A", "x", "p1"),
            ("b", "B", "y", "p1"),
        ]
        assert [(a.age, a.sex) for a in inputs.attributes] == [(70.0, "F"), (None, None)]
    with pytest.raises(DataError, match="no generated reports beside; give --predictions"):
        load_inputs(tmp_path / "r.txt")


def test_a_corpus_gives_text_truth_patient_and_context(corpus: Path) -> None:
    """Without a split, the splits that hold a predicted study must be answered whole, and no other."""
    inputs = load_inputs(corpus, {"s5": "x", "s2": "y"})
    assert [pair.id for pair in inputs.pairs] == ["s2", "s5"]
    second = inputs.pairs[1]
    assert (second.reference, second.patient, second.context.age, second.context.indication) == (
        "Clear.",
        "p5",
        65,
        "Cough",
    )
    assert second.findings is not None and second.findings[0].observation == "pleural effusion"
    assert (inputs.attributes[1].view, inputs.attributes[1].sex) == ("AP", "M")
    with pytest.raises(DataError, match="1 of 2 references have no prediction"):
        load_inputs(corpus, {"s5": "x"})
    with pytest.raises(DataError, match="no study in the split 'nowhere'"):
        load_inputs(corpus, {"s5": "x"}, split="nowhere")
    with pytest.raises(DataError, match="2 of 4 predictions have no reference"):
        load_inputs(corpus, dict.fromkeys(("s2", "s5", "s0", "s3"), "x"), split="test")


def test_the_section_is_chosen_and_the_images_truth_measures_findings_alone(corpus: Path) -> None:
    """An impression repeats only part of what the image shows."""
    said = {"s2": "y", "s5": "x"}
    one = load_inputs(corpus, said, section="impression").pairs[1]
    assert (one.reference, one.findings) == ("Fine.", None)
    both = load_inputs(corpus, said, section="findings+impression").pairs[1]
    assert both.reference == "Clear. Fine." and both.findings is not None
    assert load_inputs(corpus, said, section="impression").pairs[0].status is Status.NO_REFERENCE
    with pytest.raises(ConfigError, match="Did you mean 'findings'"):
        load_inputs(corpus, said, section="finding")


def test_the_file_of_a_corpus_is_as_good_as_the_corpus(corpus: Path) -> None:
    said = {"s2": "y", "s5": "x"}
    assert load_inputs(corpus / "studies.jsonl", said) == load_inputs(corpus, said)


def test_images_of_a_study_are_scored_one_by_one(corpus: Path) -> None:
    inputs = load_inputs(corpus, {"s5#1": "b", "s2#0": "c", "s5#0": "a"})
    assert [(pair.id, pair.candidate, pair.patient) for pair in inputs.pairs] == [
        ("s2#0", "c", "p2"), ("s5#0", "a", "p5"), ("s5#1", "b", "p5"),
    ]  # fmt: skip
    assert [item.view for item in inputs.attributes] == ["PA", "AP", "lateral"]
    assert inputs == load_inputs(corpus, {"s5#1": "b", "s2#0": "c", "s5#0": "a"}, unit="image")
    with pytest.raises(DataError, match=r"image 2 of study 's5', which has 2"):
        load_inputs(corpus, {"s5#2": "b", "s2#0": "c"})
    with pytest.raises(DataError, match="whole studies .* and for single images"):
        load_inputs(corpus, {"s5#1": "b", "s2": "c"})
    with pytest.raises(DataError, match="belongs to a reference"):
        load_inputs(corpus, {"s5#1": "b", "s2#0": "c"}, unit="study")


def test_by_image_every_frontal_image_needs_a_report(tmp_path: Path) -> None:
    two = (ImageFile("images/s2.png", View.PA), ImageFile("images/s2.png", View.AP))
    side = (ImageFile("images/s5.png", View.LATERAL),)
    path = toy_corpus(tmp_path / "corpus", 9, {2: {"images": two}, 5: {"images": side}}).path
    with pytest.raises(DataError, match=r"1 of 3 references have no prediction \(for example 's2#1'\)"):
        load_inputs(path, {"s2#0": "a", "s8#0": "c"})
    found = load_inputs(path, {"s8#0": "c", "s2#0": "a"}, allow_missing=True)
    assert [(pair.id, pair.candidate) for pair in found.pairs] == [("s2#0", "a"), ("s2#1", None), ("s8#0", "c")]
    whole = load_inputs(path, {"s8#0": "c", "s2#1": "b", "s2#0": "a"}, split="test", unit="image")
    assert [pair.id for pair in whole.pairs] == ["s2#0", "s2#1", "s8#0"]  # s5 has no frontal image: no pair
    some = load_inputs(path, {"s2#0": "a", "s8#0": "c"}, matched_only=True)
    assert ([pair.id for pair in some.pairs], some.missing) == (["s2#0", "s8#0"], ("s2#1",))


def test_the_unit_that_was_asked_for_is_the_unit_that_is_scored() -> None:
    with pytest.raises(DataError, match="'a' in the predictions is a whole study; --unit image"):
        load_inputs({"a": "A"}, {"a": "x"}, unit="image")
    with pytest.raises(ConfigError, match="the unit is 'series'; choose one of auto, study, image"):
        load_inputs({"a": "A"}, {"a": "x"}, unit="series")  # type: ignore[arg-type]


def test_the_digest_sees_what_the_slices_are_made_by(tmp_path: Path) -> None:
    """Else a finished run would go on showing slices of the old ages after the file was corrected."""
    digests = set()
    for sex in "FM":
        references = jsonl(tmp_path / f"{sex}.jsonl", {"id": "a", "report": "A", "sex": sex})
        digests.add(load_inputs(references, {"a": "x"}).digest)
    assert len(digests) == 2


def test_an_id_with_a_number_sign_of_its_own_is_itself() -> None:
    inputs = load_inputs({"s1#0": "A", "s1#1": "B"}, {"s1#0": "x", "s1#1": "y"})
    assert [pair.id for pair in inputs.pairs] == ["s1#0", "s1#1"]


def test_a_run_says_what_it_was_asked_for(corpus: Path, tmp_path: Path) -> None:
    """One study of two was drawn, so one is scored; a run that was stopped is not scored at all."""
    generate(GenerateConfig("stub:normal", corpus, n=1), tmp_path / "run")
    assert len(load_inputs(corpus, tmp_path / "run").pairs) == 1
    with pytest.raises(RuntimeError), Run.open(tmp_path / "stopped", {"a": 1}) as run:
        run.append("predictions.jsonl", {"id": "s2", "report": "x"})
        raise RuntimeError
    with pytest.raises(DataError, match="has not finished"):
        load_inputs(corpus, tmp_path / "stopped")
    with pytest.raises(DataError, match="neither a corpus .* nor a run"):
        load_inputs(corpus, tmp_path)
    with pytest.raises(DataError, match="is a corpus, not predictions"):
        load_inputs(corpus, corpus)


def test_a_study_whose_image_could_not_be_read_is_missing(corpus: Path, tmp_path: Path) -> None:
    (corpus / "images" / "s2.png").unlink()
    generate(GenerateConfig("stub:normal", corpus, allow_missing=True), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["allow_missing"] is True
    for allow in (False, True):  # the run was allowed to miss it, and needs no further permission
        inputs = load_inputs(corpus, tmp_path / "run", allow_missing=allow)
        assert [pair.status for pair in inputs.pairs] == [Status.MISSING_CANDIDATE, Status.SCORED]
    lines = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    (tmp_path / "less.jsonl").write_text("\n".join(lines))  # a file tells nothing of a permission
    with pytest.raises(DataError, match="'s2'"):
        load_inputs(corpus, tmp_path / "less.jsonl")


def test_a_run_that_would_miss_the_same_studies_again_is_not_sent_to_run_again(corpus: Path, tmp_path: Path) -> None:
    (corpus / "images" / "s2.png").unlink()
    with pytest.raises(DataError, match="--allow-missing"):
        generate(GenerateConfig("stub:normal", corpus), tmp_path / "run")
    with pytest.raises(DataError, match=r"summary\.json.*--allow-missing") as caught:
        load_inputs(corpus, tmp_path / "run")
    assert "to finish it" not in str(caught.value)
    generate(GenerateConfig("stub:normal", corpus, allow_missing=True), tmp_path / "run")
    assert len(load_inputs(corpus, tmp_path / "run").pairs) == 2


def test_a_view_that_nobody_stated_makes_a_slice_of_its_own(tmp_path: Path) -> None:
    """In a corpus's file and in anybody's rows: unknown, not frontal, and all are in some slice."""
    images = (
        [{"path": "a.png", "view": "PA"}],
        [{"path": "b.png"}],
        [{"path": "c.png"}, {"path": "d.png", "view": "AP"}],
    )
    rows = [{"id": str(n), "report": "x", "images": one} for n, one in enumerate(images)]
    inputs = load_inputs(jsonl(tmp_path / "r.jsonl", *rows), {"0": "x", "1": "x", "2": "x"})
    assert [one.view for one in inputs.attributes] == ["PA", None, "AP"]
    masks = select_slices(inputs.attributes)
    assert {name: mask.sum() for name, mask in masks.items()} == {"view=AP": 1, "view=PA": 1, "view=unknown": 1}
    single = load_inputs(tmp_path / "r.jsonl", {"0#0": "x", "1#0": "x", "2#0": "x", "2#1": "x"})
    assert [one.view for one in single.attributes] == ["PA", None, None, "AP"]


def test_rows_with_sections_exact_findings_and_a_wrong_word(tmp_path: Path) -> None:
    row = {
        "id": "a",
        "sections": {"findings": "F", "impression": "I"},
        "findings": [{"observation": "nodule"}],
        "view": "LL",
    }
    inputs = load_inputs(jsonl(tmp_path / "r.jsonl", row), {"a": "x"})
    assert inputs.pairs[0].reference == "F" and inputs.pairs[0].findings is not None
    assert inputs.attributes[0].view == "lateral"
    for wrong, said in (
        ({"id": "a", "report": "x", "findings": [{"observation": "nodul"}]}, "r.jsonl:1: 'nodul'"),
        ({"id": "a", "report": 4}, "r.jsonl:1: 'report' is 4"),
        ({"id": "a", "report": "x", "age": "old"}, "r.jsonl:1: the age"),
        ({"id": "a"}, "Columns found: id. No column of reference reports"),
    ):
        with pytest.raises(DataError, match=said):
            load_inputs(jsonl(tmp_path / "r.jsonl", wrong), {"a": "x"})


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("id", "ID"),
        ("study_id", "study_id"),
        ("Study ID", "study-id"),
        ("dicom_id", "DICOM_ID"),
        ("image_id", "ImageID"),
        ("uid", "UID"),
        ("accession", "Accession Number"),
        ("study_id", "id"),
        ("slot", "Slot"),
    ],
)
def test_shuffled_rows_are_matched_by_whatever_names_them(tmp_path: Path, ending: str, left: str, right: str) -> None:
    """By position the first pair would be A against C, with exit code 0 and a low score."""
    references = table(tmp_path / f"r.{ending}", f"{left},report", *STUDIES)
    predictions = table(tmp_path / f"p.{ending}", f"{right},report", *SHUFFLED)
    inputs = load_inputs(references, predictions)
    assert texts(inputs) == PERFECT
    assert inputs.matching["by"] == "id" and inputs.matching["matched"] == 4
    assert inputs.matching["references"] == {"rows": 4, "id": left.lower(), "report": ["report"]}
    assert inputs.matching["predictions"]["id"] == right.lower()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("number", ["", "Unnamed: 0", "row"])
@pytest.mark.parametrize("start", [0, 1])
def test_the_number_of_a_row_is_no_id(tmp_path: Path, ending: str, number: str, start: int) -> None:
    """Data frames write it as the first column, and by it the first row belongs to the first."""
    both = [
        table(
            tmp_path / f"{name}.{ending}", f"{number},exam,report", *((at, *row) for at, row in enumerate(rows, start))
        )
        for name, rows in (("r", STUDIES), ("p", SHUFFLED))
    ]
    inputs = load_inputs(*both)
    assert texts(inputs) == PERFECT and inputs.matching["predictions"]["id"] == "exam"
    alone = [
        table(
            tmp_path / f"alone_{name}.{ending}",
            f"{number},report",
            *((at, text) for at, (_, text) in enumerate(rows, start)),
        )
        for name, rows in (("r", STUDIES), ("p", SHUFFLED))
    ]
    assert load_inputs(*alone).matching["by"] == "row"


@pytest.mark.parametrize("key", ["case {}", "{}.0"])
@pytest.mark.parametrize("column", ["exam", "patient_id"])
def test_rows_in_another_order_are_not_matched_by_position(tmp_path: Path, key: str, column: str) -> None:
    both = [
        table(tmp_path / f"{name}.csv", f"{column},report", *((key.format(one), text) for one, text in rows))
        for name, rows in (("r", [*STUDIES, STUDIES[0]]), ("p", [*SHUFFLED, STUDIES[0]]))
    ]
    with pytest.raises(DataError, match=f"same order: '{column}'.*--columns id=NAME.*--by-row"):
        load_inputs(*both)
    assert load_inputs(*both, by_row=True).matching["by"] == "row"


def test_whole_numbers_with_a_point_are_ids(tmp_path: Path) -> None:
    references = jsonl(tmp_path / "r.jsonl", *({"study_id": float(key), "report": text} for key, text in STUDIES))
    predictions = table(tmp_path / "p.csv", "study_id,report", *SHUFFLED)
    assert texts(load_inputs(references, predictions)) == PERFECT


@pytest.mark.parametrize("column", ["patient", "patient_id", "subject_id", "PatientID", "MRN"])
def test_the_studies_of_one_patient_belong_together_whatever_the_column_is_called(tmp_path: Path, column: str) -> None:
    """As patients of their own they would narrow every interval and count towards --minimum-patients."""
    rows = [(key, "7" if key != "53" else "", text) for key, text in STUDIES]
    inputs = load_inputs(table(tmp_path / "r.csv", f"study_id,{column},report", *rows), dict(STUDIES))
    assert [pair.patient for pair in inputs.pairs] == ["7", "7", "7", "53"]


def test_rows_are_matched_by_position_only_without_ids_or_when_asked(tmp_path: Path) -> None:
    bare = [table(tmp_path / f"bare_{name}.csv", "report", ("A",), ("B",)) for name in "rp"]
    assert load_inputs(*bare).matching["by"] == "row"
    references = table(tmp_path / "r.csv", "study_id,report", *STUDIES)
    predictions = table(tmp_path / "p.csv", "study_id,report", *SHUFFLED)
    inputs = load_inputs(references, predictions, by_row=True)
    assert texts(inputs) == [("A", "C"), ("B", "A"), ("C", "D"), ("D", "B")]
    assert inputs.matching["by"] == "row" and inputs.matching["references"]["id"] is None
    with pytest.raises(DataError, match="need equally many"):
        load_inputs(references, bare[0], by_row=True)
    for ids in ({"50": "A"}, tmp_path):
        with pytest.raises((ConfigError, DataError)):
            load_inputs(references, ids, by_row=True)


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (("study_id,report", STUDIES), ("report", [("A",), ("B",), ("C",), ("D",)]), "column 'study_id'.*--by-row"),
        (("study_id,report", STUDIES), ("uid,report", [(f"x{key}", text) for key, text in STUDIES]), "check the ids"),
        (("study_id,report", (*STUDIES, STUDIES[0])), ("study_id,report", STUDIES), "column 'study_id'.*twice"),
        (("study_id,report", STUDIES), ("study_id,report", (*STUDIES, STUDIES[0])), "column 'study_id'.*twice"),
        (("study_id,report", STUDIES), ("study_id,report", (*STUDIES[:3], ("", "D"))), "p.csv:5 has no 'study_id'"),
        (
            ("id,study_id,report", [(place, *row) for place, row in enumerate(STUDIES)]),
            ("id,study_id,report", [(place, *row) for place, row in enumerate(SHUFFLED)]),
            "match differently by 'id' and by 'study_id'.*--columns id=NAME",
        ),
        (("slot,report", STUDIES), ("slot,report", [*STUDIES[:3], ("99", "D")]), "1 of 4 predictions.*'99'"),
    ],
)
def test_ids_that_cannot_be_trusted_never_end_in_matching_by_position(
    tmp_path: Path, left: tuple[str, list[tuple[object, ...]]], right: tuple[str, list[tuple[object, ...]]], said: str
) -> None:
    references, predictions = (table(tmp_path / f"{n}.csv", s[0], *s[1]) for n, s in (("r", left), ("p", right)))
    with pytest.raises(DataError, match=said):
        load_inputs(references, predictions)


def test_the_column_without_repeats_is_taken_and_may_be_named(tmp_path: Path) -> None:
    """Two images of one study: the study's id repeats, the image's does not."""
    rows = [("50", "x", "A"), ("50", "y", "B"), ("51", "z", "C")]
    references = table(tmp_path / "r.csv", "study_id,dicom_id,report", *rows)
    predictions = table(tmp_path / "p.csv", "study_id,dicom_id,report", *reversed(rows))
    inputs = load_inputs(references, predictions)
    assert texts(inputs) == [(text, text) for text in "ABC"] and inputs.matching["predictions"]["id"] == "dicom_id"
    numbered = [
        table(tmp_path / f"{name}.csv", "id,exam,report", *((place, *row) for place, row in enumerate(rows)))
        for name, rows in (("r", STUDIES), ("p", SHUFFLED))
    ]
    with pytest.raises(DataError, match="match differently by 'id' and by 'exam'"):
        load_inputs(*numbered)
    assert texts(load_inputs(*numbered, columns=["id=Exam"])) == PERFECT
    assert texts(load_inputs(*numbered, columns=["id=id"])) != PERFECT  # the user says so
    timed = [
        table(tmp_path / f"{name}.csv", "id,tokens,report", *((at, tokens, "A") for at, tokens in enumerate(row)))
        for name, row in (("r", (31, 32, 33)), ("p", (33, 30, 31)))
    ]
    assert load_inputs(*timed).matching["references"]["id"] == "id"
    with pytest.raises(DataError, match="No column 'case'.*--columns id=NAME"):
        load_inputs(*numbered, columns=["id=case"])


@pytest.mark.parametrize(
    "candidate", ["candidate", "prediction", "Hypothesis", "generated", "generated_report", "report"]
)
@pytest.mark.parametrize("reference", ["reference", "ground_truth", "GT", "target", "findings", "gt_report"])
def test_one_file_with_both_under_the_usual_names(tmp_path: Path, reference: str, candidate: str) -> None:
    file = table(tmp_path / "both.csv", f"id,{candidate},{reference}", ("a", "x", "X"), ("b", "y", "Y"))
    inputs = load_inputs(file)
    assert texts(inputs) == [("X", "x"), ("Y", "y")] and inputs.matching["by"] == "file"
    assert texts(load_inputs(file, file)) == texts(inputs)
    assert inputs.matching["references"]["report"] == [reference.lower()]


@pytest.mark.parametrize("head", ["study_id,report", "report,reader"])
def test_a_file_of_references_is_scored_against_itself(tmp_path: Path, head: str) -> None:
    file = table(tmp_path / "r.csv", head, ("a", "b"), ("c", "d"))
    (tmp_path / "r.txt").write_text("A\nB\n")
    for path in (file, tmp_path / "r.txt"):
        assert all(reference == candidate for reference, candidate in texts(load_inputs(path, path)))


def test_columns_of_other_names_are_listed_and_may_be_named(tmp_path: Path) -> None:
    file = table(tmp_path / "both.csv", "id,truth,text", ("a", "X", "x"))
    with pytest.raises(DataError, match=r"Columns found: id, truth, text\. .*--columns candidate=NAME"):
        load_inputs(file)
    with pytest.raises(DataError, match=r"Columns found: id, truth, text\. .*--columns reference=NAME"):
        load_inputs(file, {"a": "x"})
    assert texts(load_inputs(file, columns=["candidate=Text", "reference=truth"])) == [("X", "x")]
    with pytest.raises(DataError, match="No column 'txt'"):
        load_inputs(file, columns=["candidate=txt", "reference=truth"])
    for wrong in (["candidate"], ["words=text"], ["id="], ["id=a", "id=b"]):
        with pytest.raises(ConfigError, match="ROLE=NAME"):
            load_inputs(file, columns=wrong)


@pytest.mark.parametrize(
    ("references", "predictions"),
    [
        ("id,report,findings", "id,report"),
        ("id,reference,report", "id,report"),
        ("id,report", "id,report,prediction"),
        ("id,report", "id,candidate,prediction"),
    ],
)
def test_of_two_columns_that_may_be_meant_none_is_guessed(tmp_path: Path, references: str, predictions: str) -> None:
    left = table(tmp_path / "r.csv", references, ("a", "X", "Y", "Z")[: references.count(",") + 1])
    right = table(tmp_path / "p.csv", predictions, ("a", "x", "y", "z")[: predictions.count(",") + 1])
    with pytest.raises(DataError, match="may each hold the .* reports: choose one with --columns"):
        load_inputs(left, right)


def test_sections_in_columns_are_joined_and_chosen(tmp_path: Path) -> None:
    file = table(tmp_path / "r.csv", "uid,report,findings,impression", ("a", "R", "F", "I"))
    assert texts(load_inputs(file, {"a": "x"}, section="findings+impression")) == [("F I", "x")]
    assert texts(load_inputs(file, {"a": "x"}, section="impression")) == [("I", "x")]
    assert texts(load_inputs(file, {"a": "x"}, columns=["reference=report"])) == [("R", "x")]

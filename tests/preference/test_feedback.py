from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import PreferencePair
from cxrlab.data.corpus import Corpus
from cxrlab.preference.human_feedback import Feedback, RatedStudy, read_feedback


def written(folder: Path, text: str, name: str = "f.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, corpus: Corpus, text: str, name: str = "f.csv") -> Feedback:
    return read_feedback(written(folder, text, name), corpus)


def test_pairs_as_they_stand(toy: Corpus, tmp_path: Path) -> None:
    found = read(tmp_path, toy, "id,chosen,rejected,remark\ns1,good one,bad,by phone\ns0,x,y,\ns1,p,q,\n")
    assert found.form == "pairs" and found.judge == "readers:pairs" and found.rated == ()
    assert {key: [(one.chosen, one.rejected) for one in pairs] for key, pairs in found.pairs.items()} == {
        "s1": [("good one", "bad"), ("p", "q")],
        "s0": [("x", "y")],
    }
    assert found.pairs["s0"] == (PreferencePair("s0", "x", "y", "readers:pairs", 1.0, 0.0),)


def test_the_study_may_stand_under_another_usual_name(toy: Corpus, tmp_path: Path) -> None:
    found = read(tmp_path, toy, "Study ID,chosen,rejected\ns1,good,bad\ns1,p,q\n")
    assert list(found.pairs) == ["s1"] and len(found.pairs["s1"]) == 2


def test_readers_who_contradict_each_other_are_counted_and_the_majority_holds(toy: Corpus, tmp_path: Path) -> None:
    """Two of three hold x; on p and q there is one each. Spelling is that of the first row."""
    rows = ["s0,X ,y,anna", "s0,y,x,ben", "s0,x,Y,carl", "s0,p,q,anna", "s0,q,p,ben"]
    found = read(tmp_path, toy, "id,chosen,rejected,reader\n" + "\n".join(rows) + "\n")
    assert found.contradicted == 1
    assert found.pairs == {"s0": (PreferencePair("s0", "X", "y", "readers:pairs", 2 / 3, 1 / 3),)}


def test_the_same_two_reports_of_another_study_are_another_pair(toy: Corpus, tmp_path: Path) -> None:
    found = read(tmp_path, toy, "id,chosen,rejected\ns0,x,y\ns1,y,x\n")
    assert found.contradicted == 0 and [*found.pairs] == ["s0", "s1"]


def test_ratings_are_averaged_over_readers(toy: Corpus, tmp_path: Path) -> None:
    text = "id,report,rating,reader\ns0,a,1,anna\ns0,b,5,anna\ns0,A,4,ben\ns1,c,-2.5,anna\n"
    found = read(tmp_path, toy, text)
    assert found.form == "ratings" and found.judge == "readers:ratings" and found.pairs == {}
    assert found.rated == (RatedStudy("s0", ("a", "b"), (2.5, 5.0)), RatedStudy("s1", ("c",), (-2.5,)))


def test_errors_cost_and_small_ones_cost_less(toy: Corpus, tmp_path: Path) -> None:
    """−2 − 0.1 × 5 = −2.5 by one reader, −1 by another: −1.75; with a weight of 0.5 −2 − 2.5 and −1."""
    text = "id,report,significant,insignificant\ns0,a,2,5\ns0,a,1,0\ns0,b,0,0\n"
    path = written(tmp_path, text)
    assert read_feedback(path, toy).rated == (RatedStudy("s0", ("a", "b"), (-1.75, 0.0)),)
    assert read_feedback(path, toy, 0.5).rated[0].rewards == (-2.75, 0.0)


def test_jsonl_is_read_as_csv_is(toy: Corpus, tmp_path: Path) -> None:
    rows = [
        {"id": "s0", "report": "a, b", "rating": 1, "reader": 7},
        {"ID": "s0", "Report": "c", "rating": "2.5", "reader": None},
    ]
    found = read(tmp_path, toy, "".join(json.dumps(row) + "\n" for row in rows), "f.jsonl")
    assert found.rated == (RatedStudy("s0", ("a, b", "c"), (1.0, 2.5)),)
    tabs = read(tmp_path, toy, "id\treport\trating\ns0\ta, b\t1\ns0\tc\t2.5\n", "f.tsv")
    assert tabs == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,chosen\ns0,x\n", r"f.csv:2: the column 'rejected' is missing. .*id, chosen, rejected \(pairs\)"),
        ("id,report,ratings\ns0,x,3\n", "f.csv:2: the column 'rating' is missing. Did you mean 'ratings'"),
        ("id,report,significant\ns0,x,3\n", "f.csv:2: the column 'insignificant' is missing"),
        ("id,text\ns0,x\n", "f.csv:2: the column 'chosen' is missing"),
        ("chosen,rejected\nx,y\n", "f.csv:2: the column 'id' is missing; give the study of every row"),
        (
            "id,report,rating,significant,insignificant\ns0,x,1,1,1\n",
            "f.csv:2 has the columns of ratings and of errors; keep those of one",
        ),
        ("id,chosen,rejected\ns0,x,y\ns0,x,\n", "f.csv:3: 'rejected' is empty; a report needs words. Take the row out"),
        ("id,chosen,rejected\ns0,...,y\n", "f.csv:2: 'chosen' is empty"),
        ("id,report,rating\ns0,,3\n", "f.csv:2: 'report' is empty"),
        ("id,chosen,rejected\ns0,x,y\ns99,x,y\n", "f.csv:3: there is no study 's99' in .*toy"),
        ("id,chosen,rejected\nS0,x,y\n", "f.csv:2: there is no study 'S0' in .*Did you mean 's0'"),
        ("id,chosen,rejected\ns2,x,y\n", "f.csv:2: study 's2' is of the test split, which is kept for measuring"),
        ("id,chosen,rejected\ns0,Clear lungs,clear  LUNGS\n", "f.csv:2: chosen and rejected are the same text"),
        ("id,report,rating\ns0,x,good\n", "f.csv:2: 'rating' is 'good'; give a number"),
        ("id,report,rating\ns0,x,\n", "f.csv:2: 'rating' is ''; give a number"),
        ("id,report,rating\ns0,x,nan\n", "f.csv:2: 'rating' is null; give a number"),
        ("id,report,rating\ns0,x,inf\n", "f.csv:2: 'rating' is 'inf'; give a number"),
        ("id,report,rating\ns0,x,-inf\n", "f.csv:2: 'rating' is '-inf'; give a number"),
        ("id,report,significant,insignificant\ns0,x,-1,0\n", "'significant' is '-1'; give a number of at least 0"),
        ("id,report,significant,insignificant\ns0,x,1,?\n", "'insignificant' is '\\?'; give a number of at least 0"),
        (
            "id,report,rating,reader\ns0,x,1,anna\ns0,X,2,anna\n",
            "f.csv:3: reader 'anna' has judged this report at .*f.csv:2 already; keep one",
        ),
        (
            "id,chosen,rejected,reader\ns0,x,y,anna\ns0,y,x,anna\n",
            "f.csv:3: reader 'anna' has judged these two reports at .*f.csv:2 already",
        ),
        ("id,chosen,rejected\n", "f.csv holds no report"),
    ],
)
def test_everything_wrong_is_one_sentence_with_file_and_row(
    toy: Corpus, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path, toy, text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "s0", "report": "x", "rating": True}], "f.jsonl:1: 'rating' is True; give a number"),
        ([{"id": "s0", "report": "x", "rating": 1}, {"id": "s0", "report": "y"}], "f.jsonl:2: the column 'rating' is"),
        ([{"id": "s0", "report": "x", "rating": 1}, {"report": "y", "rating": 1}], "f.jsonl:2: the column 'id' is"),
    ],
)
def test_rows_of_jsonl_are_checked_one_by_one(
    toy: Corpus, tmp_path: Path, rows: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, toy, "".join(json.dumps(row) + "\n" for row in rows), "f.jsonl")


def test_no_message_tells_the_words_of_a_report(toy: Corpus, tmp_path: Path) -> None:
    rows = [{"id": "s0", "report": ["private words", "private words"], "rating": 1}]
    with pytest.raises(DataError, match="'report' is empty") as error:
        read(tmp_path, toy, json.dumps(rows[0]) + "\n", "f.jsonl")
    assert "private" not in str(error.value)


@pytest.mark.parametrize("name", ["f.txt", "f.json", "f"])
def test_other_files_are_refused(toy: Corpus, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is not a feedback file; give one that ends in .csv, .tsv, .jsonl, .ndjson"):
        read(tmp_path, toy, "id,chosen,rejected\ns0,x,y\n", name)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match="is not a feedback file"):
        read_feedback(tmp_path / "d.csv", toy)
    with pytest.raises(DataError, match="nowhere.csv does not exist"):
        read_feedback(tmp_path / "nowhere.csv", toy)


def test_a_bare_reader_is_nobody(toy: Corpus, tmp_path: Path) -> None:
    """Two rows without a name are two people."""
    found = read(tmp_path, toy, "id,report,rating,reader\ns0,x,1,\ns0,x,3, \n")
    assert found.rated[0].rewards == (2.0,)

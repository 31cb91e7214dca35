from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scored import batch, scored
from tallies import card, f1_of, mean

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Presence
from cxrlab.evaluation import scored_runs
from cxrlab.evaluation.scored_runs import ARRAYS, INDEX, hash_references, read_tallies
from cxrlab.metrics.base import FAMILIES, Matrix, Tally, mean_of, ratio, ready
from cxrlab.metrics.coco_caption import Coco
from cxrlab.metrics.report_pairs import Batch, Pair


def test_tallies_come_back_as_they_were(tmp_path: Path) -> None:
    """Values, rows, what is undefined and what the card says; floats to the last bit."""
    values = [0.1, math.nan, 1 / 3]
    counts = [[1, 0, 2, 70000], [0, 0, 0, 0], [3, 1, 1, 255]]
    folder = scored(tmp_path / "run", batch(list("abc"), ["p", "p", "q"]), [mean(values, "m", "lower"), f1_of(counts)])
    run = read_tallies(folder)
    assert (run.ids, run.patients) == (("a", "b", "c"), ("p", "p", "q"))
    assert list(run.tallies) == ["m", "f1"]
    back = run.tallies["m"]
    assert back.metric == mean(values, "m", "lower").metric
    assert run.signatures["m"] == back.metric.signature
    assert np.array_equal(back.by_pair, np.array(values), equal_nan=True) and back.undefined == 1
    assert np.array_equal(run.tallies["f1"].rows, np.array(counts, dtype=float))
    assert run.tallies["f1"].rows.dtype == np.float64
    assert run.tallies["f1"].value == pytest.approx(8 / 12)


def test_a_patient_that_is_unknown_is_the_study(tmp_path: Path) -> None:
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([1, 2])])
    assert read_tallies(folder).patients == ("a", "b")


def test_metrics_go_on_sharing_their_rows(tmp_path: Path) -> None:
    """Written once, read once: fifty metrics on the same counts cost no more than one."""
    rows = np.ones((2, 4))
    one, two = f1_of(rows, "one"), f1_of(rows, "two")
    run = read_tallies(scored(tmp_path / "run", batch(["a", "b"]), [one, two]))
    assert run.tallies["one"].rows is run.tallies["two"].rows
    with np.load(tmp_path / "run" / ARRAYS) as stored:
        assert len(stored.files) == 2, "rows and defined"
        assert stored["array0"].dtype == np.uint8


def test_the_same_tallies_give_the_same_bytes(tmp_path: Path) -> None:
    pairs, tallies = batch(["a", "b"]), [mean([0.25, 0.5])]
    first, second = scored(tmp_path / "1", pairs, tallies), scored(tmp_path / "2", pairs, tallies)
    for name in (INDEX, ARRAYS):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_an_aggregation_may_bind_keywords(tmp_path: Path) -> None:
    """BLEU-2 and BLEU-4 are one function with two orders."""
    pairs = batch(["a", "b"]).with_candidates(["no effusion of a .", "no large effusion of b ."])
    tallies = Coco().tallies(pairs)
    run = read_tallies(scored(tmp_path / "run", pairs, tallies))
    assert isinstance(run.tallies["bleu2:coco"].value_of, partial)
    assert {name: tally.value for name, tally in run.tallies.items()} == {t.metric.name: t.value for t in tallies}


def test_an_aggregation_may_be_given_a_function(tmp_path: Path) -> None:
    """A keyword that is itself a function of a metric is written down by name too."""
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    tally = Tally(card("kept"), rows, np.ones(2, dtype=bool), partial(mean_of, how=ratio))
    reported = scored_runs._describe_function(tally.value_of, "kept")
    assert reported == {
        "function": "cxrlab.metrics.base:mean_of",
        "arguments": {"how": {"function": "cxrlab.metrics.base:ratio", "arguments": {}}},
    }
    back = scored_runs._load_function({**reported, "arguments": {**reported["arguments"], "listed": [1, [2]]}})
    assert isinstance(back, partial) and back.keywords == {"how": ratio, "listed": (1, (2,))}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_survives_its_files(tmp_path: Path, family: str) -> None:
    """Each metric of the table, on pairs with and without findings, is read back with the same values."""
    texts = ["Small left effusion. No pneumothorax.", "", "Mild cardiomegaly with edema.", "Lungs are clear."]
    pairs = Batch([Pair(str(k), text, texts[k - 1]) for k, text in enumerate(texts)])
    tallies = ready()[family].tallies(pairs)
    back = read_tallies(scored(tmp_path / "run", pairs, tallies)).tallies
    for tally in tallies:
        assert np.array_equal(back[tally.metric.name].by_pair, tally.by_pair, equal_nan=True), tally.metric.name


def first_of(sums: Matrix) -> Matrix:
    """A good aggregation in the wrong place: a test is no module of metrics."""
    return sums[..., 0]


@pytest.mark.parametrize("value_of", [lambda sums: sums[..., 0], partial(ratio, np.ones(1)), print, first_of])
def test_an_aggregation_without_a_name_is_refused(tmp_path: Path, value_of: Any) -> None:
    """It could not be found again; this is a mistake of whoever wrote the metric."""
    tally = replace(mean([1.0, 2.0]), value_of=value_of)
    with pytest.raises(ValueError, match="aggregation of mean"):
        scored(tmp_path / "run", batch(["a", "b"]), [tally])
    assert not (tmp_path / "run" / INDEX).exists()


def test_two_metrics_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="same metric name"):
        scored(tmp_path / "run", batch(["a"]), [mean([1]), mean([2])])


def test_a_folder_without_counts_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no tallies.json; give the folder of a finished run of 'cxrlab score'"):
        read_tallies(tmp_path)


def _damage(index: dict[str, Any], key: str, value: Any) -> None:
    *way, last = key.split("/")
    for step in way:
        index = index[step]
    if value is KeyError:
        del index[last]
    else:
        index[last] = value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metrics/mean/value", 0.9),
        ("metrics/mean/value_of/function", "os:system"),
        ("metrics/mean/value_of/function", "cxrlab.metrics.base:gone"),
        ("metrics/mean/value_of/function", "cxrlab.metrics.gone:mean_of"),
        ("metrics/mean/value_of/function", "cxrlab.metrics.finding_scores:f1_of"),  # wants three counts of these two
        ("metrics/mean/direction", "sideways"),
        ("metrics/mean/value_of/arguments", {"way": 3}),
        ("metrics/mean/rows", "array9"),
        ("metrics/mean/rows", "array1"),
        ("metrics/mean/defined", "array0"),
        ("metrics/mean/range", 3),
        ("metrics/mean", KeyError),
        ("metrics", [1]),
        ("ids", ["a"]),
        ("ids", ["a", "a"]),
        ("patients", ["a"]),
        ("references", KeyError),
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, key: str, value: Any) -> None:
    """Never another number, never a traceback, never code from elsewhere; an empty list of metrics is no damage."""
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    index = json.loads((folder / INDEX).read_text())
    _damage(index, key, value)
    (folder / INDEX).write_text(json.dumps(index))
    if key == "metrics/mean":
        assert read_tallies(folder).tallies == {}
        return
    with pytest.raises(DataError, match="score the run again"):
        read_tallies(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a zip"])
def test_damaged_arrays_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    (folder / ARRAYS).write_bytes(content)
    with pytest.raises(DataError, match="tallies.npz is not a readable file of counts"):
        read_tallies(folder)
    (folder / ARRAYS).unlink()
    with pytest.raises(DataError, match="does not exist"):
        read_tallies(folder)


def test_a_flipped_bit_in_the_arrays_is_one_sentence(tmp_path: Path) -> None:
    """Wherever it falls, the file is refused or the counts are the same: never a traceback, never another number."""
    folder = scored(tmp_path / "run", batch(list("abcd")), [mean([0.25, 0.5, 0.1, 1 / 3])])
    whole = (folder / ARRAYS).read_bytes()
    refused = 0
    for place in range(len(whole)):
        (folder / ARRAYS).write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert read_tallies(folder).tallies["mean"].value == pytest.approx((0.25 + 0.5 + 0.1 + 1 / 3) / 4)
        except DataError:
            refused += 1
    assert refused > len(whole) // 2


@pytest.mark.parametrize("kind", [np.complex128, "<U8"])
def test_arrays_that_are_no_counts_are_refused(tmp_path: Path, kind: Any) -> None:
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    with np.load(folder / ARRAYS) as stored:
        arrays = {name: array.astype(kind) if array.ndim == 2 else array for name, array in stored.items()}
    np.savez(folder / ARRAYS, **arrays)
    with pytest.raises(DataError, match="holds no numbers"):
        read_tallies(folder)


def test_a_function_that_a_module_only_borrowed_is_not_called(tmp_path: Path) -> None:
    """Else a tampered file could call whatever some metric happens to import, such as a reader of files."""
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    index = json.loads((folder / INDEX).read_text())
    index["metrics"]["mean"]["value_of"] = {"function": "cxrlab.metrics.radgraph:read_json", "arguments": {}}
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="not a function of that module"):
        read_tallies(folder)


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_run_that_did_not_finish_is_not_compared(tmp_path: Path, state: str) -> None:
    """A killed run may have counts of one scoring beside studies of another."""
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    (folder / "status.json").write_text(json.dumps({"state": state}))
    with pytest.raises(DataError, match="has not finished"):
        read_tallies(folder)


def test_arrays_that_unpack_to_gigabytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what comes out, and by what a header claims."""
    monkeypatch.setattr(scored_runs, "MAX_UNPACKED_BYTES", 1 << 20)
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    np.savez_compressed(folder / ARRAYS, array0=np.zeros(2 << 20, np.uint8))
    with pytest.raises(DataError, match=r"tallies\.npz holds array0\.npy, which unpacks to more than"):
        read_tallies(folder)
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": (1 << 40,), "fortran_order": False, "descr": "|u1"})
    with zipfile.ZipFile(folder / ARRAYS, "w") as archive:
        archive.writestr("array0.npy", stream.getvalue())
    with pytest.raises(DataError, match="does not fit"):
        read_tallies(folder)


def test_pickled_objects_are_not_read(tmp_path: Path) -> None:
    """A file of counts cannot carry a program."""
    folder = scored(tmp_path / "run", batch(["a", "b"]), [mean([0.25, 0.5])])
    np.savez(folder / ARRAYS, array0=np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="score the run again"):
        read_tallies(folder)


def test_an_unbounded_range_survives_json(tmp_path: Path) -> None:
    tally = mean([1, 2])
    tally = replace(tally, metric=replace(tally.metric, range=(-math.inf, 1.0)))
    folder = scored(tmp_path / "run", batch(["a", "b"]), [tally])
    assert read_tallies(folder).tallies["mean"].metric.range == (-math.inf, 1.0)


def test_the_digest_sees_texts_and_findings_but_not_order() -> None:
    pairs = batch(["a", "b"])
    same = Batch(pairs.pairs[::-1])
    assert hash_references(pairs) == hash_references(same)
    others = [
        replace(pairs.pairs[0], reference="Another text."),
        replace(pairs.pairs[0], reference=None),
        replace(pairs.pairs[0], id="c"),
        replace(pairs.pairs[0], findings=(Finding("pleural effusion", Presence.PRESENT),)),
        replace(pairs.pairs[0], findings=()),
    ]
    digests = {hash_references(Batch([other, pairs.pairs[1]])) for other in others}
    assert len(digests | {hash_references(pairs)}) == 6
    assert hash_references(pairs.with_candidates(["other", "words"])) == hash_references(pairs)

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import Example
from cxrlab.render.run_folder import UNCHOSEN, RunFolder, read_run, read_runs


def test_a_run_is_read_as_it_was_written(make_run) -> None:
    example = Example("s1", "thumbs/0.png", "PA", ("edema",), "Edema.")
    path = make_run("a", reports={"s1": "Clear.", "s2": "Not wanted."}, examples=(example,), steps=({"id": "x"},))
    run = read_run(path)
    assert run.config == {"model": "stub:normal", "split": "test"} and run.environment["seed"] == 7
    assert run.status["state"] == "finished" and run.summary == {} and run.steps == ({"id": "x"},)
    assert run.examples == (example,) and set(run.predictions) == {"s1"}
    assert run.predictions["s1"].report == "Clear."


def test_every_run_of_a_page_answers_for_the_examples_of_all(make_run) -> None:
    first = make_run("a", reports={"s1": "A1", "s2": "A2"}, examples=(Example("s1", "thumbs/0.png"),))
    second = make_run("b", reports={"s1": "B1", "s2": "B2"}, examples=(Example("s2", "thumbs/0.png"),))
    assert [set(run.predictions) for run in read_runs([first, second])] == [{"s1", "s2"}, {"s1", "s2"}]


def test_without_examples_the_first_few_predictions_are_kept(make_run) -> None:
    path = make_run("a", reports={f"s{k}": "x" for k in range(50)})
    assert list(read_run(path).predictions) == [f"s{k}" for k in range(UNCHOSEN)]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("stub:normal", "stub:normal"),
        ("hf:owner/name", "hf:owner/name"),
        ("retrieval:/a/b/corpus", "retrieval:…/corpus"),
        ("retrieval:runs/tour/corpus/", "retrieval:…/corpus"),
        ("hf:runs/finetune/checkpoint", "hf:…/finetune/checkpoint"),
        ("http://host:8000/v1#m", "http://host:8000/v1#m"),
    ],
)
def test_a_long_path_is_shortened_and_an_address_is_not(model: str, name: str) -> None:
    assert RunFolder(Path("x"), {"model": model}, {}, {}).name == name


def test_a_run_without_a_model_is_named_after_its_folder(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "tour", {}, {}, {}).name == "tour"


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(DataError, match="not a run folder: it has no config.yaml"):
        read_run(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is a file"):
        read_run(tmp_path / "file")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("examples.jsonl", '{"id": "s1", "thumb": "a"}\n{"id": 3}\n', r"examples\.jsonl:2: an example needs"),
        ("predictions.jsonl", '{"id": "s1"}\n', r"predictions\.jsonl:1: a prediction needs"),
        ("predictions.jsonl", '{"id": "s1"', r"predictions\.jsonl:1 is not valid JSON"),
        ("summary.json", "[1]", r"summary\.json must hold a JSON object"),
        ("pointing.json", '{"reported": "many"}', r"pointing\.json: 'reported' is 'many'"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(make_run, file: str, content: str, said: str) -> None:
    path = make_run("a")
    (path / file).write_text(content)
    with pytest.raises(DataError, match=said):
        read_run(path)


def test_a_section_cannot_ask_for_a_file_without_a_shape() -> None:
    """It would never be read, and the section would silently stay empty."""
    run = RunFolder(Path("x"), {}, {}, {})
    assert run.result("pointing.json") == {} and run.records("triptychs.jsonl") == ()
    for ask in (run.result, run.records):
        with pytest.raises(KeyError, match="result_shapes"):
            ask("new.json")


def test_a_thumbnail_outside_the_run_is_refused(make_run, tmp_path: Path) -> None:
    """A run folder may come from somebody else; its page must not carry files of this machine away."""
    path = make_run("a")
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match="outside the run folder"):
        read_run(path).file("../secret.png")

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import ChatServer
from tiny_models import save_tiny_llava

import cxrlab
from cxrlab.core.egress import SCHEMES, Connection
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.model_interfaces import ImageToText
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.load_model import load_model, read_exemplars
from cxrlab.models.model_registry import KINDS


def rewrite(corpus: Path, change: dict[int, dict[str, object]]) -> None:
    """Change fields of the studies on these lines (from 0) of studies.jsonl."""
    file = corpus / "studies.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for number, fields in change.items():
        records[number].update(fields)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


# Their code comes with the checkpoint and runs by permission alone; `tests/models/test_foreign_models.py` opens them.
FOREIGN = {"chexagent", "chexagent-2", "maira-2"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {*SCHEMES, *FOREIGN}])
def test_every_kind_loads_by_name_alone(kind: str, phantom: Path, tmp_path: Path) -> None:
    arguments = {"stub": "normal", "retrieval": str(phantom), "builtin": "reporter"}
    if kind == "hf":
        arguments["hf"] = str(save_tiny_llava(tmp_path / "tiny"))
    model = cxrlab.load_model(f"{kind}:{arguments[kind]}")
    assert isinstance(model, ImageToText)
    assert len(model.generate([load_corpus(phantom).image(next(load_corpus(phantom).studies()))])) == 1


@pytest.mark.parametrize("kind", SCHEMES)
def test_an_address_loads_by_name_alone(kind: str, phantom: Path) -> None:
    """Where it can be reached it answers; a server that speaks no TLS has nothing to say to https."""
    corpus = load_corpus(phantom)
    image = corpus.image(next(corpus.studies()))
    with ChatServer(lambda body: "Clear lungs.") as server:
        address = server.address().replace("http:", f"{kind}:")
        model = cxrlab.load_model(address, connection=Connection(tries=1))
        assert isinstance(model, ImageToText) and model.name == address
        if kind == "http":
            assert [one.text for one in model.generate([image])] == ["Clear lungs."]
            return
        with pytest.raises(RunError, match="https://127.0.0.1"):
            model.generate([image])


def test_only_images_of_the_train_split_are_looked_among(phantom: Path) -> None:
    corpus = load_corpus(phantom)
    images = list(read_exemplars(str(phantom)))
    assert [image.id for image in images] == list(corpus.ids("train"))
    tested = {study.patient for split in ("val", "test") for study in corpus.studies(split)}
    assert tested and not tested & {image.patient for image in images}


def test_a_study_without_findings_text_is_passed_over(own_phantom: Path) -> None:
    corpus = load_corpus(own_phantom)
    all_train = list(corpus.ids("train"))
    first, second = (list(corpus.ids()).index(key) for key in all_train[:2])
    rewrite(own_phantom, {first: {"sections": {"findings": "  "}}, second: {"sections": None}})
    assert [image.id for image in read_exemplars(str(own_phantom))] == all_train[2:]


def test_a_study_without_a_frontal_image_is_passed_over(own_phantom: Path) -> None:
    """Real corpora hold studies with lateral images alone; training passes over them too."""
    corpus = load_corpus(own_phantom)
    first, *others = corpus.ids("train")
    images = [{"path": image.path, "view": "lateral"} for image in corpus[first].images]
    rewrite(own_phantom, {list(corpus.ids()).index(first): {"images": images}})
    assert [radiograph.id for radiograph in read_exemplars(str(own_phantom))] == others


def test_what_is_passed_over_is_counted_on_standard_error(
    own_phantom: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An image whose view is unknown may be lateral."""
    corpus = load_corpus(own_phantom)
    first, second, *others = corpus.ids("train")
    line = list(corpus.ids()).index
    rewrite(own_phantom, {line(first): {"images": [{"path": corpus[first].images[0].path}]}})
    rewrite(own_phantom, {line(second): {"sections": None}})
    assert [image.id for image in read_exemplars(str(own_phantom))] == others
    reported = capsys.readouterr().err
    assert f"2 of {len(others) + 2} train studies are left out" in reported
    assert "no findings text: 1" in reported and "no image known to be frontal: 1" in reported


def test_a_patient_in_two_splits_is_refused(own_phantom: Path) -> None:
    corpus = load_corpus(own_phantom)
    patient = next(corpus.studies("train")).patient
    line = list(corpus.ids()).index(corpus.ids("test")[0])
    rewrite(own_phantom, {line: {"patient": patient}})
    with pytest.raises(DataError, match=f"'{patient}', also in test"):
        load_model(f"retrieval:{own_phantom}")


def test_an_empty_train_split_is_told(own_phantom: Path) -> None:
    rewrite(own_phantom, {line: {"split": "test"} for line in range(90)})
    with pytest.raises(DataError, match="no study in its train split"):
        load_model(f"retrieval:{own_phantom}")


def test_an_unreadable_image_is_named_and_not_left_out(own_phantom: Path) -> None:
    study = next(load_corpus(own_phantom).studies("train"))
    image = own_phantom / study.images[0].path
    image.write_bytes(image.read_bytes()[:60])
    with pytest.raises(DataError, match=study.images[0].path):
        load_model(f"retrieval:{own_phantom}")


def test_a_folder_that_is_no_corpus_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_model(f"retrieval:{tmp_path / 'nowhere'}")

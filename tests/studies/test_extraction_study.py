"""A whole study of extraction on tiny models: every part once, continued where it stopped; and what is refused before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.json_values import dumps
from cxrlab.core.runs import state
from cxrlab.studies.engine import Part, run_recipe
from cxrlab.studies.extraction_study import ExtractionStudy, ExtractionStudyConfig

pytestmark = pytest.mark.slow


def run_extraction_study(settings: ExtractionStudyConfig, out: Path) -> Path:
    return run_recipe(ExtractionStudy(settings, out))


GREEDY = {"strategy": "greedy", "max_new_tokens": 4}
BARE: dict[str, Any] = dict.fromkeys(("tables", "detect", "defend", "transfer"), {})
BARE |= dict.fromkeys(("contrasts", "pairwise", "controls"), ())
BOUNDS = {"image_bound": 0.4, "account_bound": 0.4, "account_queries": 12, "accounts": 3, "window": 4, "least": 6}


def config(start: str, **changes: Any) -> ExtractionStudyConfig:
    """Four questions to a victim that always writes the same, with a surrogate of a few thousand weights."""
    base: dict[str, Any] = {
        "corpora": {"drawn": {"phantom": {"n": 40, "size": 32, "seed": 3, "workers": 1, "masks": False}}},
        "data": "drawn",
        "models": {
            "started": {
                "start": start,
                "lora_rank": 2,
                "optimisation": {"steps": 1, "batch_size": 2, "max_length": 400},
            }
        },
        "extract": {
            **{"victim": "stub:normal", "surrogate": "made:started", "n": 3, "budget": 4, "rounds": 2, "size": 32},
            **{"batch_size": 4, "map_sentences": 0, "measure": {"swaps": 20}, "surrogate_decoding": GREEDY},
            "fitting": {"steps": 1, "batch_size": 2, "lora_rank": 2, "max_length": 400, "learning_rate": 0.01},
        },
        "variants": {
            "knockoff": {"changes": "As they are.", "extract": {"method": "knockoff"}},
            "ada": {"changes": "Moved."},
            "same": {"changes": "As ada."},
        },
        "seeds": (1,),
        "metrics": ("findings.f1", "rougeL:coco"),
        "tables": {"T": {"variants": ["knockoff", "ada"]}},
        "contrasts": (("ada", "knockoff"),),
        "pairwise": (("ada", "knockoff"),),
        "controls": ("ada",),
        "detect": {"variants": ["ada", "same"], "detectors": ["chest-gate"], "encoder": "none", "detector": BOUNDS},
        "defend": {
            **{"variant": "knockoff", "defences": ["coarse"], "adaptive": False, "n": 3, "trials": 20},
            "settings": {"benign_images": 4},
        },
        "transfer": {
            **{"variants": ["ada"], "unrelated": "made:started", "eps": ["8/255"], "attack": {"steps": 1}},
            **{"controls": [], "trials": 20, "triptychs": 0},
        },
    }
    return ExtractionStudyConfig(**{**base, **changes})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a tiny model; steps this small are faster on one thread."""
    torch = pytest.importorskip("torch")
    from tiny_models import save_tiny_llava

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield f"hf:{save_tiny_llava(tmp_path_factory.mktemp('tiny') / 'model')}"
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A study that was stopped at its defence and run again, and the folders into which something was made."""
    made: list[str] = []
    out = tmp_path_factory.mktemp("extraction") / "study"

    true = ExtractionStudy.make

    def stops(study: ExtractionStudy, part: Part) -> None:
        if part.kind == "defend" and "stopped" not in made:
            made.append("stopped")
            raise KeyboardInterrupt
        if state(study.out / part.folder) != "finished":
            made.append(part.folder)
        true(study, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExtractionStudy, "make", stops)
        with pytest.raises(KeyboardInterrupt):
            run_extraction_study(config(tiny), out)
        assert state(out) == "interrupted" and not (out / "extraction_seeds.json").exists()
        run_extraction_study(config(tiny), out)
    return out, made


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "extraction_seeds.json").read_text())
    return found


@pytest.mark.slow
def test_a_study_that_was_stopped_makes_every_part_once(whole: tuple[Path, list[str]]) -> None:
    attacks = ["seed1/victims/knockoff", "seed1/extract/knockoff", "seed1/extract/ada"]
    transfer = "seed1/transfer/ada"
    assert whole[1] == ["models/started", *attacks, transfer, "detect", "stopped", "seed1/defend/coarse"]


@pytest.mark.slow
def test_the_lines_and_the_table_of_a_whole_study(whole: tuple[Path, list[str]]) -> None:
    out, _ = whole
    lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["seed1/knockoff", "seed1/ada", "seed1/same"]
    assert [line["extract"] for line in lines][1:] == ["seed1/extract/ada"] * 2
    assert all(line["extraction"]["spent"] == 4 and line["extraction"]["untouched"] is None for line in lines)
    found = results(out)
    assert found["n"] == 3 and found["variants"]["ada"] == {**found["variants"]["same"], "changes": "Moved."}
    # One fixed report is all there is to learn, however many pictures were asked.
    assert found["variants"]["ada"]["transcript"]["distinct_reports"]["mean"] == 1
    assert found["contrasts"][0]["metrics"]["rougeL:coco"]["pooled"]["seeds"] == 1
    assert found["pairwise"][0]["n"] == [3] and set(found["controls"]["values"]) >= {"victim", "ada", "the", "empty"}
    assert str(out) not in dumps(found)


@pytest.mark.slow
def test_detectors_defences_and_the_page_of_a_whole_study(tiny: str, whole: tuple[Path, list[str]]) -> None:
    out, _ = whole
    defences = json.loads((out / "defend/defence.json").read_text())
    # A victim that never names a finding has none to lose.
    assert list(defences["defences"]) == ["coarse"] and defences["summary"]["severity"] is None
    first = json.loads((out / "trials.jsonl").read_text().splitlines()[0])
    assert defences["undefended"]["surrogate"] == first["extraction"]["surrogate"]
    assert not (out / "seed1/defend/coarse/attacks/none").exists()  # the variant's own attack stands for it
    assert list(json.loads((out / "detect/detection.json").read_text())["streams"]) == ["ada"]
    page = run_extraction_study(config(tiny), out)  # a finished one is shown again
    assert page == out / "page.html" and "What it costs to copy a report model" in page.read_text()


def test_images_of_the_copy_are_shown_to_the_victim(whole: tuple[Path, list[str]]) -> None:
    """One fixed report cannot be changed by any image; the audit shows the copy and the unrelated model beside it."""
    out, _ = whole
    audit = json.loads((out / "seed1/transfer/ada/robustness.json").read_text())
    assert [row["key"] for row in audit["models"].values()] == ["a", "b", "c"]
    assert any("seed1/extract/ada/copies/4/fit" in name for name in audit["models"])
    found = results(out)["transfer"]["variants"]["ada"]["pgd@8/255"]["sources"]
    # A victim without gradients has no white box.
    assert {name: one["flip_rate"]["mean"] for name, one in found.items()} == {"copy": 0, "unrelated": 0, "noise": 0}
    assert "shown to its victim" in (out / "page.html").read_text()


@pytest.mark.full
def test_an_oracle_behind_an_address_is_asked_once_and_not_needed_again(tiny: str, tmp_path: Path) -> None:
    """Two seeds; the server is gone before the first attack starts."""
    from chat_server import ChatServer
    from oracle_answers import good

    true = ExtractionStudy.make

    def stops(study: ExtractionStudy, part: Part) -> None:
        if part.kind == "extract":
            raise KeyboardInterrupt
        true(study, part)

    with ChatServer(lambda body: good(body["messages"][-1]["content"])) as server:
        shared = {**config(tiny).extract, "oracle": server.address("words"), "consulting": {"count": 2}, "rounds": 1}
        settings = config(tiny, extract=shared, variants={"ada": {"changes": "Moved."}}, seeds=(1, 2), **BARE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ExtractionStudy, "make", stops)
            with pytest.raises(KeyboardInterrupt):
                run_extraction_study(settings, tmp_path / "study")
        assert len(server.requests) == 25
    run_extraction_study(settings, tmp_path / "study")
    asked = (tmp_path / "study/oracle/ada/oracle.json").read_bytes()
    for name in ("seed1/extract/ada", "seed2/extract/ada"):
        assert (tmp_path / "study" / name / "oracle.json").read_bytes() == asked
    oracle = results(tmp_path / "study")["variants"]["ada"]["oracle"]
    assert oracle["queries"] == 25 and oracle["answers"]["parsed"] == 25


@pytest.mark.slow
@pytest.mark.full
def test_parts_side_by_side_come_to_the_same(
    tiny: str, whole: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attacks at once share what their victim wrote, which was written before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    few: dict[str, Any] = {"detect": {}, "defend": {}, "controls": (), "pairwise": (), "transfer": {}}
    run_extraction_study(config(tiny, at_once=2, **few), tmp_path / "study")
    bare: dict[str, Any] = {"controls": {}, "pairwise": [], "transfer": {}}
    assert {**results(tmp_path / "study"), **bare} == {**results(whole[0]), **bare}


# --- what is refused before anything is trained ----------------------------------------------------------------------


def test_a_model_that_is_not_there_is_reported_before_anything_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(DataError, match="nowhere"):
        run_extraction_study(config(f"hf:{tmp_path}/nowhere"), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_pool_that_is_too_small_is_reported_before_anything_is_trained(tiny: str, tmp_path: Path) -> None:
    """Forty images, of which the train split holds twenty-five."""
    rows = {"images": {"changes": "x", "extract": {"method": "in-domain", "pool": "corpus:drawn", "budget": 50}}}
    with pytest.raises(DataError, match=r"the pool 'corpus:.*drawn' holds 25 images, but an attack needs 50"):
        run_extraction_study(config(tiny, variants=rows, **BARE), tmp_path / "study")
    assert not (tmp_path / "study/models").exists()


def test_a_split_without_a_study_is_reported_before_anything_is_trained(tiny: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"drawn": {"phantom": {"n": 2, "size": 32, "workers": 1, "masks": False}}}
    with pytest.raises(DataError, match="no study in its test split"):
        run_extraction_study(config(tiny, corpora=few), tmp_path / "study")

"""Files that are not what they claim, and one that is: each gets its own verdict, with its evidence."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import cxrlab
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.data.config import ImportConfig, PhantomConfig
from cxrlab.data.importing import import_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.certificate import Certificate
from cxrlab.evaluation.certify import run_certify
from cxrlab.evaluation.config import CertifyConfig, GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import Visit, draw_patient
from cxrlab.models.baselines import REPORTS

pytestmark = pytest.mark.slow

PATIENTS, TRAINING = 400, 500
TRIALS = 300
PREFIX = "Chest radiograph obtained in standard projection and compared with the available history. "
Reports = dict[str, str]


@dataclass(frozen=True)
class World:
    """Patients with a reference each, reports of an honest model, and training reports with the labels of each."""

    references: Reports
    honest: Reports
    training: list[str]
    labels: dict[str, frozenset[str]]
    training_labels: list[frozenset[str]]


def labels(visit: Visit) -> frozenset[str]:
    return frozenset(finding.observation for finding in visit.present)


@pytest.fixture(scope="module")
def world() -> World:
    """The honest model writes in its own words and leaves out every third finding."""
    visits = {f"p{k}": draw_patient(5, f"p{k}").visits[0] for k in range(PATIENTS)}
    trained = [draw_patient(6, f"t{k}").visits[0] for k in range(TRAINING)]
    draw = random.Random(1)

    def forgetful(visit: Visit) -> Visit:
        return replace(visit, findings=tuple(one for one in visit.findings if draw.random() > 1 / 3))

    return World(
        {key: str(narrate(visit, 5, key).report.findings) for key, visit in visits.items()},
        {key: str(narrate(forgetful(visit), 9, key, "B").report.findings) for key, visit in visits.items()},
        [str(narrate(visit, 6, f"t{k}").report.findings) for k, visit in enumerate(trained)],
        {key: labels(visit) for key, visit in visits.items()},
        [labels(visit) for visit in trained],
    )


def shuffled(reports: Mapping[str, str], keys: list[str] | None = None) -> Reports:
    """The same reports in another order; of some keys only where they are given."""
    keys = list(reports) if keys is None else keys
    others = keys[1:] + keys[:1]
    return {**reports, **{key: reports[other] for key, other in zip(keys, others, strict=True)}}


def nearest(world: World) -> Reports:
    """For each study the training report with the most similar findings."""

    def alike(mine: frozenset[str], other: frozenset[str]) -> float:
        return len(mine & other) / len(mine | other) if mine | other else 1.0

    return {
        key: world.training[max(range(TRAINING), key=lambda k: alike(found, world.training_labels[k]))]
        for key, found in world.labels.items()
    }


def at_random(world: World) -> Reports:
    draw = random.Random(2)
    return {key: draw.choice(world.training) for key in world.references}


def varied_normal(world: World) -> Reports:
    """Normal reports of random sentences, and an honest one in eight."""
    draw = random.Random(3)
    sentences = ("The lungs are clear.", "No pneumothorax.", "The heart size is normal.", "No pleural effusion.",
                 "No focal consolidation.", "The mediastinal contour is normal.", "No acute fracture.")  # fmt: skip
    normal = {key: " ".join(draw.sample(sentences, 4)) for key in world.references}
    return {key: text if k % 8 == 0 else normal[key] for k, (key, text) in enumerate(world.honest.items())}


def certificate(world: World, predictions: Mapping[str, str], *, training: bool = False) -> Certificate:
    given = world.training if training else None
    return cxrlab.certify(dict(predictions), world.references, training=given, trials=TRIALS)


FILES: dict[str, tuple[Callable[[World], Reports], str, str]] = {
    "honest": (lambda w: w.honest, "fits", "ok"),
    "constant": (lambda w: dict.fromkeys(w.references, REPORTS["normal"]), "constant", "severe"),
    "shuffled": (lambda w: shuffled(w.honest), "not about these studies", "severe"),
    "shuffled references": (lambda w: shuffled(w.references), "not about these studies", "severe"),
    "shuffled among three": (
        lambda w: (
            {
                key: text
                for k in range(0, PATIENTS - 1, 3)
                for key, text in shuffled(dict(list(w.honest.items())[k : k + 3])).items()
            }
            | {"p399": w.honest["p0"]}
        ),
        "not about these studies",
        "severe",
    ),
    "a tenth shuffled": (lambda w: shuffled(w.honest, list(w.honest)[:40]), "fits", "ok"),
    "references": (lambda w: w.references, "references", "severe"),
    "references behind a constant beginning": (
        lambda w: {key: PREFIX + text for key, text in w.references.items()},
        "references",
        "severe",
    ),
    "half references, half constant": (
        lambda w: {key: text if k % 2 else REPORTS["normal"] for k, (key, text) in enumerate(w.references.items())},
        "references",
        "severe",
    ),
    "an eighth references in honest reports": (
        lambda w: {key: text if k % 8 else w.references[key] for k, (key, text) in enumerate(w.honest.items())},
        "references",
        "severe",
    ),
    "half of each reference, half of another": (
        lambda w: {
            key: f"{text[: len(text) // 2]} {other[len(other) // 2 :]}"
            for (key, text), other in zip(w.references.items(), shuffled(w.references).values(), strict=True)
        },
        "close to the references",
        "caution",
    ),
    "normal in varied words but for an eighth": (varied_normal, "mostly called normal", "caution"),
    "constant with one word changed": (
        lambda w: {key: f"{REPORTS['normal']} Reading {key}." for key in w.references},
        "no findings",
        "severe",
    ),
    "one finding for all in two texts": (
        lambda w: {
            key: f"There is a small left pleural effusion.{' No pneumothorax.' * (k % 2)}"
            for k, key in enumerate(w.references)
        },
        "same findings",
        "severe",
    ),
    "every third report empty": (
        lambda w: {key: text if k % 3 else "" for k, (key, text) in enumerate(w.honest.items())},
        "empty reports",
        "caution",
    ),
    "mostly constant": (
        lambda w: {key: text if k % 4 == 0 else REPORTS["normal"] for k, (key, text) in enumerate(w.honest.items())},
        "mostly one text",
        "caution",
    ),
    "shuffled behind a constant beginning": (
        lambda w: {key: PREFIX + text for key, text in shuffled(w.honest).items()},
        "not about these studies",
        "severe",
    ),
    "one prediction too many": (lambda w: {**w.honest, "stranger": "Clear lungs."}, "unmatched", "severe"),
    "one prediction too few": (lambda w: dict(list(w.honest.items())[1:]), "unmatched", "severe"),
}


@pytest.mark.parametrize("name", FILES)
def test_each_file_gets_its_verdict(world: World, name: str) -> None:
    make, rule, severity = FILES[name]
    found = certificate(world, make(world))
    assert (found.rule, found.severity) == (rule, severity), found.headline


def test_reports_copied_from_training_are_recognised(world: World) -> None:
    """Drawn at random they fit nothing; chosen by labels they fit, and are still copies."""
    for make, rule, severity in ((at_random, "copied at random", "severe"), (nearest, "copied", "caution")):
        found = certificate(world, make(world), training=True)
        assert (found.rule, found.severity) == (rule, severity), found.headline
        overlap = found.check("overlap with training reports").numbers
        assert overlap["training_reports"] == TRAINING and overlap["verbatim"]["predictions"].value == 1
        assert overlap["verbatim"]["references"].value < 0.2
    assert certificate(world, world.honest, training=True).rule == "fits"


def test_the_evidence_is_what_was_put_in(world: World) -> None:
    """100 of 400 reports are the references, 100 are one text, 200 are another patient's reference."""
    keys = list(world.references)
    moved = shuffled(world.references, keys[200:])
    texts = {key: REPORTS["normal"] if k < 100 else moved[key] for k, key in enumerate(keys)}
    found = certificate(world, texts)
    variety, copies = found.check("variety").numbers, found.check("copied references").numbers
    assert variety["most_frequent"]["predictions"].value == pytest.approx(0.25)
    assert variety["reports"]["n"] == PATIENTS
    assert copies["other_reference"]["predictions"].value == pytest.approx(0.5, abs=0.01)
    assert copies["own_reference"].value == pytest.approx(0.25, abs=0.03)
    gain = found.check("fit to the studies").numbers["findings.f1"]
    assert gain["gain"].value == pytest.approx(gain["predictions"] - gain["baseline"])
    assert gain["gain"].low < gain["gain"].value < gain["gain"].high


def test_labels_never_reported_are_named(world: World) -> None:
    """Reports that leave out every effusion never carry its label, and the difference of the shares is theirs."""
    visits = {key: draw_patient(5, key).visits[0] for key in world.references}
    silent = {
        key: replace(visit, findings=tuple(f for f in visit.findings if f.observation != "pleural effusion"))
        for key, visit in visits.items()
    }
    texts = {key: str(narrate(visit, 9, key, "B").report.findings) for key, visit in silent.items()}
    numbers = certificate(world, texts).check("label prevalence").numbers
    with_effusion = sum("pleural effusion" in found for found in world.labels.values())
    assert with_effusion > 30 and "Pleural Effusion" in numbers["never_reported"]
    effusion = numbers["labels"]["Pleural Effusion"]
    assert effusion["count"] == 0 and abs(effusion["present"] - with_effusion) <= 0.1 * with_effusion
    assert effusion["difference"].value == pytest.approx(-effusion["present"] / PATIENTS)


def test_cut_empty_and_masked_reports_are_counted(world: World) -> None:
    texts = dict(world.honest)
    for k, key in enumerate(texts):
        if k < 40:
            texts[key] = ""
        elif k < 120:
            texts[key] = texts[key][: len(texts[key]) // 2].rstrip(".!?:; ") + " and"
        elif k < 160:
            texts[key] += " Compared with XXXX."
    numbers = certificate(world, texts).check("content").numbers
    assert numbers["empty"]["predictions"].value == pytest.approx(0.1)
    assert numbers["without_sentence_end"]["predictions"].value == pytest.approx(80 / 360)
    assert numbers["masks"]["predictions"].value == pytest.approx(0.1)
    assert numbers["empty"]["references"].value == 0


def test_reports_in_another_language_are_not_only_called_normal(world: World) -> None:
    """The reader knows English alone; a file of normal reports in English denies findings by name."""
    german = {key: f"Kleiner Pleuraerguss links, Fall {key}." for key in world.references}
    found = certificate(world, german)
    assert found.rule == "no findings" and found.headline.endswith(
        "100% of them name no observation at all, not even to deny it: are they in English?"
    )
    assert found.check("content").numbers["silent"]["references"].value < 0.1
    normal = certificate(world, {key: f"{REPORTS['normal']} Reading {key}." for key in world.references})
    assert normal.rule == "no findings" and "English" not in normal.headline


def test_few_patients_never_pass(world: World) -> None:
    """Twenty studies, or four hundred of twenty patients."""
    few = dict(list(world.references.items())[:20])
    found = cxrlab.certify({key: world.honest[key] for key in few}, few, trials=TRIALS)
    assert (found.rule, found.severity, found.patients) == ("few patients", "caution", 20)
    assert found.check("sample size").verdict == "warning"


def test_the_run_holds_verdict_evidence_and_scores_and_is_not_made_twice(world: World, tmp_path: Path) -> None:
    references, predictions = tmp_path / "references.jsonl", tmp_path / "predictions.jsonl"
    for file, texts in (
        (references, world.references),
        (predictions, dict.fromkeys(world.references, "Normal chest.")),
    ):
        file.write_text("".join(json.dumps({"id": key, "report": text}) + "\n" for key, text in texts.items()))
    config = CertifyConfig(predictions, references, metrics=("rougeL:google",), trials=50)
    found = run_certify(config, tmp_path / "run")
    stored = read_json(tmp_path / "run" / "certificate.json")
    assert (stored["rule"], stored["severity"], stored["n"]) == ("constant", "severe", PATIENTS)
    assert [check["name"] for check in stored["checks"]] == [check.name for check in found.checks]
    lines = [json.loads(line) for line in (tmp_path / "run" / "evidence.jsonl").read_text().splitlines()]
    assert len(lines) == PATIENTS and all(line["same_text"] == PATIENTS for line in lines)
    assert not any("report" in line or "text" in line for line in lines), "evidence holds ids and flags only"
    assert "rougeL:google" in read_json(tmp_path / "run" / "scores.json")["metrics"]
    assert run_certify(config, tmp_path / "run").headline == found.headline
    predictions.write_text(predictions.read_text().replace("Normal chest.", "Clear lungs."))
    with pytest.raises(RunError, match="other texts"):
        run_certify(config, tmp_path / "run")


def test_contradicting_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--controls"):
        CertifyConfig(tmp_path, tmp_path, model="stub:normal", controls=(tmp_path,))
    with pytest.raises(ConfigError, match="--references"):
        CertifyConfig(tmp_path, model="stub:normal")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=260, size=128, seed=7, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


def test_a_good_model_passes_with_its_controls(corpus: Path, tmp_path: Path) -> None:
    """The built-in reporter on phantoms; another model's control images do not speak for its file."""
    run, other = tmp_path / "reporter", tmp_path / "normal"
    generate(
        GenerateConfig("builtin:reporter", corpus, split="train", n=48, controls=("swapped",), control_studies=32), run
    )
    generate(
        GenerateConfig("stub:normal", corpus, split="train", n=48, controls=("swapped",), control_studies=32), other
    )
    found = cxrlab.certify(run, corpus, trials=TRIALS)
    assert (found.rule, found.severity) == ("fits", "ok"), found.headline
    assert found.check("image dependence").verdict == "pass"
    borrowed = cxrlab.certify(run / "predictions.jsonl", _only(corpus, run), controls=[other], trials=TRIALS)
    check = borrowed.check("image dependence")
    assert check.verdict == "warning" and not check.numbers
    own = cxrlab.certify(run / "predictions.jsonl", _only(corpus, run), controls=[run], trials=TRIALS)
    assert own.check("image dependence").verdict == "pass"
    with pytest.raises(DataError, match="control images"):
        cxrlab.certify(run, corpus, controls=[_without_controls(run, tmp_path / "bare")])


def test_a_study_is_not_retrieved_as_its_own_nearest(corpus: Path) -> None:
    reports = {
        study.id: str(study.sections.findings)
        for study in cxrlab.load_corpus(corpus).studies("train")
        if study.sections
    }
    found = cxrlab.certify(reports, corpus, split="train", training=corpus, trials=50)
    assert found.check("better than retrieval").verdict == "not tested"


def _only(corpus: Path, run: Path) -> Reports:
    """The references of the studies in a run, in memory."""
    known = cxrlab.load_corpus(corpus)
    keys = [json.loads(line)["id"] for line in (run / "predictions.jsonl").read_text().splitlines()]
    return {key: str(known[key].sections.findings) for key in keys}  # type: ignore[union-attr]


def _without_controls(run: Path, folder: Path) -> Path:
    folder.mkdir()
    (folder / "predictions.jsonl").write_text((run / "predictions.jsonl").read_text())
    return folder


def test_a_model_that_is_named_generates_again_with_control_images(corpus: Path, tmp_path: Path) -> None:
    """A retrieval model: its reports are training reports, they depend on the image, and they are reproduced."""
    run = tmp_path / "retrieval"
    generate(GenerateConfig(f"retrieval:{corpus}", corpus, split="val", control_studies=0), run)
    config = CertifyConfig(run, corpus, training=corpus, model=f"retrieval:{corpus}", trials=50)
    found = run_certify(config, tmp_path / "certified")
    assert found.check("overlap with training reports").numbers["verbatim"]["predictions"].value == 1
    assert found.check("image dependence").numbers["n"] > 10
    retrieval = found.check("better than retrieval").numbers["findings.f1"]
    assert retrieval["predictions"] == retrieval["baseline"], "these are the retrieved reports"
    with pytest.raises(ConfigError, match="corpus"):
        run_certify(CertifyConfig(run, run / "predictions.jsonl", model="stub:normal"), tmp_path / "no_images")


@pytest.mark.parametrize(("lateral", "verdict"), [(1, "warning"), (9, "not tested")])
def test_a_study_without_a_frontal_image_counts_as_equal(
    corpus: Path, tmp_path: Path, lateral: int, verdict: str
) -> None:
    """One of 25 is passed over; of many, the comparison would say nothing."""
    shutil.copytree(corpus, tmp_path / "corpus")
    file = tmp_path / "corpus" / "studies.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    held_out = [line for line in lines if line["split"] == "val"]
    for line in held_out[:lateral]:
        line["images"][0]["view"] = "lateral"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reports = {line["id"]: REPORTS["normal"] for line in held_out}
    check = cxrlab.certify(reports, file.parent, training=file.parent, trials=50).check("better than retrieval")
    assert check.verdict == verdict and ("counted as equal: 1." in check.sentence) == (lateral == 1)


@pytest.mark.real_data
def test_the_published_file_of_four_texts(real_data: Path, tmp_path: Path) -> None:
    """The IU test predictions of a published model, matched with Open-I by R2Gen's ids."""
    openi = import_corpus("openi", ImportConfig(real_data / "openi", workers=1), tmp_path / "openi").path
    file = real_data / "public_predictions" / "cvt2distilgpt2_iu_test.csv"
    found = cxrlab.certify(file, openi, training=openi)
    assert (found.rule, found.severity, found.n, found.patients) == ("no findings", "severe", 590, 590)
    variety = found.check("variety").numbers
    assert variety["reports"]["distinct"] == 4 and variety["most_frequent"]["predictions"].value == pytest.approx(
        306 / 590
    )
    assert found.check("content").numbers["normal"]["predictions"].value == 1
    gain = found.check("better than a constant report").numbers
    assert gain["findings.f1"]["predictions"] == 0 and gain["bleu4:coco"]["gain"].low > 0
    assert found.check("overlap with training reports").numbers["verbatim"]["predictions"].value == 1

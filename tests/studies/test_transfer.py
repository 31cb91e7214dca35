"""Images made on a copy and shown to its victim: the table over seeds, from answers that were written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_evidence import AIR, NORMAL, image, lines, truth

from cxrlab.core.jsonl import JsonlAppender
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.studies.transfer import transfer_table

PGD, NOISE = "pgd@2/255", "noise@2/255"
STUDIES = ("s1", "s2", "s3", "s4")


def audit(folder: Path, copied: int, random: int, unrelated: bool = True) -> Path:
    """The victim calls every clean image normal, as it is, and so many attacked ones a pneumothorax."""

    def reports(changed: int) -> dict[str, ImageAnswer]:
        return {study: image(AIR if place < changed else NORMAL) for place, study in enumerate(STUDIES)}

    answers = [*lines("a", "clean", reports(0)), *lines("b", "clean", reports(0)), *lines("a", PGD, reports(4))]
    answers += lines("a", PGD, reports(copied), "b")
    answers += [replace(line, crafted_on=None) for line in lines("a", NOISE, reports(random))]
    if unrelated:
        answers += [*lines("c", "clean", reports(0)), *lines("a", PGD, reports(1), "c")]
    folder.mkdir()
    for name, records in (("truth", [truth(study, NORMAL) for study in STUDIES]), ("answers", answers)):
        with JsonlAppender(folder / f"{name}.jsonl") as file:
            for record in records:
                file.append(record)
    return folder


def test_changed_reports_and_errors_by_what_the_images_were_made_on(tmp_path: Path) -> None:
    """Of four reports the copy's images change three and two, the victim's own four, noise none and one."""
    audits = {1: {"ada": audit(tmp_path / "1", 3, 0)}, 2: {"ada": audit(tmp_path / "2", 2, 1)}}
    found = transfer_table(audits, {"ada": ("b", "c")})
    assert (found["n"], found["patients"]) == (4, 4)
    sources, differences = (found["variants"]["ada"][PGD][key] for key in ("sources", "differences"))
    assert sources["copy"]["flip_rate"]["values"] == [0.75, 0.5]
    assert sources["copy"]["errors.added"]["values"] == [0.75, 0.5]  # one invented finding in each changed report
    means = {name: one["flip_rate"]["mean"] for name, one in sources.items()}
    assert means == {"copy": 0.625, "victim": 1.0, "unrelated": 0.25, "noise": 0.125}
    assert set(differences) == {"victim", "unrelated", "noise"}
    noise = differences["noise"]["flip_rate"]
    assert [one["difference"] for one in noise["by_seed"]] == [0.75, 0.25]
    assert noise["pooled"]["value"] == pytest.approx(0.5)
    assert differences["victim"]["flip_rate"]["ratio"]["value"] == pytest.approx(0.625)


def test_without_an_unrelated_model_there_is_no_such_row(tmp_path: Path) -> None:
    found = transfer_table({1: {"ada": audit(tmp_path / "1", 3, 0, unrelated=False)}}, {"ada": ("b", None)})
    assert list(found["variants"]["ada"][PGD]["sources"]) == ["copy", "victim", "noise"]

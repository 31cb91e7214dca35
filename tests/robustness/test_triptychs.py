"""What a person looks at: pictures that stay in their folder, and what changed in the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_evidence as hand
import torch

from cxrlab.core.image_codec import decode
from cxrlab.core.runs import Run
from cxrlab.robustness.audited_studies import Case
from cxrlab.robustness.triptychs import changed_spans, save_images, triptych

CONDITION = "pgd:answers@2/255"


def keep(run: Run, study: str, clean: float, perturbed: float) -> None:
    images = (torch.full((1, 1, 4, 4), value) for value in (clean, perturbed))
    save_images(run, {study}, CONDITION, "a", [Case(study, "p", None, None, None)], *images)


def shown(run: Run, study: str) -> dict[str, str]:
    before = hand.lines("a", "clean", {study: hand.image(hand.LEFT, e=0.75, o=0.25)})[0]
    after = hand.lines("a", CONDITION, {study: hand.image(hand.RIGHT, e=0.25, o=0.25)}, attack=hand.trace(0.25))[0]
    line = triptych(run, hand.truth(study, hand.LEFT, e=1), before, after)
    assert line is not None
    return dict(line)


def level(run: Run, name: str) -> int:
    """The one grey level of a picture."""
    return int(np.unique(decode(run.path(name).read_bytes(), name)).item())


def test_a_line_has_images_words_and_flips(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", {}) as run:
        assert triptych(run, hand.truth("s1"), *(hand.lines("a", "clean", {"s1": hand.image()}) * 2)) is None
        keep(run, "s1", 0.25, 0.3)
        line = shown(run, "s1")
        # A difference of 0.05 is shown as mid grey plus ten times that: 0.5 + 0.5.
        assert [level(run, line[name]) for name in ("clean", "difference", "perturbed")] == [64, 255, 76]
    assert line["label_flips"] == [{"label": hand.EFFUSION, "before": 0.75, "after": 0.25, "truth": 1}]
    assert line["eps"] == "2/255" and line["linf"] == 0.25


def test_spans_say_what_was_lost_changed_and_new() -> None:
    before, after = f"{hand.LEFT} {hand.AIR}", f"{hand.RIGHT} There is cardiomegaly. No edema."
    found = changed_spans(before, after)
    marked = {
        name: [(text[first:last], word) for first, last, word in found[name]]
        for name, text in (("before", before), ("after", after))
    }
    assert [word for _, word in marked["before"]] == ["changed", "lost"]
    assert "effusion" in marked["before"][0][0] and "pneumothorax" in marked["before"][1][0]
    assert [word for _, word in marked["after"]] == ["changed", "new"]
    assert "cardiomegaly" in marked["after"][1][0]
    assert changed_spans(hand.LEFT, hand.LEFT) == {"before": [], "after": []}


@pytest.mark.parametrize("study", ["../x", "a/b", "..", "/etc/passwd", "a\\b", "a\0b", "x" * 400, "ä ö"])
def test_no_study_id_leads_out_of_the_folder(tmp_path: Path, study: str) -> None:
    with Run.open(tmp_path / "run", {}) as run:
        keep(run, study, 0.25, 0.3)
        line = shown(run, study)
    pictures = {path for path in tmp_path.rglob("*.png")}
    assert len(pictures) == 3 and {path.parent for path in pictures} == {tmp_path / "run" / "triptychs"}
    assert {(tmp_path / "run" / line[name]) for name in ("clean", "difference", "perturbed")} == pictures


def test_two_studies_whose_names_look_alike_have_images_of_their_own(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", {}) as run:
        for number, study in enumerate(("a/b", "a_b", "a b", "a" * 90, "a" * 91)):
            keep(run, study, 0.2 * number, 0.2 * number)
            assert level(run, shown(run, study)["clean"]) == 51 * number

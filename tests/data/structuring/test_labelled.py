"""Translations against the labels of their study."""

from __future__ import annotations

from tables import every_row

from cxrlab.core.records import Report, Study
from cxrlab.data.structuring.checks import NOT_NORMAL, has_labels, label_violations


def judged(text: str, *, own: tuple[str, ...] = (), labels: dict[str, int] | None = None) -> tuple[str, ...]:
    study = Study("s", "p", own_labels=dict.fromkeys(own, 1), labels=labels or {})
    return label_violations(study, "padchest", Report(findings=text))


@every_row(
    ("own", "text", "expected"),
    [
        (("pleural effusion",), "Small right pleural effusion.", ()),
        (("pleural effusion",), "Clear lungs.", ("a finding disappears: pleural effusion",)),
        (("pleural effusion",), "Right pleural effusion and a rib fracture.", ("a finding appears: rib fracture",)),
        (("pleural effusion",), "Right pleural effusion, possible rib fracture.", ()),  # a hedge is no finding
        (("pneumonia",), "Pneumonia with consolidation of the left base.", ()),  # two names for one clouding
        (("pneumonia",), "Pneumonia. Nodule in the left upper lobe.", ("a finding appears: nodule",)),
        (("infiltrates",), "Opacity of the left base, consolidation.", ()),  # a child of the label's observation
        (("costophrenic angle blunting",), "Pleural thickening on the left.", ()),  # one alternative is enough
        (("scoliosis",), "Scoliosis. Osteopenia.", ()),  # what is none of the fourteen is not looked at
        (("goiter",), "Clear lungs.", ()),  # the vocabulary has no word for it
        (("fracture",), "Fracture of the left 5th rib.", ()),
        (("normal",), "The heart is normal and the lungs are clear.", ()),
        (("normal",), "Cardiomegaly.", (NOT_NORMAL,)),
    ],
)
def test_own_labels(own: tuple[str, ...], text: str, expected: tuple[str, ...]) -> None:
    assert judged(text, own=own) == expected


def test_the_fourteen_serve_where_a_corpus_has_no_map() -> None:
    study = Study("s", "p", labels={"Lung Opacity": 1, "Edema": -1, "Fracture": 0})
    good, bad = "Consolidation. Edema.", "Clear lungs. Rib fracture."
    assert label_violations(study, "elsewhere", Report(findings=good)) == ()
    assert label_violations(study, "elsewhere", Report(findings=bad)) == (
        "a finding disappears: Lung Opacity",
        "a finding appears: rib fracture",
    )


def test_whether_there_are_labels() -> None:
    assert not has_labels(Study("s", "p")) and has_labels(Study("s", "p", own_labels={"normal": 1}))

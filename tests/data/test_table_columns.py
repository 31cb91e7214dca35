"""What columns mean: by name, by cells, and as `--columns` says."""

from __future__ import annotations

from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.core.table_rows import TableRow
from cxrlab.core.vocabulary import View
from cxrlab.data.table_columns import (
    UNKNOWN_VIEW,
    Columns,
    date_order,
    guess_columns,
    image_references,
    parse_columns,
    parse_moment,
    parse_split_names,
    parse_view,
)

LONG = "The heart is normal in size. The lungs are clear."


def guessed(**columns: list[Any]) -> Columns:
    """The guess for a table with these columns; a path is that of an image if it begins with `there`."""
    count = len(next(iter(columns.values())))
    rows = [TableRow(f"t:{k}", {name: cells[k] for name, cells in columns.items()}) for k in range(count)]
    return guess_columns(tuple(columns), rows, lambda path: path.startswith("there"))


@every_row(
    ("columns", "roles"),
    [
        ({"image": ["there/1.png"], "report": [LONG], "subject_id": ["7"]},
         {"image": "image", "report": "report", "patient": "subject_id"}),
        ({"Datei": ["there1", "there2"], "Befund": [LONG, LONG]}, {"image": "Datei", "report": "Befund"}),
        ({"x": ["a.dcm", "b.dcm"], "y": [LONG, LONG]}, {"image": "x", "report": "y"}),
        ({"id": ["there1", "there2"], "file": ["there1.png", "there2.png"]}, {"image": "file", "study": "id"}),
        ({"file": ["there.png"] * 3, "q": ["F", "M", "F"], "r": ["PA", "LAT", "AP"], "s": ["train", "dev", "test"]},
         {"image": "file", "sex": "q", "view": "r", "split": "s"}),
        ({"file": ["there.png"] * 2, "birth date": ["1960-01-01"] * 2, "done": ["2024-05-03"] * 2},
         {"image": "file", "date": "done"}),
        ({"file": ["there.png"], "Findings": [LONG], "Clinical History": [LONG], "Age (years)": ["61"]},
         {"image": "file", "findings": "Findings", "indication": "Clinical History", "age": "Age (years)"}),
        ({"pic": [{"bytes": b"x", "path": None}], "text": [LONG]}, {"image": "pic", "report": "text"}),
        ({"pic": [[{"bytes": b"x", "path": None}]], "report": [{"a": LONG}]}, {"image": "pic", "report": "report"}),
    ],
)  # fmt: skip
def test_roles_follow_from_names_and_cells(columns: dict[str, list[Any]], roles: dict[str, str]) -> None:
    assert guessed(**columns).roles == {role: (name,) for role, name in roles.items()}


def test_two_columns_of_files_are_two_images_of_a_study() -> None:
    found = guessed(frontal=["there1.png"], lateral=["there2.png"])
    assert found.roles == {"image": ("frontal", "lateral")}


def test_labels_are_recognised_in_any_spelling() -> None:
    found = guessed(file=["there.png"], pleural_effusion=["1"], **{"No finding": ["0"], "LUNG OPACITY": [""]})
    assert found.labels == {
        "No Finding": "No finding",
        "Lung Opacity": "LUNG OPACITY",
        "Pleural Effusion": "pleural_effusion",
    }


TABLE = ("Study Nr", "file", "text, whole", "Edema")
GUESS = Columns({"image": ("file",), "report": ("text, whole",)}, {"Edema": "Edema"})


@every_row(
    ("words", "roles", "labels"),
    [
        (["auto"], {"image": ("file",), "report": ("text, whole",)}, ["Edema"]),
        (
            ["auto", "study=Study Nr"],
            {"image": ("file",), "study": ("Study Nr",), "report": ("text, whole",)},
            ["Edema"],
        ),
        (["auto", "report=none", "labels=none"], {"image": ("file",)}, []),
        (["report=textwhole", "image=FILE"], {"image": ("file",), "report": ("text, whole",)}, ["Edema"]),
        (["image=file+studynr", "labels=Edema"], {"image": ("file", "Study Nr")}, ["Edema"]),
    ],
)
def test_columns_are_named_as_the_user_likes(words: list[str], roles: dict[str, Any], labels: list[str]) -> None:
    found = parse_columns(words, TABLE, GUESS)
    assert found.roles == roles and list(found.labels) == labels
    assert parse_columns(found.spelled(TABLE).split(","), TABLE, GUESS).roles == roles


@every_row(
    ("words", "match"),
    [
        (["image=fil"], "'fil'.*Did you mean 'file'"),
        (["imge=file"], "Did you mean 'image'"),
        (["image=file", "image=text, whole"], "'image' twice"),
        (["report=file+text, whole"], "'report' several"),
        (["image"], "'image'"),
        (["labels=file"], "'file' as a label"),
    ],
)
def test_wrong_columns_are_refused_with_a_remedy(words: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse_columns(words, TABLE, GUESS)


@every_row(
    ("text", "view"),
    [
        ("PA", View.PA), ("p.a.", View.PA), ("AP portable", View.AP), ("postero-anterior", View.PA),
        ("Antero posterior", View.AP), ("LATERAL", View.LATERAL), ("LL", View.LATERAL), ("frontal", View.FRONTAL),
        ("Chest LAT", View.LATERAL), ("frontal (AP)", View.AP), ("lordotic", View.OTHER), ("", None),
        ("PA and lateral", UNKNOWN_VIEW), ("knee", UNKNOWN_VIEW), ("left lateral decubitus", View.OTHER),
    ],
)  # fmt: skip
def test_views_are_read_in_the_words_of_tables(text: str, view: object) -> None:
    assert parse_view(text) == view


@every_row(
    ("text", "order", "moment"),
    [
        ("2024-03-05", None, "20240305"), ("20240305", None, "20240305"), ("2024/3/5", None, "20240305"),
        ("2024-03-05 10:30:15", None, "20240305103015"), ("20240305 103015.25", None, "20240305103015"),
        ("5.3.2024", None, "20240305"), ("05/03/2024", None, ""), ("05/03/2024", "dmy", "20240305"),
        ("05/03/2024", "mdy", "20240503"), ("2024-02-30", None, ""), ("yesterday", None, ""), ("31/12/2024", "mdy", ""),
    ],
)  # fmt: skip
def test_dates_are_read_only_where_they_are_certain(text: str, order: str | None, moment: str) -> None:
    assert parse_moment(text, order) == moment


def test_the_order_of_dates_is_suggested_where_only_one_fits() -> None:
    assert date_order(["05/03/2024", "31/03/2024"]) == "dmy"
    assert date_order(["05/03/2024", "03/31/2024"]) == "mdy"
    assert date_order(["05/03/2024"]) is None and date_order(["2024-03-05"]) is None
    assert date_order(["31/03/2024", "03/31/2024"]) is None


def test_a_cell_may_name_several_images() -> None:
    for cell in ("a.png;b.png", "a.png | b.png", '["a.png", "b.png"]', ["a.png", "b.png"]):
        assert image_references(cell) == ["a.png", "b.png"]


def test_split_names_are_translated() -> None:
    names = parse_split_names(["holdout=test", "extra=none"])
    assert names["holdout"] == "test" and names["extra"] == "none" and names["training"] == "train"
    with pytest.raises(ConfigError, match="holdout=tst"):
        parse_split_names(["holdout=tst"])

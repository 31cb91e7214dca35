"""What the columns of a user's table mean: roles guessed from names and cells, or named with `--columns`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.core.table_rows import TableRow, cell_text
from cxrlab.core.vocabulary import CHEXPERT_14, View
from cxrlab.data.source_tables import parse_age, parse_sex

AUTO, NONE, LABELS = "auto", "none", "labels"
TEXTS = ("report", *SECTIONS)
ROLES = ("image", "study", "patient", "split", "view", "date", "age", "sex", *TEXTS, "prior")
SPLIT_WORDS: Mapping[str, str] = MappingProxyType(
    {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
     "test": "test", "testing": "test"}
)  # fmt: skip
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
DATE_ORDERS = ("dmy", "mdy")
# Column names of each role as `normalised` spells them, the preferred first.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "image": ("image", "imagepath", "imagefile", "imagefilename", "filename", "file", "filepath", "path", "img",
              "dicomid", "dicompath", "imageid", "imageindex", "frontal", "lateral", "pa", "ap"),
    "study": ("study", "studyid", "studyuid", "studyinstanceuid", "accession", "accessionnumber", "accessionno",
              "examid", "caseid", "case", "caseno", "reportid", "uid", "id"),
    "patient": ("patient", "patientid", "subjectid", "subject", "mrn", "personid", "pid", "patid",
                "patno", "patnr", "patientno", "patientnr", "patientnumber"),
    "split": ("split", "subset", "fold", "partition", "set"),
    "view": ("view", "viewposition", "projection", "viewpos", "position"),
    "date": ("studydate", "examdate", "date", "studydatetime", "datetime", "acquisitiondate", "performeddate"),
    "age": ("age", "patientage", "ageyears", "ageatstudy", "ageinyears"),
    "sex": ("sex", "gender", "patientsex", "patientgender"),
    "report": ("report", "reporttext", "fullreport", "radiologyreport", "finalreport", "text", "fulltext", "narrative"),
    "findings": ("findings", "finding", "findingstext", "sectionfindings", "findingssection", "reportfindings"),
    "impression": ("impression", "impressions", "impressiontext", "sectionimpression", "conclusion",
                   "impressionsection", "reportimpression"),
    "indication": ("indication", "clinicalindication", "indicationtext", "sectionindication", "clinicalhistory",
                   "clinicalinformation", "history", "reasonforexam", "reasonforexamination"),
    "comparison": ("comparison", "comparisons", "sectioncomparison"),
    "examination": ("examination", "exam", "procedure", "sectionexamination", "studydescription"),
    "prior": ("prior", "priorstudy", "priorstudyid", "previousstudy", "previousstudyid"),
}  # fmt: skip
_LISTED = 20  # columns that a message names
_LONG_TEXT = 5  # words per cell from which a column may hold reports


@dataclass(frozen=True)
class Columns:
    """The columns of a table by role, and why each was taken; only `image` may have several."""

    roles: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, str] = field(default_factory=dict)  # CheXpert's name → column
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, role: object) -> bool:
        return role in self.roles

    def one(self, role: str) -> str | None:
        """The column of a role, None without one."""
        return self.roles[role][0] if role in self.roles else None

    @property
    def used(self) -> frozenset[str]:
        return frozenset([*self.labels.values(), *(name for names in self.roles.values() for name in names)])

    def spelled(self, columns: Sequence[str]) -> str:
        """The value of --columns that gives these roles."""
        words = [f"{role}={'+'.join(_spelling(name, columns) for name in names)}" for role, names in self.roles.items()]
        every = label_columns(columns)
        if every and not self.labels:
            words.append(f"{LABELS}={NONE}")
        elif set(self.labels.values()) != set(every.values()):
            words.append(f"{LABELS}={'+'.join(_spelling(name, columns) for name in self.labels.values())}")
        return ",".join(words)


def parse_columns(words: Iterable[str], columns: Sequence[str], guessed: Columns) -> Columns:
    """The columns that `ROLE=NAME` words name; `auto` begins with the guess, `ROLE=none` takes a role away."""
    given: dict[str, str] = {}
    auto = False
    for word in words:
        role, equals, names = (part.strip() for part in word.partition("="))
        if role.lower() == AUTO and not equals:
            auto = True
            continue
        if role not in (*ROLES, LABELS) or not names:
            hint = did_you_mean(role, (*ROLES, LABELS))
            raise ConfigError(
                f"columns has {word!r}.{hint} Write ROLE=NAME with a role of {', '.join(ROLES)}, {LABELS}; or {AUTO}."
            )
        if role in given:
            raise ConfigError(f"columns names the role '{role}' twice ({given[role]} and {names}); name it once.")
        given[role] = names
    roles = dict(guessed.roles) if auto else {}
    reasons = {role: guessed.reasons.get(role, "") for role in roles}
    for role, names in given.items():
        if role == LABELS:
            continue
        roles.pop(role, None)
        if names.lower() != NONE or NONE in columns:
            roles[role] = tuple(_column(name.strip(), columns) for name in names.split("+"))
            reasons[role] = "--columns"
        if len(roles.get(role, ())) > 1 and role != "image":
            raise ConfigError(
                f"columns gives the role '{role}' several columns ({names}); only image may have several."
            )
    labels = label_columns(columns)
    chosen = given.get(LABELS, AUTO)
    if chosen.lower() == NONE:
        labels = {}
    elif chosen.lower() != AUTO:
        wanted = [_column(name.strip(), columns) for name in chosen.split("+")]
        if unknown := [name for name in wanted if name not in labels.values()]:
            raise ConfigError(f"columns gives '{unknown[0]}' as a label; labels are {', '.join(CHEXPERT_14)}.")
        labels = {name: column for name, column in labels.items() if column in wanted}
    ordered = {role: roles[role] for role in ROLES if role in roles}
    return Columns(ordered, labels, reasons)


def _column(name: str, columns: Sequence[str]) -> str:
    """The column of this name; case, blanks and signs need not agree where that is unambiguous."""
    if name in columns:
        return name
    close = [column for column in columns if normalised(column) == normalised(name)]
    if len(close) == 1:
        return close[0]
    raise ConfigError(
        f"columns names '{name}', which the table does not have.{did_you_mean(name, columns)} "
        f"Its columns are {listed_columns(columns)}."
    )


def listed_columns(columns: Sequence[str]) -> str:
    """The first names of columns, for a message."""
    return ", ".join(columns[:_LISTED]) + ", …" * (len(columns) > _LISTED)


def _spelling(name: str, columns: Sequence[str]) -> str:
    """A name as --columns can hold it: without the signs that separate names there."""
    return name if not re.search(r"[,+=\[\]]|^\s|\s$", name) and name in columns else normalised(name)


def normalised(name: str) -> str:
    """A column's name without case, blanks and signs: `studyid` for "Study ID" and "study_id"."""
    return re.sub(r"[\W_]+", "", name.casefold())


def label_columns(columns: Sequence[str]) -> dict[str, str]:
    """CheXpert's observations that columns are named after → those columns."""
    known = {normalised(name): name for name in CHEXPERT_14}
    found: dict[str, str] = {}
    for column in columns:
        if name := known.get(normalised(column)):
            found.setdefault(name, column)
    return {name: found[name] for name in CHEXPERT_14 if name in found}


def guess_columns(columns: Sequence[str], rows: Sequence[TableRow], is_image: Callable[[str], bool]) -> Columns:
    """The roles of columns by their names and by the cells of the first rows.

    Args:
        is_image: Whether a path of the table is that of an image file on disk.
    """
    labels = label_columns(columns)
    free = [name for name in columns if name not in labels.values()]
    cells = {name: [value for row in rows if _holds(value := row.values.get(name))] for name in free}
    roles: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}
    images, reason = _image_columns(free, cells, is_image)
    if images:
        roles["image"], reasons["image"] = images, reason
        free = [name for name in free if name not in images]
    fits: dict[str, Callable[[str], bool]] = {
        "view": lambda text: parse_view(text) not in (None, UNKNOWN_VIEW),
        "sex": lambda text: parse_sex(text).remark is None,
        "age": lambda text: parse_age(text).remark is None,
        "date": lambda text: any(parse_moment(text, order) for order in DATE_ORDERS),
        "split": lambda text: text.lower() in SPLIT_WORDS,
    }
    for role in ROLES[1:]:
        by_name = sorted(
            (name for name in free if normalised(name) in _NAMES[role]), key=lambda n: _NAMES[role].index(normalised(n))
        )
        named = [name for name in by_name if role not in fits or _share(cells[name], fits[role]) >= 0.5]
        if role == "split":  # values of another language are refused later, with a remedy
            named = by_name
        if named:
            roles[role], reasons[role] = (named[0],), "by its name"
            free.remove(named[0])
    for role in ("sex", "view", "split", "date"):
        known = [name for name in free if len(cells[name]) > 1 and _share(cells[name], fits[role]) >= 0.9]
        known = [name for name in known if not re.search("birth|dob|geburt", normalised(name))]
        if role not in roles and known:
            roles[role], reasons[role] = (known[0],), "by its cells"
            free.remove(known[0])
    if not {"report", "findings", "impression"} & set(roles):
        lengths = {
            name: sum(len(cell_text(one).split()) for one in cells[name]) / max(1, len(cells[name])) for name in free
        }
        longest = max(lengths, key=lengths.__getitem__, default="")
        if longest and lengths[longest] >= _LONG_TEXT:
            roles["report"], reasons["report"] = (longest,), f"by its cells: {lengths[longest]:.0f} words on average"
    return Columns({role: roles[role] for role in ROLES if role in roles}, labels, reasons)


def _image_columns(
    columns: Sequence[str], cells: Mapping[str, Sequence[Any]], is_image: Callable[[str], bool]
) -> tuple[tuple[str, ...], str]:
    """The columns that hold images, and why."""
    held = [name for name in columns if any(map(_holds_image, cells[name]))]
    if held:
        return tuple(held), "cells hold images"
    paths = {name: [path for cell in cells[name][:50] for path in image_references(cell)] for name in columns}
    short = [name for name in columns if paths[name] and not any(" " in path for path in paths[name])]
    ends = [name for name in columns if _share(paths[name], lambda path: path.lower().endswith(IMAGE_ENDINGS)) >= 0.9]
    named = [name for name in columns if normalised(name) in _NAMES["image"]]
    there: dict[str, int] = {}
    for name in ends or named or short:
        there[name] = sum(map(is_image, paths[name]))
    found = [name for name in there if 2 * there[name] >= len(paths[name]) > 0]
    if not ends and len(found) > 1:  # the names of files without endings, not also the ids that they are named after
        found = [max(found, key=lambda name: (name in named, len(set(paths[name]))))]
    if found:
        listed, exist = sum(len(paths[name]) for name in found), sum(there[name] for name in found)
        return tuple(found), f"by its cells: {exist} of the first {listed} are image files"
    if ends:
        return (ends[0],), "by the endings of its cells, but the files were not found"
    return ((named[0],), "by its name, but the files were not found") if named else ((), "")


def _holds_image(value: Any) -> bool:
    """Whether a cell is an image and not its path: bytes, Hugging Face's {bytes, path}, or a list of these."""
    if isinstance(value, list):
        return any(map(_holds_image, value))
    return isinstance(value, bytes) or (isinstance(value, dict) and {"bytes", "path"} <= value.keys())


def _holds(value: Any) -> bool:
    return bool(value if isinstance(value, (bytes, dict, list)) else cell_text(value))


def _share(cells: Sequence[Any], fits: Callable[[str], bool]) -> float:
    return sum(fits(cell_text(cell)) for cell in cells) / len(cells) if cells else 0.0


def image_references(value: Any) -> list[str]:
    """The paths of one cell: a path, several separated by `;` or `|`, or a list."""
    if isinstance(value, (list, tuple)):
        return [path for one in value for path in image_references(one)]
    if isinstance(value, dict):
        return [str(value["path"])] if value.get("path") else []
    text = cell_text(value)
    if text.startswith("["):
        text = text.strip("[]").replace('"', "").replace("'", "").replace(",", ";")
    return [part.strip() for part in re.split(r"[;|]", text) if part.strip()]


UNKNOWN_VIEW = "unknown view"
_VIEW_WORDS = {
    "pa": View.PA, "posteroanterior": View.PA, "posterioranterior": View.PA,
    "ap": View.AP, "anteroposterior": View.AP, "anteriorposterior": View.AP,
    "lateral": View.LATERAL, "lat": View.LATERAL, "ll": View.LATERAL, "rl": View.LATERAL, "llat": View.LATERAL,
    "rlat": View.LATERAL, "frontal": View.FRONTAL, "front": View.FRONTAL, "other": View.OTHER, "oblique": View.OTHER,
    "lordotic": View.OTHER, "decubitus": View.OTHER, "swimmers": View.OTHER,
}  # fmt: skip


def parse_view(text: str) -> View | str | None:
    """The view that a cell or a series description states; None for nothing, `UNKNOWN_VIEW` for other words.

    Both PA and AP, or a frontal beside a lateral view, describe a study and not an image: then the view is unknown.
    """
    if not text:
        return None
    words = re.findall(r"[a-z]+", re.sub(r"\.|(?<=tero)[\s-]+|(?<=terior)[\s-]+", "", text.casefold()))
    found = {_VIEW_WORDS[word] for word in words if word in _VIEW_WORDS}
    if View.OTHER in found and "decubitus" in words:
        return View.OTHER
    if len(found) == 2 and View.FRONTAL in found:
        found -= {View.FRONTAL}  # "frontal PA"
        return next(iter(found)) if found <= {View.PA, View.AP} else UNKNOWN_VIEW
    return next(iter(found)) if len(found) == 1 else UNKNOWN_VIEW


_TIME = r"(?:[ T](\d{1,2}):?(\d{2})(?::?(\d{2}))?.*)?"
_YEAR_FIRST = re.compile(r"(\d{4})(?:([-/.])(\d{1,2})\2(\d{1,2})|()(\d{2})(\d{2}))" + _TIME)
_DAY_OR_MONTH_FIRST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + _TIME)


def parse_moment(text: str, order: str | None = None) -> str:
    """A date, with its time where given, as text that sorts in time: yyyymmdd or yyyymmddhhmmss; empty if unreadable.

    05/03/2024 is read only with an order: dmy or mdy; with dots the day comes first unless the order is mdy.
    """
    if match := _YEAR_FIRST.fullmatch(text):
        year, month, day = match[1], match[3] or match[6], match[4] or match[7]
        time = match.groups()[-3:]
    elif match := _DAY_OR_MONTH_FIRST.fullmatch(text):
        order = order or ("dmy" if match[2] == "." else None)
        if order is None:
            return ""
        day, month, year = (match[1], match[3], match[4]) if order == "dmy" else (match[3], match[1], match[4])
        time = match.groups()[-3:]
    else:
        return ""
    try:
        found = datetime.datetime(
            int(year), int(month), int(day), int(time[0] or 0), int(time[1] or 0), int(time[2] or 0)
        )
    except ValueError:
        return ""
    return found.strftime("%Y%m%d%H%M%S") if time[0] else found.strftime("%Y%m%d")


def date_order(cells: Iterable[str]) -> str | None:
    """Dmy or mdy, where the dates of a column can only be read in one of them."""
    read = {order: True for order in DATE_ORDERS}
    ambiguous = False
    for cell in cells:
        if cell and not parse_moment(cell):
            ambiguous = True
            read = {order: held and bool(parse_moment(cell, order)) for order, held in read.items()}
    fitting = [order for order, held in read.items() if held]
    return fitting[0] if ambiguous and len(fitting) == 1 else None


def parse_split_names(words: Iterable[str]) -> dict[str, str]:
    """`NAME=SPLIT` as name → train, val, test or none, with the usual names."""
    names = dict(SPLIT_WORDS)
    for word in words:
        name, equals, split = (part.strip() for part in word.partition("="))
        if not equals or not name or split not in (*SPLITS, NONE):
            raise ConfigError(f"split_names has {word!r}; write NAME=SPLIT with one of {', '.join(SPLITS)}, {NONE}.")
        names[name.lower()] = split
    return names

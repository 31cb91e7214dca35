"""What the importer of a data set hands to the engine, and what its docstring must tell.

An importer is one module of this folder with a function `plan(config) -> Plan` and a docstring in
fixed fields. It reads the tables of the source at once, and each study when the engine asks for it, in
a worker. The engine (`data/importing.py`) links or copies the films, keeps the notes and resumes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cxrlab.core.records import Study
from cxrlab.data.writer import Dropped

Item = TypeVar("Item")

# The fields of an importer's docstring, in their order.
FIELDS = ("Counts", "Views", "Labels", "Language", "Licence", "Citation", "Obtain", "Defects")


@dataclass(frozen=True)
class Imported:
    """One study of the source.

    Args:
        study: Its images by their path in the source folder, with `/` between the parts.
        remarks: What was odd about it: a few fixed sentences without names, since they are counted.
        files: Bytes of its images by path, where the source keeps them in another form than files.
    """

    study: Study
    remarks: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan(Generic[Item]):
    """A source that was found and understood, ready to be read study by study.

    Args:
        items: One for each study, in the order of the corpus to be; read lazily.
        study_id: The id of an item's study, unique in the source.
        read: The study of an item, or why it is left out; importable by name, since workers run it.
        total: Number of items; None where nobody knows.
        layout: Which of the source's layouts was found ("jpg 2.1.0").
        collections: Where the pictures come from; see `Card.collections`.
        remarks: What is odd about the source and belongs to no study (a box for an unknown image) → how often.
        takes: Which of the settings that only some data sets have it looked at: reports, projections.
        label_style: How sentences are made from the labels (see `label_text`), where the source has no English report.
        writes: Whether the importer gives the bytes of images (`Imported.files`); then nothing is linked or copied.
    """

    items: Iterable[Item]
    study_id: Callable[[Item], str]
    read: Callable[[Item], Imported | Dropped]
    total: int | None
    layout: str
    collections: tuple[str, ...] = ()
    remarks: Mapping[str, int] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    label_style: str | None = None
    writes: bool = False


@dataclass(frozen=True)
class About:
    """What the docstring of an importer says of its data set.

    Args:
        title: Its first line.
        fields: The fixed fields, each as one line of text.
    """

    title: str
    fields: Mapping[str, str]

    @property
    def licence(self) -> str:
        """What may be done with the data."""
        return self.fields["Licence"]

    @property
    def citation(self) -> str:
        """How to cite the data."""
        return self.fields["Citation"]


def about(importer: Callable[..., Any]) -> About:
    """What the module of an importer's `plan` says of its data set; a missing field is a mistake of the programmer."""
    text = inspect.cleandoc(sys.modules[importer.__module__].__doc__ or "")
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):", body, flags=re.MULTILINE)
    found = {name: " ".join(value.split()) for name, value in zip(parts[1::2], parts[2::2], strict=True)}
    if tuple(found) != FIELDS or not all(found.values()):
        raise ValueError(f"the docstring of {importer.__module__} needs the fields {', '.join(FIELDS)}, in this order.")
    return About(title.rstrip("."), found)

"""What a model is asked: rows of `prompts.yaml`, by name and version, or of a file of the same form."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean, short_repr

DEFAULT = "llava-rad/1"
_INDICATION, _QUESTION = "{indication}", "{question}"
# Which placeholder may stand in which text.
_ALLOWED = {"findings": _INDICATION, "closed_question": _QUESTION}


@dataclass(frozen=True)
class Prompts:
    """One row of the table.

    Args:
        name: Name and version, such as `llava-rad/1`.
        findings: Asks for a report; `{indication}` stands for the reason of the examination.
        findings_without_indication: Asks for a report when no reason is known.
        align: Asked in projector alignment; empty when the image stands alone.
        closed_question: Asks a question, `{question}`, that is answered by yes or no.
    """

    name: str
    findings: str
    findings_without_indication: str
    align: str
    closed_question: str

    def __post_init__(self) -> None:
        if _QUESTION not in self.closed_question:
            raise ConfigError(f"prompts '{self.name}': closed_question has no {_QUESTION}, so nothing would be asked.")
        for field in fields(self)[1:]:
            for found in re.findall(r"\{[^{}]*\}", getattr(self, field.name)):
                if found != _ALLOWED.get(field.name):
                    raise ConfigError(
                        f"prompts '{self.name}': {field.name} holds {found}, which stands for nothing there; "
                        f"{_INDICATION} belongs into findings and {_QUESTION} into closed_question."
                    )

    def ask(self, indication: str | None = None) -> str:
        """The request for a report; white space in the indication is collapsed, a blank one counts as none."""
        reason = " ".join((indication or "").split())
        return self.findings.replace(_INDICATION, reason) if reason else self.findings_without_indication

    def question(self, text: str) -> str:
        """The request to answer a question by yes or no."""
        words = " ".join(text.split())
        if not words:
            raise ConfigError("a closed question is empty; ask something, such as 'Is there a pleural effusion?'.")
        return self.closed_question.replace(_QUESTION, words)


def parse_indication(text: str) -> str | None:
    """The indication that a request for a report carries; the inverse of `Prompts.ask` for every shipped row.

    A request of any row gives its indication, or None where it has none; any other text is itself the indication, and
    one without a word is None. White space is collapsed.

    >>> parse_indication("Indication: cough Findings:")
    'cough'
    >>> parse_indication("Cough and  fever.")
    'Cough and fever.'
    """
    words = " ".join(text.split())
    whole, around = _requests()
    if words in whole:
        return None
    for before, after in around:
        if words.startswith(before) and words.endswith(after) and len(words) > len(before) + len(after):
            return words[len(before) : len(words) - len(after)].strip() or None
    return words or None


@cache
def _requests() -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Requests without an indication, and what stands before and after it in those that have one."""
    rows = _shipped().values()
    parts = [" ".join(row.findings.split()).partition(_INDICATION) for row in rows]
    around = {(before, after): None for before, mark, after in parts if mark}
    # A request whose indication is blank carries none.
    whole = {" ".join(f"{before}{after}".split()) for before, _, after in parts}
    return frozenset({*whole, *(" ".join(row.findings_without_indication.split()) for row in rows)}), tuple(around)


def prompt_names() -> tuple[str, ...]:
    """Names of the shipped rows."""
    return tuple(_shipped())


def load_prompts(name_or_file: str | None = None) -> Prompts:
    """The row of this name, or the one row of a YAML file; `FILE#ROW` names a row of a file with several.

    Args:
        name_or_file: `llava-rad/1`, `my_prompts.yaml` or `my_prompts.yaml#mine/2`; the default row when None.
    """
    wanted = name_or_file or DEFAULT
    table = _shipped()
    if wanted in table:
        return table[wanted]
    file, _, row = wanted.partition("#")
    if not Path(file).is_file():
        raise UnknownName(
            f"there are no prompts '{wanted}', nor a file of that name.{did_you_mean(wanted, table)} "
            f"Known: {', '.join(table)}."
        )
    rows = _rows(Path(file))
    if not row and len(rows) != 1:
        raise ConfigError(f"{file} holds {len(rows)} prompts ({', '.join(rows)}); choose one as {file}#NAME.")
    row = row or next(iter(rows))
    if row not in rows:
        raise UnknownName(f"{file} has no prompts '{row}'.{did_you_mean(row, rows)} It has: {', '.join(rows)}.")
    return rows[row]


def _shipped() -> dict[str, Prompts]:
    with as_file(files("cxrlab.models") / "prompts.yaml") as path:
        return _rows(path)


def _rows(path: Path) -> dict[str, Prompts]:
    found = read_yaml(path)[0]
    if not isinstance(found, dict) or not found:
        raise ConfigError(
            f"{path} holds no prompts; write 'NAME/VERSION:' and under it findings, align and the others."
        )
    return {str(name): _row(str(name), values, path) for name, values in found.items()}


def _row(name: str, values: Any, path: Path) -> Prompts:
    known = [field.name for field in fields(Prompts)][1:]
    given = values if isinstance(values, dict) else {}
    for key in given:
        if key not in known:
            raise ConfigError(f"{path}: prompts '{name}' have an unknown key '{key}'.{did_you_mean(str(key), known)}")
    for key in known:
        if not isinstance(given.get(key), str):
            raise ConfigError(f"{path}: prompts '{name}' need a text '{key}', not {short_repr(given.get(key))}.")
    return Prompts(name, **{key: given[key] for key in known})

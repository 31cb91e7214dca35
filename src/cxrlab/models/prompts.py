"""Prompts of report models: rows of `prompts.yaml`, by name and version, or of a user's file."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean, short_repr
from cxrlab.core.files import read_text
from cxrlab.core.model_interfaces import StudyContext

DEFAULT = "llava-rad/1"
_INDICATION, _QUESTION, _IMAGES, _PRIOR = "{indication}", "{question}", "{images}", "{prior_report}"
_ALLOWED = {"findings": _INDICATION, "closed_question": _QUESTION, "images": _IMAGES, "prior_report": _PRIOR}
_OPTIONAL = ("images", "prior_report", "no_prior_report", "conversation")


@dataclass(frozen=True)
class Prompts:
    """One row of the table."""

    name: str  # name and version, such as `llava-rad/1`
    findings: str  # prompt for a report, with the placeholder `{indication}`
    findings_without_indication: str  # prompt for a report without an indication
    align: str  # prompt in projector alignment; may be empty
    closed_question: str  # prompt for yes or no, with the placeholder `{question}`
    # The next three stand before a prompt for a report; empty in rows for one image.
    images: str = ""  # names several images, with the placeholder `{images}`
    prior_report: str = ""  # gives the report of the prior study, with the placeholder `{prior_report}`
    no_prior_report: str = ""  # states that there is none
    conversation: str = ""  # chat template in place of the checkpoint's own; empty keeps that

    def __post_init__(self) -> None:
        if _QUESTION not in self.closed_question:
            raise ConfigError(f"prompts '{self.name}': closed_question has no placeholder {_QUESTION}.")
        for field in fields(self)[1:-1]:
            for found in re.findall(r"\{[^{}]*\}", getattr(self, field.name)):
                if found != _ALLOWED.get(field.name):
                    raise ConfigError(
                        f"prompts '{self.name}': {field.name} has the unknown placeholder {found}; "
                        f"{_INDICATION} belongs in findings, {_QUESTION} in closed_question, {_IMAGES} in images and "
                        f"{_PRIOR} in prior_report."
                    )

    def ask(self, study: str | StudyContext | None = None) -> str:
        """The prompt for a report, from an indication or a whole context.

        White space in texts is collapsed; a blank indication counts as none.

        Raises:
            ConfigError: For a context, when the row has no words for it.
        """
        context = study if isinstance(study, StudyContext) else StudyContext(study)
        reason = " ".join((context.indication or "").split())
        request = self.findings.replace(_INDICATION, reason) if reason else self.findings_without_indication
        stated = []
        if context.image_names:
            stated.append(self._needed("images").replace(_IMAGES, ", ".join(context.image_names)))
        if context.prior_report is not None:
            prior = " ".join(context.prior_report.split())
            stated.append(
                self._needed("prior_report").replace(_PRIOR, prior) if prior else self._needed("no_prior_report")
            )
        return " ".join([*stated, request])

    def _needed(self, field: str) -> str:
        text: str = getattr(self, field)
        if not text:
            able = [name for name, row in _shipped().items() if row.images]
            raise ConfigError(
                f"prompts '{self.name}' have no text '{field}', which --views and --prior need; use {' or '.join(able)}, "
                "by --prompts in training and by --loading.prompts elsewhere."
            )
        return text

    def question(self, text: str) -> str:
        """The prompt for a closed question."""
        words = " ".join(text.split())
        if not words:
            raise ConfigError("a closed question is empty; give one, such as 'Is there a pleural effusion?'.")
        return self.closed_question.replace(_QUESTION, words)


def parse_indication(text: str) -> str | None:
    """The indication in a prompt for a report, if any: the inverse of `Prompts.ask` for every shipped row.

    Any other text is itself the indication; a blank one is None. White space is collapsed.

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
    """Prompts without an indication, and the text before and after it in the others."""
    rows = _shipped().values()
    parts = [" ".join(row.findings.split()).partition(_INDICATION) for row in rows]
    around = {(before, after): None for before, mark, after in parts if mark}
    whole = {" ".join(f"{before}{after}".split()) for before, _, after in parts}
    return frozenset({*whole, *(" ".join(row.findings_without_indication.split()) for row in rows)}), tuple(around)


def prompt_names() -> tuple[str, ...]:
    """Names of the shipped rows."""
    return tuple(_shipped())


def load_prompts(name_or_file: str | None = None) -> Prompts:
    """The prompts named `llava-rad/1`, `my_prompts.yaml` or `my_prompts.yaml#mine/2`; default: `DEFAULT`.

    Of a text file such as `my_prompt.txt` the whole text is the prompt for a report, whatever the indication.
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
    if file.endswith(".txt") and not row:
        text = read_text(Path(file)).strip()
        if not text:
            raise ConfigError(f"{file} holds no prompt; write the prompt for a report into it.")
        return Prompts(wanted, text, text, "", table[DEFAULT].closed_question)
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
    known = [field.name for field in fields(Prompts)][1:]
    rows = {}
    for name, values in found.items():
        given = values if isinstance(values, dict) else {}
        for key in given:
            if key not in known:
                raise ConfigError(
                    f"{path}: prompts '{name}' have an unknown key '{key}'.{did_you_mean(str(key), known)}"
                )
        given = {**dict.fromkeys(_OPTIONAL, ""), **given}
        for key in known:
            if not isinstance(given[key] if key in given else None, str):
                raise ConfigError(f"{path}: prompts '{name}' need a text '{key}', not {short_repr(given.get(key))}.")
        rows[str(name)] = Prompts(str(name), **{key: given[key] for key in known})
    return rows

"""What a language model is asked: a text with places for the report and its language, under a version of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import SECTIONS, Report
from cxrlab.core.yaml_file import read_yaml

BUILT_IN = Path(__file__).parent / "prompts" / "structure.yaml"
REPORT, LANGUAGE, PROBLEMS = "{report}", "{language}", "{problems}"
_MARKS = ("BEGIN REPORT", "END REPORT")
_LANGUAGES = {"en": "English", "es": "Spanish", "pt": "Portuguese", "fr": "French", "de": "German", "it": "Italian"}


@dataclass(frozen=True)
class Prompt:
    """A prompt with its version.

    Args:
        version: Name of the wording; with the digest it tells which answers belong to it.
        text: With `{report}` once and, where wanted, `{language}`.
        again: Added when an answer was refused, with `{problems}`.
    """

    version: str
    text: str
    again: str

    @property
    def digest(self) -> str:
        """Marks the very words, whatever they call themselves; 12 hexadecimal digits."""
        return hashlib.sha256("\x1f".join((self.version, self.text, self.again)).encode()).hexdigest()[:12]

    def ask(self, report: str, language: str, problems: Sequence[str] = ()) -> str:
        """The prompt for one report.

        Args:
            report: The text to be structured; the marks that fence it are taken out of it.
            language: Code such as `en` or `es`.
            problems: Why the answer before was refused; empty for the first one.
        """
        for mark in _MARKS:
            report = report.replace(mark, mark.lower())
        # The report last: what looks like a place to be filled in may stand in it.
        asked = self.text.replace(LANGUAGE, _LANGUAGES.get(language, language))
        before, _, after = asked.partition(REPORT)
        again = self.again.replace(PROBLEMS, "\n".join(f"- {problem}" for problem in problems)) if problems else ""
        return f"{before}{report}{after}{again}"


def load_prompt(file: Path | None = None) -> Prompt:
    """The built-in prompt, or one from a YAML file with `version`, `text` and, optionally, `again`."""
    path = file or BUILT_IN
    values, _ = read_yaml(path)
    if unknown := sorted(set(values) - {"version", "text", "again"}):
        raise ConfigError(f"{path} has the key '{unknown[0]}'; a prompt has version, text and again.")
    for key in ("version", "text"):
        if not isinstance(values.get(key), str) or not values[key].strip():
            raise ConfigError(f"{path} needs a text '{key}'; see docs/structuring.md for the form of a prompt.")
    again = values.get("again", f"\nAn earlier answer was refused:\n{PROBLEMS}\nAnswer again.\n")
    if values["text"].count(REPORT) != 1:
        raise ConfigError(f"{path}: 'text' needs {REPORT} exactly once, where the report is filled in.")
    if not isinstance(again, str) or PROBLEMS not in again:
        raise ConfigError(f"{path}: 'again' needs {PROBLEMS}, where the reasons of a refusal are filled in.")
    return Prompt(values["version"].strip(), values["text"], again)


def laid_out(report: Report) -> str:
    """Sections as one text under their headings; those that are absent are left out."""
    parts = [(name, report.section(name)) for name in SECTIONS]
    return "\n".join(f"{name.upper()}: {text.strip()}" for name, text in parts if text and text.strip())

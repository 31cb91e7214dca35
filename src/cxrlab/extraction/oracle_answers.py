"""What a language model answered an oracle's question with: single descriptions, or the reason why there are none.

Read are JSON arrays, numbered and bulleted lists, and one description a line; whatever stands around a list, such as a
greeting, is left out. An answer that refuses, runs on in prose or was cut off while the model still thought aloud has
failed, and says why: no half of a sentence is ever taken for a description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Literal

State = Literal["parsed", "partial", "failed"]
MOST_WORDS = 60  # a description has a sentence or two
MOST_SENTENCES = 2
_MARKS = r"(?:think|thinking|reasoning|analysis)>"
_THINKING, _THOUGHT = (re.compile(f"<{slash}{_MARKS}", re.IGNORECASE) for slash in ("", "/"))
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_ITEM = re.compile(r"\s*(?:\(?\d{1,3}[.):]|\(?[a-zA-Z][.)]|[-*•–+])\s+(?=\S)")
_LABEL = re.compile(r"(?:\*\*|__)[^*_\n]{1,60}?:?(?:\*\*|__)\s*[:–-]?\s*(?=\S)|[A-Z][\w /,-]{0,40}:\s+(?=[A-Z])")
_REFUSES = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:cannot|can['’]?t|will not|won['’]?t)|as an ai\b"
    r"|cannot (?:help|assist))",
    re.IGNORECASE,
)
_BLANK = re.compile(r"\[[^\]\n]*\]|\{[^}\n]*\}|<[^>\n]*>|_{3,}")  # a place that somebody was to fill in
_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class Told:
    """What was read in one answer.

    Args:
        state: parsed, partial where something was left out, or failed.
        lines: The descriptions, each with a full stop at its end.
        why: What was left out and why; empty where nothing was.
    """

    state: State
    lines: tuple[str, ...] = ()
    why: str = ""


def descriptions_in(answer: str) -> Told:
    """The descriptions that an answer lists, in its order; never a guess where it lists none."""
    thoughts = [mark.end() for mark in _THOUGHT.finditer(answer)]  # some templates leave out the opening mark
    text = answer[thoughts[-1] :] if thoughts else answer
    if _THINKING.search(text):
        return Told("failed", why="cut off while thinking aloud")
    text = _unfenced(text).strip()
    if not text:
        return Told("failed", why="empty")
    pieces = _from_json(text)
    if pieces is None:
        pieces = _from_lines(text)
    if isinstance(pieces, str):
        return Told("failed", why=pieces)
    return _cleaned(pieces)


def _unfenced(text: str) -> str:
    """What stands in the first fence, where there is one."""
    found = _FENCED.search(text)
    return found.group(1) if found else text


def _from_json(text: str) -> list[str] | str | None:
    """The texts of a JSON array, or of the arrays of an object; None for an answer that is no JSON."""
    start = re.search(r"[\[{]\s*(?=[\"\[{\]}])", text)
    if start is None or not re.fullmatch(r"[^\n]*:?\s*", text[: start.start()]):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.start())
    except (json.JSONDecodeError, RecursionError):
        kept = _closed(text[start.start() :])
        return [*kept, ""] if kept else "broken JSON"
    found = list(_texts(value))
    return found if found else "JSON without a list of texts"


def _closed(text: str) -> list[str]:
    """The strings of a JSON text that was cut off, those that were closed; a key of an object is none of them."""
    found, place = [], text.find('"')
    while place >= 0:
        try:
            one, end = scanstring(text, place + 1)
        except json.JSONDecodeError:
            break
        if text[end : end + 20].lstrip()[:1] in (",", "]", "}"):
            found.append(one)
        place = text.find('"', end)
    return found


def _texts(value: Any, depth: int = 0) -> Sequence[str]:
    """Texts in lists; of an object in a list its longest text, of an object around lists what they hold."""
    if depth > 3:
        return []
    if isinstance(value, list):
        return [text for one in value for text in ([one] if isinstance(one, str) else _longest(one, depth))]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one, depth + 1)]
    return []


def _longest(value: Any, depth: int) -> Sequence[str]:
    if isinstance(value, dict) and (texts := [one for one in value.values() if isinstance(one, str)]):
        return [max(texts, key=len)]
    return _texts(value, depth + 1)


def _from_lines(text: str) -> list[str] | str:
    """Items of a list, else lines that are sentences; a sentence of why there are none."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if items := _items(lines):
        return items
    if _REFUSES.search(text):
        return "refused"
    sentences = [line.strip() for line in lines if not line.endswith(":")]
    if not sentences:
        return "nothing but a heading"
    if all(len(_END.findall(line)) > MOST_SENTENCES for line in sentences):
        return "prose, not a list"
    return sentences


def _items(lines: Sequence[str]) -> list[str]:
    """What stands behind numbers and bullets; a line that was only wrapped belongs to the item before it."""
    found: list[str] = []
    for line in lines:
        if match := _ITEM.match(line):
            found.append(line[match.end() :])
        elif found and not _ends(found[-1]) and (line[0].isspace() or line[0].islower()):
            found[-1] += f" {line.strip()}"
    return found


def _cleaned(pieces: Sequence[str]) -> Told:
    """Pieces without marks; those that are no sentence or two are left out and counted by reason."""
    kept: list[str] = []
    left: list[str] = []
    cut = len(pieces) > 1 and not _ends(pieces[-1]) and sum(map(_ends, pieces[:-1])) > len(pieces[:-1]) / 2
    for place, piece in enumerate(pieces):
        text = _plain(piece)
        if reason := "cut off" if cut and place == len(pieces) - 1 else _wrong(text):
            left.append(reason)
        else:
            kept.append(text if _ends(text) else f"{text.rstrip(',;:')}.")
    why = ", ".join(f"{left.count(reason)} {reason}" for reason in dict.fromkeys(left))
    if not kept:
        return Told("failed", why=why)
    return Told("partial" if left else "parsed", tuple(kept), why)


def _plain(piece: str) -> str:
    text = piece.strip().strip("|").strip()
    text = re.sub(r"[*`]+|__", "", _LABEL.sub("", text, count=1))
    text = " ".join(text.split()).strip("\"“”'").rstrip(",").strip("\"“”'").strip()
    return text[:1].upper() + text[1:]


def _wrong(text: str) -> str | None:
    words = text.split()
    if not any(letter.isalpha() for letter in text):
        return "without a word"
    if _REFUSES.search(text):
        return "refused"
    if text.endswith("?"):
        return "a question"
    if _BLANK.search(text):
        return "with a place to fill in"
    if len(words) > MOST_WORDS or len(_END.findall(text)) > MOST_SENTENCES:
        return "too long"
    return None


def _ends(text: str) -> bool:
    return text.rstrip().rstrip("\"“”'*`_,|").endswith((".", "!", "?"))

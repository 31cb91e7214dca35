"""A report's text without its layout: the same length for finding headers, folded for reading."""

from __future__ import annotations

import html
import re

# Every kind of blank is a blank and every kind of line end a line end, character for character.
_SAME_LENGTH = str.maketrans(
    {
        **dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
        **dict.fromkeys("\ufeff\u200b\u200c\u200d\u2060\x00", " "),
        **dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\n"),
        "\t": " ",
        "：": ":",
    }
)  # fmt: skip
_INLINE_TAG = r"</?(?:b|i|u|em|strong|span|font|sup|sub|small|big|code|a)(?:\s[^<>\n]{0,200})?/?>"
_BREAK_TAG = r"</?(?:p|br|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|pre|section|body|html|report)(?:\s[^<>\n]{0,200})?/?>"
_MARKUP = re.compile(rf"(?P<line>{_BREAK_TAG})|{_INLINE_TAG}|&nbsp;|&#160;|&#xa0;", re.IGNORECASE)
# Line ends that an export spelled out: "\\n", and "\\.br\\" of HL7.
_SPELLED_OUT = re.compile(r"\\\.br\\|(?:\\r)?\\n(?![a-z])")
_BOLD = re.compile(r"\*+")
_UNDERSCORED = re.compile(r"(?<![_\w])__(?=[A-Za-z][A-Za-z /&]{2,40}:?__(?!_))|(?<=[A-Za-z:])__(?![_\w])")
_HASHES = re.compile(r"^#{1,6}(?= )", re.MULTILINE)
_LIST_ITEM = re.compile(r"(?:\(?\d{1,2}[.)]|#\d{1,2}[.:)]?|\(?[a-h][.)]|[-•·*–])\s+\S")


# "Heart: normal" under "Lungs: clear" is a line of a form, not a wrapped sentence.
_LABEL = re.compile(r"[A-Z][A-Za-z]*(?:(?: and |[ /,&-]{1,2})[A-Za-z]+){0,3}:\s+\S")


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blanks_and_lines(match: re.Match[str]) -> str:
    """As many characters, the last a line end where the tag ends a line."""
    return _blanks(match)[:-1] + ("\n" if match.lastgroup == "line" else " ")


def plain(text: str, *, markup: bool) -> str:
    """The text with tags and odd blanks as blanks, of the same length: a place here is a place there.

    In `markup` some tags are line ends.
    """
    text = text.translate(_SAME_LENGTH).replace("\r\n", " \n").replace("\r", "\n")
    if "\\" in text:
        text = _SPELLED_OUT.sub(lambda match: " " * (len(match[0]) - 1) + "\n", text)
    if "<" in text or "&" in text:
        text = _MARKUP.sub(_blanks_and_lines if markup else _blanks, text)
    if "*" in text:
        text = _BOLD.sub(_blanks, text)
    if "__" in text:
        text = _UNDERSCORED.sub("  ", text)
    return _HASHES.sub(_blanks, text) if "#" in text else text


def _readable(match: re.Match[str]) -> str:
    if match.lastgroup == "line":
        return "\n"
    return " " if match[0].startswith("&") else ""


def is_markup(text: str) -> bool:
    """Whether a text is written in HTML: a closing tag or two tags; a single tag is a remnant and stays text."""
    tags = re.finditer(rf"{_BREAK_TAG}|{_INLINE_TAG}", text, re.IGNORECASE) if "<" in text else iter(())
    first = next(tags, None)
    return first is not None and (first[0].startswith("</") or next(tags, None) is not None)


def folded(text: str, *, markup: bool) -> str:
    """Text for reading: wrapped lines joined by a blank; a new line for each paragraph, list item and "Heart: normal".

    Blanks inside a line stay as they are. Of `markup` the tags go and character references are resolved.
    """
    text = text.translate(_SAME_LENGTH).replace("\r\n", "\n").replace("\r", "\n")
    if markup:
        text = html.unescape(_MARKUP.sub(_readable, text)).translate(_SAME_LENGTH)
    text = _SPELLED_OUT.sub("\n", text).replace("**", "")
    parts: list[list[str]] = []
    fresh = True
    for line in map(str.strip, text.split("\n")):
        if not line:
            fresh = True
        elif fresh or _LIST_ITEM.match(line) or _LABEL.match(line):
            parts.append([line])
            fresh = False
        else:
            parts[-1].append(line)
    return "\n".join(" ".join(part) for part in parts)

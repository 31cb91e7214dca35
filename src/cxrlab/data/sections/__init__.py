"""Free-text reports cut into sections, with the characters of each.

Reading order: `headers` (the table of names), `naming` (what a header says), `plain` (text without its
layout), `marks` (headers in a text), `asides` (wet reads and addenda), `runs` (stretches of text),
`fallback` (text without a header), `parser` (all together).
"""

from cxrlab.data.sections.parser import ParsedReport, parse

__all__ = ["ParsedReport", "parse"]

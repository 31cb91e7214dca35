"""Free-text reports cut into sections, with the characters of each.

Reading order: `headers` (the table of names), `naming` (what a header says), `plain` (text without its layout),
`first_on_line` and `marks` (headers in a text), `runs` (stretches of text, with wet reads and addenda beside the body),
`fallback` (text without a header), `parser` (all together).
"""

from cxrlab.data.sections.parser import ParsedReport, parse

__all__ = ["ParsedReport", "parse"]

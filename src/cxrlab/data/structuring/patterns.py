"""Word lists about earlier films and about change, and patterns that name them."""

from __future__ import annotations

import re

# Word lists: phrases parted by semicolons; a pattern names one as <film>.
_LISTS = {
    "film": """study; studies; exam; exams; examination; examinations; film; films; radiograph; radiographs; image;
        images; imaging; x-ray; x-rays; xray; chest; cxr; ct; scan; projection; exposure""",
    "earlier": "prior; previous; preceding; earlier; last; old; most recent; outside; recent; comparison; former",
    "how": """slight; mild; moderate; marked; significant; minimal; interval; further; some; subtle; substantial;
        apparent; overall; relevant; appreciable; other; gross; definite; major; acute""",
    "ly": """slightly; mildly; moderately; markedly; significantly; minimally; somewhat; again; further; also; since;
        essentially; grossly; largely; not significantly; overall; otherwise; relatively; probably; interval;
        intervally; substantially; much; still; now""",
    "more": """increased; increase; enlarged; progressed; worsened; worse; grown; larger; bigger; greater; increasing;
        worsening; progressing""",
    "fewer": """decreased; decrease; improved; diminished; regressed; lessened; smaller; better; reduced; shrunk;
        receded; resolving; partially resolved; partially cleared; improving; decreasing""",
    "same": "unchanged; stable; similar; persistent; the same; about the same; constant; static; unaltered",
    "change": """worsening; increase; decrease; improvement; progression; enlargement; reduction; regression; growth;
        clearing; persistence; development; placement; insertion; appearance; redemonstration; re-demonstration""",
    "degree": """trace; tiny; minimal; small; mild; moderate; large; severe; marked; extensive; massive;
        moderate to large; small to moderate""",
    "seen": """seen; noted; identified; demonstrated; visualized; visible; present; evident; observed; appreciated;
        described; reported""",
    "aspect": """size; extent; volume; appearance; position; location; degree; severity; number; prominence;
        configuration""",
    "adjective": """interval; intervally; unchanged; un-changed; stable; persistent; persisting; residual; continued;
        ongoing; new; newly; worsening; worsened; increasing; improving; improved; decreasing;
        enlarging; progressive; progressing; resolving; similar; longstanding; long-standing; preexisting;
        pre-existing; known; again; now; slowly""",
}  # fmt: skip
_DATE = r"(?:_{2,}|x{4}|yesterday|\d{1,4}[/.-]\d{1,2}(?:[/.-]\d{1,4})?|\w+ \d{1,2},? \d{4}|\d{4})"


def _alternatives(phrases: str) -> str:
    """The longest first, so that "partially resolved" is not cut at "partially"."""
    found = sorted((" ".join(phrase.split()) for phrase in phrases.split(";")), key=len, reverse=True)
    return "(?:" + "|".join(map(re.escape, found)) + ")"


_PIECES = {name: _alternatives(phrases) for name, phrases in _LISTS.items()}
_PIECES["date"] = _DATE
_PIECES["since then"] = (
    rf"(?: (?:since|from|than) (?:the )?(?:{_PIECES['earlier']} )*(?:{_PIECES['film']}|{_PIECES['earlier']}|{_DATE})\b)"
)
_PIECES["in size"] = rf"(?: in {_PIECES['aspect']})*{_PIECES['since then']}?"
_PIECES["of the"] = r"(?:in|of)(?: the| an?)?(?: size of| extent of)?(?: the| an?)?"
# The earlier film: "the prior study of ___", "prior", "the radiograph from 3/4/2019", "the day before".
_PIECES["that film"] = (
    rf"(?:(?:the |an? |one |his |her |{_DATE}'?s? )*(?:{_PIECES['earlier']}|{_PIECES['film']}|{_DATE}"
    r"|day before|available|same day|that|of|from|on|dated|at|and|\d+)[\w/.:'-]*(?: |$|(?=,)))+"
)


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression in which `<name>` stands for a word list."""
    return re.compile(re.sub(r"(?<!\?P)<([a-z ]+)>", lambda match: _PIECES[match[1]], text), re.IGNORECASE)

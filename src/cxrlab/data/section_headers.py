"""Headers of report sections: their names, and where they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import product

TECHNIQUE = "technique"
RECOMMENDATION = "recommendation"
NOTIFICATION = "notification"
ADDENDUM = "addendum"
WET_READ = "wet read"
ADMINISTRATION = "administration"
SIGNATURE = "signature"
SUMMARY = "summary"
COMMENT = "comment"
PREAMBLE = "preamble"
UNNAMED = "unnamed"
IMAGE = "film"

# A block of its own beside the body: headers inside it are not the body's.
ASIDES = (WET_READ, ADDENDUM)
# What only marks a place: the report proper begins; a drawn line; a part of the body within the findings.
BODY, RULE, ORGAN = "final report", "rule", "organ"
# The usual order of a report; what has no place in it may stand anywhere.
RANK = {"examination": 0, "indication": 0, TECHNIQUE: 0, "comparison": 0, "findings": 1, "impression": 2}


@dataclass(frozen=True)
class Row:
    """Names of one section.

    Args:
        section: What the text after such a header belongs to.
        names: Spellings, in the notation of this file.
        why: Why they mean this.
        bare: Whether such a header also counts without a colon: alone on its line, or in capitals before its text.
        merged: Whether the text is findings and impression in one.
    """

    section: str
    names: str
    why: str
    bare: bool = False
    merged: bool = False


_EXAM = "exam/exams/examination/examinations/study/studies/image/images/radiograph/radiographs/imaging/x_ray/cxr"
_SUM = "impression/impressions/conclusion/conclusions/opinion/interpretation"

ROWS = (
    Row("findings", "findings; finding", "the word itself", bare=True),
    Row(
        "findings",
        "radiographic/radiological/imaging/chest/xray/x_ray/cxr/chest_x_ray/additional/other findings",
        "the word, narrowed; a second findings section is kept beside the first",
    ),
    Row("findings", "report", "departments that never say findings", bare=True),
    Row(
        "findings", "body of report; observations; description; discussion; result; results", "the same in other words"
    ),
    Row("impression", "impression; impressions; conclusion; conclusions", "the word itself", bare=True),
    Row(
        "impression",
        "final/overall/radiological/radiographic impression/conclusion; opinion; interpretation; imp;"
        "diagnosis; radiological/radiographic/final diagnosis; impression and plan/recommendation/recommendations",
        "other words for what it comes to",
    ),
    Row(COMMENT, "comment; comments", "an impression in British words, where the report has no other", bare=True),
    Row(SUMMARY, "summary; in summary; summary of findings", "an impression, unless the report has one: then a code"),
    Row(
        "impression",
        f"findings/finding/report and {_SUM}; findings {_SUM}; impression/impressions/conclusion and findings",
        "one section for both; the impression as in MIMIC's rules, since structuring moves findings out of it",
        bare=True,
        merged=True,
    ),
    Row("indication", "indication/indications; clinical indication/indications", "the word itself", bare=True),
    Row("indication", "history; clinical history; clinical information", "what is known before the film", bare=True),
    Row(
        "indication",
        "patient/patient_s/medical/past/past_medical/brief/relevant/pertinent/relevant_clinical/brief_clinical history;"
        "clinical info/data/details/detail/context/question/note/notes/statement/background/symptoms/problem/hx;"
        "history/clinical_history/clinical_indication and indication/indications/history/reason_for_exam;"
        "indication/indications and history/clinical_history/reason_for_exam/comments; hx; clinical; symptom; symptoms;"
        "history of present illness; chief/presenting complaint; complaint; medical condition;"
        "underlying medical condition",
        "why the patient came",
    ),
    Row(
        "indication",
        f"reason/indication/indications for {_EXAM}; reason/indication for this/the {_EXAM};"
        "reason for test/visit/procedure/request/referral/order/consult; reason for this procedure/test;"
        "exam/examination/study indication/indications/reason; reason; request; clinical request; question",
        "why the film was asked for",
    ),
    Row("comparison", "comparison; comparisons", "the word itself", bare=True),
    Row(
        "comparison",
        f"comparison/comparisons/comparative/reference/prior/previous/prior_relevant/prior_chest {_EXAM};"
        "comparison/comparisons date/dates/made/made_to/made_with/to/with/is_made_to/is_made_with;"
        "compared to; compared with; compare; priors; prior; reference; prior reports",
        "the film it is set beside",
    ),
    Row("examination", "exam; examination; examinations; procedure", "the word itself", bare=True),
    Row(
        "examination",
        "type/name of exam/examination/procedure/study;"
        "exam/examination/procedure/study type/name/description/performed;"
        "examination/exam/study requested; study; exams; procedures; radiographic examination; test",
        "what was done, by another name",
    ),
    Row(TECHNIQUE, "technique; techniques; tech", "how the film was made", bare=True),
    Row(
        TECHNIQUE,
        "view; views; number of views; views obtained; projection; projections; protocol; procedure comments;"
        "imaging/radiographic technique",
        "which films were made",
    ),
    Row(RECOMMENDATION, "recommendation; recommendations", "advice is not what the film shows", bare=True),
    Row(NOTIFICATION, "notification/notifications; communication/communications", "who was told", bare=True),
    Row(
        RECOMMENDATION,
        "recommended follow up; advice; follow up; followup; suggestion; suggestions;"
        "follow up recommendation/recommendations",
        "the same in other words",
    ),
    Row(
        NOTIFICATION,
        "critical result/results/finding/findings;"
        "critical results communication; communication of critical results;"
        "findings discussed/communicated/were_discussed/were_communicated to/with",
        "who was told; named here, since some hold the word findings",
    ),
    Row(WET_READ, "wet read; wetread; wet reading; wet read version", "the first glance, often at night", bare=True),
    Row(
        WET_READ,
        "preliminary report/read/reading/interpretation/impression/findings/result/radiology_report; prelim;"
        "prelim read/report; pfi; provisional findings impression; provisional report; er/ed/ed_wet/overnight read",
        "a reading that the final report replaces",
        bare=True,
    ),
    Row(
        ADDENDUM,
        "addendum; addenda; final/late addendum; addendum report/begins/start/to_report; report addendum; amendment;"
        "amended/supplementary report",
        "a later remark",
        bare=True,
    ),
    Row(
        BODY,
        "final report; final radiology report; final; radiology report; original/full report;"
        "original/final report follows; end/end_of addendum/wet_read/preliminary_report; addendum ends/end",
        "the report proper begins here",
        bare=True,
    ),
    Row(
        ADMINISTRATION, "accession; mrn; dob; cc; radiologist; attending; referrer", "no words of a sentence", bare=True
    ),
    Row(ADMINISTRATION, "end of impression/findings; narrative", "they close, or hold all that follows", bare=True),
    Row(
        ADMINISTRATION,
        "summary code; accession number/no; patient;"
        "patient name/id; medical record number; date; date/date_and_time of exam/examination/study/service/birth;"
        "exam/examination/study/report date/time/date_and_time/number/id/status;"
        "ordering/referring/requesting/attending/interpreting/reading/dictating physician/provider/doctor/radiologist;"
        "admitting diagnosis; clip/account/order number; icd; icd code/codes; cpt; cpt/billing code; radiation dose;"
        "facility; hospital; primary diagnostic code; copy/copies to; referred by",
        "the paper, not the patient",
    ),
    Row(
        SIGNATURE,
        "dictated/signed/transcribed/reported/interpreted/reviewed/read/approved/verified/authenticated by/on;"
        "electronically/digitally/e signed/signed_by/approved_by/verified_by; signed electronically by; signature;"
        "transcriptionist; signer; end of report/text; primary interpreting staff/resident; verifier; verifier e sig",
        "who wrote it",
        bare=True,
    ),
    Row(
        ORGAN,
        "lung; lungs; left/right lung; lung parenchyma/fields; airway; airways; central airways; trachea; hila; hilum;"
        "lung/lungs and airways/pleura/pleural_spaces; pleura and lungs; pleura; pleural space/spaces/cavities;"
        "heart; heart size; cardiac; cardiac/cardiomediastinal silhouette; cardiomediastinum; mediastinum;"
        "heart/cardiac and mediastinum/vessels; mediastinum and heart/hila; aorta; thoracic aorta; vessels;"
        "vasculature; pulmonary vasculature; bone; bones; bones and soft tissues; soft tissue/tissues; skeleton;"
        "osseous/bony structures; bony thorax; ribs; spine; thoracic spine; chest wall; musculoskeletal;"
        "diaphragm; diaphragms; abdomen; upper abdomen; visualized/visualised upper abdomen; lines; tubes; devices;"
        "lines and tubes/devices; tubes and lines/catheters; lines tubes; lines tubes and devices;"
        "tubes lines and devices; support devices; hardware; catheters; pacemaker; central line/lines;"
        "chest/endotracheal/et/ng/nasogastric/feeding tube/tubes",
        "a part of the body or a device heads its own findings; the word stays in the text",
    ),
)

# Where the whole name is in no row: capitals that hold one of these words, the first that fits.
HOLDS = (
    ("impression", "impression"),
    ("findings", "findings"),
    ("indication", "indication"),
    ("history", "indication"),
    ("comparison", "comparison"),
    ("technique", TECHNIQUE),
    ("addendum", ADDENDUM),
    ("wet read", WET_READ),
    ("preliminary", WET_READ),
    ("recommendation", RECOMMENDATION),
)


def spelled(names: str) -> list[str]:
    """Every name that the notation of a row stands for."""
    return [
        " ".join(words).replace("_", " ")
        for name in names.split(";")
        for words in product(*(word.split("/") for word in name.split()))
    ]


def _by_name(rows: tuple[Row, ...]) -> dict[str, Row]:
    named: dict[str, Row] = {}
    for row in rows:
        for name in spelled(row.names):
            if named.setdefault(name, row) is not row:
                raise ValueError(f"header '{name}' stands in two rows: {named[name].section} and {row.section}.")
    return named


BY_NAME: Mapping[str, Row] = _by_name(ROWS)


# "10:42" and "1:2" are no headers; "FINDINGS:2 views" is one.
COLON = re.compile(r"(?<!\d):|:(?!\d)")
_COLON_AND_DASH = re.compile(r"[:=\-–—]*")
SENTENCE_ENDS = ".?!;:)]"
# Words long enough that one slip still leaves no doubt ("impresson", "findigns", "ndication").
_MENDED = tuple(sorted({word for name, row in BY_NAME.items() if row.bare for word in name.split() if len(word) >= 7}))
_KNOWN = frozenset(word for name in BY_NAME for word in name.split())
_BRACKETS = re.compile(r"\([^()]*\)")
_AND = re.compile(r"[/&+]|\band\b")
_OTHER_THAN_LETTERS = re.compile(r"[^a-z]+")
# "None. Findings" is the end of a sentence and a header, not a name.
_SENTENCE_WITHIN = re.compile(r"[A-Za-z]{3}[.?!;] ")
_SPACED_OUT = re.compile(r"(?:[a-z] ){4,}[a-z]")

# A film as its heading names it: words that alone make such a name, and words that only go with them.
_IMAGE = frozenset(
    "chest cxr thorax radiograph radiographs film films view views portable ribs x-ray xray lateral".split()
)
_WITH_IMAGE = frozenset(
    "a an the of and or with at on in from to for by as one two three four single dual both pa ap lat frontal upright"
    " erect supine semi semiupright semierect sitting standing decubitus oblique obliques apical lordotic left right"
    " unilateral bilateral bedside repeat follow-up study exam examination radiographic x ray rays am pm a.m p.m hours"
    " hrs dated post pre line placement intubation inspiration expiration inspiratory expiratory projection projections"
    " obtained plain digital xr cr dx v vw adult pediatric routine series rib".split()
)
# "No chest film is seen:" is a sentence, whatever its capitals.
_VERBS = frozenset("is are was were has have had be been there shows show demonstrates see seen not no".split())
_WORD = re.compile(r"[A-Za-z][A-Za-z.\-]*")


@dataclass(frozen=True)
class Meaning:
    """What a header means.

    Args:
        row: Section and kind.
        whole: Whether the whole name is in the table, at most with a slip; else it only holds a telling word.
        film: Whether the name is that of a film ("PA AND LATERAL CHEST"), under which the findings stand.
        name: Its simple form.
    """

    row: Row
    whole: bool
    image: bool = False
    name: str = ""


_IMAGE_ROW = Row("findings", "", "the film's name stands over what it shows")


def simple(name: str) -> str:
    """A header in the form of the table: "Findings / IMPRESSION (final)" is "findings and impression"."""
    text = _BRACKETS.sub(" ", name.lower().replace("(s)", "s"))
    text = " ".join(_OTHER_THAN_LETTERS.sub(" ", _AND.sub(" and ", text)).split())
    return text.replace(" ", "") if _SPACED_OUT.fullmatch(text) else text


def one_slip(word: str, right: str) -> bool:
    """Whether one letter too many, too few, changed or swapped with the next turns `right` into `word`."""
    if abs(len(word) - len(right)) > 1 or word == right:
        return False
    same = 0
    while same < min(len(word), len(right)) and word[same] == right[same]:
        same += 1
    rest, wanted = word[same:], right[same:]
    swapped = len(rest) > 1 and rest[1] + rest[0] + rest[2:] == wanted
    return rest[1:] == wanted or rest == wanted[1:] or rest[1:] == wanted[1:] or swapped


def _mended(name: str) -> str:
    """The name with each long unknown word set right that is one slip away from a word of the table."""
    return " ".join(
        word if word in _KNOWN or len(word) < 6 else next((right for right in _MENDED if one_slip(word, right)), word)
        for word in name.split()
    )


def in_capitals(name: str) -> bool:
    """Whether the letters are capitals; "(s)" and a small "and" between capitals do not count against it."""
    letters = name.replace("(s)", "").replace(" and ", " ").replace(" of ", " ")
    return letters.upper() == letters and any(letter.isalpha() for letter in letters)


def names_a_image(name: str, *, strictly: bool = False) -> bool:
    """Whether these words name a film: in capitals one telling word will do, else all words must go with it.

    Args:
        name: The words.
        strictly: Ask it of all words even in capitals, where they may be a finding ("CHEST TUBE IN PLACE").
    """
    words = [word.strip(".-") for word in _WORD.findall(name.lower())]
    if not words or not _IMAGE.intersection(words) or len(words) > 14 or words in (["view"], ["views"], ["lateral"]):
        return False
    if in_capitals(name) and not strictly:
        return not _VERBS.intersection(words) and "ct" not in words
    return all(word in _IMAGE or word in _WITH_IMAGE for word in words)


@lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning | None:
    """What the words before a colon, or alone on a line, head; None for what is no header that we know."""
    if _SENTENCE_WITHIN.search(name):
        return None
    words = simple(name)
    row = BY_NAME.get(words)
    if row is None and words:
        words = _mended(words)
        row = BY_NAME.get(words)
    if row is not None:
        return Meaning(row, whole=True, name=words)
    if in_capitals(name) and len(words.split()) <= 7 and not _VERBS.intersection(words.split()):
        for word, section in HOLDS:
            if word in words:
                both = word == "impression" and "findings" in words
                return Meaning(Row(section, "", f"holds the word {word}", merged=both), whole=False, name=words)
    if names_a_image(name):
        return Meaning(_IMAGE_ROW, whole=in_capitals(name), image=True, name=words)
    return None


def after_colon(line: str, colon: int) -> int:
    """Where the text begins after a colon, or after ":-" and "::"."""
    match = _COLON_AND_DASH.match(line, colon)
    return match.end() if match else colon + 1


class Strength(Enum):
    """When a mark counts."""

    ALWAYS = "always"
    FORWARD = "only forward in the usual order of a report: elsewhere the same words are text"
    OUTSIDE = "only outside findings and impression, where the same words are text"


@dataclass(frozen=True)
class Mark:
    """Where a header stands and what it heads.

    Args:
        start: Its first character.
        end: Where the text after it begins.
        section: What it heads.
        strength: When it counts.
        merged: Whether it heads findings and impression in one.
        film: Whether it is the name of a film.
    """

    start: int
    end: int
    section: str
    strength: Strength = Strength.ALWAYS
    merged: bool = False
    image: bool = False

    def moved(self, by: int) -> Mark:
        """The same mark so many characters later."""
        return replace(self, start=self.start + by, end=self.end + by)


_SIGNED = re.compile(r"(?<=[.?!] )\s*(?:electronically|digitally) signed\b", re.IGNORECASE)
_BODY = re.compile(r"(?<=\s)FINAL REPORT\b")
_LONGEST = 60
# Words end at full stops and slashes too: "Clear.IMPRESSION:" only lacks its blank, "FINDINGS/IMPRESSION" are two.
_TOKEN = re.compile(r"[^\s.;!?/&+]+")
_MASK = re.compile(r"(?:[Xx]{3,}|_+)[.,;]?")
_HERE_IN_CAPITALS_ONLY = (RECOMMENDATION, NOTIFICATION, ADDENDUM, WET_READ)
_HERE = frozenset({*RANK, *_HERE_IN_CAPITALS_ONLY, SUMMARY})
_LAST_WORDS = frozenset(name.rsplit(" ", 1)[-1] for name, row in BY_NAME.items() if row.section in _HERE)
_NOT_LETTERS = re.compile(r"[^a-z]")
# A word that goes on with the header's makes both a sentence, "see IMPRESSION:"; the second set only where the header
# does not stand out by its capitals, "NO ACUTE FINDINGS:". Before findings begin a sentence broken off is likelier.
_JOINED = frozenset("see the under above per".split())
_JOINED_IN_CAPITALS = frozenset(
    "the a an this that these those see and or of in on to with by for from as my our your their his her its no any"
    " acute new prior previous above below following significant abnormal incidental clinical main such under".split()
)


def marks(text: str) -> list[Mark]:
    """Every header of a text in the form that `plain.plain` gives, in order and without overlap."""
    found: list[Mark] = []
    at, before, headed = 0, "", False
    for line in text.split("\n"):
        if line and not line.isspace():
            here = [mark.moved(at) for mark in _of_line(line, before, headed)]
            headed = bool(here)
            if found and here and here[0].section == RULE and not text[found[-1].end : here[0].start].strip():
                found[-1] = replace(found[-1], end=here[0].end)  # a header underlined
            else:
                found += here
        at += len(line) + 1
        before = line.strip()
    return found


def _of_line(line: str, before: str, headed: bool) -> Iterator[Mark]:
    """The headers of one line; `before` is the line above, `headed` whether the last filled line held a header."""
    first = first_on_line(line, before, headed)
    end = 0
    if first is not None:
        yield first
        end = first.end
    rest = (
        [Mark(match.start(), match.end(), BODY) for match in _BODY.finditer(line, end)] if "FINAL REP" in line else []
    )
    if "igned" in line:
        rest += [Mark(match.start(), match.end(), SIGNATURE) for match in _SIGNED.finditer(line, end)]
    floor = end
    for colon in COLON.finditer(line, end):
        mark = _within_line(line, floor, colon.start(), flattened=first is not None)
        if mark is not None:
            rest.append(mark)
            floor = mark.end
    for mark in sorted(rest, key=lambda mark: mark.start):
        if mark.start >= end:
            yield mark
            end = mark.end


def _within_line(line: str, floor: int, colon: int, *, flattened: bool) -> Mark | None:
    """The header that ends at a colon of the line.

    Args:
        line: The line.
        floor: Where the header may begin at the earliest: after the last one.
        colon: Place of the colon.
        flattened: Whether the line begins with a header, so that others may follow without a full stop.
    """
    begin = max(floor, colon - _LONGEST)
    tail = line[begin:colon].rstrip()
    words = list(_TOKEN.finditer(tail))[-5:]
    if not words or _NOT_LETTERS.sub("", words[-1][0].lower()) not in _LAST_WORDS:
        return None
    for word in words:
        name = tail[word.start() :]
        said = meaning(name) if name[0].isupper() else None
        if said is None or not said.whole or said.image or said.row.section not in _HERE:
            continue
        strength = _strength(name, said, tail[: word.start()].rstrip(), flattened)
        if strength is None:
            return None
        return Mark(begin + word.start(), after_colon(line, colon), said.row.section, strength, said.row.merged)
    return None


def _strength(name: str, said: Meaning, before: str, flattened: bool) -> Strength | None:
    """When the header counts, by what stands before it on the line; None for never."""
    capitals = in_capitals(name)
    if before.rfind("(") > before.rfind(")") or (not capitals and said.row.section in _HERE_IN_CAPITALS_ONLY):
        return None
    last = before.rsplit(None, 1)[-1] if before else ""
    if not before or before[-1] in SENTENCE_ENDS or _MASK.fullmatch(last):
        return Strength.ALWAYS if capitals else Strength.FORWARD
    common = not said.row.bare and " " not in said.name
    if common or not (capitals or flattened):
        return None
    word = _NOT_LETTERS.sub("", last.lower())
    if word in _JOINED or (word in _JOINED_IN_CAPITALS and in_capitals(last) == capitals):
        return Strength.OUTSIDE
    return Strength.ALWAYS if capitals else Strength.FORWARD


_LONGEST_FIRST_ON_LINE = 90
_LONGEST_ALONE = 48
# A line this short was not broken by a margin: the next one begins anew.
_SHORT = 45
_BULLETS = ' >|•·-–=#"'
_RULED = re.compile(r" *([_=\-~.])\1{9,} *")
# "2. IMPRESSION:" in capitals; "2. Impression:" is an item of a list.
_NUMBERED = re.compile(r"\(?\d{1,2}[.)] +(?=[A-Z]{4,}[A-Z /&]*:)")
_X_MASK = re.compile(r"[Xx]{3,}\b")
_CAPITAL_NAME = re.compile(r"[A-Z][A-Z ()/,&'\-]*")

_BARE = sorted((name for name, row in BY_NAME.items() if row.bare and row.section in RANK), key=len, reverse=True)
_CAPITALS = "|".join(name.upper().replace(" AND ", "(?: AND | ?/ ?| & )") for name in _BARE)
_TITLES = "|".join(name.capitalize() for name in _BARE)
# After a word in capitals these go on with a sentence: "COMPARISON is made to".
_GOES_ON = r"(?:is|are|was|were|has|have|of|to|with|in|on|at|and|or|from|for|as|by|can|may|below|above|section)\b"
# "IMPRESSION Normal.", "IMPRESSION 1. Clear.", "IMPRESSION normal", "FINDINGS - Clear.", "Impression - Clear.",
# "[Findings] Clear."
_RUN_IN = re.compile(
    rf"(?P<name>{_CAPITALS})"
    rf"(?: ?[;.=–—-]+>? +(?=\S)| +(?=[A-Z][a-z]|A [a-z]|1[.)])|  +(?=[A-Z])| +(?!{_GOES_ON})(?=[a-z]))"
    rf"|(?P<title>{_TITLES}) ?[=–—-]>? +(?=\S)"
    rf"|\[(?P<bracketed>{_CAPITALS}|{_TITLES})\]:? *"
)
_BLOCK = re.compile(
    r"FINAL (?:RADIOLOGY )?REPORT\b|(?:WET ?READ|(?:FINAL )?ADDENDUM)\b(?=[^a-z]*$)"
    r"|(?:ADDENDUM|Addendum)(?=(?: #?\d)? (?:by|on|BY|ON) )"
)
_BY = r"(?:by|on)\b"
_SIGNED_FIRST_ON_LINE = re.compile(
    rf"""(?:this\ )?(?:report\ |document\ )?(?:has\ been\ |was\ )?
    (?:(?:electronically|digitally)\ (?:signed|approved|verified|authori[sz]ed)\b
    |(?:dictated|transcribed|signed|e-signed|finali[sz]ed|authenticated|approved|verified)\ (?:and\ \w+\ )?{_BY}
    |signed\ electronically\b|anonymi[sz]ed\b|de-?identified\b)
    |(?:reported|interpreted|reviewed|read)\ by:?\ +(?:dr|prof|_{{2}}|x{{3}})
    |\(?\*?\ ?end\ of\ (?:report|dictation)\b
    |i,?\ [^.]{{0,80}}?\bhave\ (?:personally\ )?(?:reviewed|viewed|examined)\ (?:the|this|these)\b
    |thank\ you\ for\b
    |as\ the\ (?:attending|teaching|supervising)\ (?:physician|radiologist)\b""",
    re.IGNORECASE | re.VERBOSE,
)

# "Dr A. Person" and "A. Person, MD" under an empty line.
_SIGNER = re.compile(
    r"(?:Dr|Prof|Mr|Mrs|Ms)\.?(?: [A-Z_][\w.'-]*){1,4}(?:, [A-Z].{0,60})?$"
    r"|[A-Z_][\w.'-]*(?: [A-Z_][\w.'-]*){0,4}, (?:M\.?D|D\.?O|FRCR|FRANZCR)\b.{0,60}$"
)


def first_on_line(line: str, before: str, headed: bool) -> Mark | None:
    """The header that a line begins with.

    Args:
        line: The line, not blank.
        before: The line above, stripped; empty where there is none or it is blank.
        headed: Whether the last filled line above held a header.
    """
    if _RULED.fullmatch(line):
        return Mark(0, len(line), RULE)
    lead = len(line) - len(line.lstrip(_BULLETS))
    numbered = _NUMBERED.match(line, lead)
    lead = numbered.end() if numbered else lead
    if lead == len(line) or not (line[lead].isalpha() or line[lead] in "([") or _X_MASK.match(line, lead):
        return None
    ended = not before or before[-1] in SENTENCE_ENDS
    return (
        _with_colon(line, lead, ended or (headed and before[:1].islower()))
        or _signature(line.rstrip(), lead, before)
        or _run_in(line, lead)
        or _block(line, lead)
        or _alone(line, lead, before, ended)
    )


def _mark(said: Meaning, end: int, strength: Strength = Strength.ALWAYS) -> Mark:
    """A mark from the beginning of the line, bullets included; a signature is text from its first word on."""
    section = said.row.section
    return Mark(0, 0 if section == SIGNATURE else end, section, strength, said.row.merged, said.image)


def _with_colon(line: str, lead: int, anew: bool) -> Mark | None:
    colon = COLON.search(line, lead, lead + _LONGEST_FIRST_ON_LINE)
    if colon is None:
        return None
    name = line[lead : colon.start()].strip()
    end = after_colon(line, colon.start())
    said = meaning(name)
    if said is not None:
        strength = _strength_first_on_line(name, said, anew)
        return None if strength is None else _mark(said, end, strength)
    unnamed = _CAPITAL_NAME.fullmatch(name) and len(name) > 2 and len(name.split()) <= 6
    return Mark(0, end, UNNAMED, Strength.OUTSIDE) if unnamed else None


def _strength_first_on_line(name: str, said: Meaning, anew: bool) -> Strength | None:
    """When a name before a colon counts; None for never."""
    if said.row.section == ORGAN:
        return Strength.OUTSIDE
    if in_capitals(name):
        return Strength.ALWAYS
    if not name[0].isupper() and not anew:
        return None
    if not said.whole:
        return Strength.OUTSIDE if said.image else None
    if said.row.bare or " " in said.name:
        return Strength.ALWAYS
    # One common word, "Study: limited by motion", is a header only where one is due.
    return Strength.FORWARD if said.row.section in RANK else Strength.OUTSIDE


def _run_in(line: str, lead: int) -> Mark | None:
    match = _RUN_IN.match(line, lead)
    said = meaning(match["name"] or match["title"] or match["bracketed"]) if match else None
    return _mark(said, match.end()) if match and said else None


def _block(line: str, lead: int) -> Mark | None:
    """A line in capitals that opens a block, with whatever else stands on it: "WET READ VERSION #1 ___"."""
    match = _BLOCK.match(line, lead)
    said = meaning(match[0]) if match else None
    return _mark(said, match.end()) if match and said else None


def _signature(line: str, lead: int, before: str) -> Mark | None:
    ended = line[lead].isupper() or not before or before[-1] in SENTENCE_ENDS
    signed = (ended and _SIGNED_FIRST_ON_LINE.match(line, lead)) or (not before and _SIGNER.match(line, lead))
    return Mark(0, 0, SIGNATURE) if signed else None


def _alone(line: str, lead: int, before: str, ended: bool) -> Mark | None:
    """A header without a colon that has its line to itself; in small letters only under an empty line."""
    name = line[lead:].rstrip(" -–=.")
    if len(name) > _LONGEST_ALONE or not (name[:1].isupper() or not before):
        return None
    said = meaning(name)
    if said is None or not said.whole or not said.row.bare:
        return None
    stands_out = in_capitals(name) and before.upper() != before
    return _mark(said, len(line)) if ended or len(before) < _SHORT or stands_out else None

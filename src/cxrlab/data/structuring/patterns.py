"""Word lists about earlier films, about change and about advice, and patterns that name them."""

from __future__ import annotations

import re

from cxrlab.core.records import Report
from cxrlab.data.structuring.sentences import capital, joined, split

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
    "links": "is; are; appear; appears; remain; remains; look; looks; seem; seems",
    "seen": """seen; noted; identified; demonstrated; visualized; visible; present; evident; observed; appreciated;
        described; reported""",
    "aspect": """size; extent; volume; appearance; position; location; degree; severity; number; prominence;
        configuration""",
    "adjective": """interval; intervally; unchanged; un-changed; stable; persistent; persisting; residual; continued;
        ongoing; new; newly; worsening; worsened; increasing; improving; improved; decreasing;
        enlarging; progressive; progressing; resolving; similar; longstanding; long-standing; preexisting;
        pre-existing; known; again; now; slowly""",
    "does": """may; might; could; likely; has; have; represent; represents; suggest; suggests; reflect; reflects;
        extend; extends; measure; measures; contain; contains; project; projects; involve;
        involves; overlie; overlies""",
    # What an aside is made of that only says how something was before; it also needs one of the words after it.
    "aside": """a; an; the; and; but; as; at; by; for; from; had; has; have; been; in; is; are; it; its; not; no; of;
        on; or; after; seen; noted; since; than; that; to; was; were; when; which; with; well; time;
        finding; findings; different; difference; position; positions; place; placed; inserted;
        insertion; put; arisen; developed; progression; fresh; recent; onset; appreciated; visible;
        compared; comparison; yesterday; changes; changed; change; day; days; week; weeks; month;
        months; year; years; ago; before; against; lying; up; down; fitted""",
    "then": """new; newly; interval; interim; prior; previous; preceding; earlier; previously; formerly; unchanged;
        stable; similar; same; change; changed; before; compared; comparison; again; increased; decreased; larger;
        smaller; worse; worsened; improved; greater; different; inserted; progressed; last; unaltered; constant""",
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
# Read once and never given back, lest a long list of such words be read in every way there is.
# The earlier film: "the prior study of ___", "prior", "the radiograph from 3/4/2019", "the day before".
_PIECES["that film"] = (
    rf"(?:(?:the |an? |one |his |her |{_DATE}'?s? )*(?:{_PIECES['earlier']}|{_PIECES['film']}|{_DATE}"
    r"|day before|available|same day|that|of|from|on|dated|at|and|\d+)[\w/.:'-]*(?: |$|(?=,)))++"
)
# An aside between commas with no word of its own: ", newly placed since the prior study", ", no different". Word by
# word, so that there is one way to read it.
_ASIDE = sorted(
    {word for name in ("aside", "then", "film", "earlier", "ly", "how", "more", "fewer", "same", "aspect")
     for phrase in _LISTS[name].split(";") for word in phrase.split()}
)  # fmt: skip
_PIECES["only before"] = (
    rf"(?=[^,;]*\b{_PIECES['then']}\b)(?: (?:{'|'.join(map(re.escape, _ASIDE))}|[\d/.:-]+|_+|x{{4}})(?=[ ,;.]|$))+"
)


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression in which `<name>` stands for a word list."""
    return re.compile(re.sub(r"(?<!\?P)<([a-z ]+)>", lambda match: _PIECES[match[1]], text), re.IGNORECASE)


# What gives advice; its mention of other films looks ahead: "comparison with earlier films would help".
ADVISES = pattern(
    r"\b(?:recommend\w*|advis\w+|correlat\w+|follow[ -]?up|suggest(?:s|ed)? (?:<film>|correlat|clinical|repeat|further)"
    r"|further (?:evaluation|imaging|assessment|study|work-?up|characteri[sz]ation|investigation)"
    r"|(?:would|could|may|might|can|should)(?: be)? (?:\w+ )?(?:help(?:ful)?|useful|performed|obtained|considered)"
    r"|consider (?:an? )?(?:<film>|repeat|further|follow|dedicated|\w+ (?:<film>))|is suggested)\b"
)
# Words that name an earlier film, or say that something is as it was, whether or not a finding hangs on them.
SPEAKS_OF_EARLIER = pattern(
    r"\bcompar(?:ed|ison|ing)\b(?! view| (?:with|to) (?:the |that )?(?:left|right|other|opposite|contralateral|on the))"
    r"|\b(?:prior|previous|preceding|earlier|last|most recent|old|former) (?:\w+ )?(?!chest|projection|exposure)"
    r"<film>\b"
    r"|\b(?:since|than|from|to|on) (?:the |an? )?(?:prior|previous|earlier|preceding)s?"
    r"(?= ?(?:$|[,;.]|_|x{4}|<date>|and\b))"
    r"|\b(?:previously|formerly|unchanged|unaltered|no different|as before|re-?demonstrat\w+|since yesterday)\b"
    r"|\bstable\b|\bin(?:terval|terim)\b|\b(?:no|without)(?: <how>)* changes?\b|\bagain,? (?=<seen>)"
    r"|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
)
# A sentence from which words were taken that it needs: a verb without its word, a preposition without its noun.
BROKEN = pattern(
    r"\b(?:is|are|was|were) (?:may|might|could|is|are)\b|\b(?:is|are) (?:no|not|to)(?=$|[,;.])|\bnot?(?=$|[,;.])"
    r"|^there (?!is\b|are\b|was\b|were\b|has\b|have\b|may\b|might\b|could\b|can\b|also\b|appears?\b|seems?\b|do)"
    r"|, (?:<seen>|an? finding|in position)(?=$|[,;.])|\b(?:may|might|could|of|from|to|with|the|an?|has|have|been|than)"
    r"(?=$|[,;.]| (?:but|and|or|which|of|from)\b)|\b(?:following|after|and|or) no(?! \w+ly)\b.*\bno\b"
    r"|\b(?:following|after|improvement/)no?\b|\b(?:following|after) no\b|/no\b"
    r"|\b(?:which|that) (?:from|since|than|as)\b"
    r"|\b(?:is|are) (?:in|of) (?:size|appearance)$|^(?:grossly )?appear|\b(?:is|are|an?) appearing\b"
    r"|\b(?:there is|there are)\b[^,;.]*\b(?:is|are) present$"
)


_AGE = r"(?:\d{1,3}|_{2,}|x{4}|\[\*\*[^\]]*\*\*\])"
_SEXES = r"(?:man|woman|male|female|boy|girl|gentleman|lady)"
_SEX = rf"(?:{_SEXES}|patient|infant|child|[mf]\b)"
_UNIT = r"(?:years?|yrs?|months?|weeks?|days?|y\.?/?o\.?)"
# "a 45-year-old woman", "45 yo M", "man aged 47", "woman of 91 years", "age 91", "The patient is an elderly man".
_PERSON = (
    rf"(?:(?:this|(?:the )?patient) is )?(?:an? )?(?:elderly |young )?"
    rf"(?:(?:{_SEX},? )?{_AGE}[ -]*{_UNIT}(?:[ -]*old)?\b(?:[ -]*{_SEX}(?: {_SEX})?)?"
    rf"|{_SEX},? (?:aged? {_AGE}|of {_AGE} {_UNIT})|aged? {_AGE}|(?:\d{{1,3}}|_{{2,}}) ?[mf]\b)"
)
_LEADING = re.compile(
    rf"^(?:{_PERSON}|an? {_SEX}(?= with)|{_SEX}(?= with))[,:]?"
    r"(?: (?:with|w/|who has|has|(?:who )?presents with|presenting with|complains of|having))? ?",
    re.IGNORECASE,
)
_INSIDE = re.compile(rf",? (?:in|of) (?:this|an?) {_PERSON}|, {_PERSON}", re.IGNORECASE)
_LEFT_OVER = re.compile(
    rf" ?\b(?:an? |the )?(?:(?:elderly|young) )?(?:{_SEXES}\b(?:,? aged? {_AGE}| of {_AGE} {_UNIT})?|aged? {_AGE}"
    rf"|{_AGE}[ -]*{_UNIT}[ -]*old\b)",
    re.IGNORECASE,
)
_HISTORY = re.compile(
    r"(?:,? ?(?:and|with|has))?(?: an?)?(?: past| medical| known| remote| prior| clinical)* ?\b(?:history|hx|h/o|pmh)\b"
    r"(?: significant)?(?: of| for|:)? [^,;./]*",
    re.IGNORECASE,
)
_TOLD_OF_PATIENT = re.compile(
    rf"(?:{_PERSON}|(?:the )?patient (?:is an?|has an?|with|had|was)\b|(?:past |clinical |medical |surgical )*history\b"
    r"|hx\b|status post\b|s/p\b|reason for|indication|clinical (?:information|indication|history))",
    re.IGNORECASE,
)
# Stricter than what is taken out: an age needs a number or its unit, and a man is one wherever he stands.
_NAMED = re.compile(
    rf"\b(?:years?|yrs?|months?|weeks?|days?)[ -]?old\b|\b\d+[ -]?(?:yo|y/o|[mf])\b|\baged? \d+\b|\b{_SEXES}\b",
    re.IGNORECASE,
)


def mentions_demographics(report: Report) -> bool:
    """Whether any section tells age or sex."""
    return any(_NAMED.search(text) for text in report.to_json().values() if text)


def mentions_history(report: Report) -> bool:
    """Whether the indication tells a history beside a reason that would stand without it."""
    told = report.indication or ""
    return bool(_HISTORY.search(told)) and not _HISTORY.search(reason(told) or "")


def describes_patient(sentence: str) -> bool:
    """Whether a sentence begins like one about the patient and not about the film."""
    return bool(_TOLD_OF_PATIENT.match(sentence))


def anonymous(sentence: str) -> str:
    """The sentence without age and sex, where they stand as an aside."""
    return capital(_INSIDE.sub("", sentence))


def reason(indication: str | None) -> str | None:
    """Why the film was taken, without age, sex and, where anything else is told, without history; None when empty."""
    kept = [bare for sentence in split(indication or "") if (bare := _bare(sentence))]
    return joined(kept)


def _bare(sentence: str) -> str:
    """What is left of a sentence of the indication; empty when it told of the person alone."""
    bare = _INSIDE.sub("", _LEADING.sub("", sentence, count=1))
    bare = _LEFT_OVER.sub("", bare).strip(" ,.")
    without = re.sub(r"^(?:now |presenting |presents |and |with )+", "", _HISTORY.sub("", bare).strip(" ,.;/"))
    bare = without if any(sign.isalpha() for sign in without) else bare
    return bare if any(sign.isalpha() for sign in bare) else ""

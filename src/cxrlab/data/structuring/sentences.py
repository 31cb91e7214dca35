"""Split reports into sentences, correct typing errors, and recognise comparisons, advice, demographics and history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.config import read_yaml
from cxrlab.core.records import Report
from cxrlab.findings.data_files import converted

# Full stops after these end no sentence.
_SHORT = ("dr", "mr", "mrs", "ms", "vs", "approx", "e.g", "i.e", "no", "fig", "cf", "ca", "st", "resp", "incl")
# "No." is an abbreviation only before a digit: "No. 5 rib"; elsewhere it ends a sentence.
_BULLET = re.compile(r"(?:\(?\d{1,2}[.):](?!\d)|[-–—•*·▪◦])\s+")
_LINE_ITEM = re.compile(r"\n\s*(?=(?:\(?\d{1,2}[.):](?!\d)|[-–—•*·▪◦])\s)")
_END = re.compile(r"(?<=[.!?])\s+")
_INLINE_ITEM = re.compile(r"(?<=[.;])\s+(?=\(?\d{1,2}[.)]\s+[A-Z])")


def split(text: str) -> list[str]:
    """The sentences of a section, each with its end mark where it has one, in order; a list gives one for each item."""
    pieces: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        for item in _LINE_ITEM.split(block):
            for part in _INLINE_ITEM.split(item):
                line = _without_bullet(" ".join(part.split()))
                start = 0
                found: list[str] = []
                for match in _END.finditer(line):
                    if _ends_sentence(line[start : match.start()], line[match.end() :]):
                        found.append(line[start : match.start()])
                        start = match.end()
                found.append(line[start:])
                bare = (_without_bullet(one.strip(" ;")) for one in found)
                pieces += [one for one in bare if any(sign.isalnum() for sign in one)]
    return pieces


def _without_bullet(text: str) -> str:
    match = _BULLET.match(text)
    return text[match.end() :] if match else text


def _ends_sentence(before: str, after: str) -> bool:
    """Whether a full stop between two pieces ends a sentence."""
    word = before.rstrip(".!?").rpartition(" ")[2].lower().lstrip("(")
    if before.endswith(".") and (word in _SHORT or (len(word) == 1 and word.isalpha())):
        return word == "no" and not after[:1].isdigit()
    return before.rstrip(".!?").strip() != word or not word.isdigit()  # "2." alone is the number of an item


def joined(sentences: Iterable[str]) -> str | None:
    """Sentences as one text, each begun with a capital and ended with a mark; None when there is none."""
    found = [capital(sentence.strip()) for sentence in sentences]
    return " ".join(one if one.endswith((".", "!", "?")) else one.rstrip(" ,;:") + "." for one in found) or None


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class _Words:
    word_lists: Mapping[str, str]
    misspellings: Mapping[str, str]


_FILE = Path(__file__).with_suffix(".yaml")
_WORDS: _Words = converted(_Words, read_yaml(_FILE)[0], _FILE.name)
# "plural effusion" is a typing error; "plural" elsewhere may be correct.
_ONLY_BEFORE: Mapping[str, str] = {"plural": r"(?=\s+(?:eff?us|thickening|space|fluid|plaque|surface|line))"}
# Small words that are never repeated on purpose.
_DOUBLED = "the|a|an|of|in|is|are|and|with|at|to|on|or|there"

_RIGHT = {wrong: right for right, line in _WORDS.misspellings.items() for wrong in line.split()}
_WRONG = re.compile(
    r"\b(?:" + "|".join(word + _ONLY_BEFORE.get(word, r"\b") for word in sorted(_RIGHT)) + ")", re.IGNORECASE
)
_REPEATED = re.compile(rf"\b({_DOUBLED})(?:\s+\1)+\b", re.IGNORECASE)
_GAP = re.compile(r"(?<=\w)[ \t]+(?=[,.;:](?:\s|$))")
_NO_GAP = re.compile(r"(?<=[a-z])\.(?=[A-Z][a-z])")
_MARKS = re.compile(r"(?<![.])\.\.(?![.])|,,+")


def corrected(text: str) -> str:
    """The text with typing errors corrected: spelling, doubled small words, spaces around punctuation, doubled punctuation."""
    text = _WRONG.sub(_in_same_case, text)
    text = _REPEATED.sub(r"\1", text)
    text = _NO_GAP.sub(". ", _GAP.sub("", text))
    return _MARKS.sub(lambda match: match[0][0], text)


def _in_same_case(match: re.Match[str]) -> str:
    right = _RIGHT[match[0].lower()]
    if match[0].isupper():
        return right.upper()
    return right.capitalize() if match[0][0].isupper() else right


_DATE = r"(?:_{2,}|x{4}|yesterday|\d{1,4}[/.-]\d{1,2}(?:[/.-]\d{1,4})?|\w+ \d{1,2},? \d{4}|\d{4})"


# The longest phrase first, so that "partially resolved" is not cut at "partially".
_PIECES = {
    name: "(?:" + "|".join(map(re.escape, sorted(phrases.split("; "), key=len, reverse=True))) + ")"
    for name, phrases in _WORDS.word_lists.items()
}
_PIECES["date"] = _DATE
_PIECES["since then"] = (
    rf"(?: (?:since|from|than) (?:the )?(?:{_PIECES['earlier']} )*(?:{_PIECES['image']}|{_PIECES['earlier']}|{_DATE})\b)"
)
_PIECES["in size"] = rf"(?: in {_PIECES['aspect']})*{_PIECES['since then']}?"
_PIECES["of the"] = r"(?:in|of)(?: the| an?)?(?: size of| extent of)?(?: the| an?)?"
# Read once and never given back, lest a long list of such words be read in every way there is.
# The earlier image: "the prior study of ___", "prior", "the radiograph from 3/4/2019", "the day before".
_PIECES["that image"] = (
    rf"(?:(?:the |an? |one |his |her |{_DATE}'?s? )*(?:{_PIECES['earlier']}|{_PIECES['image']}|{_DATE}"
    r"|day before|available|same day|that|of|from|on|dated|at|and|\d+)[\w/.:'-]*(?: |$|(?=,)))++"
)
# An aside between commas with no word of its own: ", newly placed since the prior study", ", no different". Word by
# word, so that there is one way to read it.
_ASIDE = sorted(
    {word for name in ("aside", "then", "image", "earlier", "ly", "how", "more", "fewer", "same", "aspect")
     for phrase in _WORDS.word_lists[name].split(";") for word in phrase.split()}
)  # fmt: skip
_PIECES["only before"] = (
    rf"(?=[^,;]*\b{_PIECES['then']}\b)(?: (?:{'|'.join(map(re.escape, _ASIDE))}|[\d/.:-]+|_+|x{{4}})(?=[ ,;.]|$))+"
)


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression in which `<name>` stands for a word list."""
    return re.compile(re.sub(r"(?<!\?P)<([a-z ]+)>", lambda match: _PIECES[match[1]], text), re.IGNORECASE)


# Advice, which may mention other images: "comparison with earlier films would help".
ADVISES = pattern(
    r"\b(?:recommend\w*|advis\w+|correlat\w+|follow[ -]?up|suggest(?:s|ed)? (?:<image>|correlat|clinical|repeat|further)"
    r"|further (?:evaluation|imaging|assessment|study|work-?up|characteri[sz]ation|investigation)"
    r"|(?:would|could|may|might|can|should)(?: be)? (?:\w+ )?(?:help(?:ful)?|useful|performed|obtained|considered)"
    r"|consider (?:an? )?(?:<image>|repeat|further|follow|dedicated|\w+ (?:<image>))|is suggested)\b"
)
# Words that mention an earlier image or an unchanged state.
SPEAKS_OF_EARLIER = pattern(
    r"\bcompar(?:ed|ison|ing)\b(?! view| (?:with|to) (?:the |that )?(?:left|right|other|opposite|contralateral|on the))"
    r"|\b(?:prior|previous|preceding|earlier|last|most recent|old|former) (?:\w+ )?(?!chest|projection|exposure)"
    r"<image>\b"
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
# Stricter than what is taken out: an age needs a number or its unit; words for a sex count anywhere.
_MASKED_AGE = re.compile(
    rf"(?:_{{2,}}|x{{4}}|\[\*\*[^\]]*\*\*\])(?:[ -]*{_UNIT}(?:[ -]*old)?\b(?:[ -]*{_SEX})?| ?[mf]\b)", re.IGNORECASE
)
_NAMED = re.compile(
    rf"\b(?:years?|yrs?|months?|weeks?|days?)[ -]?old\b|\b\d+[ -]?(?:yo|y/o|[mf])\b|\baged? \d+\b|\b{_SEXES}\b",
    re.IGNORECASE,
)


def mentions_demographics(report: Report) -> bool:
    """Whether any section mentions age or sex."""
    return any(_NAMED.search(text) for text in report.to_json().values() if text)


def mentions_masked_age(report: Report) -> bool:
    """Whether an age that de-identification masked, with the sex beside it, is all that the indication mentions."""
    text = report.indication or ""
    return bool(_NAMED.search(text)) and not _NAMED.search(_MASKED_AGE.sub("", text))


def mentions_history(report: Report) -> bool:
    """Whether the indication mentions a history that could be left out."""
    text = report.indication or ""
    return bool(_HISTORY.search(text)) and not _HISTORY.search(reason(text) or "")


def describes_patient(sentence: str) -> bool:
    """Whether a sentence begins like one about the patient, not about the image."""
    return bool(_TOLD_OF_PATIENT.match(sentence))


def anonymous(sentence: str) -> str:
    """The sentence without age and sex, where they are an aside."""
    return capital(_INSIDE.sub("", sentence))


def reason(indication: str | None) -> str | None:
    """The reason for the examination without age and sex, and without history if anything else remains; None when empty."""
    kept: list[str] = []
    for sentence in split(indication or ""):
        bare = _INSIDE.sub("", _LEADING.sub("", sentence, count=1))
        bare = _LEFT_OVER.sub("", bare).strip(" ,.")
        without = re.sub(r"^(?:now |presenting |presents |and |with )+", "", _HISTORY.sub("", bare).strip(" ,.;/"))
        kept += [one for one in (without, bare) if any(sign.isalpha() for sign in one)][:1]
    return joined(kept)

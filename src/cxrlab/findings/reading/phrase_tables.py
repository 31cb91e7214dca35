"""The rules of the reader's phrase tables (`tables/*.json`): what each phrase does in a sentence.

A rule lists patterns. A pattern is a line of words in the singular; `a|b` is a choice and a trailing `?` makes a
choice optional. Hyphens do not exist: "right-sided" is two words. `tables/spelling.json` lists words that are read as
another word and words that are ignored. Of all patterns that match at a word of the text the longest wins, whichever
table it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum, auto
from functools import cache
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import LOCATIONS, OBSERVATIONS, Change, Severity, Side
from cxrlab.findings.data_files import converted, load_data, read_json

TABLES = Path(__file__).parent / "tables"
RULE_TABLES = (
    "sides_and_locations", "cues", "severity_and_change", "connectives", "mentions_bone", "mentions_devices",
    "mentions_heart", "mentions_lung", "mentions_pleura", "body_parts", "predicates", "mentions_unspecific",
    "device_tips",
)  # fmt: skip


class Kind(StrEnum):
    """What a phrase does in a sentence. A forward cue acts on what follows it, a backward cue on what precedes it."""

    MENTION = auto()  # names an observation
    BODY_PART = auto()
    PREDICATE = auto()  # what is said of a body part
    OUT_OF_VOCABULARY = auto()  # sounds like a finding that the vocabulary lacks
    # cues
    NEGATION = auto()
    NEGATION_BACKWARD = auto()
    HEDGE = auto()
    HEDGE_BACKWARD = auto()
    HEDGE_EITHER = auto()  # forward; backward where nothing follows
    HEDGED_EXPLANATION = auto()  # explains what precedes by what may follow; a negation before it covers both
    EXPLANATION = auto()  # the same, but certain
    UNLIKELY = auto()  # backward: absent and only possible
    RESOLUTION = auto()
    RESOLUTION_BACKWARD = auto()
    NOT_A_FINDING = auto()  # forward: history, indication, advice or a limit of the image
    NOT_ASSESSABLE = auto()  # backward
    # attributes
    SIDE = auto()
    LOCATION = auto()
    LEVEL = auto()  # "upper" of "upper and lower lobes"
    ORDINAL = auto()  # number of a rib
    SEVERITY = auto()
    CHANGE = auto()
    UNIT = auto()
    TIP = auto()  # where a device ends
    ABOVE_CARINA = auto()  # turns the size before it into a height
    DEVICE_END = auto()  # "tip", "terminates"
    # connectives
    COMMA = auto()
    AND = auto()
    OR = auto()
    VERSUS = auto()
    WITH = auto()
    VERB = auto()
    PREPOSITION = auto()
    ARTICLE = auto()
    EXISTENTIAL = auto()  # "there is"
    PRONOUN = auto()
    TERMINATION = auto()  # contrast or semicolon: ends the scope of every cue
    COLON = auto()
    FULL_STOP = auto()
    QUESTION_MARK = auto()
    SERIES = auto()  # "through" between two rib numbers
    FILLER = auto()  # without effect; keeps its words from matching a shorter pattern
    OTHER_BODY_PART = auto()  # the sentence is not about the chest


class Label(StrEnum):
    """Rules that the code treats in a way of their own; the reason is in the rule."""

    NONE = ""
    ADJACENT = auto()
    AFTER = auto()
    ALL_DEVICES = auto()
    APPEARANCE = auto()
    ASPECT = auto()
    BOTH = auto()
    BY = auto()
    COMPARISON = auto()
    CONDITION = auto()
    CONTRALATERAL = auto()
    DIFFERENTIAL = auto()
    EXCEPT = auto()
    FROM = auto()
    FROM_EARLIER_SIZE = auto()
    HARMLESS_SHADOW = auto()
    HISTORY = auto()
    IPSILATERAL = auto()
    MASKED_DEVICE = auto()
    ORDINAL_SUFFIX = auto()
    PERHAPS = auto()
    PREVIOUSLY = auto()
    PREVIOUSLY_SEEN = auto()
    REMARK = auto()
    RIB = auto()
    SHOWS = auto()
    STATUS_POST = auto()
    UNNAMED_PLEURAL_ABNORMALITY = auto()


@dataclass(frozen=True)
class PhraseRule:
    """Patterns that mean the same."""

    kind: Kind  # what they do in a sentence
    reason: str  # why they mean this
    patterns: tuple[str, ...]  # in the notation above
    label: Label = Label.NONE  # set where the code asks for this rule by name
    name: str = ""  # of a body part or predicate, as used in `meanings.json`
    # What a mention names ("hydropneumothorax" names two), or what a predicate means without a part.
    observations: tuple[str, ...] = ()
    location: str | None = None  # a word of `vocabulary.LOCATIONS`, or the level alone
    side: Side | None = None
    severity: Severity | None = None
    change: Change | None = None
    tip: str | None = None  # a word of `vocabulary.TIPS`
    number: int | None = None  # of a rib, or millimetres per unit
    predicate: str = ""  # the predicate that the words of a severity or change are beside a body part
    possible: bool = False  # whether a mention is only a hint
    resolved: bool = False  # whether a mention says that the thing has gone ("extubated")
    # Whether a predicate without a part sounds like a finding that the vocabulary lacks.
    out_of_vocabulary: bool = False
    adverb: bool = False  # of a severity: beside a change it grades the change ("has slightly increased")
    noun: bool = False  # of a change: a severity before it grades the change ("slight increase in")

    def __post_init__(self) -> None:
        required, optional = _FIELDS.get(self.kind, ((), ()))
        given = {field.name for field in fields(self)[4:] if getattr(self, field.name) != field.default}
        if not self.reason.strip() or not self.patterns:
            raise DataError("a rule needs a reason and at least one pattern.")
        if missing := [name for name in required if name not in given and not self.label]:
            raise DataError(f"a rule of the kind '{self.kind}' lacks {', '.join(missing)}.")
        if unfit := given.difference(required, optional):
            raise DataError(f"a rule of the kind '{self.kind}' has no {', '.join(sorted(unfit))}.")
        if unknown := set(self.observations).difference(OBSERVATIONS):
            raise DataError(f"{', '.join(sorted(unknown))}: not in the vocabulary.")
        if self.location and self.kind is not Kind.LEVEL and self.location not in LOCATIONS:
            raise DataError(f"the location '{self.location}' is not in the vocabulary.")

    @property
    def graded(self) -> bool:
        """Whether a statement made by these words has their severity: "mild interstitial markings"."""
        return self.severity is not None and (self.kind is not Kind.SEVERITY or self.predicate == "graded")


# Kind → fields that its rules must have and may have, beside reason, patterns and label.
_FIELDS: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Kind.MENTION: ((), ("observations", "location", "side", "severity", "possible", "resolved")),
    Kind.BODY_PART: (("name",), ("side",)),
    Kind.PREDICATE: (("name",), ("observations", "severity", "out_of_vocabulary")),
    Kind.SIDE: (("side",), ()),
    Kind.LOCATION: (("location",), ("side",)),
    Kind.LEVEL: (("location",), ()),
    Kind.ORDINAL: (("number",), ()),
    Kind.SEVERITY: (("severity", "predicate"), ("adverb",)),
    Kind.CHANGE: (("change",), ("predicate", "noun", "severity")),
    Kind.UNIT: (("number",), ()),
    Kind.TIP: (("tip",), ("side",)),
}


def choices(pattern: str) -> list[list[str]]:
    """The words that may stand at each place of a pattern; an empty word where the place may be left out."""
    places: list[list[str]] = []
    for place in pattern.split():
        words = place.removesuffix("?").split("|")
        if any("?" in word or not word for word in words):
            raise DataError(f"'{place}' in the pattern '{pattern}': only a whole choice can be optional.")
        places.append([*words, ""] if place.endswith("?") else words)
    return places


def load_rules() -> Iterator[PhraseRule]:
    """The rules of all tables; a table is an object of kind → rules."""
    for table in RULE_TABLES:
        for kind, entries in read_json(TABLES / f"{table}.json").items():
            for number, entry in enumerate(entries, start=1):
                yield converted(PhraseRule, {"kind": kind, **entry}, f"{table}.json, '{kind}', rule {number}")


@dataclass(frozen=True)
class Spellings:
    """Words that are read as another word before patterns are matched."""

    # Word → words read as it, because they differ in nothing that the reader asks for.
    synonyms: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...]  # words without effect, such as articles and adverbs ("not well seen" keeps its adverb)
    irregular: Mapping[str, tuple[str, ...]]  # singular → plurals and other forms that no rule derives


@cache
def load_spellings() -> Spellings:
    """The table of spellings."""
    return load_data(TABLES / "spelling.json", Spellings)


@dataclass(frozen=True)
class Meaning:
    """What predicates mean of body parts."""

    body_parts: tuple[str, ...]  # names of body parts
    predicates: tuple[str, ...]  # names of predicates
    observations: tuple[str, ...]  # what is stated; empty where it is only that something is normal
    reason: str  # why
    absent: bool = False  # whether the observations are denied
    possible: bool = False  # whether they are only possible
    location: str | None = None  # a word of `vocabulary.LOCATIONS` that is implied


@cache
def load_meanings() -> Mapping[tuple[str, str], Meaning]:
    """(body part, predicate) → meaning."""
    rows = converted(tuple[Meaning, ...], read_json(TABLES / "meanings.json")["meanings"], "meanings.json")
    return {(part, predicate): row for row in rows for part in row.body_parts for predicate in row.predicates}

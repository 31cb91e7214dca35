"""The rows of the reader's tables, and how a phrase is written in them.

A row holds phrases parted by semicolons or line ends. A phrase is a line of words in the singular; `a|b` is a
choice and a trailing `?` makes the word optional.
Hyphens do not exist: "right-sided" is two words. Words that `spelling` reads as one may be written either
way, and words that it passes over ("the", "acute") are left out. Of all phrases that fit at a word of the
text the longest wins, whatever table it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import product

from cxrlab.core.vocabulary import Change, Severity, Side


class Kind(IntEnum):
    """What a phrase does in a sentence."""

    MENTION = auto()  # names an observation
    SUBJECT = auto()  # a part of the body, of which something may be said
    PREDICATE = auto()  # what is said of a part
    GENERIC = auto()  # "abnormality", "process": normal when denied, unread when asserted
    ALARM = auto()  # sounds like a finding that the vocabulary does not have
    # cues
    NEGATION = auto()  # denies what follows
    DENIED = auto()  # denies what stands before
    HEDGE = auto()  # makes what follows possible
    HEDGED = auto()  # makes what stands before possible
    HEDGE_EITHER = auto()  # what follows, or what stands before where nothing follows
    HEDGE_LINK = auto()  # explains what stands before by what follows: under a denial it denies that too
    LINK = auto()  # the same, but sure
    UNLIKELY = auto()  # rather denies what stands before
    RESOLUTION = auto()  # what follows has gone
    RESOLVED = auto()  # what stands before has gone
    ASIDE = auto()  # what follows is not a finding: history, reasons, advice, limits
    UNSEEN = auto()  # what stands before cannot be judged
    # attributes
    SIDE = auto()
    PLACE = auto()
    LEVEL = auto()  # "upper" of "upper and lower lobes"
    ORDINAL = auto()  # number of a rib
    DEGREE = auto()
    CHANGE = auto()
    SIZE = auto()
    TIP = auto()  # where a device ends
    ABOVE = auto()  # "above the carina": turns the size before it into a height
    END = auto()  # "tip", "terminates"
    # joints
    COMMA = auto()
    AND = auto()
    OR = auto()
    VERSUS = auto()
    WITH = auto()
    VERB = auto()
    PREPOSITION = auto()
    ARTICLE = auto()
    THERE = auto()
    PRONOUN = auto()
    BREAK = auto()  # contrast or semicolon: a new statement
    COLON = auto()
    STOP = auto()
    QUERY = auto()
    UNIT = auto()
    FILLER = auto()  # read, and of no consequence: keeps its words from being taken for something else
    HEADING = auto()
    SERIES = auto()  # "to" or "through" between two numbers
    OTHER_BODY = auto()  # another part of the body: the sentence is not about the chest


@dataclass(frozen=True)
class Mention:
    """Phrases that name an observation.

    Args:
        observations: Usually one; "hydropneumothorax" names two.
        phrases: In the notation above.
        reason: Why these words mean that.
        side: Implied by the words, as are the others.
        place: A word of `vocabulary.LOCATIONS`.
        degree: Implied severity.
        possible: Whether the words alone are no more than a hint.
        gone: Whether the words say that it has gone ("extubated").
    """

    observations: tuple[str, ...]
    phrases: str
    reason: str
    side: Side | None = None
    place: str | None = None
    degree: Severity | None = None
    possible: bool = False
    gone: bool = False
    kind: Kind = Kind.MENTION


@dataclass(frozen=True)
class Subject:
    """A part of the body: `name` is what the table of statements calls it."""

    name: str
    phrases: str
    reason: str
    side: Side | None = None
    kind: Kind = Kind.SUBJECT


@dataclass(frozen=True)
class Predicate:
    """What is said of a part; `observations` is what it means where no part fits it."""

    name: str
    phrases: str
    reason: str
    observations: tuple[str, ...] = ()
    degree: Severity | None = None
    alarm: bool = False  # whether it sounds like a finding where no part fits
    kind: Kind = Kind.PREDICATE

    @property
    def graded(self) -> bool:
        """Whether the words themselves give a degree."""
        return self.degree is not None


@dataclass(frozen=True)
class Cue:
    """Words that decide what becomes of the statements about them."""

    kind: Kind
    phrases: str
    reason: str


@dataclass(frozen=True)
class Word:
    """Words that give a finding an attribute; only those of its kind are set."""

    kind: Kind
    phrases: str
    reason: str
    side: Side | None = None
    places: tuple[str, ...] = ()
    degree: Severity | None = None
    change: Change | None = None
    tip: str | None = None
    number: int | None = None
    said: str = ""  # the predicate that the words are beside a part
    adverb: bool = False  # of a degree: beside a change it is the change's
    noun: bool = False  # of a change: a degree before it is its own ("slight increase in")

    @property
    def graded(self) -> bool:
        """Whether a statement made by the words has their degree: "mild interstitial markings", "mildly increased"."""
        return self.degree is not None and (self.kind is not Kind.DEGREE or self.said == "graded")


Row = Mention | Subject | Predicate | Cue | Word


def spellings(phrases: str) -> Iterator[tuple[str, ...]]:
    """Every line of words that the phrases of a row stand for."""
    for phrase in phrases.replace("\n", ";").split(";"):
        slots: list[list[str]] = []
        for slot in phrase.split():
            words = slot.removesuffix("?").split("|")
            if any("?" in word or not word for word in words):
                raise ValueError(f"'{slot}' in the phrase '{phrase}': only a whole choice can be optional.")
            slots.append([*words, ""] if slot.endswith("?") else words)
        for line in product(*slots):
            if words_of_line := tuple(word for word in line if word):
                yield words_of_line

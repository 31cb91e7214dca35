"""The small words that join or part statements, and words that sound like a finding."""

from __future__ import annotations

from cxrlab.findings.reading.rows import Cue, Kind

FROM = Cue(Kind.PREPOSITION, "from", "leads to a place, or to what was before")
AFTER = Cue(Kind.PREPOSITION, "after; following", "what follows came before: a denial does not reach it")
SHOWS = Cue(Kind.WITH, "shows", "what follows is on the film: a limit or a reason named before it has ended")
APPEARANCE = Cue(Kind.FILLER, "appearance", "speaks of what was said before, where an explanation follows")
BY = Cue(Kind.PREPOSITION, "by", "leads to a place, or to what is in the way")
EXCEPT = Cue(
    Kind.BREAK,
    "except; except for; apart|aside from; other than; with exception of",
    "a contrast; what is excepted from a part that is clear lies in that part",
)
NEXT_TO = Cue(Kind.WITH, "adjacent; with adjacent; underlying; with underlying", "brings in what lies at the same side")
ROWS = (
    EXCEPT,
    NEXT_TO,
    APPEARANCE,
    BY,
    FROM,
    SHOWS,
    AFTER,
    Cue(Kind.AND, "and; as well as; along with; plus; in addition to", "adds"),
    Cue(Kind.OR, "or; and / or", "leaves open which; under a denial it adds"),
    Cue(Kind.VERSUS, "versus; vs", "leaves open which"),
    Cue(
        Kind.WITH,
        """with; containing; associated with?; accompanied by; together with; superimposed on|upon
        w /; with associated|superimposed|accompanying; superimposed; obscuring""",
        "brings in something else",
    ),
    Cue(
        Kind.VERB,
        """is; is to is; has; becomes; comes|come into seen; is? seen; has been? seen; can is seen; is there
        measures; measuring; measured; spanning; projects; projecting; projected; overlies; overlie; lies; lie
        on seen""",
        "says that it is there",
    ),
    Cue(
        Kind.PREPOSITION,
        """in; of; at; over; within; into; along; towards; toward; inside; under; below; beneath; near; on
        throughout; involving; affecting; to; across; capping; overlying; surrounding; for; behind; above
        between; against""",
        "leads to a place",
    ),
    Cue(Kind.ARTICLE, "a; another", "brings in something new"),
    Cue(
        Kind.THERE,
        "there is; there has been?; there is seen; one sees; attention is drawn to; this? chest? film shows; we see",
        "a new statement begins",
    ),
    Cue(Kind.PRONOUN, "it; this; these; they; its; their", "speaks of what was said before"),
    Cue(
        Kind.BREAK,
        """but; however; although; though; while; whereas; yet; nevertheless; nonetheless; albeit
        despite; on other hand; in contrast""",
        "a contrast ends what came before",
    ),
    Cue(
        Kind.FILLER,
        "there; other; acute; acutely; subacute; which; known; patchy; linear; streaky; diffuse; focal",
        "of no consequence",
    ),
    Cue(Kind.SERIES, "through", "from one number to another"),
    Cue(
        Kind.ALARM,
        """abnormal; suspicious; lucency; lucent; asymmetry; asymmetric; distorted; distortion; destruction
        erosion; sclerotic; lytic; narrowing; stenosis; abscess; defect; hemorrhage; embolism; tuberculosis; tb
        ards; infarct; infarction; cyst; inflammation; inflammatory; injury; rupture; tear; trauma; malposition
        malpositioned; kinked; hypertrophy; sarcoidosis; sarcoid""",
        "sounds like a finding",
    ),
)

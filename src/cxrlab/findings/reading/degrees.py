"""How much of it, how large, and how it changed."""

from __future__ import annotations

from cxrlab.core.vocabulary import Change, Severity
from cxrlab.findings.reading.rows import Kind, Word


def _degree(degree: Severity, phrases: str, reason: str, said: str = "graded", adverb: bool = False) -> Word:
    return Word(Kind.DEGREE, phrases, reason, degree=degree, said=said, adverb=adverb)


def _change(change: Change, phrases: str, reason: str, said: str = "", noun: bool = False) -> Word:
    return Word(Kind.CHANGE, phrases, reason, change=change, said=said, noun=noun)


PREVIOUS = (
    _change(
        Change.UNCHANGED,
        "previously|formerly described|seen|demonstrated; prior described|seen",
        "seen before: still there where it is asserted, gone where it is denied",
    ),
    _change(Change.UNCHANGED, "previously; formerly", "the same; but a size beside it is the earlier one"),
)
DOWN_OR_UP = (
    _change(Change.DECREASED, "down from", "the size that follows is the earlier one"),
    _change(Change.INCREASED, "up from", "the size that follows is the earlier one"),
)
ROWS = (
    *DOWN_OR_UP,
    _degree(Severity.TRACE, "minimally; subtly; faintly; barely", "next to nothing", adverb=True),
    _degree(
        Severity.MILD,
        "mildly; slightly; modestly; somewhat; marginally; a little|bit",
        "a small part of the scale",
        adverb=True,
    ),
    _degree(Severity.MODERATE, "moderately; appreciably; noticeably", "the middle of the scale", adverb=True),
    _degree(
        Severity.SEVERE,
        "severely; markedly; extensively; massively; considerably; grossly; dramatically; greatly",
        "the top of the scale",
        adverb=True,
    ),
    _degree(
        Severity.TRACE,
        """trace; tiny; minimal; subtle; faint; minute; scant; scanty; minuscule; miniscule; negligible; punctate
        minimal|trace|tiny amount|degree of; very slight|slightly|mild|mildly|small|subtle|minimal; trivial""",
        "next to nothing",
    ),
    _degree(
        Severity.MILD,
        """mild; slight; minor; little; modest; low grade; thin; narrow; marginal
        small|mild|slight in? amount|degree|size|sized|volume of?
        minimal|minimally|trace|tiny|borderline|slight to mild|mildly|small
        of slight|mild|small|minor|limited|low degree|size|extent""",
        "a small part of the scale",
    ),
    _degree(Severity.MILD, "small; limited", "of a lung volume: too little of it", said="low"),
    _degree(
        Severity.MODERATE,
        """moderate; intermediate; medium; mild|mildly|small|slight to moderate|moderately|medium
        mild|small moderate
        moderate|medium|intermediate|middle|mid in? sized|size|degree|amount|volume|extent of?
        mid|medium|intermediate|moderate grade; of moderate|medium|intermediate degree|size|extent; noticeable
        mid|medium width""",
        "the middle of the scale",
    ),
    _degree(
        Severity.SEVERE,
        """severe; marked; extensive; massive; gross; considerable; pronounced; huge; advanced; dense; densely
        profound; substantial; major; gigantic; large|severe|marked in? size|amount|degree of?
        large sized|volume of?; high grade; moderate|moderately to severe|severely|large|marked|markedly
        moderate severe|large; very large|wide|severe|severely|marked|enlarged
        of severe|marked|large|high|great degree|size|extent""",
        "the top of the scale",
    ),
    _degree(Severity.SEVERE, "large", "of a part: too large", said="large"),
    _change(
        Change.NEW,
        """new; newly; a? new finding; developed; developing; fresh
        has newly? is? developed|appeared|arisen|emerged|placed|inserted; first seen|visible
        newly developed|placed|seen|inserted|appeared|arisen|detected; placement|insertion|development of
        of recent onset; not previously seen; not seen previously|before
        was not there|seen before|previously; recently placed|inserted; placed; inserted
        sited|placed|inserted|put|fitted|introduced after|since; arisen after|since; having appeared
        fresh development|insertion; new in|since; put in after|since; not seen on prior film
        was not seen on prior film; implanted after|since""",
        "was not there before",
    ),
    _change(
        Change.INCREASED,
        """increasing; worse; worsened; worsening; progressed; progressing; progressive; enlarging; grown; grew
        deteriorated; greater; more; with growth
        more pronounced|extensive|conspicuous|severe|confluent|marked|dense; more than previously|before
        increased in extent|volume|prominence; slightly|mildly|markedly|moderately more pronounced|extensive
        having deteriorated; with progression; advancing; expanded since; enlarged since; poorer
        poorer|worse|worsening|decreased aeration; weaker breath; has? gained in? size|extent; increased in|of
        slightly|mildly|markedly|moderately worse|worsened|more; has become worse|more
        has is? worsened|progressed in? size|extent|prominence?
        has is? deteriorated|advanced|expanded in? size|extent|prominence?; having advanced|progressed""",
        "more than before",
    ),
    _change(
        Change.INCREASED,
        """larger; bigger; wider; slightly|mildly|markedly|moderately? larger than before
        slightly|mildly|markedly|moderately? larger in extent|volume|prominence|size
        slightly|mildly|markedly|moderately larger; has become larger
        has is? increased|grown|enlarged in? size|extent|prominence?""",
        "more than before; of a part: perhaps too large",
        said="grown",
    ),
    _change(
        Change.INCREASED,
        "increased; increase; increased in width|caliber|density|size",
        "of a part: too much of it",
        said="increased",
    ),
    _change(
        Change.UNCHANGED,
        """unchanged; grossly unchanged|similar; persistent; still in place; persists; persist; persisting; again
        still; similar; redemonstrated; redemonstration; redemonstrates; same; residual; longstanding
        preexisting; remains; remain; remaining; continues; continued; ongoing; is? again seen
        is unchanged|similar; remains|remain unchanged|similar; re seen; no different from|to; same as
        as before|previously
        no new|large|gross|marked|substantial|major? change|difference in|of|from|since|to|for?
        without|little new|large|gross|marked|substantial|major? change|difference in|of|from|since|to|for?
        as on|in prior film?
        no|without further? increase|decrease|worsening|progression|improvement|growth in|of|from|since?
        no increase|change in size of?
        is|has? not changed|progressed|worsened|improved|decreased|grown|resolved|much in? size?
        has not increased|enlarged in? size?; has not been? removed|changed
        unchanged|similar in|to appearance|size|extent|position|prior?
        held|kept at its prior|usual site|place|focus; lying|sited as before|prior; sited as; long standing
        has remained unchanged; not larger|smaller|different|worse|better; without change|progression|worsening
        persistent unchanged; unchanged persistent|known; in same position; same as prior
        not increased|decreased in size; not appreciably changed; not changed|moved; is same; same|identical to
        no change; identical""",
        "as before; 'no change' denies the change and not the thing",
    ),
    _change(
        Change.DECREASED,
        """decreasing; improved; improving; smaller; less; resolving; lessened; regressed; regressing; receding
        receded; better; shrunk; shrinking; retreat; contracted; on decline; declining; narrower; shrunken
        recovering; of lesser diameter|size|extent; better|improved|improving|increased aeration|expansion
        fuller breath|inspiration; has is? decreased|improved|diminished|lessened in? size|extent|volume?
        has is? shrunk|receded|regressed|reduced|retreated in? size|extent|volume?; having shrunk
        less prominent|pronounced|extensive|conspicuous|severe|marked|dense|seen|than
        slightly|mildly|markedly|moderately improved|smaller; slightly|mildly|markedly|moderately less|better
        decreased|smaller in size|extent|volume; in? partial regression
        partial|near|nearly complete|completely? resolution|clearing|clearance|resolved of?
        almost|incomplete complete|completely? resolution|clearing|clearance|resolved of?
        incompletely|partially complete|completely? resolution|clearing|clearance|resolved of?
        has? partially|nearly|almost|mostly|partly|incompletely|largely completely? resolved
        beginning|starting to resolve|clear; having regressed|receded|decreased|improved|diminished
        near complete? resolved; less than before|previously; partly resolved""",
        "less than before",
    ),
    _change(
        Change.INCREASED,
        "slightly|mildly|markedly|moderately? more prominent",
        "of a part: too much of it",
        said="prominent",
    ),
    *PREVIOUS,
    _change(
        Change.INCREASED,
        """worsening|progression|growth|deterioration|increase in|of size|extent?; progression; growth; deterioration
        increase in size|extent of""",
        "more than before, as a noun; of a part: more of it",
        said="grown",
        noun=True,
    ),
    _change(
        Change.DECREASED,
        """decrease|improvement|reduction|regression|shrinkage in|of size|extent?; decrease; improvement; regression
        decrease|reduction in size|extent of; shrinkage""",
        "less than before, as a noun",
        noun=True,
    ),
    _change(Change.DECREASED, "decreased; diminished; reduced", "of a lung volume: too little of it", said="low"),
    *(
        Word(Kind.CHANGE, f"{how} {words}", f"of a part: {why}", degree=degree, change=change, said=said)
        for how, degree in (
            ("slightly|mildly", Severity.MILD),
            ("moderately", Severity.MODERATE),
            ("markedly|severely", Severity.SEVERE),
        )
        for words, change, said, why in (
            ("increased|increase", Change.INCREASED, "increased", "too much of it"),
            ("decreased|diminished|reduced", Change.DECREASED, "low", "too little of it"),
        )
    ),
    Word(Kind.UNIT, "cm", "ten millimetres", number=10),
    Word(Kind.UNIT, "mm", "one millimetre", number=1),
)

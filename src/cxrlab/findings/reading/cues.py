"""Words that deny, hedge, explain, put aside or end a statement, with the direction in which they reach."""

from __future__ import annotations

from cxrlab.findings.reading.rows import Cue, Kind

OPERATION = Cue(
    Kind.ASIDE,
    "status post; s / p; sp; post",
    "a disease after it is history, an operation after it is a finding",
)
HISTORY = Cue(
    Kind.ASIDE,
    "history|hx of?; h / o; family|known history of; risk of|for; treated for; treatment for|of; year old; yo; y / o",
    "what the patient has or had; a device of the past need not be there",
)
CONDITION = Cue(
    Kind.ASIDE, "if; if|whether there is; if seen", 'a condition asserts nothing; at the end ("if any") it hedges'
)
COMPARISON = Cue(
    Kind.FILLER,
    "compared|comparing|comparison with|to|from; comparison; comparison is made to|with?; as compared to|with",
    "names the earlier film; what follows is said of this one",
)
HARMLESS = Cue(
    Kind.FILLER,
    """nipple|breast|thymic|thymus|bowel|psoas|muscle|cutaneous|summation shadow; skin fold; artifact
    summation artifact?
    overlapping|superimposed structure|shadow|vessel; vessel on end; end on vessel; costochondral calcification|junction
    calcified costal cartilage; costal cartilage calcification; motion|external|overlying artifact""",
    "nothing of the patient's, or nothing that matters",
)
ASPECT = Cue(
    Kind.FILLER,
    "etiology|cause|nature|age|acuity|chronicity|significance|origin|source of",
    'doubt about it is no doubt about the thing: "the cause of the opacity is unclear"',
)
PERHAPS = Cue(
    Kind.HEDGE,
    "possibly; probably; perhaps; presumably; questionably; conceivably",
    'makes what follows possible; as an adverb after a comma it explains ("effusion, possibly blood")',
)
DIFFERENTIAL = Cue(
    Kind.HEDGE,
    """differential diagnosis? is; differential diagnosis? includes|include|including|consideration|would? include?
    differential""",
    "makes what follows possible, and explains what was said before",
)
ROWS = (
    PERHAPS,
    DIFFERENTIAL,
    OPERATION,
    HISTORY,
    CONDITION,
    COMPARISON,
    HARMLESS,
    ASPECT,
    Cue(
        Kind.NEGATION,
        """no; without; not; non; neither; nor; never; none; lacks; lacking; absent; w / o; wo; nowhere
        no|without a? radiographic|imaging|plain|typical|secondary|new? film? evidence of|for|to?
        no|without a? radiographic|imaging|plain|typical|secondary|new? film? finding|suggestion of|for|to
        no|without gross|large? evidence of|for|to?; no|without gross|large? finding of|for|to; not a? single
        negative for; free of|from; clear of; devoid of; absence|lack|exclusion of; fails|failed to shows
        nothing to suggest|represents; nothing represents|suggests|shows
        no|without evidence|finding to suggest|represents; no|without new? focus of; rather than; instead of
        as opposed to
        in absence of; no evidence|finding suggestive|suspicious|concerning of|for; there is no|not; rules out
        no|without suspicious|abnormal; is not; has not; does|do|did not; no longer evidence of|for
        not has; carries no|neither; holds no|neither; hold no|neither; not any; is neither; are without
        can not; ruling out; no|without indication|hint|proof of|for|that?; negative acute
        there is no indication|hint|proof of|for|that?""",
        "denies what follows, through a list, until something is asserted again",
    ),
    Cue(
        Kind.DENIED,
        """is? not seen; has not been? seen; cannot|not be|is seen; is absent|excluded|negative|lacking|missing
        is? ruled out; may|can is ruled out; may|can is excluded; has been? excluded; has been? ruled out
        is? not in evidence; is none; is not suspected|suggested|represents; is unseen; not to is seen
        can not is seen; excluded; is not there; out of question; is not definitely seen
        not suspected|suggested; never seen""",
        "denies what stands before, through a list",
    ),
    Cue(
        Kind.UNLIKELY,
        """is? very|highly|much|felt|thought|considered? unlikely|improbable|doubtful; is? not likely|favored
        is less likely|favored; is felt|thought|considered to is? unlikely|improbable
        is felt|thought|considered|believed to? is? less likely|probable|favored""",
        "leans towards no",
    ),
    Cue(
        Kind.HEDGE,
        """possible; probable; presumed; suspected; suspect
        questionable; question; equivocal; query; conceivable; potential
        potentially; maybe; uncertain; may there is; there may is; it? is? unclear|uncertain whether|if
        it? is? unclear|uncertain whether|if there is
        question|possibility|suggestion|likelihood of|for; suspicion of; cannot rule out; can not exclude
        can not rule out; cannot completely|entirely|definitively|totally|reliably|fully? exclude
        not exclude; does|do not completely|entirely|definitively|fully? exclude; unable to rule out
        difficult|hard|impossible|unable to completely|entirely|fully? exclude; not excluding
        without excluding; cannot discount; raises|raise|raising question|possibility of?
        raises suspicion|concern of|for; this? raises question of
        consideration would? includes|include; consideration for|of
        there is possible|probable; considered; ambiguous; uncertainty|ambiguity regarding|concerning|over|in|of|for?
        uncertainty|ambiguity as|with to|regards|regard|respect to?""",
        "makes what follows possible",
    ),
    Cue(
        Kind.HEDGE_EITHER,
        """may; likely; may well? is; may possibly|well|likely|also? represents|relate
        most|very|more|highly|less likely; can represents; is most|more|very? likely
        most|more|very? likely represents; most|more|very? likely related|due|secondary to
        likely to is|represents; may is attributable|attributed to; may is represents
        is? favored to? represents|is?; favors; favor; is? thought|felt|believed to is|represents
        can is seen with|in; may is seen in|with; probably|possibly represents; is suggested
        would represents; is likely due|related|secondary to; presumably represents; likely represents
        may is likely?; is? suspected|questioned|considered to is|represents""",
        "makes what follows possible, or what stands before where nothing follows",
    ),
    Cue(
        Kind.HEDGED,
        """cannot is completely|entirely|definitively|totally|reliably|fully|completely|absolutely? excluded
        cannot is completely|entirely|definitively|totally|reliably|fully|completely|absolutely? discounted
        cannot is ruled out; can not is ruled out; may not is excluded
        can not is completely|entirely|definitively|fully? excluded
        is? not completely|entirely|definitively|fully|totally? excluded; is? not ruled out
        is difficult|hard to completely? exclude
        is possible|suspected|probable|questioned|questionable|conceivable|equivocal|considered|thinkable
        may is seen; may still? persists|remain; is a possibility|consideration|concern; remains possible
        should is considered|suspected; cannot completely|entirely is excluded; is not out of question
        in differential; is in question; is thought possible|likely; cannot with certainty is excluded
        is difficult to exclude completely|entirely; must is considered; would has to is considered
        comes into question; is|remains uncertain|unclear|ambiguous|inconclusive
        should|must is excluded; should|must is ruled out; needs|has to is excluded; needs|has to is ruled out""",
        "makes what stands before possible",
    ),
    Cue(
        Kind.HEDGE_LINK,
        """suggests|suggest|suggesting|suggestive of|for?
        suspicious|concerning|worrisome|indicative|worrying for|of; may suggest
        to suggest|represents|indicate|raise; possibly|probably|presumably due|related|secondary to
        raising concern|suspicion of|for; may is due|related|secondary to
        appearance|finding|change|pattern suggests|suggest; concern for; would suggest; raise concern for
        suspicion for""",
        "explains by a possibility; under a denial it is denied with the rest",
    ),
    Cue(
        Kind.LINK,
        """most|best? consistent|compatible with; consistent|compatible with patient? known? history|hx of; c / w
        in? keeping|line|accordance with; represents; due|secondary|related|attributable to
        characteristic|typical|diagnostic of|for; result|sequela of; caused by; as result of; owing to
        because of""",
        "explains, and is sure",
    ),
    Cue(
        Kind.RESOLUTION,
        """complete|full|total? resolution|disappearance|clearance|clearing of?; healing of
        complete|full|total regression of?; removal|extraction|explantation|withdrawal of; removal
        no longer; no longer in place; there is no longer; removed; bony? union of""",
        "what follows has gone",
    ),
    Cue(
        Kind.RESOLVED,
        """has completely|fully|totally|entirely|since|subsequently|apparently? is? resolved|removed
        has completely|fully|totally|entirely|since|subsequently|apparently? is? extracted
        has completely|fully|totally|entirely|since|subsequently|apparently? is? explanted|withdrawn
        has since? is? discontinued|evacuated; is? completely|fully|totally|entirely|subsequently? resolved
        is? no longer is? seen|there; can|may|cannot no? longer is seen; is removed|withdrawn|explanted
        no more seen; is? not seen anymore; has is taken out|away
        shows complete|full resolution|regression|clearance|clearing
        has completely|fully|totally regressed|healed; is taken out; has regressed completely; no longer is
        has healed|united|knitted; is united; was taken out; has gone""",
        "what stands before has gone",
    ),
    Cue(
        Kind.ASIDE,
        """clinical concern|suspicion of|for; assess for|of?; assessment of|for; assessment; eval for|of?
        check|screen|screening for; to assess|exclude|confirm|document|ensure|establish|determine for?; rule out
        to rule out; r / o; exclude; for assessment|exclusion of?
        limits|limit|limiting|limited full|optimal|adequate|fine? assessment|sensitivity of|for
        precludes|preclude|hinders|hinder|impairs full|optimal? assessment|detection of|for
        hampers|compromises|restricts|limits|limit full|optimal? assessment|detection of|for
        limits|limit|limiting|limited|precludes|impairs film|sensitivity|detail|view of|for?
        limited assessment of|for?
        difficult|hard|impossible|unable to fully|accurately? assess|see|interpret|determine for|whether?
        cannot fully? assess for?; cannot is assess for; not is assess for; cannot comment on; recommend
        recommended; recommends; advise; advised; suggest ct|followup|follow|clinical|correlation|repeat
        follow up; followup; correlate; correlation
        consider ct|followup|follow|clinical|correlation|repeat|chest; indication
        to confirm|document resolution|clearing|clearance|stability of?; ct; mri; ultrasound; sensitivity for
        making it difficult|impossible to fully? assess|see|exclude|determine for?; not sensitive for
        may obscure|mask|hide; obscures; obscure; masking; masks; clinical diagnosis of; on which; in which
        reason for film; clinically; old man|woman|male|female; patient is? known to|for|with has?
        presents|presenting with; complains of; questioned by; ordered for; rule out for
        should|must|could|can is withdrawn|removed|retracted|advanced|repositioned|pulled|adjusted|replaced
        needs to is withdrawn|removed|retracted|advanced|repositioned|pulled|adjusted|replaced
        retraction|advancement|repositioning""",
        "what follows is history, a reason, advice or a limit, not a finding",
    ),
    Cue(
        Kind.UNSEEN,
        """is? not|poorly|incompletely|suboptimally|inadequately well|clearly|fully seen
        is? not|poorly|incompletely|suboptimally|inadequately adequately|optimally|completely|entirely seen
        is? not well|clearly|fully|adequately seen|assess|defined|delineated
        is? not optimally|completely|entirely|reliably|confidently seen|assess|defined|delineated
        is? not well|clearly|fully|adequately|completely|entirely imaged|included
        is? poorly|incompletely|suboptimally seen|assess
        is? poorly|incompletely|suboptimally|inadequately defined|imaged|included
        cannot is well|fully|reliably|clearly? assess
        cannot|not is adequately|accurately|reliably? assess|determined
        can not is well|fully|reliably? assess|determined; is? not assess|included|imaged
        is difficult|impossible|hard to fully|accurately? assess|see|determine; is? excluded from film
        is? excluded from seen|field; is? not as|so well|clearly seen
        is limited|obscured|nondiagnostic|silhouetted; is? partially obscured|excluded|collimated
        cannot is seen well|clearly; not assessable|evaluable; cannot is confidently seen; obscured
        would? is difficult|impossible|hard to detect|see; poorly seen|assess|defined""",
        "what stands before cannot be judged",
    ),
    Cue(
        Kind.FILLER,
        """air fluid level; previously? resolved process|disease|infection
        more chronic|diffuse|diffusely|generalized; more so at|in|on|within
        a smaller|larger|bigger|lesser; less distinct; less xxxx
        corticated density; sequela of prior? infection
        likely acute|subacute|chronic|old|remote|benign|artifactual|congenital
        thoracic|chest|abdominal|joint|oral cavity; bochdalek|morgagni|ventral|umbilical hernia; not without
        is not without; no doubt; there is no doubt|question; no more than; without doubt; no question; not only
        does|do not fit into|in|with?; better|best seen|appreciated; at least; no prior; notable for; in place
        renal|respiratory|kidney|hepatic|liver failure; normal|usual|ordinary|physiologic|expected air
        previously|formerly|initially large|small|moderate|severe|mild; without contrast; no comparison
        no prior film; no comparison available|film; no available comparison; not applicable; no complaint
        uncertain acuity|age|etiology|significance|chronicity; with no comparison available
        retrosternal clear? space|airspace; clear space; chest pain; heart rate; bone scan
        usual air below diaphragm; cavity empty|clear|free; normal bowel air; than previously|before|prior
        still inside; as is usual|expected|normal; , as expected; combination of both|these; both of these|which|them
        , or both; accentuates; accentuate; accentuating; exaggerates
        exaggerate; exaggerating; magnifies
        post obstructive|traumatic|infectious|inflammatory|primary|contrast|procedure
        post procedural|pneumonic|biopsy|thoracentesis
        in|for immediate|early? postoperative|postsurgical setting|period|patient|state""",
        "words that look like a cue or a finding and are none",
    ),
)

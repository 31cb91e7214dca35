"""Lexicon B, how words join into sentences: degrees, places, frames, changes and denials."""

from __future__ import annotations

from cxrlab.core.vocabulary import Change
from cxrlab.findings.lexicon import lines, pairs, table

SCALES = {
    "size": table("""
        mild:
            minor
            limited
        moderate:
            medium-sized
            middle-sized
        severe:
            massive
            substantial
    """),
    "width": table("""
        mild:
            thin
            narrow
        moderate:
            intermediate
            mid-width
        severe:
            wide
            very wide
    """),
    "degree": table("""
        mild:
            minor
            low-grade
        moderate:
            intermediate
            medium-grade
            mid-grade
        severe:
            pronounced
            high-grade
    """),
    "extent": table("""
        mild:
            minor
            limited
        moderate:
            intermediate
            medium-grade
        severe:
            pronounced
            gross
    """),
    "adverb": table("""
        mild:
            somewhat
            marginally
        moderate:
            appreciably
            noticeably
        severe:
            grossly
            considerably
    """),
}

ON_SIDE = pairs("""
    in the {side} pleural cavity = in both of the pleural cavities
    inside the {side} pleural cavity = inside both pleural cavities
    around the {side} lung = around both lungs
    inside the {side} hemithorax = inside both hemithoraces
    at the {side} side = at both sides
    along the {side} lung = along both lungs
""")

ZONES = {"upper zone": "upper", "mid zone": "middle", "lower zone": "lower"}
PLACES = pairs("""
    in the {zone} third of the {side} lung = in the {zone} third of both lungs
    inside the {side} {zone} field = inside both {zone} fields
    at the {side} {zone} lung field = at both {zone} lung fields
    at the level of the {side} {zone} field = at the level of both {zone} fields
    at the {zone} third of the {side} lung = at the {zone} third of both lungs
    towards the {side} {zone} field = towards both {zone} fields
""")
UNSIDED_PLACES = table("""
    base:
        with a basal emphasis
        chiefly basal in distribution
        favouring the bases
        of basal distribution
        towards the bases
        around the bases
    upper zone:
        with an upper zonal emphasis
        chiefly upper zonal in distribution
        favouring the upper zones
        of upper zonal distribution
        towards the upper zones
        around the upper zones
""")
RIBS = table("""
    rib 3:
        3rd
    rib 4:
        4th
    rib 5:
        5th
    rib 6:
        6th
    rib 7:
        7th
    rib 8:
        8th
    rib 9:
        9th
""")

FULL = lines("""
    one sees {np}
    the image demonstrates {np}
    this image reveals {np}
    {np} can be recognised
    {np} [has|have] been found
    {np} [comes|come] into view
    attention is drawn to {np}
""")
TERSE = lines("""
    {bare} on view
    {bare} evident
    {bare} demonstrated
    {bare} recognisable
    {bare} on this image
    image with {bare}
""")
HEDGED = lines("""
    {np} could be present
    {np} might be present
    perhaps {np}
    {np} [is|are] conceivable
    query {bare}
    equivocal {bare}
    this raises the question of {np}
""")
HEDGED_VERBS = pairs("""
    could be = could be
    might be = might be
    is perhaps = are perhaps
    is conceivably = are conceivably
    could conceivably be = could conceivably be
    might perhaps be = might perhaps be
""")

_FINDING = {
    Change.NEW: lines("""
        first visible on this examination
        having appeared after the earlier image
        a fresh development after the last examination
        of recent onset against the earlier image
        newly developed after the earlier examination
        arisen after the earlier image
    """),
    Change.INCREASED: lines("""
        having advanced after the earlier image
        having deteriorated since last time
        up from the earlier image
        more than previously
        on the increase since last time
        with progression against the earlier image
    """),
    Change.UNCHANGED: lines("""
        as before
        the same as last time
        no different from the earlier image
        constant against the earlier image
        as on the earlier examination
        static since last time
    """),
    Change.DECREASED: lines("""
        having receded after the earlier image
        less than previously
        down from the earlier image
        on the decline since last time
        with regression against the earlier image
        lessened since last time
    """),
}
_LESION = {
    **_FINDING,
    Change.INCREASED: lines("""
        having grown after the earlier image
        of greater diameter than previously
        wider than last time
        with growth against the earlier image
        expanded since last time
        bigger than before
    """),
    Change.DECREASED: lines("""
        having shrunk after the earlier image
        of lesser diameter than previously
        narrower than last time
        with shrinkage against the earlier image
        contracted since last time
        shrunken since the last examination
    """),
}
_DEVICE = {
    **_FINDING,
    Change.NEW: lines("""
        put in after the earlier image
        introduced since last time
        a fresh insertion after the last examination
        first visible on this examination
        fitted since last time
        sited after the earlier examination
    """),
    Change.UNCHANGED: lines("""
        lying as before
        sited as last time
        at the same site as on the earlier image
        not moved since last time
        held at its earlier site
        as on the earlier examination
    """),
}
# Of a lack of air, "more" and "less" would mean their opposite to half of the readers.
_INFLATION = {
    **_FINDING,
    Change.INCREASED: lines("""
        having deteriorated since last time
        having worsened after the earlier image
        with poorer aeration than last time
        with a weaker breath than previously
        worse against the earlier image
        poorer against the earlier examination
    """),
    Change.DECREASED: lines("""
        having improved after the earlier image
        with better aeration than last time
        with a fuller breath than previously
        better against the earlier image
        with recovery against the earlier examination
        recovering since last time
    """),
}
CHANGES = {"finding": _FINDING, "lesion": _LESION, "device": _DEVICE, "bone": _FINDING, "inflation": _INFLATION}
LEADS = {
    Change.NEW: lines("""
        fresh
        newly arisen
    """),
    Change.INCREASED: lines("""
        progressive
        advancing
    """),
    Change.UNCHANGED: lines("""
        constant
        static
    """),
    Change.DECREASED: lines("""
        regressing
        receding
    """),
}
_RESOLVED = table("""
    finding:
        the earlier {bare} [has|have] disappeared
        the former {bare} [has|have] vanished
        complete regression of the earlier {bare}
        the formerly visible {bare} can no longer be found
        the {bare} of the last examination [has|have] disappeared
        disappearance of the former {bare}
    lesion:
        the earlier {bare} [has|have] disappeared
        the former {bare} [has|have] vanished
        complete regression of the earlier {bare}
        the formerly visible {bare} can no longer be found
        the {bare} of the last examination [has|have] disappeared
        disappearance of the former {bare}
    device:
        the former {bare} [has|have] been taken out
        the earlier {bare} [has|have] been withdrawn
        withdrawal of the earlier {bare}
        the formerly visible {bare} [has|have] been taken away
        the {bare} of the last examination [has|have] been taken out
        the former {bare} can no longer be found
    bone:
        the earlier {bare} [has|have] united
        the former {bare} [has|have] knitted together
        bony union of the earlier {bare}
        the formerly visible {bare} can no longer be found
        the {bare} of the last examination [has|have] united
        union of the former {bare}
""")

RESOLVED = {**_RESOLVED, "inflation": _RESOLVED["finding"]}

DENIALS = pairs("""
    {list} can be ruled out = and
    absence of {list} = and
    {list} [is|are] not demonstrated = and
    {bare} not found = and
    nothing indicates {list} = or
    without {list} = or
    neither {list} = nor
""")
IMPRESSION = table("""
    disease:
        presence of {np}
        {bare} as detailed
        picture of {np}
        demonstration of {np}
        {bare} to be emphasised
        {bare} demonstrated here
    incidental:
        {bare} as detailed
        {bare} as outlined
        {bare} demonstrated here
        side finding of {np}
        {bare} as a side finding
        {bare} for completeness
    device:
        {bare} as detailed
        {bare} as outlined
        {bare} as listed
        patient with {np}
        patient carrying {np}
        {bare} for completeness
""")
RIB_GROUPS = lines("""
    breaks of the {side} {ribs} ribs
    {side} {ribs} rib breaks
    broken {side} {ribs} ribs
""")
OPENERS = lines("""
    bedside exposure
    exposure taken in bed
    mobile exposure at the bedside
    bedside image in one projection
    bedside image
    image taken in bed
""")

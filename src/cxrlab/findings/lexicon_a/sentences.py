"""Lexicon A, how words join into sentences: degrees, places, frames, changes and denials."""

from __future__ import annotations

from cxrlab.core.vocabulary import Change
from cxrlab.findings.lexicon import lines, pairs, table

SCALES = {
    "size": table("""
        mild:
            small
            fairly small
        moderate:
            moderate-sized
            mid-sized
            medium
        severe:
            large
            very large
    """),
    "space": table("""
        mild:
            small
            fairly small
        moderate:
            moderate
            moderate-sized
            moderate-volume
        severe:
            large
            very large
    """),
    "amount": table("""
        mild:
            small
            fairly small
        moderate:
            moderate
            medium
        severe:
            large
            very large
    """),
    "degree": table("""
        mild:
            mild
            slight
        moderate:
            moderate
        severe:
            severe
            marked
    """),
    "extent": table("""
        mild:
            mild
            slight
        moderate:
            moderate
        severe:
            severe
            extensive
    """),
    "adverb": table("""
        mild:
            mildly
            slightly
        moderate:
            moderately
        severe:
            severely
            markedly
    """),
}

ON_SIDE = pairs("""
    on the {side} = on both sides
    on the {side} side = bilaterally
    in the {side} hemithorax = in both hemithoraces
    within the {side} hemithorax = within both hemithoraces
    in the {side} chest = in both sides of the chest
    on the {side} side of the chest = on both sides of the chest
""")

ZONES = {"upper zone": "upper", "mid zone": "mid", "lower zone": "lower"}
PLACES = pairs("""
    in the {side} {zone} zone = in both {zone} zones
    within the {side} {zone} zone = within both {zone} zones
    over the {side} {zone} zone = over both {zone} zones
    in the {side} {zone} lung zone = in both {zone} lung zones
    in the {zone} zone on the {side} = in the {zone} zones on both sides
    projected over the {side} {zone} zone = projected over both {zone} zones
""")
UNSIDED_PLACES = table("""
    base:
        at the bases
        at the lung bases
        in a basal distribution
        with basal predominance
        in the basal lungs
        predominantly at the bases
    upper zone:
        in the upper zones
        in the upper lung zones
        in an upper zone distribution
        with upper zone predominance
        throughout the upper zones
        predominantly in the upper zones
""")
RIBS = table("""
    rib 3:
        third
    rib 4:
        fourth
    rib 5:
        fifth
    rib 6:
        sixth
    rib 7:
        seventh
    rib 8:
        eighth
    rib 9:
        ninth
""")

FULL = lines("""
    there [is|are] {np}
    the radiograph shows {np}
    the film shows {np}
    {np} [is|are] seen
    {np} [is|are] present
    {np} [is|are] noted
    {np} [is|are] identified
""")
TERSE = lines("""
    {bare}
    {bare} noted
    {bare} seen
    {bare} present
    {bare} identified
    {bare} visualized
""")
HEDGED = lines("""
    there may be {np}
    possible {bare}
    {np} cannot be excluded
    {np} [is|are] possible
    there is suspicion of {np}
    suspected {bare}
    questionable {bare}
""")
HEDGED_VERBS = pairs("""
    may be = may be
    is possibly = are possibly
    is questionably = are questionably
    may well be = may well be
    is suspected to be = are suspected to be
    may possibly be = may possibly be
""")

_FINDING = {
    Change.NEW: lines("""
        new since the prior study
        new from the prior film
        new compared with the prior
        new in the interval
        newly seen since the prior film
        a new finding since the prior study
    """),
    Change.INCREASED: lines("""
        increased since the prior study
        increased from the prior film
        worse than on the prior study
        progressed in the interval
        worsened since the prior film
        greater than on the prior film
    """),
    Change.UNCHANGED: lines("""
        unchanged from the prior study
        unchanged since the prior film
        stable in the interval
        stable since the prior study
        without interval change
        similar to the prior film
    """),
    Change.DECREASED: lines("""
        decreased since the prior study
        decreased from the prior film
        improved in the interval
        improved since the prior study
        less than on the prior film
        better than on the prior study
    """),
}
_LESION = {
    **_FINDING,
    Change.INCREASED: lines("""
        larger than on the prior study
        increased in size since the prior film
        grown in the interval
        increased in size from the prior study
        bigger than on the prior film
        enlarged since the prior study
    """),
    Change.DECREASED: lines("""
        smaller than on the prior study
        decreased in size since the prior film
        reduced in size in the interval
        decreased in size from the prior study
        smaller since the prior film
        reduced in size since the prior study
    """),
}
_DEVICE = {
    **_FINDING,
    Change.NEW: lines("""
        newly placed since the prior study
        newly inserted in the interval
        placed since the prior film
        new since the prior study
        new compared with the prior film
        inserted since the prior study
    """),
    Change.UNCHANGED: lines("""
        unchanged in position
        in unchanged position
        unchanged from the prior study
        stable in position
        in stable position since the prior film
        in the same position as on the prior study
    """),
}
# Of a lack of air, "more" and "less" would mean their opposite to half of the readers.
_INFLATION = {
    **_FINDING,
    Change.INCREASED: lines("""
        worse than on the prior study
        worsened since the prior film
        with poorer aeration than on the prior study
        with worse inflation than on the prior film
        worse in the interval
        with interval worsening
    """),
    Change.DECREASED: lines("""
        improved since the prior study
        improved in the interval
        better than on the prior film
        with better aeration than on the prior study
        with improved inflation since the prior film
        with interval improvement
    """),
}
CHANGES = {"finding": _FINDING, "lesion": _LESION, "device": _DEVICE, "bone": _FINDING, "inflation": _INFLATION}
LEADS = {
    Change.NEW: lines("""
        new
        newly seen
    """),
    Change.INCREASED: lines("""
        increased
        worsening
    """),
    Change.UNCHANGED: lines("""
        unchanged
        stable
    """),
    Change.DECREASED: lines("""
        decreased
        improving
    """),
}
_RESOLVED = table("""
    finding:
        the previously seen {bare} [has|have] resolved
        the prior {bare} [has|have] resolved
        previously noted {bare} [has|have] cleared
        interval resolution of the {bare}
        {bare} on the prior study [has|have] resolved
        the {bare} seen on the prior film [has|have] cleared
    lesion:
        the previously seen {bare} [has|have] resolved
        the prior {bare} [has|have] resolved
        previously noted {bare} [is|are] no longer seen
        interval resolution of the {bare}
        the {bare} on the prior study [has|have] resolved
        the {bare} seen on the prior film [is|are] gone
    device:
        the {bare} [has|have] been removed
        the previously seen {bare} [has|have] been removed
        interval removal of the {bare}
        the prior {bare} [is|are] no longer in place
        the {bare} seen on the prior film [has|have] been removed
        removal of the {bare} since the prior study
    bone:
        the previously seen {bare} [has|have] healed
        the prior {bare} [has|have] healed
        interval healing of the {bare}
        the {bare} on the prior study [has|have] healed
        previously noted {bare} [is|are] no longer seen
        the {bare} seen on the prior film [has|have] healed
""")

RESOLVED = {**_RESOLVED, "inflation": _RESOLVED["finding"]}

DENIALS = pairs("""
    no {list} = or
    there [is|are] no {list} = or
    no evidence of {list} = or
    there is no evidence of {list} = or
    no {list} [is|are] seen = or
    no {list} identified = or
    negative for {list} = or
""")
IMPRESSION = table("""
    disease:
        {bare}
        {np}
        findings of {np}
        {bare} as described
        {bare} as above
        study positive for {np}
    incidental:
        {bare}
        {np}
        {bare} as described
        {bare} as above
        note of {np}
        {bare} incidentally noted
    device:
        {bare}
        {np}
        {bare} as described
        {bare} as above
        {bare} noted
        {np} as described
""")
RIB_GROUPS = lines("""
    fractures of the {side} {ribs} ribs
    {side} {ribs} rib fractures
    fractures through the {side} {ribs} ribs
""")
OPENERS = lines("""
    portable film
    portable AP film
    single portable view
    portable radiograph
    one portable AP view
    portable view of the chest
""")

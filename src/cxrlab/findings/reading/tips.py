"""Where devices end."""

from __future__ import annotations

from cxrlab.core.vocabulary import Side
from cxrlab.findings.reading.rows import Kind, Word


def _tip(tip: str, phrases: str, reason: str, side: Side | None = None) -> Word:
    return Word(Kind.TIP, phrases, reason, tip=tip, side=side)


ROWS = (
    Word(
        Kind.END,
        """tip; distal; proximal; terminates; terminating; terminate; terminus; ends; ending; end; reaches
        reaching; courses; coursing; extends; extending; directed; positioned; location
        distal end|tip|aspect|portion|third; side port|hole; comes to rest|lie""",
        "speaks of the end of a device",
    ),
    Word(
        Kind.ABOVE,
        """above|from|proximal|superior|cephalad|over|cranial to? carina
        above|from|proximal|over to? tracheal bifurcation|carina; above level of carina
        above|over bifurcation; above|from level of tracheal bifurcation; to carina; cranial to bifurcation""",
        "height above the carina",
    ),
    _tip(
        "superior vena cava",
        """svc; superior vena cava; superior caval vein; vena cava superior; upper caval vein
        mid|lower|upper|distal|proximal|low|high|middle svc
        mid|lower|upper|distal|proximal|low|high|middle superior vena cava; mid to lower|distal svc
        mid to lower|distal superior vena cava""",
        "the vein above the heart",
    ),
    _tip(
        "cavoatrial junction",
        """cavoatrial|atriocaval junction; cavo|atrio atrial|caval junction; svc ra|atrial junction
        svc right atrial junction; superior cavoatrial junction; svc and|/ ra|right atrial? junction
        superior vena cava and|/? right atrial|atrium junction
        junction of svc|caval and|with right? atrium|vein; junction of superior vena cava and|with right? atrium
        caval atrial junction; lower svc|cavoatrial and|or|to|/ cavoatrial? junction; svc cavoatrial junction
        junction of svc and right atrium; junction of vena? cava and|with right? atrium
        junction of upper caval vein and|with right? atrium; mouth of right atrium
        where vena? cava and atrium meet""",
        "where vein and heart meet",
    ),
    _tip(
        "right atrium",
        "right atrium|atrial; upper|high|low|lower|mid|proximal|deep right atrium; ra",
        "inside the heart",
    ),
    _tip(
        "brachiocephalic vein",
        "brachiocephalic|innominate vein|trunk?; left|right brachiocephalic|innominate vein?",
        "before the great vein",
    ),
    _tip(
        "right main bronchus",
        """right main|mainstem|primary stem? bronchus; right mainstem; right bronchus; right main? stem
        right stem bronchus""",
        "too deep",
        Side.RIGHT,
    ),
    _tip(
        "high",
        """thoracic inlet; above|level of? thoracic inlet; above|level of? clavicle
        above|level of? clavicular head; too high; high in trachea; high position; upper trachea
        cervical trachea; high up; level of collarbone; too far out|proximal|shallow; too proximal|shallow
        tip is? high; ends|terminates|terminating|sits|lies high; high at; high riding""",
        "not deep enough",
    ),
    _tip(
        "stomach",
        """stomach; gastric; tip is|seen|lies|projects|projecting|projected|terminates? well? below left? diaphragm
        proximal|distal|mid stomach; gastric body|fundus|antrum|lumen|bubble; body|fundus|antrum of stomach
        left upper quadrant; expected? location of stomach; under|below diaphragm in|inside stomach""",
        "where it should be",
    ),
    _tip(
        "distal esophagus",
        """esophagus; distal|lower|terminal|mid|thoracic|proximal|upper esophagus
        gastroesophageal|ge|esophagogastric junction; gej; lower end of esophagus""",
        "not far enough",
    ),
    _tip(
        "beyond film",
        """below|beyond|off|outside field|edge|margin|film|border|bottom|frame
        past field|edge|margin|border|bottom|frame
        below|beyond|off|past inferior|lower|bottom margin|edge|border
        below|beyond|off|past inferior|lower|bottom? margin|edge|border|aspect|end of film|seen|field
        off|outside inferior|bottom|lower? film; out of seen|field|frame|film; outside field of seen
        beyond field of seen; below diaphragm; off seen; beyond seen; not included on|in|within film|seen|field
        subdiaphragmatic; off screen; leaves film|field|frame; leaving film|field|frame; below lower end of film
        below film; past lower? border of film
        tip? is|lies|projects|terminates? below left? diaphragm and off|out|beyond of? film|field|seen""",
        "the end is not on the film",
    ),
    _tip(
        "main pulmonary artery",
        """in|within|into|overlying|at|reaching main|proximal? pulmonary artery|trunk|outflow
        pulmonary outflow tract; right ventricular outflow tract?; main pulmonary arterial trunk""",
        "in the artery of the lung",
    ),
    _tip(
        "right pulmonary artery",
        "right interlobar|main|lower|descending? pulmonary artery",
        "in its right branch",
        Side.RIGHT,
    ),
    _tip(
        "left pulmonary artery",
        "left main|lower|interlobar|descending? pulmonary artery",
        "in its left branch",
        Side.LEFT,
    ),
    _tip(
        "descending aorta",
        "in|within|at|over|overlying proximal|upper|mid? descending thoracic? aorta",
        "below the arch",
    ),
    _tip(
        "aortic arch",
        """below|above|at|from top|apex of aortic knob|arch; below|from|above aortic knob|arch
        level of aortic arch|knob""",
        "at the arch",
    ),
    _tip(
        "right atrium and right ventricle",
        """right atrium|atrial and right? ventricle|ventricular; ra and rv; right atrial and ventricular
        right atrium and ventricle; right atrium|atrial and right ventricular apex
        right atrium and apex of right ventricle; right heart chamber
        right atrial appendage and right ventricle|ventricular apex?; both right heart chamber""",
        "one lead each",
    ),
    _tip(
        "right ventricle",
        "right ventricle|ventricular; right ventricular apex; apex of right ventricle; rv; rv apex",
        "one lead",
    ),
)

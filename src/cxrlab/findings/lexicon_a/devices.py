"""Lexicon A, devices and where they end."""

from __future__ import annotations

from cxrlab.findings.lexicon import lines, phrases, table

DEVICES = phrases("""
endotracheal tube (none)
  - endotracheal tube
  ~ endotracheal tube
  ~ ET tube
  an endotracheal tube {tip}
  an ET tube {tip}
  an endotracheal airway tube {tip}
  = an endotracheal tube {is} in place {tip}
  = the tip of the endotracheal tube {is} {at}
  = the endotracheal tube ends {at}

enteric tube (none)
  - enteric tube
  - nasogastric tube
  ~ enteric tube
  ~ nasogastric tube
  an enteric tube {tip}
  a nasogastric tube {tip}
  an NG tube {tip}
  = an enteric tube {is} in place {tip}
  = the tip of the enteric tube {is} {at}
  = the nasogastric tube ends {at}

central venous catheter (none)
  - central venous catheter
  - central line
  ~ {side} central venous catheter
  ~ {side} central line
  a {side} central venous catheter {tip}
  a {side} central line {tip}
  a {side}-sided central venous catheter {tip}
  a {side} central venous line {tip}
  = the tip of the {side} central venous catheter {is} {at}
  = the {side} central line ends {at}

chest tube (none)
  - chest tube
  - thoracostomy tube
  ~ {side} chest tube
  ~ {side} thoracostomy tube
  a {side} chest tube {tip}
  a {side}-sided chest tube {tip}
  a {side} thoracostomy tube {tip}
  a chest tube on the {side} {tip}
  = the tip of the {side} chest tube {is} {at}
  = the {side} thoracostomy tube ends {at}

pacemaker (none)
  - pacemaker
  - cardiac pacemaker
  ~ {side} pacemaker
  ~ {side} chest wall pacemaker
  a {side} pacemaker with {at}
  a {side} chest wall pacemaker with {at}
  a {side}-sided pacemaker with {at}
  a {side} pectoral pacemaker with {at}
  a cardiac pacemaker on the {side} with {at}
  = a {side} pacemaker {is} in place with {at}

sternal wires (none)
  - + sternal wires
  - + sternotomy wires
  ~+ sternal wires
  ~+ sternotomy wires
  + sternal wires
  + median sternotomy wires
  + midline sternal wires
  + intact sternotomy wires
  = sternal wires {are} in place
  = median sternotomy wires {are} in place
""")

TIPS = {
    "endotracheal tube": table("""
        above carina:
            {height} above the carina
            about {height} above the carina
        right main bronchus:
            in the right main bronchus
            in the right mainstem bronchus
        high:
            high at {height} above the carina
            in a high position {height} above the carina
    """),
    "enteric tube": table("""
        stomach:
            in the stomach
            below the diaphragm in the stomach
        distal esophagus:
            in the distal esophagus
            in the distal esophagus above the diaphragm
        beyond film:
            beyond the lower edge of the film
            below the lower edge of the film
    """),
    "central venous catheter": table("""
        superior vena cava:
            in the superior vena cava
            in the SVC
        cavoatrial junction:
            at the cavoatrial junction
            near the cavoatrial junction
        right atrium:
            in the right atrium
            within the right atrium
        brachiocephalic vein:
            in the brachiocephalic vein
            within the brachiocephalic vein
    """),
    "chest tube": table("""
        apex:
            at the apex
            near the apex
        base:
            at the base
            near the base
    """),
    "pacemaker": table("""
        right ventricle:
            a single lead in the right ventricle
            one lead in the right ventricle
        right atrium and right ventricle:
            leads in the right atrium and right ventricle
            two leads in the right atrium and right ventricle
    """),
}

TIP_FRAMES = lines("""
    with its tip {at}
    with the tip {at}
    with tip {at}
    whose tip is {at}
    ending {at}
    that ends {at}
""")

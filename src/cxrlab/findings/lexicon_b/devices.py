"""Lexicon B, devices and where they end."""

from __future__ import annotations

from cxrlab.findings.lexicon import lines, phrases, table

DEVICES = phrases("""
endotracheal tube (none)
  - a tracheal tube
  ~ tracheal tube
  ~ breathing tube
  a tracheal tube {tip}
  a breathing tube {tip}
  an intubation tube {tip}
  an artificial airway {tip}
  = the breathing tube terminates {at}
  = the tracheal tube can be followed to its end {at}

enteric tube (none)
  - a gastric tube
  - a feeding tube
  ~ gastric tube
  ~ feeding tube
  a gastric tube {tip}
  a feeding tube {tip}
  a stomach tube {tip}
  an oesophagogastric tube {tip}
  = the gastric tube terminates {at}
  = the feeding tube can be followed to its end {at}

central venous catheter (none)
  - a central access
  - a central vein catheter
  ~ {side} CVC
  ~ {side} central access
  a {side} CVC {tip}
  a {side} central access {tip}
  a central vein catheter from the {side} {tip}
  a {side}-sided CVC {tip}
  = the {side} CVC terminates {at}
  = the {side} central access can be followed to its end {at}

chest tube (none)
  - a pleural drain
  - a thoracic drain
  ~ {side} pleural drain
  ~ {side} thoracic drain
  a {side} pleural drain {tip}
  a {side} thoracic drain {tip}
  a {side} intercostal drain {tip}
  a drain in the {side} pleural cavity {tip}
  = the {side} pleural drain terminates {at}
  = the {side} thoracic drain can be followed to its end {at}

pacemaker (none)
  - a pacing device
  - a pacing system
  ~ {side} pacing device
  ~ {side} pacing system
  a {side} pacing device with {at}
  a {side} pacing system with {at}
  a {side} implanted pacing unit with {at}
  a pacing box on the {side} with {at}
  a {side} pulse generator with {at}
  = a pacing device has been implanted on the {side} with {at}

sternal wires (none)
  - + sternal cerclages
  - + wire sutures of the sternum
  ~+ sternal cerclages
  ~+ wire sutures of the sternum
  + sternal cerclages
  + wire sutures of the sternum
  + metal sutures along the sternum
  + wire loops around the sternum
  + closure wires of an earlier sternotomy
  = the sternum has been closed with wires
""")

TIPS = {
    "endotracheal tube": table("""
        above carina:
            {height} over the carina
            {height} proximal to the tracheal bifurcation
        right main bronchus:
            inside the right stem bronchus
            down the right stem bronchus
        high:
            too far out at {height} over the carina
            too high at {height} over the carina
    """),
    "enteric tube": table("""
        stomach:
            inside the stomach
            under the diaphragm inside the stomach
        distal esophagus:
            in the lower oesophagus
            inside the terminal oesophagus
        beyond film:
            outside the image below
            past the bottom of the image
    """),
    "central venous catheter": table("""
        superior vena cava:
            inside the upper caval vein
            inside the SVC
        cavoatrial junction:
            where cava and atrium meet
            at the junction of cava and atrium
        right atrium:
            inside the right atrium
            down in the right atrium
        brachiocephalic vein:
            inside the innominate vein
            still inside the innominate vein
    """),
    "chest tube": table("""
        apex:
            up at the lung apex
            towards the lung apex
        base:
            down at the lung base
            towards the lung base
    """),
    "pacemaker": table("""
        right ventricle:
            a lone electrode inside the right ventricle
            one electrode reaching the right ventricle
        right atrium and right ventricle:
            electrodes inside the right atrium and ventricle
            a pair of electrodes reaching the right atrium and ventricle
    """),
}

TIP_FRAMES = lines("""
    terminating {at}
    which terminates {at}
    with its end {at}
    with the distal end {at}
    with a distal end {at}
    whose distal end lies {at}
""")

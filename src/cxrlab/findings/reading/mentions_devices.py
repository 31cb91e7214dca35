"""Words that name a device."""

from __future__ import annotations

from cxrlab.findings.reading.rows import Mention

_SINGLE = (
    Mention(
        ("endotracheal tube",),
        """endotracheal|et|intubation|ventilation|breathing|tracheal tube; ett; endotracheal; tube in trachea
        intubated; tracheal intubation tube?; endotracheal intubation; intubation; artificial airway
        endotracheal airway tube?; ventilator tube; orotracheal tube""",
        "the tube through the mouth into the trachea",
    ),
    Mention(("endotracheal tube",), "extubation; extubated", "taken out", gone=True),
    Mention(
        ("tracheostomy tube",),
        """tracheostomy; tracheostomy|tracheotomy|trach tube|cannula|device; tracheal cannula
        tracheostomy in place; tracheotomy""",
        "the tube through the neck",
    ),
    Mention(
        ("enteric tube",),
        """enteric|nasogastric|orogastric|ng|og|feeding tube
        gastric|nasoenteric|esophagogastric|dobhoff|dobbhoff|nasoduodenal tube
        nasojejunal|nj|oroenteric|stomach tube
        esophageal|dht|gastrointestinal|nasoenteric|orogastrointestinal tube; ngt; ogt; dobhoff; dobbhoff
        dht; enteric|dobhoff|dobbhoff|nasogastric|orogastric feeding tube|catheter; salem sump; sump tube
        naso|oro gastric|enteric tube; weighted feeding tube; ng; feeding|enteric catheter; tube to stomach
        gastric sonde""",
        "a tube to the stomach",
    ),
    Mention(
        ("central venous catheter",),
        """central line|catheter|access; central venous line|catheter|access|sheath|cannula; picc
        picc line|catheter; cvc; cvl
        internal? jugular|ij|subclavian|femoral|brachial vein? line|catheter|sheath|access
        internal? jugular|ij|subclavian|femoral|brachial vein? cvc|cvl|cannula|picc|introducer
        internal? jugular|ij|subclavian|femoral vein? central venous? line|catheter|access; hickman; broviac
        permcath; vascath
        internal? jugular|ij|subclavian vein? dialysis|hemodialysis lumen? line|catheter|sheath
        internal? jugular|ij|subclavian vein? tunneled|triple|introducer lumen? line|catheter|sheath
        internal? jugular|ij|subclavian approach central? venous? line|catheter
        venous|vascular|dialysis catheter
        hemodialysis|tunneled|hickman|broviac|cvp line|catheter|sheath|cannula
        neck|venous|dialysis|vascular|arm line|catheter|sheath|cannula
        tunneled dialysis|hemodialysis|central|venous catheter|line
        peripherally inserted central venous? catheter|line; large bore central|dialysis? venous? catheter|line
        ecmo cannula; quinton; permacath; triple lumen catheter?; trialysis catheter; central venous introducer
        central vein catheter|line; catheter|line in central vein; central venous access catheter|line|device
        cvp; long line; upper extremity picc line?
        internal? jugular|ij|subclavian vein central? venous? dialysis? catheter|line
        central venous dialysis catheter; umbilical venous? catheter|line; uvc; pic line|catheter; cordis
        cordis sheath|catheter; tpn|hyperalimentation line|catheter
        ij|jugular|subclavian with? tip|terminates|ends; vas cath|catheter; perm cath|catheter""",
        "a line that ends in a great vein",
    ),
    Mention(
        ("port",),
        """port; chest xxxx catheter|port; portacath; portacatheter; mediport; powerport; infusaport; chemoport
        port a? cath|catheter; reservoir catheter; port system
        chest|chemo|infusion|power infusion|access|wall? port catheter?
        implanted|venous|subcutaneous|central|access infusion|access|wall? port catheter?; medi|infuse port
        internal? jugular|ij|subclavian|chest|chemotherapy port catheter|a? cath?; central venous port
        subclavian|jugular|ij|chest|medi mediport|portacath|powerport; mediport|portacath|powerport catheter""",
        "a catheter with a chamber under the skin",
    ),
    Mention(
        ("swan-ganz catheter",),
        """swan; swan|swanz ganz catheter|line?; swan catheter; pulmonary artery|arterial catheter|line
        pa catheter|line; right heart catheter""",
        "the catheter through the heart into the pulmonary artery",
    ),
    Mention(
        ("intra-aortic balloon pump",),
        """iabp; intra aortic balloon pump|device|catheter?; intraaortic balloon pump|device|catheter?
        aortic? balloon pump""",
        "the balloon in the aorta",
    ),
    Mention(
        ("chest tube",),
        """chest|thoracostomy|pleural|intercostal drainage|pigtail? tube|drain
        thoracic|pleurx|mediastinal|pericardial drainage|pigtail? tube|drain; pigtail
        pleural|intercostal|thoracic|pleurx|pigtail drainage|pigtail? catheter; pleurx; thoracostomy
        pigtail drain; thoracic drain; drainage tube|catheter; chest wall? drain; tube thoracostomy
        drain|tube|catheter in pleural cavity|space""",
        "a drain of the pleural space",
    ),
    Mention(
        ("pacemaker",),
        """pacemaker; cardiac xxxx generator|device|lead; icd; aicd; pacer; defibrillator; ppm; pulse generator
        pacing generator|wire|lead|electrode|device|system|unit|box
        pacemaker|icd|aicd|pacer|defibrillator lead|wire|electrode|device|generator
        pacemaker|icd|aicd|pacer|defibrillator system|unit|pack|battery|box; pacing
        cardiac|biventricular pacemaker|pacer|defibrillator|icd|aicd|generator|lead|wire|device lead?
        pacemaker system; implantable|implanted cardioverter|cardiac? defibrillator|pacemaker
        dual|single|biventricular|triple chamber|lead pacemaker
        dual|single|biventricular|triple pacemaker|pacer|icd|aicd|defibrillator
        dual|single|triple chamber|lead icd|aicd|pacer
        dual|single|triple chamber|lead defibrillator|device|generator; cardioverter defibrillator
        transvenous pacer|pacing|lead wire?; cardiac conduction|rhythm|pacing|electronic device|lead|wire
        pacemaker defibrillator|generator and lead; pacemaker with lead; pacer defibrillator
        defibrillator pacemaker; implantable cardiac|cardioverter defibrillator; epicardial pacing? wire|lead
        cardiac implantable electronic? device; automatic implantable cardiac? defibrillator
        av sequential pacemaker|pacer; pacemaker|icd|aicd|pacer|defibrillator generator with lead
        dual|single|triple lead; ventricular|atrial lead
        dual|single chamber|lead cardiac? pacing device|generator?""",
        "a pacemaker or defibrillator, box or leads",
    ),
    Mention(
        ("sternal wires",),
        """sternal|sternotomy|cerclage wire|suture|hardware|closure|cerclage
        median sternotomy wire|suture|hardware|cerclage; sternotomy xxxx; closure wire
        closure wire of a? prior? median? sternotomy; median sternotomy xxxx; wire|sternal cerclage
        cerclage of sternum; sternal|sternotomy cerclage wire; median? sternotomy closure wire|device
        sternal closure device|wire; wire of|in sternum|sternotomy; midline sternal wire
        wire suture of|in sternum; sternal wire suture; sternal wire cerclage; cerclage wire of|in sternum""",
        "wires of an opened breastbone",
    ),
    Mention(
        ("surgical clips",),
        """clip; staple; surgical|vascular|cholecystectomy|mediastinal|axillary clip
        cabg|metallic|hilar|bypass|breast|hemostasis clip
        surgical|postsurgical|metallic staple|suture|anastomosis|marker
        surgical staple line|material|suture; suture material; suture line; chain suture; post surgical clip
        cabg|bypass graft? marker|clip; coronary artery? bypass clip|marker
        coronary artery? bypass graft clip|marker; clip from|of cabg; surgical clip material
        postsurgical|sternal clip""",
        "clips and staples",
    ),
    Mention(
        ("prosthetic valve",),
        """prosthetic|mechanical mitral|aortic|cardiac|heart|tricuspid? valve
        artificial|bioprosthetic|replacement mitral|aortic|cardiac|heart|tricuspid? valve; tavr; tavi
        valve|valvular replacement|prosthesis|ring
        aortic|mitral|cardiac|heart|tricuspid valve replacement|prosthesis|ring
        aortic|mitral|cardiac|heart valve repair|hardware; annuloplasty ring?; valve annuloplasty; mvr; avr
        valvuloplasty ring?; prosthetic aortic|mitral valve; aortic|mitral valvular prosthesis
        transcatheter aortic valve replacement?""",
        "a valve that was put in",
    ),
    Mention(
        ("spinal hardware",),
        """spinal|spine|fusion|cervical fusion|fixation|spinal? hardware
        posterior|harrington|lumbar|thoracic|vertebral fusion|fixation|spinal? hardware
        spinal|spine|cervical fusion|fixation? rod|screw|instrumentation|plate|device
        posterior|lumbar|thoracic|vertebral fusion|fixation? rod|screw|instrumentation|plate|device
        spinal|spine|posterior|lumbar|thoracic|cervical fusion|fixation|stabilization
        anterior cervical fusion|plate|discectomy; anterior cervical discectomy and fusion
        anterior cervical fusion hardware|plate|xxxx; acdf; pedicle screw; laminectomy
        cervical spine fusion hardware?; cervical fusion plate|xxxx|hardware; vertebral cement
        harrington rod; spinal rod; orthopedic spinal hardware; lower? cervical spine? plate
        spinal stimulator hardware""",
        "metal in the spine",
    ),
    Mention(
        ("monitoring leads",),
        """ekg|ecg|monitor|monitoring|telemetry|electrocardiogram lead|electrode|wire|line|device|equipment
        overlying lead|wire; cardiac monitor|monitoring lead|electrode|wire|line|device
        external lead|wire|monitor; external monitor|monitoring lead|wire|device; electrocardiographic lead
        overlying ekg|ecg|monitor|monitoring|telemetry|cardiac lead|wire; ekg; telemetry""",
        "on the skin, not in it",
    ),
    Mention(
        ("other device",),
        """stent; stimulator; neurostimulator; nerve|vagal|spinal|neural|cord|brain|vagus stimulator
        spinal cord stimulator lead?; shunt; vp shunt; ventriculoperitoneal shunt|catheter
        vp shunt catheter|tubing; shunt catheter|tubing; loop recorder; lvad; ventricular assist device
        breast implant|prosthesis; orthopedic screw|plate|hardware|device|fixation; filter; ivc filter
        esophageal|tracheal|bronchial|vascular|coronary|aortic|endovascular|venous|biliary stent|graft
        stent graft; impella; shoulder|hip|joint|humeral arthroplasty|prosthesis|replacement|hardware|anchor
        suture anchor; endobronchial valve; temperature|esophageal probe; arthroplasty; prosthesis
        fixation plate|screw|hardware|device; plate and screw; gastrostomy
        gastrostomy|peg|g|j|gj|jejunostomy tube; lap band; gastric band; bone anchor; rotator cuff anchor
        closure|occlusion|occluder|septal device; watchman device?; amplatzer device?; hardware
        embolization coil; implanted|implantable|medical device|hardware|implant; tubing; device; implant
        insulin|infusion pump; anchor; catheter; battery pack; screw; stimulator lead; rod
        plate and screw fixation; surgical hardware|device; prosthetic; umbilical artery|arterial catheter|line
        uac""",
        "put in or on the patient, and none of the above",
    ),
)

# "Lines and tubes are unchanged" says nothing of any one of them; denied, it says that there is no device.
COLLECTIVE = Mention(
    ("other device",),
    """tube; line and|or tube; tube and|or line; tube and|or catheter; catheter and|or tube; line tube
    support device|apparatus|line; line and|or tube and|or drain; line tube and|or drain|catheter|device
    line , tube or|and drain|catheter; tube line; indwelling|external device; support line and tube
    catheter and|or line; line and|or catheter; supporting device; implant and|or tube; tube and|or implant
    support hardware; device and|or line; line and|or device; life? support line and|or tube
    support tube and|or line; monitoring and support device; appliance""",
    "all devices together",
)
MASKED_PORT = Mention(("port",), "chest xxxx", "a lost word that ends in a great vein")
MASKED_PACEMAKER = Mention(("pacemaker",), "cardiac xxxx", "a lost word that ends in the heart")
ROWS = (*_SINGLE, COLLECTIVE, MASKED_PORT, MASKED_PACEMAKER)

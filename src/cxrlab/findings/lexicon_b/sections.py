"""Lexicon B, whole statements: normal regions, headings, and the sections around the findings."""

from __future__ import annotations

from cxrlab.findings.lexicon import lines, table

NORMAL = table("""
    heart:
        the cardiac shadow is of ordinary width
        ordinary cardiac dimensions
        the heart shadow is not broadened
        heart shadow of ordinary width
        the heart has its ordinary dimensions
        slender heart shadow
    mediastinum:
        the mediastinum is slender
        slender mediastinal outline
        the mediastinal outline is not broadened
        mediastinum central and slender
        the mediastinal outline is ordinary
        ordinary width of the mediastinum
    hila:
        hila and mediastinum of ordinary outline
        slender hila and mediastinum
        the lung roots and mediastinum are ordinary
        mediastinum and lung roots of ordinary width
        neither hila nor mediastinum are bulky
        ordinary lung roots and slender mediastinum
    lungs:
        both lungs are evenly aerated throughout
        good aeration of all lung fields
        the parenchyma is free of shadows
        even transparency of the lungs
        lung parenchyma without shadowing
        the lungs show even transparency
    angles:
        the lateral recesses are free
        free lateral recesses
        pleural recesses open to their depth
        the recesses can be followed to their depth
        both lateral recesses are open
        open pleural recesses
    pleura:
        the pleural cavity is empty
        both pleural cavities are empty
        pleural lining delicate and cavity empty
        empty pleural cavities
        nothing in the pleural cavities
        the pleural cavities hold neither fluid nor air
    bones:
        the skeleton is unbroken
        ribs and collarbones are unbroken
        unbroken thoracic skeleton
        skeleton of the thorax without breaks
        the thoracic skeleton has no break
        ribs, collarbones and spine in good order
    diaphragm:
        neither dome of the diaphragm is raised
        both domes stand at their usual height
        diaphragm at its usual height
        usual stand of the diaphragm
        the diaphragm stands where expected
        diaphragmatic domes in their usual place
    abdomen:
        below the diaphragm nothing out of the ordinary
        the abdomen below shows its usual gas
        usual gas below the diaphragm
        abdominal part of the image in good order
        nothing remarkable below the diaphragm
        the part of the abdomen included is ordinary
    lines:
        free of catheters and tubes
        neither catheters nor tubes
        the patient carries neither tube nor catheter
        catheters and tubes are lacking
        tubes and catheters absent
        not a single tube or catheter
    devices:
        free of foreign material
        foreign material is lacking
        nothing implanted or inserted
        the patient carries neither implant nor tube
        implants and tubes absent
        not a single implant or tube
    whole:
        the thoracic organs are in good order
        ordinary thoracic image
        everything on this image is in good order
        age-appropriate ordinary image
        the image holds nothing pathological
        thorax in good order
""")

HEADINGS = table("""
    lines:
        Foreign material
        Catheters
    lungs:
        Parenchyma
        Lung fields
    pleura:
        Pleural cavity
        Pleural lining
    heart:
        Cardiac shadow
        Heart shadow
    mediastinum:
        Mediastinal outline
        Central structures
    abdomen:
        Below the diaphragm
        Domes of the diaphragm
    bones:
        Skeleton
        Thoracic wall
""")

EXAMINATIONS = {
    "PA": lines("""
        THORAX P.A.
        X-RAY OF THE THORAX, POSTEROANTERIOR
        THORAX UPRIGHT, POSTEROANTERIOR
        PLAIN FILM OF THE THORAX P.A.
        THORAX, ONE PROJECTION P.A.
        POSTEROANTERIOR THORAX
    """),
    "AP": lines("""
        THORAX A.P. IN BED
        X-RAY OF THE THORAX, ANTEROPOSTERIOR
        BEDSIDE THORAX, ANTEROPOSTERIOR
        PLAIN FILM OF THE THORAX A.P.
        THORAX, ONE PROJECTION A.P.
        ANTEROPOSTERIOR THORAX AT THE BEDSIDE
    """),
}

INDICATIONS = table("""
    heart failure:
        breathlessness, {person} of {age} years
        {person} aged {age}, swollen ankles and breathlessness
        known cardiac insufficiency
        decompensation in a {person} aged {age}
        cardiac insufficiency, request for control
        breathless when lying flat
    infection:
        raised temperature and coughing, {person} of {age} years
        {person} aged {age}, coughing up sputum
        infective signs in the blood
        coughing for a week, {person} aged {age}
        clinical signs of chest infection
        high temperature of unknown origin
    critical care:
        ventilation ward, {person} of {age} years
        {person} aged {age}, control on the ward
        failing gas exchange
        gravely ill {person} aged {age}
        sepsis, request for control
        daily control at the bedside
    trauma:
        accident, {person} of {age} years
        {person} aged {age}, fell from a ladder
        blow against the ribs
        road accident, {person} aged {age}
        pain on breathing following an accident
        thoracic contusion
    malignancy:
        tumour search, {person} of {age} years
        {person} aged {age}, coughing up blood
        oncological control
        losing weight, {person} aged {age}
        chemotherapy, request for control
        oncological staging
    chronic lung disease:
        long-standing breathlessness, {person} of {age} years
        {person} aged {age}, smoker for decades
        known pulmonary disease, control
        pneumological control in a {person} aged {age}
        breathless on climbing stairs
        worked with asbestos and dust
    changes of age:
        frailty, {person} of {age} years
        {person} aged {age}, unsteady on the feet
        admission to a care home
        stabbing thoracic pain, {person} aged {age}
        geriatric assessment
        loss of strength
    after surgery:
        control following an operation, {person} of {age} years
        {person} aged {age}, operated on lately
        following an operation
        recovery ward, {person} aged {age}
        state following operation, request for control
        pain following an operation
    routine:
        before anaesthesia, {person} of {age} years
        {person} aged {age}, health check
        occupational check
        check before starting a job, {person} aged {age}
        tuberculosis contact
        insurance medical
""")

COMPARISONS = lines("""
    Earlier image, taken {ago} before
    Own image made {ago} earlier
    Previous thorax, {ago} earlier
    An image made {ago} before this one
    The last examination dates back {ago}
    Earlier thorax image, {ago} back
""")
NO_COMPARISON = lines("""
    First examination
    Earlier images do not exist
    Nothing to compare with
    First image of this patient
    Earlier images are not at hand
    First thorax image
""")

IMPRESSION_NORMAL = lines("""
    ordinary thorax
    thoracic organs in good order
    heart and lungs in good order
    nothing pathological
    thoracic image without pathology
    healthy heart and lungs
    no cause for concern
    nothing pathological in heart and lungs
""")
IMPRESSION_CALM = lines("""
    nothing of recent onset
    nothing calling for urgent action
    nothing urgent
    heart and lungs without urgent matters
    nothing else of concern
    no urgent matter
""")

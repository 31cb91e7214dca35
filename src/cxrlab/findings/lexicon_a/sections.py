"""Lexicon A, whole statements: normal regions, headings, and the sections around the findings."""

from __future__ import annotations

from cxrlab.findings.lexicon import lines, table

NORMAL = table("""
    heart:
        the heart is normal in size
        heart size is normal
        the cardiac silhouette is normal
        normal heart size
        the heart is not enlarged
        cardiac size is within normal limits
        normal cardiac silhouette
    mediastinum:
        the mediastinal contours are normal
        the mediastinum is unremarkable
        the mediastinum is not widened
        normal mediastinal contours
        mediastinal width is normal
        mediastinal contours are within normal limits
    hila:
        mediastinal and hilar contours are normal
        the hila and mediastinum are unremarkable
        normal mediastinal and hilar contours
        the mediastinum and hila are normal
        hilar and mediastinal contours are unremarkable
        unremarkable mediastinum and hila
    lungs:
        the lungs are clear
        both lungs are clear
        clear lungs
        the lungs are well expanded and clear
        lungs are clear bilaterally
        the lungs are clear without focal abnormality
        the lung fields are clear
    angles:
        the costophrenic angles are sharp
        costophrenic angles are clear
        sharp costophrenic angles
        both costophrenic angles are sharp
        the costophrenic angles are not blunted
        clear costophrenic angles
    pleura:
        the pleural spaces are clear
        normal pleural spaces
        no pleural abnormality
        the pleura is normal
        the pleural spaces are normal
        unremarkable pleura
    bones:
        the bones are intact
        the osseous structures are intact
        no acute osseous abnormality
        the visualized bones are unremarkable
        intact bony thorax
        osseous structures are unremarkable
    diaphragm:
        both hemidiaphragms are normal in position
        the hemidiaphragms are smooth and normal in height
        the diaphragm is normal
        normal position of both hemidiaphragms
        unremarkable hemidiaphragms
        the hemidiaphragms are not elevated
    abdomen:
        the upper abdomen is unremarkable
        the visualized upper abdomen is normal
        unremarkable upper abdomen
        normal appearance of the upper abdomen
        the upper abdomen is normal
        normal upper abdomen
    lines:
        no lines or tubes
        there are no lines or tubes
        no lines or tubes are seen
        no lines, tubes or drains
        no tubes or catheters
        no tubes or lines identified
    devices:
        no support devices
        no support devices are seen
        no indwelling devices
        there are no support devices
        no medical devices
        no devices are present
    whole:
        normal chest radiograph
        the chest radiograph is normal
        normal study
        unremarkable chest film
        normal examination of the chest
        no abnormality is seen on this film
""")

HEADINGS = table("""
    lines:
        Lines and tubes
        Support devices
    lungs:
        Lungs
        Lungs and airways
    pleura:
        Pleura
        Pleural spaces
    heart:
        Heart
        Cardiac
    mediastinum:
        Mediastinum
        Mediastinum and hila
    abdomen:
        Upper abdomen
        Diaphragm and abdomen
    bones:
        Bones
        Bones and soft tissues
""")

EXAMINATIONS = {
    "PA": lines("""
        CHEST, PA
        CHEST RADIOGRAPH, PA VIEW
        PA CHEST RADIOGRAPH
        CHEST, ONE VIEW, PA
        FRONTAL CHEST RADIOGRAPH, PA
        SINGLE PA VIEW OF THE CHEST
    """),
    "AP": lines("""
        CHEST, PORTABLE AP
        CHEST RADIOGRAPH, AP VIEW
        PORTABLE AP CHEST RADIOGRAPH
        CHEST, ONE VIEW, AP PORTABLE
        FRONTAL CHEST RADIOGRAPH, AP
        SINGLE AP VIEW OF THE CHEST
    """),
}

INDICATIONS = table("""
    heart failure:
        {age}-year-old {person} with shortness of breath
        {age}-year-old {person} with dyspnea and leg swelling
        history of heart failure, evaluate
        {person} with worsening dyspnea, age {age}
        CHF exacerbation, evaluate
        {age}-year-old {person} with orthopnea
    infection:
        {age}-year-old {person} with fever and cough
        cough and fever, evaluate
        {age}-year-old {person} with productive cough
        {person} with chills and cough, age {age}
        leukocytosis and fever, evaluate
        {age}-year-old {person} with several days of cough
    critical care:
        {age}-year-old {person} in intensive care
        critical illness, daily film
        respiratory failure, evaluate
        {age}-year-old {person} with septic shock
        ICU {person}, age {age}, daily evaluation
        {age}-year-old {person} with hypoxia in the ICU
    trauma:
        {age}-year-old {person} after a fall
        motor vehicle collision, evaluate
        {age}-year-old {person} with blunt chest trauma
        {person} with chest wall pain after trauma, age {age}
        trauma, evaluate
        {age}-year-old {person} struck on the chest
    malignancy:
        {age}-year-old {person} with weight loss
        known malignancy, evaluate
        {age}-year-old {person} with hemoptysis
        cancer staging, {person}, age {age}
        history of cancer, follow-up
        {age}-year-old {person} under treatment for cancer
    chronic lung disease:
        {age}-year-old {person} with chronic dyspnea
        chronic lung disease, follow-up
        {age}-year-old {person} with a long smoking history
        {person} with chronic cough, age {age}
        exertional dyspnea, evaluate
        {age}-year-old {person} followed for lung disease
    changes of age:
        {age}-year-old {person} with weakness
        dizziness, evaluate
        {age}-year-old {person} with atypical chest pain
        {person} with back pain, age {age}
        general decline, evaluate
        {age}-year-old {person} with poor appetite
    after surgery:
        {age}-year-old {person} after surgery
        postoperative film
        {age}-year-old {person} recovering from surgery
        {person}, age {age}, after an operation
        postoperative fever, evaluate
        recent surgery, evaluate
    routine:
        {age}-year-old {person}, preoperative evaluation
        routine examination
        {age}-year-old {person}, annual examination
        preoperative {person}, age {age}
        positive tuberculin test, evaluate
        {age}-year-old {person} with chest discomfort
""")

COMPARISONS = lines("""
    Chest radiograph from {ago} ago
    Prior film of {ago} ago
    Compared with the film from {ago} ago
    Prior study, {ago} ago
    Prior chest radiograph {ago} ago
    Radiograph performed {ago} ago
""")
NO_COMPARISON = lines("""
    None
    None available
    No prior studies
    No prior film for comparison
    No comparison available
    There is no prior study
""")

IMPRESSION_NORMAL = lines("""
    no acute cardiopulmonary abnormality
    no acute cardiopulmonary process
    normal chest radiograph
    normal chest
    no acute disease
    no evidence of acute cardiopulmonary disease
    unremarkable chest radiograph
    no acute intrathoracic process
    negative chest radiograph
    no active disease
""")
IMPRESSION_CALM = lines("""
    no acute cardiopulmonary abnormality
    no acute cardiopulmonary process
    no acute disease
    no evidence of acute cardiopulmonary disease
    no acute intrathoracic process
    no acute findings otherwise
""")

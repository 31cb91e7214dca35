"""Words that name something of the heart, the great vessels, the mediastinum and below the diaphragm."""

from __future__ import annotations

from cxrlab.core.vocabulary import Severity, Side
from cxrlab.findings.reading.rows import Mention

ROWS = (
    Mention(
        ("cardiomegaly",),
        """cardiomegaly; megalocardia; large heart; large cardiac silhouette|shadow|size
        cardiac|heart enlargement|dilatation; atrial|ventricular enlargement|dilatation|hypertrophy
        enlarged cardiothoracic ratio; increased cardiothoracic ratio; globular heart; cardiomegaly of heart
        biventricular enlargement; enlarged left|right? atrium|ventricle; left|right atrium|ventricle is enlarged""",
        "a large heart or one of its chambers",
    ),
    Mention(
        ("cardiomegaly",),
        """borderline heart|cardiac; borderline heart|cardiac size|silhouette|enlargement
        borderline cardiomegaly; borderline enlarged heart|cardiac silhouette?; borderline large heart""",
        "on the border counts as a trace",
        degree=Severity.TRACE,
    ),
    Mention(
        ("heart failure",),
        """chf; congestive? heart|cardiac failure|decompensation; cardiac insufficiency; congestive failure
        failure; left ventricular failure|dysfunction; biventricular failure; pulmonary venous failure
        cardiac decompensation""",
        "named as a disease; its signs are observations of their own",
    ),
    Mention(
        ("pericardial effusion",),
        "pericardial effusion|fluid; hemopericardium",
        "fluid about the heart, not of the pleura",
    ),
    Mention(
        ("enlarged cardiomediastinum",),
        "mediastinal|cardiomediastinal enlargement|prominence|fullness",
        "a wide middle of the chest",
    ),
    Mention(
        ("hilar enlargement",),
        """lung root enlargement|fullness|swelling; hilar region fullness|prominence
        hilar|perihilar enlargement|fullness|prominence|swelling""",
        "large lung roots, whatever makes them so",
    ),
    Mention(
        ("hilar enlargement",),
        "bihilar enlargement|fullness|prominence|mass|swelling",
        "both lung roots by the word itself",
        side=Side.BILATERAL,
    ),
    Mention(("mass",), "hilar|perihilar|suprahilar mass|tumor|neoplasm", "a mass at the lung root", place="perihilar"),
    Mention(("lymphadenopathy",), "bihilar lymphadenopathy", "both sides by the word itself", side=Side.BILATERAL),
    Mention(
        ("lymphadenopathy",),
        """lymphadenopathy; hilar|mediastinal|paratracheal|axillary|perihilar lymphadenopathy
        lymph? node|nodal enlargement|mass|disease; hilar|mediastinal lymph? node|nodal enlargement
        hilar and|or mediastinal lymphadenopathy; mediastinal and|or hilar lymphadenopathy""",
        "large nodes",
    ),
    Mention(
        ("mediastinal mass",),
        """mediastinal|thymic|paratracheal|paraspinal|thyroid mass|tumor|lesion; thymoma
        substernal goiter|thyroid; goiter; thyroid enlargement; mass|tumor in mediastinum
        paravertebral mass""",
        "a mass between the lungs",
    ),
    Mention(
        ("pulmonary artery enlargement",),
        "pulmonary artery|arterial enlargement|prominence|hypertension; pulmonary hypertension; enlarged main? pa",
        "a wide pulmonary artery, which is how raised pressure shows",
    ),
    Mention(
        ("aortic aneurysm",),
        """aneurysm; aortic aneurysm|dilatation|dissection; thoracic aortic aneurysm|dilatation
        aneurysm of thoracic? aorta; aneurysm of ascending|descending thoracic? aorta; aneurysmal dilatation
        aneurysmal dilatation of thoracic? aorta
        aneurysmal dilatation of ascending|descending thoracic? aorta""",
        "a wide aorta",
    ),
    Mention(
        ("tortuous aorta",),
        """aortic|aorta tortuosity|elongation; thoracic|descending aortic tortuosity; vascular tortuosity
        tortuous aortic? vessel""",
        "an aorta grown long with age; ectasia is said of the same",
    ),
    Mention(
        ("aortic calcification",),
        """atherosclerosis; degenerative and atherosclerotic change|disease; arteriosclerosis; atheroma
        atherosclerotic; arteriosclerotic; atheromatous; aortosclerosis
        atherosclerotic|arteriosclerotic|atheromatous vascular|aortic? disease|change
        atherosclerotic|arteriosclerotic|atheromatous vascular|aortic? calcification|plaque|plaquing
        aortic|vascular|arterial|arch|mural|coronary|knob atherosclerosis|calcification|plaque|atheroma
        aortic atherosclerotic disease|change|plaque; calcified aortic plaque
        calcified atherosclerosis|atheroma; calcified vessel; atherosclerosis of thoracic? aorta|arch
        coronary artery calcification; calcium in aortic wall|arch|knob|aorta
        aortic arch|knob|wall atherosclerosis|calcification; calcified? aortic sclerosis|arteriosclerosis
        calcified coronary artery; calcium deposition; calcium deposit; vascular calcified disease|change
        calcified atherosclerotic disease|change|plaque; aortic atherosclerotic calcification
        atherosclerotic vascular disease|calcification|change; calcium in wall of aorta; aortic calcified plaque
        calcified aortic|vascular disease""",
        "calcium in the wall of the aorta; atherosclerosis shows as nothing else",
    ),
    Mention(
        ("hiatal hernia",),
        """hiatal|hiatus|diaphragmatic|paraesophageal|esophageal hernia|herniation; hernia; thoracic stomach
        sliding|fixed hiatal|hiatus? hernia; intrathoracic|herniated stomach; intra thoracic stomach
        stomach in chest|thorax; retrocardiac air fluid level; air containing|filled hiatal|hiatus hernia
        hiatal hernia sac; intrathoracic gastric; gastric hernia|herniation; hernia of esophageal? hiatus
        gastric herniation into chest; gastric hernia above diaphragm; stomach herniation
        intrathoracic portion|part of stomach""",
        "stomach above the diaphragm",
    ),
    Mention(
        ("mediastinal shift",), "mediastinal|midline shift; tracheomediastinal shift", "a mediastinum out of the middle"
    ),
    Mention(("tracheal deviation",), "tracheal shift", "a trachea out of the middle"),
    Mention(
        ("pneumomediastinum",),
        "pneumomediastinum; mediastinal air|emphysema; pneumopericardium",
        "air between the lungs",
    ),
    Mention(
        ("elevated hemidiaphragm",),
        """diaphragm elevation|eventration|paralysis|paresis; eventration; eventration of diaphragm
        phrenic paresis|palsy; high stand|standing|riding diaphragm; high stand of diaphragm""",
        "one dome higher than it should be",
    ),
    Mention(
        ("pneumoperitoneum",),
        """pneumoperitoneum; free intraperitoneal|abdominal|subdiaphragmatic|peritoneal|intra|subphrenic air
        free air; subdiaphragmatic|intraperitoneal|extraluminal|subphrenic free? air
        free intra abdominal|peritoneal air; air sickle|crescent; band|sickle|crescent|rim of free air
        intra abdominal free air; extraluminal abdominal air; subphrenic air collection""",
        "air outside the bowel",
    ),
    Mention(
        ("bowel distension",),
        """bowel|gastric|gaseous|colonic|stomach distension; gastric|stomach dilatation; ileus
        bowel obstruction|dilatation; distended|dilated stomach|colon|bowel
        gaseous distension of bowel|stomach|colon; distended loop; dilated loop
        gaseous distension of bowel loop; distension of stomach|colon|bowel; distended bowel loop
        gas distended stomach""",
        "a full bowel or stomach",
    ),
)

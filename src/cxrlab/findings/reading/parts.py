"""The parts of the body of which a report says something."""

from __future__ import annotations

from cxrlab.core.vocabulary import Side
from cxrlab.findings.reading.rows import Subject

RIB = Subject("rib", "rib", "a rib")
SUBJECTS = (
    Subject(
        "heart",
        """heart; heart size|shadow|silhouette|border|contour|outline; cardiac; size of heart; diameter of heart
        cardiac silhouette|size|shadow|contour|border|structure|outline|diameter|dimension; cardial shadow
        cardiothoracic ratio; cardiac silhouette size; size of cardiac silhouette; heart and its? shadow; ctr
        cardio thoracic ratio""",
        "the heart and its shadow",
    ),
    Subject(
        "cardiomediastinum",
        """cardiomediastinum; cardiomediastinal silhouette|contour|outline|size|structure|border|shadow?
        cardio mediastinal silhouette|contour|outline|structure|size
        cardiac and mediastinal silhouette|contour|structure|shadow; cardiac mediastinal silhouette|contour
        mediastinal and cardiac silhouette|contour; cardiothymic silhouette; cardiopericardial silhouette
        cardiomediastinal silhouette size; cardiac and mediastinal outline""",
        "heart and mediastinum in one",
    ),
    Subject(
        "mediastinum",
        """mediastinum; upper|superior mediastinum|mediastinal; paratracheal stripe; central structure
        width of mediastinum; mediastinal
        mediastinal silhouette|contour|outline|width|structure|border|shadow|size
        superior mediastinal contour""",
        "the middle of the chest",
    ),
    Subject(
        "vasculature",
        """vascularity; vasculature; vessel
        pulmonary|lung|perihilar|central vascularity|vasculature|vessel|vein|vascular|circulation|flow
        pulmonary vascular|venous structure|pattern|pedicle|shadow|flow|marking; vascular; venous
        vascular pedicle|marking; central|upper pulmonary|lobe vascularity|vasculature|vessel""",
        "the vessels of the lung",
    ),
    Subject(
        "lungs",
        """lung; lung field|parenchyma|tissue; parenchyma; pulmonary parenchyma; remainder of lung; hemithorax
        airspace; lung zone; aeration; lung aeration""",
        "the lungs as a whole",
    ),
    Subject(
        "volume",
        """lung volume|expansion|inflation; inspiratory volume|effort; inspiration; volume of lung
        pulmonary volume|expansion; pulmonary insufflation|inflation; insufflation
        degree|depth of inspiration; lung expansion; expansion of lung; volume""",
        "how far the lungs are filled",
    ),
    Subject(
        "aorta",
        """aorta; thoracic|descending|ascending aorta; descending|ascending thoracic aorta; aortic
        great vessel; arch; knob; aortic arch|knob|contour|silhouette|wall|shadow|root|outline
        thoracic aortic contour|silhouette?; wall of aorta""",
        "the aorta",
    ),
    Subject("coronary artery", "coronary artery|arteries|vessel; coronary", "the arteries of the heart"),
    Subject("trachea", "trachea; tracheal; tracheal air? column; windpipe", "the windpipe"),
    Subject(
        "hilum",
        """hilum; hilar; hilar structure|contour|shadow|region|silhouette|size|vessel|vascular|outline
        lung root; root of lung; pulmonary hilum""",
        "the lung roots",
    ),
    Subject("hilum", "bihilar region", "both lung roots", side=Side.BILATERAL),
    Subject(
        "pulmonary artery",
        """pulmonary artery|arteries|trunk; main|central pulmonary artery|arteries|trunk; main pulmonary artery segment
        main|central and main|central|right|left pulmonary artery|arteries""",
        "the pulmonary artery",
    ),
    Subject(
        "diaphragm",
        """diaphragm; hemi diaphragm; diaphragm dome|contour|surface|leaflet|outline|height|silhouette|border
        dome of diaphragm; dome""",
        "the diaphragm",
    ),
    Subject(
        "angle",
        """costophrenic; costophrenic|cp angle|sulcus|recess|xxxx
        lateral|posterior costophrenic|cp angle|sulcus|recess; recess
        lateral|pleural|costodiaphragmatic|phrenicocostal recess|sulcus; costo phrenic angle|sulcus; cpa
        posterior sulcus""",
        "where fluid gathers first",
    ),
    Subject("pleura", "pleura; pleural; pleural space|cavity|surface|lining|margin|reflection", "the pleura"),
    Subject(
        "bone",
        """bone; osseous|bony|skeletal structure|thorax|skeleton|framework|element; skeleton; skeletal; bony
        osseous; shoulder; thoracic skeleton|cage; skeleton of thorax; bony|osseous thoracic? cage
        musculoskeletal structure; chest cage; bony hemithorax""",
        "the bones as a whole",
    ),
    Subject(
        "bone density", "bone|bony|osseous mineral? density|mineralization; mineralization", "how dense the bones are"
    ),
    RIB,
    Subject("rib", "rib cage", "the ribs together"),
    Subject("clavicle", "clavicle; collar bone", "a collar bone"),
    Subject(
        "spine",
        """spine; spinal; vertebra; vertebral; thoracic|lumbar|cervical|thoracolumbar spine|vertebra|vertebral
        spinal column; vertebral body|column|alignment; thoracic|lumbar vertebral body; disc space
        endplate; thoracic spine vertebral? body""",
        "the spine",
    ),
    Subject(
        "vertebral height",
        "thoracic|lumbar? vertebral body? height; height of thoracic|lumbar? vertebra; height of vertebral body",
        "how tall the vertebrae are",
    ),
    Subject(
        "other bone",
        """humerus; humeral; scapula; scapular; glenoid; acromion; humeral head|neck; coracoid process
        acromioclavicular joint""",
        "bones at the edge of the film",
    ),
    Subject("sternum", "sternum; sternal; manubrium; manubrial; breastbone", "the breastbone"),
    Subject(
        "interstitium",
        """interstitium; interstitial; marking
        interstitial|lung|bronchovascular|pulmonary|perihilar|bronchial|parenchymal marking
        interstitial lung|pulmonary marking; pulmonary|lung interstitium; pulmonary interstitial marking
        bronchovascular structure; peribronchial marking; perihilar interstitial marking
        lung interstitial marking""",
        "the lines of the lung",
    ),
    Subject("bronchus wall", "bronchial|airway wall", "the wall of the bronchi"),
    Subject(
        "node",
        """lymph node; node; hilar|mediastinal|suprahilar xxxx; hilar and mediastinal lymph? node|xxxx
        mediastinal and hilar lymph? node|xxxx; hilar|mediastinal|paratracheal|axillary lymph? node
        lymph xxxx; hilar|mediastinal lymph xxxx; paratracheal|axillary lymph xxxx""",
        "the lymph nodes",
    ),
    Subject("soft tissue", "soft tissue; body wall; skin; subcutaneous tissue; subcutis", "what lies outside the ribs"),
    Subject(
        "abdomen",
        """upper? abdomen; upper? abdominal structure|organ|content|viscera|part; bowel air pattern
        subdiaphragmatic region|area; upper quadrant; part of abdomen""",
        "what is seen of the abdomen",
    ),
    Subject("bowel", "bowel; bowel loop; colon; loop of bowel", "bowel"),
    Subject("airway", "airway; central airway; bronchus; main bronchus; tracheobronchial tree", "trachea and bronchi"),
    Subject(
        "chest",
        """chest; thorax; film; chest film; thoracic organ|structure|content
        cardiopulmonary structure|appearance; x ray; chest x ray; two film""",
        "the film as a whole",
    ),
    Subject("fissure", "fissure", "the borders between lobes"),
)

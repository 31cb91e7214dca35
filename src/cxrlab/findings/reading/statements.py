"""Statements made of a part and what is said of it: "the heart is mildly enlarged", "widening of the mediastinum"."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.vocabulary import Severity
from cxrlab.findings.reading.rows import Mention, Predicate, Subject

SUBJECTS = (
    Subject(
        "heart",
        """heart; heart size|shadow|silhouette|border|contour|outline; cardiac; size of heart; diameter of heart
        cardiac silhouette|size|shadow|contour|border|structure|outline|diameter|dimension; cardial shadow; cardiothoracic ratio
        cardiac silhouette size; size of cardiac silhouette; heart and its? shadow""",
        "the heart and its shadow",
    ),
    Subject(
        "cardiomediastinum",
        """cardiomediastinum; cardiomediastinal silhouette|contour|outline|size|structure|border|shadow?
        cardio mediastinal silhouette|contour|outline|structure|size; cardiac and mediastinal silhouette|contour|structure|shadow
        cardiac mediastinal silhouette|contour; mediastinal and cardiac silhouette|contour; cardiothymic silhouette
        cardiopericardial silhouette; cardiomediastinal silhouette size; cardiac and mediastinal outline""",
        "heart and mediastinum in one",
    ),
    Subject(
        "mediastinum",
        """mediastinum; upper|superior mediastinum|mediastinal; paratracheal stripe; central structure; width of mediastinum
        mediastinal; mediastinal silhouette|contour|outline|width|structure|border|shadow|size; superior mediastinal contour""",
        "the middle of the chest",
    ),
    Subject(
        "vasculature",
        """vascularity; vasculature; pulmonary|lung|perihilar|central vascularity|vasculature|vessel|vein|vascular|circulation|flow
        pulmonary vascular|venous structure|pattern|pedicle|shadow|flow|marking; vascular pedicle|structure|shadow|marking
        central|upper pulmonary|lobe vascularity|vasculature|vessel""",
        "the vessels of the lung",
    ),
    Subject(
        "lungs",
        """lung; lung field|parenchyma|tissue; parenchyma; pulmonary parenchyma; remainder of lung; hemithorax; airspace; lung zone
        aeration; lung aeration""",
        "the lungs as a whole",
    ),
    Subject(
        "volume",
        """lung volume|expansion|inflation; inspiratory volume|effort; inspiration; volume of lung; pulmonary volume|expansion
        pulmonary insufflation|inflation; insufflation; degree|depth of inspiration; lung expansion; expansion of lung; volume""",
        "how far the lungs are filled",
    ),
    Subject(
        "aorta",
        """aorta; thoracic|descending|ascending aorta; descending|ascending thoracic aorta; aortic; great vessel; arch; knob
        aortic arch|knob|contour|silhouette|wall|shadow|root|outline; thoracic aortic contour|silhouette?; wall of aorta""",
        "the aorta",
    ),
    Subject("trachea", "trachea; tracheal; tracheal air? column; windpipe", "the windpipe"),
    Subject(
        "hilum",
        """hilum; hilar; hilar structure|contour|shadow|region|silhouette|size|vessel|vascular|outline; lung root; root of lung
        pulmonary hilum; bihilar region""",
        "the lung roots",
    ),
    Subject(
        "pulmonary artery",
        "pulmonary artery|arteries|trunk; main|central pulmonary artery|arteries|trunk; main pulmonary artery segment",
        "the pulmonary artery",
    ),
    Subject(
        "diaphragm",
        """diaphragm; hemi diaphragm; diaphragm dome|contour|surface|leaflet|outline|height|silhouette|border; dome of diaphragm
        dome""",
        "the diaphragm",
    ),
    Subject(
        "angle",
        """costophrenic; costophrenic|cp angle|sulcus|recess|xxxx; lateral|posterior costophrenic|cp angle|sulcus|recess; recess
        lateral|pleural|costodiaphragmatic|phrenicocostal recess|sulcus; costo phrenic angle|sulcus; cpa; posterior sulcus""",
        "where fluid gathers first",
    ),
    Subject("pleura", "pleura; pleural; pleural space|cavity|surface|lining|margin|reflection", "the pleura"),
    Subject(
        "bone",
        """bone; osseous|bony|skeletal structure|thorax|skeleton|framework|element; skeleton; skeletal; bony; osseous; shoulder
        thoracic skeleton|cage; skeleton of thorax; bony|osseous thoracic? cage; musculoskeletal structure; chest cage
        bony hemithorax""",
        "the bones as a whole",
    ),
    Subject("rib", "rib; rib cage", "a rib"),
    Subject("clavicle", "clavicle; collar bone", "a collar bone"),
    Subject(
        "spine",
        """spine; spinal; vertebra; vertebral; thoracic|lumbar|cervical|thoracolumbar spine|vertebra|vertebral; spinal column
        vertebral body|column|height|alignment; thoracic|lumbar vertebral body; disc space; vertebral body height; endplate
        thoracic spine vertebral? body""",
        "the spine",
    ),
    Subject(
        "other bone",
        """humerus; humeral; scapula; scapular; glenoid; acromion; humeral head|neck
        coracoid process; acromioclavicular joint""",
        "bones at the edge of the film",
    ),
    Subject("sternum", "sternum; sternal; manubrium; manubrial; breastbone", "the breastbone"),
    Subject(
        "interstitium",
        """interstitium; interstitial; marking; interstitial|lung|bronchovascular|pulmonary|perihilar|bronchial|parenchymal marking
        interstitial lung|pulmonary marking; pulmonary|lung interstitium; pulmonary interstitial marking; bronchovascular structure
        peribronchial marking; perihilar interstitial marking; lung interstitial marking""",
        "the lines of the lung",
    ),
    Subject("bronchus wall", "bronchial|airway wall", "the wall of the bronchi"),
    Subject("node", "lymph node; node; hilar|mediastinal|paratracheal|axillary lymph? node", "the lymph nodes"),
    Subject("soft tissue", "soft tissue; body wall; skin; subcutaneous tissue; subcutis", "what lies outside the ribs"),
    Subject(
        "abdomen",
        """upper? abdomen; upper? abdominal structure|organ|content|viscera|part; bowel air pattern; subdiaphragmatic region|area
        upper quadrant; part of abdomen""",
        "what is seen of the abdomen",
    ),
    Subject("bowel", "bowel; bowel loop; colon; loop of bowel", "bowel"),
    Subject("airway", "airway; central airway; bronchus; main bronchus; tracheobronchial tree", "trachea and bronchi"),
    Subject(
        "chest",
        """chest; thorax; film; chest film; thoracic organ|structure|content; cardiopulmonary structure|appearance; x ray
        chest x ray; two film""",
        "the film as a whole",
    ),
    Subject("fissure", "fissure", "the borders between lobes"),
)

PREDICATES = (
    Predicate(
        "enlarged",
        """enlarged; larger than normal; increased size; globular; enlarged and globular; widen; enlarge; enlarges; swollen; swelling
        upper limit of normal to mildly enlarged; top normal to mildly enlarged; enlarged in size; expansion""",
        "too large",
    ),
    Predicate(
        "borderline",
        "borderline; borderline in size; borderline enlarged|large|prominent|prominence; borderline to mildly enlarged",
        "on the border counts as a trace",
        degree=Severity.TRACE,
    ),
    Predicate(
        "prominent",
        "prominent; prominence; full; fullness; bulky; conspicuous; bulging; bulge; indistinct; indistinctness; fuzzy",
        "more to be seen than usual",
    ),
    Predicate("accentuated", "accentuated; accentuation; exaggerated; hazy", "of lines and vessels: more than usual"),
    Predicate(
        "increased",
        "coarse; coarsened; coarsening; thick; thickened; thickening; coarse and increased|prominent; increased and coarse",
        "more of it than usual",
    ),
    Predicate("congested", "congested; engorged; engorgement; plethoric; cephalized; redistributed", "full vessels"),
    Predicate(
        "normal",
        """normal; unremarkable; ordinary; usual; physiologic; physiological; nonenlarged; regular; undisturbed; inconspicuous
        slender; wnl; nl; delicate; within normal|expected limit|range; within limit of normal; within normal limit in|for size
        within normal limit for age|contour; normal limit|range; upper|top|high normal; upper|top normal in? size; top normal size
        normal|unremarkable in size|caliber|contour|appearance|width|configuration|position|morphology|shape|course|height|outline
        normal in size and? contour|shape|configuration|appearance|morphology|caliber; normal in caliber and contour
        of normal|ordinary|usual|regular size|width|outline|caliber|dimension|contour|appearance; of normal size and contour
        upper limit of normal; upper limit of normal in|for size; at|in|within upper limit of normal; at upper limit of normal size
        normal size|sized|width|contour|caliber|appearance|position|configuration|shape|dimension; normal size and? contour|shape
        normal size and configuration|appearance; in good order; not remarkable; unchanged and normal; normal and unchanged
        usual place|height|stand|position; at|in its|their usual height|place|position; where expected; not abnormal
        even transparency; as expected; negative""",
        "as it should be; the upper limit is still normal",
    ),
    Predicate(
        "clear",
        """clear; aerated; expanded; inflated; transparent; free of shadow|disease; free; open; empty; well|adequately expanded
        well|adequately|fully|symmetrically|normally|satisfactorily|evenly expanded|aerated|inflated|ventilated; re expanded
        well|adequately expanded|aerated|inflated and clear; clear and|, well? expanded|inflated|aerated; free from disease
        good aeration|expansion; normally aerated""",
        "nothing in it",
    ),
    Predicate("adequate", "adequate; good; satisfactory; sufficient", "filled as it should be"),
    Predicate("intact", "intact; unbroken; unfractured; preserved; maintained; without break", "unbroken"),
    Predicate("tortuous", "tortuous; tortuous and? tortuous", "longer and more winding than it was"),
    Predicate("calcified", "calcified; chalky; sclerosis; sclerosed", "with calcium in it"),
    Predicate("aneurysmal", "aneurysmal", "wide beyond ectasia"),
    Predicate(
        "elevated",
        "elevated; high; eventrated; tented; tenting; displaced upwards|upward; upward displacement; displaced cranially; higher; upward bulging|bulge; bulging upwards",
        "too high",
    ),
    Predicate("flattened", "flattened; depressed; depression", "pressed down by air"),
    Predicate("low", "low; shallow; short; poor; suboptimal; incomplete; low in volume; less than optimal", "not enough of it"),
    Predicate("blunted", "blunted", "filled by something"),
    Predicate(
        "sharp",
        "sharp; crisp; pristine; distinct; well defined|delineated|preserved|visualized; sharply defined|outlined|marginated; sharp and clear",
        "empty down to its tip",
    ),
    Predicate("deviated", "deviated; off midline|center; deviated from midline", "not in the middle"),
    Predicate("midline", "midline; central; centered; undisplaced; in midline|middle; not deviated", "in the middle"),
    Predicate(
        "fractured",
        """fracture; fractured; break; broken; discontinuity; cortical step|break|discontinuity|irregularity|offset|disruption; fx
        healing|displaced|nondisplaced|healed|old|remote|chronic|pathologic|minimally|mildly fracture; fracture deformity|line
        fracture fragment; minimally|mildly displaced fracture; non displaced fracture; old healed fracture; interruption of cortex
        posttraumatic deformity|change; step in|of cortex; fracture healed; healed or|and healing fracture
        old|remote|chronic|healed fracture deformity""",
        "broken",
        observations=("other fracture",),
    ),
    Predicate("deformed", "deformity; deformed; old deformity; healed deformity", "of unusual shape", observations=("bone deformity",)),
    Predicate("bowed", "bowed; bowed to one? side; bent; curved; curvature; bowing", "bent to the side"),
    Predicate(
        "fluid",
        "fluid; fluid collection; accumulation|collection of fluid; fluid accumulation|level",
        "fluid, where nothing else is said of the pleura",
        observations=("pleural effusion",),
    ),
    Predicate("plaque", "plaque; calcified plaque; plaque formation", "a plate", observations=("pleural plaque",)),
    Predicate("wired", "wire; wire loop|suture; metal suture|wire; metallic wire; closed with wire", "held by wires"),
    Predicate("drained", "drain", "drained", observations=("other device",)),
    Predicate("air", "air; air collection; collection|bubble of air", "air where it is not expected"),
)


@dataclass(frozen=True)
class Meaning:
    """What a predicate means of a part.

    Args:
        subjects: Names of parts.
        predicates: Names of predicates.
        observations: What it says; empty when it says only that something is normal.
        reason: Why.
        absent: Whether it denies them.
        possible: Whether it is no more than a hint.
        place: A word of `vocabulary.LOCATIONS` that it implies.
    """

    subjects: tuple[str, ...]
    predicates: tuple[str, ...]
    observations: tuple[str, ...]
    reason: str
    absent: bool = False
    possible: bool = False
    place: str | None = None


_LARGE = ("enlarged", "borderline", "prominent", "large", "increased")
MEANINGS = (
    Meaning(("heart",), _LARGE, ("cardiomegaly",), "a large heart"),
    Meaning(("heart",), ("normal", "adequate"), ("cardiomegaly",), "a heart of normal size is not enlarged", absent=True),
    Meaning(("cardiomediastinum", "mediastinum"), _LARGE, ("enlarged cardiomediastinum",), "a wide middle"),
    Meaning(
        ("cardiomediastinum",),
        ("normal",),
        ("cardiomegaly", "enlarged cardiomediastinum"),
        "normal silhouette: neither the heart nor the rest is large",
        absent=True,
    ),
    Meaning(("mediastinum",), ("normal",), ("enlarged cardiomediastinum",), "a normal mediastinum is not wide", absent=True),
    Meaning(("mediastinum", "cardiomediastinum", "heart"), ("deviated",), ("mediastinal shift",), "moved out of the middle"),
    Meaning(("mediastinum", "cardiomediastinum"), ("midline",), ("mediastinal shift",), "in the middle", absent=True),
    Meaning(("mediastinum",), ("air",), ("pneumomediastinum",), "air between the lungs"),
    Meaning(("trachea",), ("deviated",), ("tracheal deviation",), "moved out of the middle"),
    Meaning(("trachea",), ("midline",), ("tracheal deviation",), "in the middle", absent=True),
    Meaning(
        ("vasculature",),
        ("enlarged", "borderline", "prominent", "increased", "congested", "accentuated"),
        ("vascular congestion",),
        "full vessels",
    ),
    Meaning(("vasculature",), ("normal",), ("vascular congestion",), "normal vessels are not full", absent=True),
    Meaning(("hilum",), _LARGE, ("hilar enlargement",), "large lung roots"),
    Meaning(("hilum",), ("normal",), ("hilar enlargement",), "normal lung roots are not large", absent=True),
    Meaning(("node",), _LARGE, ("lymphadenopathy",), "large nodes"),
    Meaning(("node",), ("calcified",), ("granuloma",), "what an old infection leaves"),
    Meaning(("pulmonary artery",), _LARGE, ("pulmonary artery enlargement",), "a wide artery"),
    Meaning(("aorta",), ("tortuous",), ("tortuous aorta",), "a winding aorta"),
    Meaning(("aorta",), ("calcified",), ("aortic calcification",), "calcium in the aorta"),
    Meaning(("aorta",), ("aneurysmal", "enlarged"), ("aortic aneurysm",), "a wide aorta"),
    Meaning(("diaphragm",), ("elevated",), ("elevated hemidiaphragm",), "too high"),
    Meaning(("diaphragm",), ("flattened",), ("hyperinflation",), "pressed down by too much air"),
    Meaning(("diaphragm",), ("air",), ("pneumoperitoneum",), "air below the dome is outside the bowel"),
    Meaning(
        ("angle",),
        ("blunted", "deformed"),
        ("pleural effusion",),
        "the angle fills first, but thickening fills it too",
        possible=True,
        place="costophrenic angle",
    ),
    Meaning(
        ("angle",), ("sharp", "clear", "normal", "intact"), ("pleural effusion",), "an open angle holds no fluid", absent=True
    ),
    Meaning(("pleura",), ("increased",), ("pleural thickening",), "a thick pleura"),
    Meaning(("pleura",), ("calcified",), ("pleural plaque",), "calcium in the pleura"),
    Meaning(("pleura", "angle", "fissure"), ("fluid",), ("pleural effusion",), "fluid in the pleural space"),
    Meaning(("pleura",), ("air",), ("pneumothorax",), "air in the pleural space"),
    Meaning(("volume",), ("low",), ("low lung volumes",), "not filled"),
    Meaning(("volume",), ("large", "increased", "elevated", "enlarged"), ("hyperinflation",), "filled too far"),
    Meaning(("volume",), ("normal", "adequate", "clear"), ("low lung volumes",), "filled as it should be", absent=True),
    Meaning(
        ("interstitium",),
        ("prominent", "increased", "enlarged", "congested", "accentuated"),
        ("interstitial pattern",),
        "more lines than usual",
    ),
    Meaning(("interstitium",), ("normal",), ("interstitial pattern",), "no more lines than usual", absent=True),
    Meaning(("bronchus wall",), ("increased", "prominent"), ("bronchial wall thickening",), "a thick wall"),
    Meaning(("rib",), ("fractured",), ("rib fracture",), "a broken rib"),
    Meaning(("clavicle",), ("fractured",), ("clavicle fracture",), "a broken collar bone"),
    Meaning(("spine",), ("fractured", "deformed"), ("vertebral fracture",), "a vertebra that lost its shape"),
    Meaning(("other bone", "bone", "sternum"), ("fractured",), ("other fracture",), "another bone broken"),
    Meaning(("rib", "clavicle", "other bone", "bone", "chest", "sternum"), ("deformed",), ("bone deformity",), "a bone of unusual shape"),
    Meaning(("sternum",), ("wired",), ("sternal wires",), "wires of an opened breastbone"),
    Meaning(("pleura", "lungs"), ("drained",), ("chest tube",), "a drain of the pleural space"),
    Meaning(("spine",), ("bowed",), ("scoliosis",), "a spine bent to the side"),
    Meaning(("aorta",), ("plaque",), ("aortic calcification",), "calcium in the wall"),
    Meaning(("pleura", "diaphragm"), ("plaque",), ("pleural plaque",), "a plate on the pleura"),
    Meaning(("soft tissue",), ("air",), ("subcutaneous emphysema",), "air under the skin"),
    Meaning(("bowel",), ("enlarged", "prominent"), ("bowel distension",), "a full bowel"),
    Meaning(("lungs",), ("clear", "normal"), (), "nothing in the lungs", absent=True),
    Meaning(("bone", "rib", "clavicle", "spine", "other bone", "sternum"), ("intact", "normal", "clear"), (), "nothing broken", absent=True),
    Meaning(
        ("pleura", "diaphragm", "aorta", "trachea", "soft tissue", "abdomen", "bowel", "airway", "chest", "pulmonary artery")
        + ("fissure", "node"),
        ("normal", "clear", "sharp", "intact"),
        (),
        "as it should be",
        absent=True,
    ),
)

GENERICS = (
    Mention(
        (),
        """abnormality; disease; process; finding; pathology; complication; lesion; disorder; illness; anything
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic|pulmonary|cardiac|bony|osseous|skeletal disease|process
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic|pulmonary|cardiac|bony|osseous|skeletal abnormality|finding
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic|pulmonary|cardiac|bony|osseous|skeletal pathology|change
        bone|soft tissue? abnormality|finding; soft tissue abnormality|finding; focal abnormality|lesion|finding; problem; pleural abnormality|disease|finding
        intrathoracic pathology; radiographic abnormality|finding
        cardiopulmonary radiographic? abnormality|finding|change; focal bony|osseous abnormality|lesion""",
        "says that something is wrong, and not what",
    ),
    Mention(
        (),
        "nothing out of ordinary; nothing abnormal|remarkable|acute; nothing",
        "denied in itself",
        gone=True,
    ),
)


def meanings() -> dict[tuple[str, str], Meaning]:
    """(part, predicate) → meaning."""
    return {(part, said): row for row in MEANINGS for part in row.subjects for said in row.predicates}

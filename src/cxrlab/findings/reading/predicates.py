"""What is said of a part of the body, and words that say no more than that something is wrong."""

from __future__ import annotations

from cxrlab.core.vocabulary import Severity
from cxrlab.findings.reading.rows import Mention, Predicate

PREDICATES = (
    Predicate(
        "enlarged",
        """enlarged; larger than normal; increased size; globular; enlarged and globular; widen; enlarge
        enlarges; swollen; swelling; upper limit of normal to mildly enlarged; top normal to mildly enlarged
        enlarged in size; expansion""",
        "too large",
    ),
    Predicate(
        "borderline",
        """borderline; borderline in size; borderline enlarged|large|prominent|prominence
        borderline to mildly enlarged""",
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
        """coarse; coarsened; coarsening; thick; thickened; thickening; coarse and increased|prominent
        increased and coarse""",
        "more of it than usual",
    ),
    Predicate(
        "congested", "congested; engorged; engorgement; plethora; plethoric; cephalized; redistributed", "full vessels"
    ),
    Predicate(
        "normal",
        """normal; unremarkable; ordinary; usual; physiologic; physiological; nonenlarged; regular; undisturbed
        inconspicuous; slender; wnl; nl; delicate; within normal|expected limit|range; within limit of normal
        within normal|expected postoperative|postsurgical limit|range
        within normal limit in|for size; within normal limit for age|contour; normal limit|range
        upper|top|high|low normal; upper|top normal in? size; top normal size
        normal|unremarkable in size|caliber|contour|appearance|width|configuration
        normal|unremarkable in position|morphology|shape|course|height|outline
        normal in size and? contour|shape|configuration|appearance|morphology|caliber
        normal in caliber and contour
        of normal|ordinary|usual|regular size|width|outline|caliber|dimension|contour|appearance
        of normal size and contour; upper limit of normal; upper limit of normal in|for size
        at|in|within upper limit of normal; at upper limit of normal size
        normal size|sized|width|contour|caliber|appearance|position|configuration|shape|dimension
        normal size and? contour|shape; normal size and configuration|appearance; in good order; not remarkable
        unchanged and normal; normal and unchanged; usual place|height|stand|position
        at|in its|their usual height|place|position; where expected; not abnormal; even transparency
        as expected; negative; is not remarkable""",
        "as it should be; the upper limit is still normal",
    ),
    Predicate(
        "clear",
        """clear; aerated; expanded; inflated; transparent; free of shadow|disease; free; open; empty
        well|adequately expanded; well|adequately|fully expanded|aerated|inflated|ventilated
        symmetrically|normally|satisfactorily|evenly expanded|aerated|inflated|ventilated; re expanded
        well|adequately expanded|aerated|inflated and clear; clear and|, well? expanded|inflated|aerated
        free from disease; good aeration|expansion; normally aerated""",
        "nothing in it",
    ),
    Predicate("adequate", "adequate; good; satisfactory; sufficient", "filled as it should be"),
    Predicate("intact", "intact; unbroken; unfractured; preserved; maintained; without break", "unbroken"),
    Predicate(
        "tortuous",
        "tortuous; tortuous and? tortuous",
        "longer and more winding than it was; said of vessels alone, and mostly of the aorta",
        observations=("tortuous aorta",),
    ),
    Predicate("chronic", "chronic; chronic appearing; chronically", "of long standing"),
    Predicate(
        "irregular", "irregular; irregularity; contour irregularity; irregular contour", "not smooth", alarm=True
    ),
    Predicate("calcified", "calcified; chalky; sclerosis; sclerosed", "with calcium in it", alarm=True),
    Predicate("aneurysmal", "aneurysmal", "wide beyond ectasia"),
    Predicate(
        "elevated",
        """elevated; high; eventrated; tented; tenting; displaced upwards|upward; upward displacement
        displaced cranially; higher; upward bulging|bulge; bulging upwards""",
        "too high",
    ),
    Predicate("flattened", "flattened; depressed; depression", "pressed down by air"),
    Predicate(
        "low", "low; shallow; short; poor; suboptimal; incomplete; low in volume; less than optimal", "not enough of it"
    ),
    Predicate("blunted", "blunted", "filled by something"),
    Predicate(
        "sharp",
        """sharp; crisp; pristine; distinct; well defined|delineated|preserved|visualized
        sharply defined|outlined|marginated; sharp and clear""",
        "empty down to its tip",
    ),
    Predicate("deviated", "deviated; off midline|center; deviated from midline", "not in the middle"),
    Predicate("midline", "midline; central; centered; undisplaced; in midline; not deviated", "in the middle"),
    Predicate(
        "fractured",
        """fracture; fractured; break; broken; discontinuity
        cortical step|break|discontinuity|irregularity|offset|disruption; fx
        healing|displaced|nondisplaced|healed|old|remote|chronic|pathologic|minimally|mildly fracture
        fracture deformity|line; fracture fragment; minimally|mildly displaced fracture
        non displaced fracture; old healed fracture; interruption of cortex; posttraumatic deformity|change
        step in|of cortex; fracture healed; healed or|and healing fracture
        old|remote|chronic|healed fracture deformity""",
        "broken",
        observations=("other fracture",),
    ),
    Predicate(
        "deformed",
        "deformity; deformed; old deformity; healed deformity",
        "of unusual shape",
        observations=("bone deformity",),
    ),
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

# Asserted, it says nothing that could be missed: "these findings were discussed".
REMARK = Mention((), "finding; anything; radiographic finding", "says nothing by itself")
GENERICS = (
    REMARK,
    Mention(
        (),
        """abnormality; disease; process; pathology; complication; lesion; disorder; illness
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic disease|process
        pulmonary|cardiac|bony|osseous|skeletal disease|process
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic abnormality|finding
        pulmonary|cardiac|bony|osseous|skeletal abnormality|finding
        cardiopulmonary|cardiothoracic|chest|intrathoracic|thoracic pathology|change
        pulmonary|cardiac|bony|osseous|skeletal pathology|change; bone|soft tissue? abnormality|finding
        soft tissue abnormality|finding; focal abnormality|lesion|finding; problem
        intrathoracic pathology; radiographic abnormality
        cardiopulmonary radiographic? abnormality|finding|change; focal bony|osseous abnormality|lesion""",
        "says that something is wrong, and not what",
    ),
    Mention(
        (),
        "nothing out of ordinary; nothing abnormal|remarkable|acute; nothing; nad",
        "denied in itself",
        gone=True,
    ),
)

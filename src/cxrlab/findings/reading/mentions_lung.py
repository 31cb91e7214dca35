"""Words that name something in the lungs. Sides, places and degrees stand in tables of their own."""

from __future__ import annotations

from cxrlab.core.vocabulary import Severity
from cxrlab.findings.reading.rows import Mention

ROWS = (
    Mention(
        ("lung opacity",),
        """opacity; lung|pulmonary|parenchymal|airspace|alveolar|focal opacity|density|infiltrate|infiltration
        density; air space opacity|density|infiltrate; infiltrate|infiltration|haze|haziness|shadowing|veiling
        infiltrative process; hazy|patchy|streaky|linear|focal like? shadow|shadowing|density|haze
        cloudy|vague|smudgy|blurred|cloud like? shadow|shadowing|density|haze; whiteout; white out
        airspace disease|process|change|abnormality; parenchymal disease|process|abnormality|shadowing
        alveolar disease|process|shadowing; air space disease|process|change|abnormality|shadowing
        focal airspace|parenchymal|pulmonary disease|process; focal airspace|parenchymal|lung abnormality|change
        focal air space disease|process|abnormality|change
        ground glass haze|opacity|change|attenuation|shadowing?; aeration disturbance; airspace|alveolar pattern
        decreased|reduced translucency|transparency; increased lung|pulmonary? density; lung|pulmonary shadow
        pulmonary|lung|parenchymal? contusion|laceration; pulmonary|alveolar|lung hemorrhage|infarct|infarction
        shadow""",
        """any whiteness of the lung that the report does not explain
        CheXpert counts airspace disease and infiltrate here""",
    ),
    Mention(
        ("lung opacity",),
        "complete|total whiteout; complete|total white out; whiteout|opacity of entire|whole hemithorax|lung",
        "nothing of the lung is left dark",
        degree=Severity.SEVERE,
    ),
    Mention(
        ("consolidation",),
        """consolidation
        airspace|alveolar|lobar|parenchymal|lung|pulmonary|focal|segmental|pneumonic consolidation
        air space consolidation; consolidation lung tissue?
        consolidation opacity|change|process|infiltrate|density
        airspace|alveolar|lung filling|solidification|consolidation with air bronchogram; solidification
        hepatization; airspace|alveolar filling|solidification; air space filling|solidification
        filling of airspace|alveoli; air bronchogram; consolidation with air bronchogram; solidified lung
        solid lung tissue""",
        "air replaced in the alveoli; an air bronchogram is seen in nothing else",
    ),
    Mention(
        ("pneumonia",),
        """pneumonia; pneumonic; bronchopneumonia; pneumonitis; pna; aspiration; infection; infectious
        infective; lobar|focal|aspiration|bacterial|viral pneumonia
        atypical|multifocal|round|infectious|interstitial|bronchial pneumonia
        pneumonic|infective|infectious infiltrate|infiltration|process|opacity
        pneumonic|infective|infectious focus|change|disease|etiology|infection
        lung|pulmonary|chest|airspace|respiratory infection; lower? respiratory tract infection
        infectious disease; pneumonic|infective shadowing|density|patch; viral process|infection|disease
        pulmonary infectious process
        infiltrate|infiltration of infective|infectious|inflammatory|pneumonic type|origin|nature
        opacity|consolidation of infective|infectious|inflammatory|pneumonic type|origin|nature""",
        "infection of the lung; aspiration is treated as such",
    ),
    Mention(
        ("atelectasis",),
        """atelectasis; atelectatic; atelectatic change|opacity|band|lung|disease|density|streak; collapse
        lung volume loss; subsegmental|segmental|discoid|linear|plate atelectasis
        platelike|bandlike|lobar|passive|compressive|dependent atelectasis
        streaky|rounded|round|relaxation|compression|postoperative atelectasis; plate|band like atelectasis
        volume loss; lung|lobar|lobe|partial|pulmonary|parenchymal|volume collapse
        loss of lung? volume|aeration; aeration loss; collapse of lung? tissue|parenchyma; collapsed
        collapsed lung|lobe|tissue; base collapse; atelectatic atelectasis
        subsegmental|segmental|discoid|linear|platelike collapse
        strip|band|streak|focus of collapse|atelectasis; incomplete|partial expansion of lung; airless lung""",
        "lung without its air",
    ),
    Mention(
        ("edema",),
        """edema; edematous; pulmonary|interstitial|alveolar|lung|cardiogenic|airspace|vascular|septal edema
        interstitial|alveolar|cardiogenic|airspace pulmonary|lung edema; interstitial and|or alveolar edema
        edema of lung|interstitium; kerley b? line; septal line; flash edema; batwing opacity
        pulmonary interstitial|alveolar edema; edema pattern; lung|pulmonary water|fluid; wet lung
        pulmonary fluid|volume overload; fluid overload of lung""",
        "water in the lung; septal lines are its sign on a film",
    ),
    Mention(
        ("vascular congestion",),
        """vascular|venous congestion|redistribution|distension|plethora|fullness; congestion; cephalization
        pulmonary vascular|venous congestion|redistribution
        pulmonary vascular|venous prominence|distension|fullness|cephalization
        central|perihilar pulmonary? vascular|venous congestion|prominence; pulmonary venous hypertension
        venous hypertension; pulmonary|lung congestion; congestive change|pattern
        upper lobe diversion|redistribution
        cephalization|redistribution of pulmonary? flow|vessel|vasculature|vascularity|vascular; congested lung
        vascular prominence; congestive pulmonary vasculature; upper lobe blood|vein|venous diversion
        circulatory|hydrostatic overload; fluid|volume overload""",
        "full veins without water in the lung yet",
    ),
    Mention(
        ("nodule",),
        """nodule; micronodule; lung|pulmonary|parenchymal|noncalcified|solid|round|rounded nodule; coin lesion
        nodular opacity|density|focus|lesion|shadow|shadowing|infiltrate; rounded|round|spherical focus|lesion
        spherical nodular? focus|lesion; non calcified nodule; round|rounded nodular opacity|density
        metastatic nodule; metastasis; metastatic disease; pulmonary|lung metastasis""",
        "a rounded lesion below 3 cm",
    ),
    Mention(
        ("mass",),
        """mass; mass like? opacity|lesion|density|consolidation; masslike opacity|lesion|density|consolidation
        tumor; lung|bronchogenic|pulmonary tumor; neoplastic process|lesion|disease
        space occupying lesion|process; tumorous lesion; hilar mass lesion; mass lesion
        lung|pulmonary space occupying lesion; pulmonary|lung parenchymal lesion
        lung|pulmonary|parenchymal|cavitary mass""",
        "a larger lesion, or one called a tumour; CheXpert's lung lesion is nodule and mass together",
    ),
    Mention(
        ("nodule", "mass"),
        "lung|pulmonary? nodule / mass; lung|pulmonary? mass / nodule",
        "one lesion for certain, on one side of 3 cm or the other",
    ),
    Mention(
        ("cavity",),
        """fibrocavitary lesion|disease|change|opacity|process?
        cavity; cavitation; cavitary; cavitating; cavitated; cavern
        excavated|excavating lesion|focus|nodule; lung|pulmonary abscess; lung|pulmonary cavity
        cavitary|cavitating|cavitated|hollow lesion|nodule|process|opacity
        cavitary|cavitating|cavitated|hollow disease|change|focus|consolidation
        thin|thick walled cavity|ring|lucency; ring shadow|lesion|opacity; hollow space; cavity lesion
        air filled|containing cavity|space|lesion""",
        "a hole with a wall in the lung",
    ),
    Mention(
        ("granuloma",),
        """granuloma; granulomatous; calcified|old|pulmonary|lung|healed|prior granuloma
        calcified nodule|focus|nodular
        granulomatous disease|change|sequela|process|infection|calcification|exposure
        calcified pulmonary|lung nodule
        prior|old|remote granulomatous disease|change|sequela|process|infection|exposure
        healed|chronic|calcified granulomatous disease|change|sequela|process|infection|exposure
        sequela of prior|old|remote? granulomatous disease|infection|process|change|exposure
        hilar|mediastinal calcification; calcified nodular density|opacity|focus|lesion
        calcified lymph? node; calcified hilar|mediastinal lymph? node
        calcified hilar|mediastinal? lymphadenopathy; lymph? node|nodal calcification
        calcified lung|pulmonary granuloma; calcified primary|ghon complex|lesion|focus; ghon complex|lesion
        histoplasmosis infection?; densely calcified granuloma|nodule; calcified residue
        hilar|mediastinal lymph? node calcification; calcified hilar|mediastinal node
        calcified density|opacity""",
        "what an old infection leaves: a calcified nodule or node",
    ),
    Mention(
        ("emphysema",),
        """emphysema; emphysematous
        pulmonary|bullous|centrilobular|panlobular|lung|obstructive|paraseptal emphysema; copd
        emphysematous change|lung|disease|remodelling|remodeling
        chronic? obstructive pulmonary|lung|airway disease|change; change of copd|emphysema; copd change
        chronic obstructive change|disease; emphysematous pulmonary change
        hyperinflated of emphysematous type; emphysematous hyperinflated""",
        "lung destroyed by air; COPD is how most reports call it",
    ),
    Mention(
        ("hyperinflation",),
        """hyperinflated; air trapping; hyperinflated lung; large|increased|high lung volume; barrel chest
        barrel shaped chest; increased retrosternal airspace|space|lucency
        hyper inflation|inflated|expanded|expansion|lucent|aerated|aeration
        increased ap|anteroposterior diameter; over inflation|inflated|expanded|expansion
        overly inflated|expanded; increased ap diameter of chest; increased lung lucency
        hyperinflated chest""",
        "too much air in whole lungs",
    ),
    Mention(
        ("bulla",),
        """bulla; bullous; bleb; pneumatocele; bullous change|disease|lesion; lung|pulmonary|air cyst
        thin walled lung|pulmonary? cyst""",
        "an air space without a wall to speak of",
    ),
    Mention(
        ("interstitial pattern",),
        """interstitial pattern|disease|change|thickening|infiltrate
        interstitial opacity|process|prominence|abnormality|coarsening|density
        interstitial lung|pulmonary disease|opacity|change|thickening
        interstitial lung|pulmonary pattern|process|fibrosis|prominence|abnormality
        reticular|reticulonodular|reticulated pattern|opacity|change|marking
        reticular|reticulonodular|reticulated infiltrate|shadowing|density|disease|process; reticulation; ild
        uip; septal thickening; septal line thickening; interlobular septal thickening; honeycombing
        honeycomb change|pattern; pulmonary|interstitial|lung|diffuse fibrosis; fibrosis
        fibrotic|fibrosing lung|pulmonary? disease|process; mesh|net|web like? marking|pattern|opacity|shadowing
        network|lacework|mesh of fine|interstitial? line|marking
        interstitial reticulation|reticular|reticulonodular pattern|opacity|marking?; fibrotic pulmonary disease
        septal|linear interstitial pattern|opacity; pulmonary fibrotic change
        chronic interstitial change|disease|marking; chronic interstitial lung|pulmonary disease|change|opacity
        reticular interstitial disease; net like pattern|coarsening; mesh like coarsening; reticular coarsening""",
        "a net of lines; its causes are named with it",
    ),
    Mention(
        ("bronchiectasis",),
        "bronchiectasis; bronchiectatic; bronchiectatic change; tram track opacity?",
        "widened bronchi",
    ),
    Mention(
        ("bronchial wall thickening",),
        """peribronchial|bronchial|airway|peribronchovascular wall? thickening|cuffing|prominence
        thickening of bronchial wall; thickened bronchial wall; bronchitis; bronchitic change
        small|reactive airway disease; bronchiolitis; reactive small? airway disease
        perihilar peribronchial thickening|cuffing; airway thickening""",
        "thick walls of bronchi, and the diseases that show as nothing else",
    ),
    Mention(
        ("scarring",),
        """scarring; scar
        parenchymal|pulmonary|lung|pleuroparenchymal|linear|fibrotic|bandlike|chronic scarring|scar
        fibrotic|fibrous|cicatricial change|scarring|band|stranding|opacity|strand
        pleural parenchymal scarring|scar|change; pleuroparenchymal change|thickening; cicatrization
        fibronodular|fibrocalcific change|scarring|opacity; linear|band like scarring
        parenchymal fibrotic change; scar tissue""",
        "lung healed by fibre",
    ),
    Mention(
        ("low lung volumes",),
        """lower lung volume
        low|decreased|reduced|diminished|small|shallow|poor|suboptimal lung|inspiratory volume; low volume
        hypoinflated; shallow|poor|low|suboptimal|limited inspiration|inflation|expansion
        incomplete|reduced|decreased|submaximal|weak inspiration|inflation|expansion
        shallow|poor|low|suboptimal|limited|reduced|decreased inspiratory effort|result|expansion|level
        low volume lung
        under|hypo expansion|inflation|ventilation|expanded|inflated|aeration|ventilated|aerated
        hypoinflated change|lung; expiratory film|phase; lung is? low in volume
        poorly|incompletely|suboptimally expanded|inflated lung?; reduction in|of lung? volume
        shortfall|lack of inspiration|expansion; hypoinflated of lung; low volume film
        diminished|decreased pulmonary volume; shallow depth of inspiration; low degree of inspiration
        reduced|low lung expansion|inflation; small volume lung
        bronchovascular|vascular|pulmonary? crowding; pulmonary vascular crowding
        crowding of bronchovascular|pulmonary|vascular? marking|structure|vessel|vasculature""",
        "lungs not filled",
    ),
    Mention(
        ("mass",),
        "lung lesion; pulmonary lesion",
        "CheXpert's lung lesion where the report says no more",
    ),
)

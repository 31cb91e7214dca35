"""Words that name something of the pleura. Fluid and air in a pleural space stand in `statements`."""

from __future__ import annotations

from cxrlab.core.vocabulary import Severity, Side
from cxrlab.findings.reading.rows import Mention

# Denied, it denies nothing by name: "no pleural abnormality" is a normal statement.
UNNAMED = Mention(
    ("other pleural abnormality",),
    """pleural abnormality|disease|finding|condition|process|pathology; abnormality|disease|finding of pleura
    finding|abnormality related to pleura|pleural; finding|abnormality related to pleural space|surface|lining""",
    "something is wrong with the pleura, and it is not said what",
)
ROWS = (
    UNNAMED,
    Mention(
        ("other pleural abnormality",),
        """other pleural abnormality|disease|finding|condition|process|pathology|change|lesion; pleural other
        other abnormality|disease|finding|change|lesion of pleura""",
        "what is left of the pleura when fluid and air have been spoken of: CheXpert's name for it too",
    ),
    Mention(
        ("pleural effusion",),
        """effusion; pleural|layering|subpulmonic|parapneumonic|loculated|dependent|free effusion|fluid
        pleural fluid collection; collection of pleural fluid; accumulation of pleural fluid
        pleural collection|liquid|accumulation; pleurisy fluid
        layering|loculated|free|subpulmonic|dependent pleural effusion|fluid; fissural fluid|effusion
        meniscus sign?; pleural based? fluid; pleural effusion collection; parapneumonic pleural effusion
        pseudotumor; thoracic fluid""",
        "fluid in the pleural space, whatever the fluid",
    ),
    Mention(
        ("pleural effusion",),
        "costophrenic|cp angle? blunting; costophrenic sulcus blunting; blunting of pleural space",
        "the angle fills first, but thickening fills it too",
        possible=True,
    ),
    Mention(
        ("pleural effusion", "pneumothorax"),
        "hydropneumothorax; hemopneumothorax; pyopneumothorax; hydro pneumothorax",
        "fluid and air in one word",
    ),
    Mention(
        ("pneumothorax",),
        """pneumothorax; ptx; pleural|intrapleural|extrapulmonary air
        rim|cap|band|collection of pleural|intrapleural air; air cap|rim; visceral pleural line
        deep sulcus sign; intrapleural|pleural air collection; pneumo; pleural line""",
        "air in the pleural space",
    ),
    Mention(("pneumothorax",), "tension pneumothorax", "under tension it is never small", degree=Severity.SEVERE),
    Mention(
        ("pleural thickening",),
        """pleural thickening|fibrosis|capping|rind|reaction|scarring|scar|change|irregularity|peel|cap
        thickening of pleura|pleural; thickening of pleural lining|surface; thickened pleura|pleural
        thickened pleural lining; fibrothorax; pleural fibrous change|rind
        fibrous pleural change|rind|thickening; fibrous change of pleura|pleural
        fibrous change of pleural lining; fissural thickening; pleural based density|opacity
        pleural based scarring|thickening; pleural rind formation; fibrous pleural rind formation?
        thickening of fissure; fibrous thickening of pleura|pleural; scarring of pleura
        pleural scar formation; adhesion; pleural adhesion""",
        "a thick or scarred pleura without fluid",
    ),
    Mention(("pleural thickening",), "apical cap|capping", "said of the apex alone", place="apex"),
    Mention(("pleural thickening",), "biapical cap|capping", "both tops", side=Side.BILATERAL, place="apex"),
    Mention(
        ("pleural plaque",),
        """pleural|hyaline plaque; calcified|hyaline pleural plaque; pleural calcification
        calcification of pleura; calcified pleura|pleural; asbestos related? pleural? disease|change
        calcified pleural disease|thickening; plaque of pleura; pleural plaque formation|calcification
        hyaline plaque formation""",
        "calcified or fibrous plates, mostly of asbestos",
    ),
)

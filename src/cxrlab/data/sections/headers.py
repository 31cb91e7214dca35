"""The table of header names: which section each begins, with a reason a row.

Names are in the form that `naming.simple` gives: lower case, `/` and `&` as "and", no brackets, no digits.
In a row names are parted by `;`, and a word may have several forms parted by `/`, in which `_` is a blank:
"reason for exam/x_ray" is "reason for exam" and "reason for x ray". A new spelling is one name in one row
and one case under `tests/data/sections/cases/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

TECHNIQUE = "technique"
RECOMMENDATION = "recommendation"
NOTIFICATION = "notification"
ADDENDUM = "addendum"
WET_READ = "wet read"
ADMINISTRATION = "administration"
SIGNATURE = "signature"
SUMMARY = "summary"
COMMENT = "comment"
PREAMBLE = "preamble"
UNNAMED = "unnamed"
IMAGE = "film"

# A block of its own beside the body: headers inside it are not the body's.
ASIDES = (WET_READ, ADDENDUM)
# What only marks a place: the report proper begins; a drawn line; a part of the body within the findings.
BODY, RULE, ORGAN = "final report", "rule", "organ"
# The usual order of a report; what has no place in it may stand anywhere.
RANK = {"examination": 0, "indication": 0, TECHNIQUE: 0, "comparison": 0, "findings": 1, "impression": 2}


@dataclass(frozen=True)
class Row:
    """Names of one section.

    Args:
        section: What the text after such a header belongs to.
        names: Spellings, in the notation of this file.
        why: Why they mean this.
        bare: Whether such a header also counts without a colon: alone on its line, or in capitals before its text.
        merged: Whether the text is findings and impression in one.
    """

    section: str
    names: str
    why: str
    bare: bool = False
    merged: bool = False


_EXAM = "exam/exams/examination/examinations/study/studies/image/images/radiograph/radiographs/imaging/x_ray/cxr"
_SUM = "impression/impressions/conclusion/conclusions/opinion/interpretation"

ROWS = (
    Row("findings", "findings; finding", "the word itself", bare=True),
    Row(
        "findings",
        "radiographic/radiological/imaging/chest/xray/x_ray/cxr/chest_x_ray/additional/other findings",
        "the word, narrowed; a second findings section is kept beside the first",
    ),
    Row("findings", "report", "departments that never say findings", bare=True),
    Row(
        "findings", "body of report; observations; description; discussion; result; results", "the same in other words"
    ),
    Row("impression", "impression; impressions; conclusion; conclusions", "the word itself", bare=True),
    Row(
        "impression",
        "final/overall/radiological/radiographic impression/conclusion; opinion; interpretation; imp;"
        "diagnosis; radiological/radiographic/final diagnosis; impression and plan/recommendation/recommendations",
        "other words for what it comes to",
    ),
    Row(COMMENT, "comment; comments", "an impression in British words, where the report has no other", bare=True),
    Row(SUMMARY, "summary; in summary; summary of findings", "an impression, unless the report has one: then a code"),
    Row(
        "impression",
        f"findings/finding/report and {_SUM}; findings {_SUM}; impression/impressions/conclusion and findings",
        "one section for both; the impression as in MIMIC's rules, since structuring moves findings out of it",
        bare=True,
        merged=True,
    ),
    Row("indication", "indication/indications; clinical indication/indications", "the word itself", bare=True),
    Row("indication", "history; clinical history; clinical information", "what is known before the film", bare=True),
    Row(
        "indication",
        "patient/patient_s/medical/past/past_medical/brief/relevant/pertinent/relevant_clinical/brief_clinical history;"
        "clinical info/data/details/detail/context/question/note/notes/statement/background/symptoms/problem/hx;"
        "history/clinical_history/clinical_indication and indication/indications/history/reason_for_exam;"
        "indication/indications and history/clinical_history/reason_for_exam/comments; hx; clinical; symptom; symptoms;"
        "history of present illness; chief/presenting complaint; complaint; medical condition;"
        "underlying medical condition",
        "why the patient came",
    ),
    Row(
        "indication",
        f"reason/indication/indications for {_EXAM}; reason/indication for this/the {_EXAM};"
        "reason for test/visit/procedure/request/referral/order/consult; reason for this procedure/test;"
        "exam/examination/study indication/indications/reason; reason; request; clinical request; question",
        "why the film was asked for",
    ),
    Row("comparison", "comparison; comparisons", "the word itself", bare=True),
    Row(
        "comparison",
        f"comparison/comparisons/comparative/reference/prior/previous/prior_relevant/prior_chest {_EXAM};"
        "comparison/comparisons date/dates/made/made_to/made_with/to/with/is_made_to/is_made_with;"
        "compared to; compared with; compare; priors; prior; reference; prior reports",
        "the film it is set beside",
    ),
    Row("examination", "exam; examination; examinations; procedure", "the word itself", bare=True),
    Row(
        "examination",
        "type/name of exam/examination/procedure/study;"
        "exam/examination/procedure/study type/name/description/performed;"
        "examination/exam/study requested; study; exams; procedures; radiographic examination; test",
        "what was done, by another name",
    ),
    Row(TECHNIQUE, "technique; techniques; tech", "how the film was made", bare=True),
    Row(
        TECHNIQUE,
        "view; views; number of views; views obtained; projection; projections; protocol; procedure comments;"
        "imaging/radiographic technique",
        "which films were made",
    ),
    Row(RECOMMENDATION, "recommendation; recommendations", "advice is not what the film shows", bare=True),
    Row(NOTIFICATION, "notification/notifications; communication/communications", "who was told", bare=True),
    Row(
        RECOMMENDATION,
        "recommended follow up; advice; follow up; followup; suggestion; suggestions;"
        "follow up recommendation/recommendations",
        "the same in other words",
    ),
    Row(
        NOTIFICATION,
        "critical result/results/finding/findings;"
        "critical results communication; communication of critical results;"
        "findings discussed/communicated/were_discussed/were_communicated to/with",
        "who was told; named here, since some hold the word findings",
    ),
    Row(WET_READ, "wet read; wetread; wet reading; wet read version", "the first glance, often at night", bare=True),
    Row(
        WET_READ,
        "preliminary report/read/reading/interpretation/impression/findings/result/radiology_report; prelim;"
        "prelim read/report; pfi; provisional findings impression; provisional report; er/ed/ed_wet/overnight read",
        "a reading that the final report replaces",
        bare=True,
    ),
    Row(
        ADDENDUM,
        "addendum; addenda; final/late addendum; addendum report/begins/start/to_report; report addendum; amendment;"
        "amended/supplementary report",
        "a later remark",
        bare=True,
    ),
    Row(
        BODY,
        "final report; final radiology report; final; radiology report; original/full report;"
        "original/final report follows; end/end_of addendum/wet_read/preliminary_report; addendum ends/end",
        "the report proper begins here",
        bare=True,
    ),
    Row(
        ADMINISTRATION, "accession; mrn; dob; cc; radiologist; attending; referrer", "no words of a sentence", bare=True
    ),
    Row(ADMINISTRATION, "end of impression/findings; narrative", "they close, or hold all that follows", bare=True),
    Row(
        ADMINISTRATION,
        "summary code; accession number/no; patient;"
        "patient name/id; medical record number; date; date/date_and_time of exam/examination/study/service/birth;"
        "exam/examination/study/report date/time/date_and_time/number/id/status;"
        "ordering/referring/requesting/attending/interpreting/reading/dictating physician/provider/doctor/radiologist;"
        "admitting diagnosis; clip/account/order number; icd; icd code/codes; cpt; cpt/billing code; radiation dose;"
        "facility; hospital; primary diagnostic code; copy/copies to; referred by",
        "the paper, not the patient",
    ),
    Row(
        SIGNATURE,
        "dictated/signed/transcribed/reported/interpreted/reviewed/read/approved/verified/authenticated by/on;"
        "electronically/digitally/e signed/signed_by/approved_by/verified_by; signed electronically by; signature;"
        "transcriptionist; signer; end of report/text; primary interpreting staff/resident; verifier; verifier e sig",
        "who wrote it",
        bare=True,
    ),
    Row(
        ORGAN,
        "lung; lungs; left/right lung; lung parenchyma/fields; airway; airways; central airways; trachea; hila; hilum;"
        "lung/lungs and airways/pleura/pleural_spaces; pleura and lungs; pleura; pleural space/spaces/cavities;"
        "heart; heart size; cardiac; cardiac/cardiomediastinal silhouette; cardiomediastinum; mediastinum;"
        "heart/cardiac and mediastinum/vessels; mediastinum and heart/hila; aorta; thoracic aorta; vessels;"
        "vasculature; pulmonary vasculature; bone; bones; bones and soft tissues; soft tissue/tissues; skeleton;"
        "osseous/bony structures; bony thorax; ribs; spine; thoracic spine; chest wall; musculoskeletal;"
        "diaphragm; diaphragms; abdomen; upper abdomen; visualized/visualised upper abdomen; lines; tubes; devices;"
        "lines and tubes/devices; tubes and lines/catheters; lines tubes; lines tubes and devices;"
        "tubes lines and devices; support devices; hardware; catheters; pacemaker; central line/lines;"
        "chest/endotracheal/et/ng/nasogastric/feeding tube/tubes",
        "a part of the body or a device heads its own findings; the word stays in the text",
    ),
)

# Where the whole name is in no row: capitals that hold one of these words, the first that fits.
HOLDS = (
    ("impression", "impression"),
    ("findings", "findings"),
    ("indication", "indication"),
    ("history", "indication"),
    ("comparison", "comparison"),
    ("technique", TECHNIQUE),
    ("addendum", ADDENDUM),
    ("wet read", WET_READ),
    ("preliminary", WET_READ),
    ("recommendation", RECOMMENDATION),
)


def spelled(names: str) -> list[str]:
    """Every name that the notation of a row stands for."""
    return [
        " ".join(words).replace("_", " ")
        for name in names.split(";")
        for words in product(*(word.split("/") for word in name.split()))
    ]


def _by_name(rows: tuple[Row, ...]) -> dict[str, Row]:
    named: dict[str, Row] = {}
    for row in rows:
        for name in spelled(row.names):
            if named.setdefault(name, row) is not row:
                raise ValueError(f"header '{name}' stands in two rows: {named[name].section} and {row.section}.")
    return named


BY_NAME: Mapping[str, Row] = _by_name(ROWS)

"""Words that name something of the bones and the soft tissues. Fractures stand in `statements`: they need a bone."""

from __future__ import annotations

from cxrlab.core.vocabulary import Side
from cxrlab.findings.reading.rows import Mention

ROWS = (
    Mention(
        ("vertebral fracture",),
        """vertebral|spinal|spine|thoracic|lumbar compression|wedge fracture|deformity
        compression fracture|deformity; wedge fracture|deformity
        vertebral body? fracture|collapse|compression|wedging|deformity; anterior wedging
        vertebral height loss; loss of vertebral body? height; height loss; loss of height; wedging
        wedge compression; thoracic|lumbar vertebral body? fracture|compression|wedging|deformity
        wedge compression fracture|deformity; thoracic|lumbar vertebral compression fracture|deformity
        compressed vertebra; xxxx loss of thoracic|lumbar? vertebral body
        height loss of thoracic|lumbar? vertebral body; anterior wedging of vertebral body
        compression of vertebral body; collapsed vertebra; wedge shaped vertebra; vertebral body height loss""",
        "a vertebra that has lost height",
    ),
    Mention(
        ("bone deformity",),
        "pectus excavatum|carinatum|deformity?; cervical rib; hill sachs deformity?; exostosis; bifid rib; fused rib",
        "a bone of unusual shape; how it came about is not said",
    ),
    Mention(
        ("dislocation",),
        "dislocation; subluxation; dislocated; shoulder|joint|acromioclavicular separation|subluxation|dislocation",
        "a joint out of place",
    ),
    Mention(
        ("kyphosis",),
        "kyphosis; kyphotic; hyperkyphosis; kyphotic curvature|deformity|angulation; dowager hump; thoracic kyphosis",
        "a bent spine, seen from the side",
    ),
    Mention(
        ("kyphosis", "scoliosis"), "kyphoscoliosis; kyphoscoliotic deformity?; kypho scoliosis", "both in one word"
    ),
    Mention(
        ("scoliosis",),
        """scoliosis; dextroscoliosis; levoscoliosis; dextrocurvature; levocurvature; rotoscoliosis
        spinal|lateral curvature; scoliosis curvature|deformity|curve; curvature of thoracic? spine
        dextro|levo scoliosis|curvature; s shaped curvature; dextroconvex|levoconvex scoliosis|curvature?
        thoracic|thoracolumbar|lumbar scoliosis|curvature; bowing of spine
        lateral bowing|bending|curvature of spine|vertebral; lateral bowing of vertebral column
        bowing of vertebral column; scoliosis of spine; scoliotic posture; curved spine; spinal scoliosis""",
        "a spine bent to the side",
    ),
    Mention(
        ("degenerative change",),
        """degenerative; degenerated
        degenerative disc|joint|bony|osseous|spinal|endplate|arthritic|hypertrophic? change|disease|spurring
        degenerative spondylosis|arthritis|process|osteophyte|finding|disc; osteophyte; osteophytosis
        osteophytic; spondylosis; spondylotic; spondylitic; osteoarthritis; osteoarthrosis; osteoarthritic
        arthritis; arthrosis; arthropathy; spurring; spur; dish; djd; ddd
        spondylotic|osteophytic|spondylitic|arthritic|hypertrophic|productive change|spurring|lipping
        osteophyte|spur formation; disc space? narrowing|degeneration|disease; schmorl node
        facet arthropathy; syndesmophyte
        endplate|marginal|anterior|hypertrophic|vertebral|bridging spur|spurring|osteophyte formation?
        endplate sclerosis; diffuse idiopathic skeletal hyperostosis; narrowing of disc space
        endplate irregularity|change; wear of spine; degenerative thoracic|lumbar spine change|disease
        osteoarthritic change; arthritic; hypertrophic spur""",
        "wear of the spine and joints",
    ),
    Mention(
        ("osteopenia",),
        """osteopenia; osteopenic; osteoporosis; osteoporotic; demineralization; demineralized
        undermineralized; bone|bony|osseous|diffuse demineralization|osteopenia
        decreased|reduced|low bone|bony|osseous mineral? density
        decreased|reduced|low bone|bony|osseous mineralization; osteopenic bone
        diffuse osseous|bony demineralization""",
        "thin bones",
    ),
    Mention(
        ("bone lesion",),
        """bone|bony|osseous|lytic|sclerotic lesion|metastasis|destruction|island
        blastic|destructive|skeletal|lucent|rib lesion|metastasis|destruction|island
        lytic|sclerotic|destructive|blastic|aggressive|lucent bone|bony|osseous|rib lesion; enchondroma
        expansile lesion|change|process; bony destructive lesion; osseous|bony|skeletal metastatic disease
        lytic|sclerotic process|focus|metastasis; sclerotic|lytic change
        bone|bony|osseous lytic|sclerotic lesion; sclerotic|lytic density|opacity
        metastatic bone lesion|disease; osteochondroma""",
        "a focus in a bone",
    ),
    Mention(
        ("subcutaneous emphysema",),
        """subcutaneous|surgical|cutaneous emphysema|air; soft tissue emphysema|air; chest wall emphysema|air
        air|emphysema of|in|within|through subcutaneous|soft tissue; air streak|bubble
        subcutaneous soft tissue air|emphysema; emphysema of chest|thoracic wall; subcutaneous gas; crepitus""",
        "air in the soft tissues: another thing than emphysema of the lung",
    ),
    Mention(
        ("foreign body",),
        """foreign body|object|material; radiopaque|metallic|retained foreign body|object|material; bullet
        shrapnel; buckshot
        radiopaque|metallic|retained body|object|density|material|fragment|structure|debris
        bullet|metal|shrapnel fragment; pellet; bb; coin; ingested object; piercing
        radiopaque foreign material; retained metallic fragment; jewelry; necklace; nipple ring|shield""",
        "a thing that does not belong to the body and is no treatment",
    ),
    *(
        Mention(("postsurgical change",), f"{lobe} lobectomy", "the lobe that was taken out", place=f"{lobe} lobe")
        for lobe in ("upper", "middle", "lower")
    ),
    *(
        Mention(
            ("postsurgical change",),
            f"absent {side} breast shadow?; {side} breast shadow? is? surgically? absent|missing",
            "the breast that was taken off",
            side=side,
        )
        for side in (Side.LEFT, Side.RIGHT)
    ),
    Mention(
        ("postsurgical change", "sternal wires"),
        "median? sternotomy with intact? wire|suture|cerclage; sternotomy and wire",
        "the operation, and the wires that closed it",
    ),
    Mention(
        ("postsurgical change",),
        """postsurgical|postoperative|postop change|deformity|finding|state
        posttreatment|postradiation|surgical|radiation change|deformity|finding|state
        postsurgical|postoperative appearance|scarring|defect
        post surgical|operative|radiation|treatment change|finding|state; lobectomy; pneumonectomy; mastectomy
        thoracotomy; thoracoplasty; sternotomy; wedge|surgical|rib|lung resection; esophagectomy; lumpectomy
        nephrectomy; median sternotomy; change of median? sternotomy|surgery; radiation fibrosis
        cardiac|heart|chest|thoracic surgery; cholecystectomy; kyphoplasty; vertebroplasty
        vertebral augmentation; cabg; coronary artery? bypass graft|grafting|surgery?
        bypass graft|surgery|grafting; aortocoronary bypass; cabg change; resected rib; resection
        gastric pull through|up; transplant|transplantation; lung|heart transplant|transplantation
        open heart surgery; postsurgical; postoperative; operation; median sternotomy and cabg|bypass; vats
        thoracoscopy; pleurodesis; decortication; bullectomy; segmentectomy
        poststernotomy|postthoracotomy|postlobectomy|postpneumonectomy|postmastectomy change|state|appearance?
        mediastinal|aortic|breast|esophageal|cardiothoracic surgery""",
        "what surgery or radiation leaves, hardware apart",
    ),
)

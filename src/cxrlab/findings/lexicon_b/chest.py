"""Lexicon B, what surrounds the lungs: pleura, heart, mediastinum, diaphragm, bones, soft tissue."""

from __future__ import annotations

from cxrlab.findings.lexicon import phrases

CHEST = phrases("""
pleural effusion (size)
  - pleural fluid
  - a hydrothorax
  - fluid in the pleural space
  ~ {side} pleural fluid collection[|s]
  ~ {side} hydrothora[x|ces]
  [a |]{sev} {side} pleural fluid collection[|s]
  [a |]{sev} collection[|s] of pleural fluid {on}
  [a |]{sev} {side} hydrothora[x|ces]
  [a |]{sev} fluid collection[|s] in <the {side} pleural space|both pleural spaces>
  [a |]{sev} accumulation[|s] of fluid in <the {side} pleural space|both pleural spaces>
  [a |]{sev} hydrothora[x|ces] {on}

pneumothorax (width)
  - pleural air
  - air in the pleural space
  - intrapleural air
  ~ {side} apical pleural air
  ~ {side} apical air cap[|s]
  a {sev} rim of {side} apical pleural air
  a {sev} layer of apical pleural air {on}
  [a |]{sev} {side} apical air cap[|s]
  a {sev} rim of intrapleural air at <the {side} lung apex|both lung apices>
  [a |]{sev} pneumothora[x|ces] capping <the {side} lung apex|both lung apices>
  a {sev} margin of apical pleural air {on}

pleural thickening (degree)
  - a pleural rind
  - pleural fibrosis
  ~ pleural rind {in}
  ~ pleural fibrosis {in}
  [a |]{sev} pleural rind[|s] {in}
  {sev} pleural fibrosis {in}
  [a |]{sev} pleural peel[|s] {in}
  {sev} fibrous change of the pleural lining {in}
  {sev} fibrous pleural rind formation {in}
  = the pleural lining {is} {adv} thick {in}

pleural plaque (none)
  - a hyaline plaque
  - pleural calcification
  ~ hyaline plaque[|s] {in}
  ~ pleural calcification[|s] {in}
  [a |]hyaline plaque[|s] {in}
  [a |]hyaline plaque[|s] along the pleural lining {in}
  [a |]circumscribed pleural calcification[|s] {in}
  [a |]plaque-like pleural deposit[|s] {in}
  [a |]calcific pleural patch[|es] {in}
  [a |]plaque[|s] on the pleural lining {in}

cardiomegaly (degree)
  - heart enlargement
  - dilatation of the heart
  ~ heart enlargement
  ~ dilatation of the heart
  {sev} heart enlargement
  {sev} dilatation of the heart
  {sev} broadening of the cardiac shadow
  a {adv} dilated heart
  = the heart shadow {is} {adv} broadened
  = the outline of the heart {is} {adv} broadened
  = the cardiac shadow {is} {adv} broadened

enlarged cardiomediastinum (degree)
  - mediastinal broadening
  - broadening of the mediastinum
  ~ mediastinal broadening
  ~ broadening of the mediastinum
  {sev} mediastinal broadening
  {sev} broadening of the mediastinum
  {sev} expansion of the mediastinal outline
  a {adv} broad mediastinum
  = the mediastinal outline {is} {adv} broadened
  = the mediastinum {is} {adv} broad

hilar enlargement (degree)
  - lung root enlargement
  - hilar swelling
  ~ {side} hilar swelling
  ~ {side} lung root enlargement
  {sev} {side} hilar swelling
  {sev} {side} lung root enlargement
  {sev} swelling of <the {side} lung root|both lung roots>
  {sev} swelling of <the {side} hilum|both hila>
  = [the {side} lung root|both lung roots] {is} {adv} bulky
  = [the {side} hilum|both hila] {is} {adv} bulky

tortuous aorta (degree)
  - aortic elongation
  - aortic unfolding
  ~ aortic elongation
  ~ aortic unfolding
  {sev} aortic elongation
  {sev} aortic unfolding
  {sev} elongation of the aortic outline
  a {adv} winding aorta
  = the aorta {is} {adv} elongated
  = the aorta {is} {adv} unfolded

aortic calcification (degree)
  - aortic sclerosis
  - calcium in the aortic wall
  ~ aortic sclerosis
  ~ calcium in the aortic wall
  {sev} aortic sclerosis
  {sev} calcific aortic sclerosis
  {sev} calcium deposition in the aortic wall
  {sev} sclerosis of the aortic wall
  = the aortic wall {is} {adv} sclerosed
  = the aortic wall {is} {adv} chalky

hiatal hernia (size)
  - a diaphragmatic hernia
  - an intrathoracic stomach
  ~ gastric herniation into the chest
  ~ diaphragmatic hernia at the hiatus
  a {sev} gastric herniation into the chest
  a {sev} diaphragmatic hernia at the hiatus
  a {sev} hernia of the oesophageal hiatus
  a {sev} gastric hernia above the diaphragm
  a {sev} intrathoracic portion of the stomach
  a {sev} axial hernia of the stomach

elevated hemidiaphragm (degree)
  - a high diaphragm
  - upward displacement of the diaphragm
  ~ upward displacement of the {side} diaphragm
  ~ high stand of the {side} diaphragm
  {sev} upward displacement of the {side} diaphragm
  {sev} high stand of the {side} diaphragm
  a {adv} high {side} diaphragm
  {sev} upward bulging of the {side} dome of the diaphragm
  = the {side} dome of the diaphragm {is} {adv} high
  = the {side} diaphragm {is} {adv} displaced upwards

pneumoperitoneum (width)
  - free abdominal gas
  - subphrenic gas
  ~ free gas below <the {side} dome|both domes> of the diaphragm
  ~ subphrenic gas below <the {side} dome|both domes>
  a {sev} band of free gas below <the {side} dome|both domes> of the diaphragm
  a {sev} layer of subphrenic gas below <the {side} dome|both domes>
  a {sev} gas sickle below <the {side} dome|both domes> of the diaphragm
  a {sev} strip of free abdominal gas below <the {side} dome|both domes>
  a {sev} rim of extraluminal gas below <the {side} dome|both domes>
  a {sev} free gas crescent under <the {side} dome|both domes> of the diaphragm

rib fracture (none)
  - a broken rib
  - a rib break
  ~ break of the {side} {rib} rib
  ~ {side} {rib} rib break
  a break of the {side} {rib} rib
  a broken {side} {rib} rib
  a {side} {rib} rib break
  a discontinuity of the {side} {rib} rib
  a cortical step in the {side} {rib} rib
  = the {side} {rib} rib {is} broken

clavicle fracture (none)
  - a broken collarbone
  - a collarbone fracture
  ~ break of the {side} collarbone
  ~ {side} collarbone fracture
  a break of the {side} collarbone
  a broken {side} collarbone
  a {side} collarbone fracture
  a discontinuity of the {side} collarbone
  a cortical step in the {side} collarbone
  = the {side} collarbone {is} broken

scoliosis (degree)
  - spinal curvature
  - lateral bowing of the spine
  ~ lateral curvature of the spine
  ~ scoliotic deformity
  {sev} lateral curvature of the spine
  {sev} scoliotic deformity
  {sev} lateral bowing of the vertebral column
  {sev} sideways curvature of the spine
  = the vertebral column {is} {adv} curved sideways
  = the spine {is} {adv} bowed to one side

subcutaneous emphysema (extent)
  - surgical emphysema
  - soft tissue gas
  ~ surgical emphysema of <the {side} thoracic wall|both thoracic walls>
  ~ soft tissue gas of <the {side} thoracic wall|both thoracic walls>
  {sev} surgical emphysema of <the {side} thoracic wall|both thoracic walls>
  {sev} soft tissue gas of <the {side} thoracic wall|both thoracic walls>
  {sev} {side} surgical emphysema of the thoracic wall
  {sev} gas under the skin of <the {side} thoracic wall|both thoracic walls>
  {sev} soft tissue emphysema of <the {side} thoracic wall|both thoracic walls>
  {sev} gas streaks through the soft tissues of <the {side} thoracic wall|both thoracic walls>
""")

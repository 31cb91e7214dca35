"""Lexicon A, the lungs. The form of a block is told in `cxrlab.findings.lexicon.phrases`."""

from __future__ import annotations

from cxrlab.findings.lexicon import phrases

LUNGS = phrases("""
lung opacity (extent)
  - airspace opacity
  - focal opacity
  - pulmonary opacity
  ~ opacit[y|ies] {in}
  ~ hazy opacit[y|ies] {in}
  [a |]{sev} hazy opacit[y|ies] {in}
  [a |]{sev} ill-defined opacit[y|ies] {in}
  [a |]{sev} patchy opacit[y|ies] {in}
  [an area|areas] of {sev} opacity {in}
  {sev} airspace opacity {in}
  {sev} nonspecific opacification {in}
  {sev} hazy opacification {in}

consolidation (extent)
  - focal consolidation
  - consolidation
  - airspace consolidation
  ~ consolidation {in}
  ~ focal consolidation {in}
  {sev} consolidation {in}
  {sev} focal consolidation {in}
  {sev} airspace consolidation {in}
  {sev} consolidative change {in}
  [an area|areas] of {sev} consolidation {in}
  [a focus|foci] of {sev} consolidation {in}

pneumonia (extent)
  - pneumonia
  - focal pneumonia
  - pneumonic infiltrate
  ~ pneumonia {in}
  ~ pneumonic infiltrate[|s] {in}
  {sev} pneumonia {in}
  {sev} focal pneumonia {in}
  {sev} bronchopneumonia {in}
  {sev} pneumonic change {in}
  [a |]{sev} pneumonic infiltrate[|s] {in}
  [a |]{sev} infectious infiltrate[|s] {in}
  [an area|areas] of {sev} pneumonia {in}

atelectasis (extent)
  - atelectasis
  - lobar atelectasis
  - significant atelectasis
  ~ atelectasis {in}
  ~ atelectatic change {in}
  {sev} atelectasis {in}
  {sev} atelectatic change {in}
  {sev} volume loss from atelectasis {in}
  {sev} atelectatic opacification {in}
  [an area|areas] of {sev} atelectasis {in}
  {sev} patchy atelectasis {in}
  . {sev} linear atelectasis {in}
  . {sev} plate-like atelectasis {in}
  . {sev} subsegmental atelectasis {in}
  . {sev} discoid atelectasis {in}
  . [a band|bands] of {sev} atelectasis {in}

edema (degree)
  - pulmonary edema
  - edema
  - interstitial edema
  ~ pulmonary edema
  ~ edema of the lungs
  {sev} pulmonary edema
  {sev} interstitial edema
  {sev} edema of the lungs
  {sev} perihilar edema
  a {sev} degree of pulmonary edema
  pulmonary edema of {sev} degree
  = the lungs {are} {adv} edematous

nodule (none)
  - pulmonary nodule
  - lung nodule
  - nodule
  ~ nodule {in}
  ~ pulmonary nodule {in}
  a {size} nodule {in}
  a nodule of {size} {in}
  a nodule measuring {size} {in}
  a well-defined nodule {in} measuring {size}
  a {size} pulmonary nodule {in}
  a round {size} nodule {in}
  a nodule {in} with a diameter of {size}

mass (none)
  - mass
  - lung mass
  - pulmonary mass
  ~ mass {in}
  ~ lung mass {in}
  a {size} mass {in}
  a mass measuring {size} {in}
  a {size} lung mass {in}
  a lung mass {in} measuring {size}
  a mass of {size} {in}
  a {size} soft tissue mass {in}
  a {size} pulmonary mass {in}

cavity (none)
  - cavity
  - cavitary lesion
  - cavitation
  ~ cavity {in}
  ~ cavitary lesion {in}
  a {size} cavity {in}
  a cavity measuring {size} {in}
  a cavitary lesion {in} measuring {size}
  a {size} cavitary lesion {in}
  a {size} air-filled cavity {in}
  a cavity {in} with a diameter of {size}
  a cavitating lesion of {size} {in}

granuloma (none)
  - calcified granuloma
  - granuloma
  ~ granuloma {in}
  ~ calcified granuloma {in}
  a {size} calcified granuloma {in}
  a granuloma measuring {size} {in}
  a {size} granuloma {in}
  a densely calcified granuloma of {size} {in}
  a healed granuloma {in} measuring {size}
  an old {size} granuloma {in}

emphysema (degree)
  - emphysema
  - emphysematous change
  ~ emphysema
  ~ emphysematous change
  {sev} emphysema
  {sev} pulmonary emphysema
  {sev} emphysematous change
  emphysema of {sev} degree
  a {sev} degree of emphysema
  {sev} diffuse emphysema
  = the lungs {are} {adv} emphysematous

interstitial pattern (degree)
  - interstitial lung disease
  - interstitial abnormality
  - reticular pattern
  ~ interstitial pattern {in}
  ~ reticular pattern {in}
  a {sev} interstitial pattern {in}
  a {sev} reticular pattern {in}
  {sev} reticulation {in}
  {sev} interstitial thickening {in}
  {sev} reticular change {in}
  + {sev} interstitial markings {in}
  {sev} interstitial change {in}

low lung volumes (degree)
  - hypoinflation
  - underinflation
  ~ hypoinflation of the lungs
  ~ reduction in lung volume
  + {adv} low lung volumes
  + {adv} reduced lung volumes
  a {sev} reduction in lung volume
  {sev} hypoinflation of the lungs
  {sev} underinflation of the lungs
  = lung volumes {are} {adv} low
  = the lungs {are} {adv} underinflated
""")

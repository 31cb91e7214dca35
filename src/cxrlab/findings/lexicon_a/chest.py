"""Lexicon A, what surrounds the lungs: pleura, heart, mediastinum, diaphragm, bones, soft tissue."""

from __future__ import annotations

from cxrlab.findings.lexicon import phrases

CHEST = phrases("""
pleural effusion (space)
  - pleural effusion
  - effusion
  - layering effusion
  ~ {side} pleural effusion[|s]
  ~ pleural effusion[|s] {on}
  [a |]{sev} {side} pleural effusion[|s]
  [a |]{sev} pleural effusion[|s] {on}
  [a |]{sev} {side} effusion[|s]
  [a |]{sev} layering effusion[|s] {on}
  [a |]{sev} {side} layering pleural effusion[|s]
  [a |]{sev} [{side}-sided|bilateral] pleural effusion[|s]

pneumothorax (space)
  - pneumothorax
  - apical pneumothorax
  - visible pneumothorax
  ~ {side} pneumothora[x|ces]
  ~ {side} apical pneumothora[x|ces]
  [a |]{sev} {side} apical pneumothora[x|ces]
  [a |]{sev} pneumothora[x|ces] at [the {side} apex|both apices]
  [a |]{sev} apical pneumothora[x|ces] {on}
  [a |]{sev} [{side}-sided|bilateral] apical pneumothora[x|ces]
  [a |]{sev} {side} pneumothora[x|ces] at the [apex|apices]
  [a |]{sev} apical [{side}-sided|bilateral] pneumothora[x|ces]

pleural thickening (degree)
  - pleural thickening
  - thickening of the pleura
  ~ pleural thickening {in}
  ~ thickening of the pleura {in}
  {sev} pleural thickening {in}
  {sev} thickening of the pleura {in}
  a {sev} degree of pleural thickening {in}
  {sev} localized pleural thickening {in}
  {sev} focal pleural thickening {in}
  pleural thickening of {sev} degree {in}
  = the pleura {is} {adv} thickened {in}

pleural plaque (none)
  - pleural plaque
  - calcified pleural plaque
  ~ pleural plaque[|s] {in}
  ~ calcified pleural plaque[|s] {in}
  [a |]pleural plaque[|s] {in}
  [a |]calcified pleural plaque[|s] {in}
  [a |]calcified plaque[|s] of the pleura {in}
  [a |]flat pleural plaque[|s] {in}
  pleural plaque formation {in}
  [a |]focal pleural plaque[|s] {in}

cardiomegaly (degree)
  - cardiomegaly
  - cardiac enlargement
  ~ cardiomegaly
  ~ cardiac enlargement
  {sev} cardiomegaly
  {sev} cardiac enlargement
  {sev} enlargement of the heart
  {sev} enlargement of the cardiac silhouette
  a {sev} degree of cardiomegaly
  = the heart {is} {adv} enlarged
  = the cardiac silhouette {is} {adv} enlarged

enlarged cardiomediastinum (degree)
  - mediastinal widening
  - widening of the mediastinum
  ~ mediastinal widening
  ~ widening of the mediastinum
  {sev} mediastinal widening
  {sev} widening of the mediastinum
  {sev} widening of the superior mediastinum
  {sev} enlargement of the cardiomediastinal silhouette
  = the mediastinum {is} {adv} widened
  = the superior mediastinum {is} {adv} widened
  = the cardiomediastinal silhouette {is} {adv} enlarged

hilar enlargement (degree)
  - hilar enlargement
  - hilar prominence
  ~ {side} hilar enlargement
  ~ {side} hilar prominence
  {sev} {side} hilar enlargement
  {sev} {side} hilar prominence
  {sev} {side} hilar fullness
  {sev} enlargement of <the {side} hilum|both hila>
  = [the {side} hilum|both hila] {is} {adv} enlarged
  = [the {side} hilum|both hila] {is} {adv} prominent

tortuous aorta (degree)
  - aortic tortuosity
  - tortuosity of the aorta
  ~ aortic tortuosity
  ~ tortuosity of the thoracic aorta
  {sev} aortic tortuosity
  {sev} tortuosity of the aorta
  {sev} tortuosity of the thoracic aorta
  a {adv} tortuous aorta
  = the aorta {is} {adv} tortuous
  = the thoracic aorta {is} {adv} tortuous

aortic calcification (degree)
  - aortic calcification
  - calcification of the aorta
  ~ aortic calcification
  ~ calcification of the aortic arch
  {sev} aortic calcification
  {sev} calcification of the aortic arch
  {sev} atherosclerotic calcification of the aorta
  {sev} calcification of the thoracic aorta
  {sev} aortic arch calcification
  = the aortic knob {is} {adv} calcified
  = the aortic arch {is} {adv} calcified

hiatal hernia (size)
  - hiatal hernia
  - hiatus hernia
  ~ hiatal hernia
  ~ retrocardiac hiatal hernia
  a {sev} hiatal hernia
  a {sev} hiatus hernia
  a {sev} retrocardiac hiatal hernia
  a {sev} hernia of the hiatus
  a {sev} hiatal hernia behind the heart
  a {sev} air-containing hiatal hernia

elevated hemidiaphragm (degree)
  - hemidiaphragm elevation
  - elevation of a hemidiaphragm
  ~ elevation of the {side} hemidiaphragm
  ~ {side} hemidiaphragm elevation
  {sev} elevation of the {side} hemidiaphragm
  {sev} {side} hemidiaphragm elevation
  a {adv} elevated {side} hemidiaphragm
  {sev} {side} diaphragmatic elevation
  = the {side} hemidiaphragm {is} {adv} elevated
  = the {side} hemidiaphragm {is} {adv} raised

pneumoperitoneum (amount)
  - pneumoperitoneum
  - free intraperitoneal air
  - free air under the diaphragm
  ~ pneumoperitoneum beneath <the {side} hemidiaphragm|both hemidiaphragms>
  ~ free air under <the {side} hemidiaphragm|both hemidiaphragms>
  a {sev} pneumoperitoneum beneath <the {side} hemidiaphragm|both hemidiaphragms>
  a {sev} amount of free air under <the {side} hemidiaphragm|both hemidiaphragms>
  a {sev} volume of free air under <the {side} hemidiaphragm|both hemidiaphragms>
  a {sev} amount of free intraperitoneal air below <the {side} hemidiaphragm|both hemidiaphragms>
  a {sev} {side} subdiaphragmatic pneumoperitoneum
  a {sev} crescent of free air beneath <the {side} hemidiaphragm|both hemidiaphragms>

rib fracture (none)
  - rib fracture
  - visible rib fracture
  ~ fracture of the {side} {rib} rib
  ~ {side} {rib} rib fracture
  a fracture of the {side} {rib} rib
  a {side} {rib} rib fracture
  a fracture through the {side} {rib} rib
  a fracture line in the {side} {rib} rib
  a visible {side} {rib} rib fracture
  = the {side} {rib} rib {is} fractured

clavicle fracture (none)
  - clavicle fracture
  - clavicular fracture
  ~ fracture of the {side} clavicle
  ~ {side} clavicle fracture
  a fracture of the {side} clavicle
  a {side} clavicle fracture
  a {side} clavicular fracture
  a fracture through the {side} clavicle
  a fracture line in the {side} clavicle
  a visible {side} clavicle fracture
  = the {side} clavicle {is} fractured

scoliosis (degree)
  - scoliosis
  - spinal scoliosis
  ~ scoliosis
  ~ thoracic scoliosis
  {sev} scoliosis
  {sev} scoliosis of the thoracic spine
  {sev} thoracic scoliosis
  {sev} spinal scoliosis
  a {sev} scoliotic curve
  = the thoracic spine {is} {adv} scoliotic

subcutaneous emphysema (extent)
  - subcutaneous emphysema
  - subcutaneous air
  ~ subcutaneous emphysema in <the {side} chest wall|both chest walls>
  ~ {side} chest wall subcutaneous emphysema
  {sev} subcutaneous emphysema in <the {side} chest wall|both chest walls>
  {sev} {side} chest wall subcutaneous emphysema
  {sev} subcutaneous air in <the {side} chest wall|both chest walls>
  {sev} subcutaneous emphysema over <the {side} chest wall|both chest walls>
  {sev} subcutaneous gas in <the {side} chest wall|both chest walls>
  {sev} subcutaneous emphysema along <the {side} chest wall|both chest walls>
""")

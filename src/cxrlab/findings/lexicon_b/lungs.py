"""Lexicon B, the lungs. The form of a block is told in `cxrlab.findings.lexicon.phrases`."""

from __future__ import annotations

from cxrlab.findings.lexicon import phrases

LUNGS = phrases("""
lung opacity (extent)
  - shadowing
  - an abnormal density
  - parenchymal shadowing
  ~ shadow[|s] {in}
  ~ cloudy densit[y|ies] {in}
  {sev} ill-defined shadowing {in}
  [a |]{sev} cloudy densit[y|ies] {in}
  [a |]{sev} indistinct densit[y|ies] {in}
  [a |]{sev} vague shadow[|s] {in}
  {sev} ground-glass haze {in}
  [a |]{sev} smudgy densit[y|ies] {in}

consolidation (extent)
  - alveolar filling
  - consolidated lung tissue
  - airspace solidification
  ~ alveolar filling {in}
  ~ airspace solidification {in}
  {sev} alveolar filling {in}
  {sev} airspace solidification {in}
  {sev} consolidated lung tissue {in}
  {sev} confluent alveolar filling {in}
  {sev} airspace filling with air bronchograms {in}
  [a |]{sev} zone[|s] of alveolar filling {in}

pneumonia (extent)
  - a lung infection
  - a pneumonic process
  - infective infiltration
  ~ lung infection {in}
  ~ infective infiltration {in}
  {sev} lung infection {in}
  {sev} infective infiltration {in}
  [a |]{sev} pneumonic process[|es] {in}
  {sev} infiltration of infective type {in}
  [a |]{sev} infective foc[us|i] {in}
  {sev} pneumonic infection {in}

atelectasis (extent)
  - collapse
  - lung collapse
  - loss of aeration
  ~ partial collapse {in}
  ~ loss of aeration {in}
  {sev} partial collapse {in}
  {sev} loss of aeration {in}
  {sev} collapse of lung tissue {in}
  {sev} airless collapse {in}
  [an area|areas] of {sev} collapse {in}
  {sev} parenchymal collapse {in}
  . {sev} streaky collapse {in}
  . [a |]{sev} strip[|s] of collapse {in}

edema (degree)
  - lung oedema
  - oedema of the interstitium
  - pulmonary oedema
  ~ lung oedema
  ~ pulmonary oedema
  {sev} pulmonary oedema
  {sev} lung oedema
  {sev} fluid overload of the lungs
  {sev} interstitial and alveolar oedema
  {sev} hydrostatic oedema
  {sev} cardiogenic oedema
  = the interstitium {is} {adv} oedematous

nodule (none)
  - a coin lesion
  - a rounded focus
  - a nodular lesion
  ~ coin lesion {in}
  ~ nodular lesion {in}
  a rounded focus of {size} {in}
  a coin lesion {in} {size} across
  a {size} coin lesion {in}
  a {size} nodular lesion {in}
  a nodular focus {in} spanning {size}
  a spherical nodular lesion of {size} {in}

mass (none)
  - a tumour
  - a space-occupying lesion
  ~ tumour {in}
  ~ space-occupying lesion {in}
  a {size} tumour {in}
  a solid tumour {in} of {size}
  a tumour {size} across {in}
  a space-occupying lesion {in} spanning {size}
  a {size} space-occupying lesion {in}
  a {size} tumorous lesion {in}

cavity (none)
  - a cavern
  - an excavated lesion
  ~ cavern {in}
  ~ excavated lesion {in}
  a {size} cavern {in}
  a cavern {in} {size} across
  a {size} ring shadow {in}
  an excavated lesion {in} spanning {size}
  a {size} hollow lesion {in}
  a hollow lesion {in} with a width of {size}

granuloma (none)
  - a granulomatous residue
  - a calcified residue
  ~ granulomatous residue {in}
  ~ calcified residue {in}
  a {size} calcified residue {in}
  a granulomatous residue {in} spanning {size}
  a {size} granulomatous residue {in}
  a chalky granulomatous focus of {size} {in}
  a {size} calcified granulomatous focus {in}
  a chalky residue {size} across {in}

emphysema (degree)
  - obstructive emphysema
  - emphysematous remodelling
  ~ obstructive emphysema
  ~ emphysematous remodelling
  {sev} obstructive emphysema
  {sev} panlobular emphysema
  {sev} emphysematous remodelling
  {sev} emphysematous destruction
  {sev} hyperlucency of emphysematous type
  = the parenchyma {is} {adv} rarefied by emphysema

interstitial pattern (degree)
  - interstitial fibrosis
  - fibrosing lung disease
  ~ interstitial fibrosis {in}
  ~ coarse interstitium {in}
  {sev} interstitial fibrosis {in}
  {sev} fibrosing lung disease {in}
  {sev} coarsening of the interstitium {in}
  {sev} net-like coarsening {in}
  {sev} septal line thickening {in}
  a {sev} lacework of interstitial lines {in}

low lung volumes (degree)
  - poor inflation
  - a shallow inspiration
  ~ poor inflation
  ~ shallow inspiration
  {sev} under-expansion of the lungs
  {sev} hypoventilation of the lungs
  a {adv} shallow inspiration
  {sev} shortfall of inspiration
  = inspiration {is} {adv} shallow
  = the lungs {are} {adv} poorly inflated
  = the depth of inspiration {is} {adv} short
""")

"""Twelve blemishes that real chest radiographs have, each in five severities.

Reading order: `conditions` (the table, the names, `corrupt`), then one file for each place where an image is spoilt:
`positioning` (patient and tube), `detector`, `display` (grey values), `delivery` (what is burned in or compressed).
"""

from cxrlab.attacks.corruptions.conditions import CORRUPTIONS, SEVERITIES, corrupt

__all__ = ["CORRUPTIONS", "SEVERITIES", "corrupt"]

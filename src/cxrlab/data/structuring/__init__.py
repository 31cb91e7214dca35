"""Rewrite reports as four clean sections about one image alone, by rules or by a language model."""

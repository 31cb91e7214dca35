"""Defences against extraction: gate, quota, fixed sentences and watermark; each is checked and attacked."""

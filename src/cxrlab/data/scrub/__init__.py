"""Telling and taking out what names a patient: in headers of files, and burned into the images themselves."""

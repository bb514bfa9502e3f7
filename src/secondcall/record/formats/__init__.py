"""Readers of transcript files, one file per format. Pure: from parsed JSON to sessions of items."""

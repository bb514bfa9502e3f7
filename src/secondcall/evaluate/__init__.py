"""Measures recall on public data sets, through the public face. See ``docs/evaluation.md``."""

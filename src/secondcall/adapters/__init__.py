"""Adapters: one host framework each, imported only when it is used."""

"""This conversation: what is in the window, and what leaves it."""

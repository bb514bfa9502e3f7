"""SQL files, one folder per database; ``stores/statements.py`` reads them."""

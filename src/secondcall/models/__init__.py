"""Language models, one file per provider."""

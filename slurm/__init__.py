"""Turn a study into job scripts; run, follow and resume them. Needs no torch."""

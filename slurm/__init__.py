"""Turn a study into job scripts; run and follow them. Needs no torch."""

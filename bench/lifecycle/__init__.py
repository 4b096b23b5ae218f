"""The watch over a run and its end, whatever happens to a rank. Nothing here needs torch."""

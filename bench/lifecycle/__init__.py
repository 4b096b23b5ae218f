"""How a run is watched and how it ends, whatever happens to a rank; needs no torch."""

"""Pack a study for citing, once nothing in its folder contradicts the rest."""

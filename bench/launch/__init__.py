"""Who this process is, where ranks meet, what the machine gives them; needs no torch."""

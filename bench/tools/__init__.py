"""Set-up, doctor and overhead bench: not measured, and not in the digest of the measuring code."""

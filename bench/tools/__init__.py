"""Set-up, doctor and other tools: not measured, and not in the digest of the measuring code."""

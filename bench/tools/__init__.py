"""Set-up, doctor and other tools, which the `code_sha256` of run logs does not cover."""

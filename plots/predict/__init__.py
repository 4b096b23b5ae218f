"""What a step will take at numbers of ranks that were not measured: pure functions of numbers."""

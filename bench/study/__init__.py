"""A study: its definition, plan, folder, runs and statistics. Nothing here imports torch."""

"""What is asked, planned and done: one study, its plan, its folder, its statistics; no torch."""

"""Other tools' logs: text into observations (text), observations into points (points)."""

"""Figures, pages and files of a study, made from the numbers of its analysis."""

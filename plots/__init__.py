"""Run logs to statistics, figures and a report; needs no torch and starts nothing."""

"""Numbers to figures, Markdown and JSON: the only room that rounds."""

"""What the study's loop costs against a bare hand-written one, by turns in one process group."""

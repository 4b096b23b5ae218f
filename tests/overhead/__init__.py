"""What the study's loop costs against a bare hand-written one, by turns in one process group.

Both loops train one and the same wrapped model, so that where a model lies in memory cannot favour
one of them. This is precise, and blind to anything outside the loop.
"""

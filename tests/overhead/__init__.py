"""What the study's loop costs against a bare hand-written one: two designs, each with a weakness.

In turns: both loops train one and the same wrapped model in one process group, so that where a
model lies in memory cannot favour one of them; this is precise, and blind to anything outside the
loop. Apart: the whole of `python -m bench` against a script with nothing but the bare loop, each in
fresh processes, with a second bare run beside it that shows what two equal things differ by here;
this misses nothing, and is as noisy as the machine.
"""

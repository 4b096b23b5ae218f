"""tf_cnn_benchmarks: `10<TAB>images/sec: 256.1 +/- 0.4 (jitter = 1.1)<TAB>7.95`."""

from __future__ import annotations

from plots.imports.observation import NUMBER, Format, matched

FORMAT = Format(
    read=matched(
        rf"(?<![\d.])(?P<step>\d+)\timages/sec: (?P<process_images_per_s>{NUMBER}) "
        rf"\+/- (?P<uncertainty_images_per_s>{NUMBER}) \(jitter = {NUMBER}\)",
        rf"total images/sec: (?P<images_per_s>{NUMBER})",
    ),
    written_by="tensorflow/benchmarks, tf_cnn_benchmarks",
    of_a_rank=False,
    notes=(
        "images_per_s is the file's total; a line's rate is of one process with all its GPUs",
        "a line's rate is the mean of all steps up to it: lines are not repeats",
    ),
)

"""tf_cnn_benchmarks: `10<TAB>images/sec: 256.1 +/- 0.4 (jitter = 1.1)<TAB>7.95`."""

from __future__ import annotations

from plots.imports.observation import NUMBER, Format, matched

FORMAT = Format(
    read=matched(
        rf"^(?P<step>\d+)\timages/sec: (?P<images_per_s>{NUMBER}) "
        rf"\+/- (?P<uncertainty_images_per_s>{NUMBER}) \(jitter = {NUMBER}\)",
        rf"total images/sec: (?P<total_images_per_s>{NUMBER})",
    ),
    written_by="tensorflow/benchmarks, tf_cnn_benchmarks",
    of_a_rank=True,
    notes=("images/sec of a line is the mean of all steps up to it: lines are not repeats",),
)

"""Horovod's synthetic benchmarks: `Iter #3: 103.1 img/sec per GPU`, and means with a spread."""

from __future__ import annotations

from plots.imports.observation import NUMBER, Format, matched, stating

FORMAT = Format(
    read=stating(
        matched(
            rf"Iter #(?P<step>\d+): (?P<images_per_s>{NUMBER}) img/sec per \S+",
            rf"Img/sec per \S+: (?P<mean_images_per_s>{NUMBER}) "
            rf"\+-(?P<spread_images_per_s>{NUMBER})",
            rf"Total img/sec on \d+ \S+\(s\): (?P<total_images_per_s>{NUMBER}) "
            rf"\+-(?P<total_spread_images_per_s>{NUMBER})",
        ),
        world_size=r"(?:Number of [CG]PUs: |Total img/sec on )(\d+)",
        batch_per_rank=r"Batch size: (\d+)",
    ),
    written_by="horovod, examples/*_synthetic_benchmark.py",
    of_a_rank=True,
    notes=("'+-' is 1.96 standard deviations of its windows: a spread, no interval of the mean",),
)

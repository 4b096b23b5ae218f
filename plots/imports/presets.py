"""Formats of other tools as patterns: a name, what reads its lines, and what to know of them."""

from __future__ import annotations

from plots.imports.observation import NUMBER, RANK_RATE, RATE, Format, matched

_N = f"(?P<value>{NUMBER})"
_LAP = rf"(?P<lap_seconds>{NUMBER})"
_NODE = r"(?:Node\[(?P<rank>\d+)\] )?"  # later versions of MXNet name the worker before the line

PRESETS = {
    "horovod-and-ddp": Format(
        read=matched(
            r"Rank ?: ?(?P<rank>\d+) Epoch (?P<epoch>\d+): "
            rf"train set accuracy (?P<train_accuracy>{NUMBER}) time (?P<epoch_seconds>{NUMBER}) "
            rf"throughput (?P<{RANK_RATE}>{NUMBER}) Sample Size (?P<samples>\d+)\b",
            marker="train set accuracy",
        ),
        written_by="RadhaGulhane13/data-parallelism-deep-learning",
        notes=(
            "per-rank rates are cut to whole numbers before they are added",
            "the first epoch holds the warm-up",
            "train accuracy is of another set in each of the two scripts",
        ),
    ),
    "nnabla": Format(
        read=matched(
            rf"iter=(?P<step>\d+) \{{Training time\}}={_LAP}\[sec/(?P<lap_steps>\d+)iter\]",
            rf"iter=(?P<step>\d+) \{{(?P<name>[^}}]+)\}}={_N}(?![\w.\[])",
            rf"^\s*(?P<step>\d+)\s+{_LAP}\s+(?P<lap_steps>\d+)\s+{NUMBER}\s*$",
            rf"^\s*(?P<step>\d+)\s+{_N}\s*$",
            marker=r"\biter=\d",
        ),
        written_by="sony/nnabla-examples, distributed/cifar10-100",
        notes=("a time is the mean of the iterations since the line before",),
    ),
    "mxnet": Format(
        read=matched(
            rf"{_NODE}Epoch\[(?P<epoch>\d+)\] (?:(?P<name>(?:Train|Validation)-[\w-]+)={_N}"
            rf"|Time cost=(?P<epoch_seconds>{NUMBER}))(?!\w)",
            rf"{_NODE}(?:Epoch|Iter)\[(?P<epoch>\d+)\] Batch \[(?:\d+-)?(?P<step>\d+)\]"
            rf"\s+Speed: (?P<{RANK_RATE}>{NUMBER}) samples/sec",
            marker=r"samples/sec|\b(?:Epoch|Iter)\[\d+\] (?:Train|Validation)-|\bTime cost",
        ),
        written_by="apache/mxnet, example/distributed-training and its successors",
        notes=(
            "lines of early versions do not name the worker: give one file of each, --files ranks",
            "a worker's rate is of all its GPUs: the world size counts workers",
            "its tables average synchronous workers and take the slowest of asynchronous ones",
        ),
    ),
    "pathway2ai": Format(
        read=matched(
            rf"step (?P<step>\d+) \| train_loss (?P<train_loss>{NUMBER}) \| "
            rf"test_loss (?P<test_loss>{NUMBER}) \| step time (?P<step_ms>{NUMBER})ms",
            marker="step time",
        ),
        written_by="jinyangli/pathway2ai",
        notes=("a time is of one step of a hundred", "test loss is computed on training data"),
    ),
    "horovod-synthetic": Format(
        read=matched(
            r"Number of \w+s: (?P<world_size>\d+)\b",
            r"\bModel: (?P<model>\S+)",
            r"Batch size: (?P<batch_per_rank>\d+)\b",
            rf"Iter #(?P<step>\d+): (?P<{RANK_RATE}>{NUMBER}) img/sec per \S+",
            rf"Img/sec per \S+: (?P<rank_mean_{RATE}>{NUMBER}) \+-{NUMBER}(?!\w)",
            rf"Total img/sec on (?P<world_size>\d+) \S+\(s\): (?P<total_{RATE}>{NUMBER}) "
            rf"\+-{NUMBER}(?!\w)",
            marker=r"(?i)\bimg/sec\b",
        ),
        written_by="horovod, examples/*_synthetic_benchmark.py",
        a_file_is_a_run=True,
        one_speaks=True,
        notes=(
            "'+-' is 1.96 standard deviations of its windows: no interval of the mean",
            "Keras' script has a warm-up in its first line, which --skip 1 leaves out",
        ),
    ),
    "pytorch-imagenet": Format(
        read=matched(
            r"Epoch: \[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/\d+\]\s+Time +"
            rf"(?P<step_seconds>{NUMBER})\b",
            marker=r"Epoch: \[\d+\]\[ *\d+/\d+\]",
        ),
        written_by="pytorch/examples, imagenet/main.py",
    ),
}

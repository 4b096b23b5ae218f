"""Other tools' logs as observations: one module a format, listed in `FORMATS`."""

from __future__ import annotations

from collections.abc import Mapping

from plots.imports.extras import (
    csv,
    dawnbench,
    ddp_benchmark,
    horovod_and_ddp,
    horovod_synthetic,
    itwinai,
    mxnet,
    nccl_tests,
    nnabla,
    osu,
    pathway2ai,
    pattern,
    tf_cnn_benchmarks,
)
from plots.imports.observation import Format

# a new format is added here, and to tests/plots/test_imports.py
FORMATS: Mapping[str, Format] = {
    "horovod-and-ddp": horovod_and_ddp.FORMAT,
    "mxnet": mxnet.FORMAT,
    "dawnbench": dawnbench.FORMAT,
    "pathway2ai": pathway2ai.FORMAT,
    "nnabla": nnabla.FORMAT,
    "horovod-synthetic": horovod_synthetic.FORMAT,
    "tf-cnn-benchmarks": tf_cnn_benchmarks.FORMAT,
    "ddp-benchmark": ddp_benchmark.FORMAT,
    "itwinai": itwinai.FORMAT,
    "nccl-tests": nccl_tests.FORMAT,
    "osu": osu.FORMAT,
    "csv": csv.FORMAT,
    "pattern": pattern.FORMAT,
}

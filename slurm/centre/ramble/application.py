"""A Ramble application of one run: images/s of one device and of all ranks.

Written from Ramble's guide for authors of applications and the signatures of its directives
(GoogleCloudPlatform/ramble, lib/ramble/docs and lib/ramble/ramble/language). Not run: Ramble was
not to be had where this was written.
"""

from ramble.appkit import *  # noqa: F403, as its guide says: it brings the directives below

# ruff: noqa: F405

_RATE = r"(?P<{group}>[0-9.]+) \+-(?P<{group}_half>[0-9.]+|nan)"


class HvdDdp(ExecutableApplication):
    """Horovod or PyTorch DDP, the same training loop."""

    name = "hvd-ddp"
    tags("machine-learning", "pytorch")

    executable(
        "train",
        "python -m bench --backend {backend} --world-size {n_ranks} --device {device} "
        "--model {model} --dataset {dataset} --batch-per-rank {batch_per_rank} "
        "--image-size {image_size} --log-path {experiment_run_dir}/run.jsonl {options}",
        use_mpi=True,
    )
    workload("weak", executables=["train"])
    for _variable, _default, _description in (
        ("backend", "ddp", "ddp or horovod"),
        ("device", "cuda", "cuda or cpu"),
        ("model", "resnet50", "of torchvision, or package.module:factory"),
        ("dataset", "synthetic", "what python -m bench --help names"),
        ("batch_per_rank", "128", "images of a rank and step"),
        ("image_size", "224", "pixels"),
        ("options", "", "more of python -m bench, such as --transport nccl"),
    ):
        workload_variable(_variable, default=_default, description=_description, workloads=["weak"])

    _EACH = r"Img/sec per [CG]PU: " + _RATE.format(group="each")
    _TOTAL = r"Total img/sec on (?P<ranks>\d+) [CG]PU\(s\): " + _RATE.format(group="total")
    for _title, _regex, _group, _units in (
        ("Per device", _EACH, "each", "img/s"),
        ("Total", _TOTAL, "total", "img/s"),
        ("Half width", _TOTAL, "total_half", "img/s"),
        ("Ranks", _TOTAL, "ranks", ""),
    ):
        figure_of_merit(_title, fom_regex=_regex, group_name=_group, units=_units)

    success_criteria("checks", mode="string", match=r'hvd-ddp-fom .*"ok": true')
    success_criteria(
        "ranks", mode="fom_comparison", fom_name="Ranks", formula="{value} == {n_ranks}"
    )

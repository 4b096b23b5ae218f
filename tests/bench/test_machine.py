"""What the machine cannot give is refused in one line before anything is allocated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, UsageError, make_config
from bench.launch import machine
from bench.launch.world import Launch
from tests.bench.ranks import ROOT, bench, run

GIB = 2**30


def needed(**fields: Any) -> dict[str, int]:
    config = make_config({"batch_per_rank": 4, **fields})
    return {part.values: part.bytes for part in machine.parts(config)}


def test_what_a_batch_takes() -> None:
    image, batch = 3 * 32 * 32 * 4, "batch_per_rank=4 at image_size=32"
    assert needed()[batch] == 4 * (image + 8) + 4 * 8
    assert needed(precision="float64")[batch] == 4 * (2 * image + 8) + 4 * 8
    assert needed(num_workers=3)[batch] == 7 * (4 * (image + 8) + 4 * 8)
    two = needed(batch_per_rank=None, global_batch=8, backend="ddp", world_size=2)
    step_order = 8 * 8  # a rank draws the whole step's
    assert two["global_batch=8 at image_size=32"] == 4 * (image + 8) + step_order


def test_batches_made_beforehand_count_by_the_step() -> None:
    fields: dict[str, Any] = {"windows": 2, "steps_per_window": 5, "warmup_steps": 3}
    made = needed(**fields, preprocessing="outside")
    (whole,) = (n for values, n in made.items() if "image_size" in values)
    assert whole == 13 * needed(**fields)["batch_per_rank=4 at image_size=32"]


def test_what_trains_takes_gradients_and_momentum_as_well() -> None:
    (part,) = machine.training_parts(RunConfig(batch_per_rank=4), 100)
    assert part.bytes == 300
    (part,) = machine.training_parts(RunConfig(batch_per_rank=4, momentum=0), 100)
    assert part.bytes == 200
    assert not machine.training_parts(RunConfig(batch_per_rank=4, device="cuda"), 100)


def test_all_ranks_of_a_node_share_its_memory() -> None:
    part = machine.Part("windows=9", "its notes take", 10 * GIB + 1, "use a smaller one")
    machine.require_memory([part], 1, 20 * GIB)
    with pytest.raises(UsageError) as error:
        machine.require_memory([part], 2, 20 * GIB)
    assert str(error.value) == (
        "windows=9: its notes take at least 10.1 GiB on each of 2 ranks, and this machine has "
        "20.0 GiB; use a smaller one"
    )


def test_the_weights_of_a_model_count_with_its_input() -> None:
    config = RunConfig(batch_per_rank=4, model="vit_h_14")
    many = Launch("mpirun", 0, 100_000, 0, 100_000, "k")
    wrong = r"model=vit_h_14: parameters, gradients and momentum take at least .* fewer ranks"
    with pytest.raises(UsageError, match=wrong):
        machine.require_training_fit(config, many, 2_500_000_000)
    machine.require_training_fit(config, Launch("none", 0, 1, 0, 1, "alone"), 1)


LARGE = "1000000000"
HOROVOD = ["--backend", "horovod", "--settings", "tuned"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["--batch-per-rank", LARGE],
            [f"batch_per_rank={LARGE} at image_size=32", "smaller batch"],
        ),
        (["--image-size", "65536", "--precision", "float64"], ["image_size=65536", "smaller"]),
        (["--windows", LARGE], [f"windows={LARGE}", "fewer or shorter windows"]),
        (["--steps-per-window", LARGE], [f"steps_per_window={LARGE}"]),
        (["--warmup-steps", LARGE], [f"warmup_steps={LARGE}"]),
        (["--windows", "10000000", "--preprocessing", "outside"], ["=10000000", "beforehand"]),
        (["--dataset", "digits", "--image-size", "32768"], ["size=32768", "enlarged digits"]),
        (["--num-workers", "1000000"], ["num_workers='1000000'", "4096"]),
        (
            [*HOROVOD, "--fusion-mib", "1048576"],
            ["mib=1.04858e+06", "fusion buffer", "1,024.0 GiB"],
        ),
    ],
)
def test_more_than_any_machine_has_is_one_line_and_allocates_nothing(
    argv: list[str], words: list[str], tmp_path: Path
) -> None:
    """A quarter of a GiB of address space is too little for torch, let alone for what is asked."""
    log = tmp_path / "run.jsonl"
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28));"
        "import bench.command as m; rc = m.main(sys.argv[1:]); assert 'torch' not in sys.modules; "
        "sys.exit(rc)"
    )
    if "--batch-per-rank" not in argv:
        argv = ["--batch-per-rank", "4", *argv]
    done = run([sys.executable, "-c", code, *argv, "--log-path", str(log)])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in ["error: ", *words])
    assert not log.exists()


def test_many_loading_processes_are_refused_by_memory() -> None:
    config = make_config({"batch_per_rank": 4, "num_workers": 4096})
    wrong = r"num_workers=4096: its loading processes take at least 600\.0 GiB"
    with pytest.raises(UsageError, match=wrong):
        machine.require_memory(machine.parts(config), 1, 500 * GIB)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    """Version 2, with the tighter one above, and 1, where no limit is a very large number."""
    leaf, leaf1 = tmp_path / "job" / "step", tmp_path / "memory" / "box"
    for folder in (leaf, leaf1):
        folder.mkdir(parents=True)
    (leaf / "memory.max").write_text("max\n")
    (leaf.parent / "memory.max").write_text("1000\n")
    (leaf1 / "memory.limit_in_bytes").write_text("3000\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    limits = machine._group_limits("4:memory:/box\n3:cpu:/box\n0::/job/step\n", tmp_path)
    assert sorted(limits) == [1000, 3000, 9223372036854771712]
    assert machine._group_limits("0::/../../elsewhere\n", tmp_path) == []
    assert 0 < machine.machine_bytes() <= 2**50


def test_an_interface_that_is_not_here() -> None:
    here = ["lo", "eth0"]
    machine.require_interface({"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": ""}, here)
    wrong = r"HOROVOD_GLOO_IFACE='eth1' names no interface of this host; unset it, .* lo, eth0"
    with pytest.raises(UsageError, match=wrong):
        machine.require_interface({"HOROVOD_GLOO_IFACE": "eth1"}, here)


def test_frameworks_are_not_compared_over_two_wires() -> None:
    both = {"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": "eth0"}
    two = "GLOO_SOCKET_IFNAME='lo' and HOROVOD_GLOO_IFACE='eth0' are two wires, .*; unset one"
    with pytest.raises(UsageError, match=two):
        machine.require_interface(both, ["lo", "eth0"])
    several = "GLOO_SOCKET_IFNAME='lo,eth0' names several interfaces, .*; name one"
    with pytest.raises(UsageError, match=several):
        machine.require_interface({"GLOO_SOCKET_IFNAME": "lo,eth0"}, ["lo", "eth0"])
    machine.require_interface(dict.fromkeys(both, "eth0"), ["lo", "eth0"])


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("backend", "name"), [("ddp", "GLOO_SOCKET_IFNAME"), ("horovod", "HOROVOD_GLOO_IFACE")]
)
def test_a_bogus_interface_is_one_line_and_no_abort(backend: str, name: str) -> None:
    argv = ["--backend", backend, "--transport", "gloo", "--world-size", "2"]
    done = bench(2, *argv, "--batch-per-rank", "4", extra={name: "nosuch0"})
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert f"{name}='nosuch0' names no interface of this host" in line
    assert "Traceback" not in done.stderr


def test_without_torch_a_run_says_so_in_one_line() -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more);"
        "import bench.command as m; sys.exit(m.main(sys.argv[1:]))"
    )
    done = run([sys.executable, "-c", code, "--batch-per-rank", "4"])
    assert done.returncode == 2
    cure = "run make setup, then . .venv/bin/activate"
    assert done.stderr == f"error: {sys.executable} has no torch, which a run needs; {cure}\n"


def test_without_pydantic_a_run_says_so_in_one_line() -> None:
    """A Python of its own, without this environment's packages, as one forgets to activate it."""
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r});"
    code += "runpy.run_module('bench', run_name='__main__')"
    done = run([str(Path(sys.base_prefix) / "bin" / "python3"), "-I", "-S", "-c", code])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: pydantic is not installed for ")
    assert "make setup" in done.stderr

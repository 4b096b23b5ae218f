"""RunConfig: what it accepts, what it refuses and how it says so, and the round trips."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from bench.config import RunConfig, UsageError, make_config, parse_argv

EXAMPLES = [
    RunConfig(batch_per_rank=4),
    RunConfig(backend="ddp", world_size=2, global_batch=8),
    RunConfig(
        backend="horovod", transport="gloo", world_size=3, batch_per_rank=5, settings="tuned", fusion_mib=0.5, cycle_ms=0.1
    ),
    RunConfig(backend="horovod", settings="matched", world_size=2, batch_per_rank=1, bucket_mib=1.5),
    RunConfig(
        model="my.module:net",
        dataset="digits",
        image_size=64,
        global_batch=7,
        nesterov=True,
        base_lr=0.1 + 0.2,
        log_path=Path("results/a b.jsonl"),
        study="weak",
        block=0,
        position=3,
        curves=("weak", "strong"),
    ),
]


@pytest.mark.parametrize("config", EXAMPLES)
def test_round_trips(config: RunConfig) -> None:
    assert parse_argv(config.to_argv()) == config
    assert make_config(tomllib.loads(config.to_toml())) == config
    assert make_config(json.loads(config.model_dump_json())) == config


def test_every_field_is_documented_and_reachable_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_argv(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name, field in RunConfig.model_fields.items():
        assert field.description
        assert "--" + name.replace("_", "-") in text


def test_file_then_flags(tmp_path: Path) -> None:
    for name, text in {
        "a.toml": 'backend = "ddp"\nworld_size = 2\nbatch_per_rank = 4\n',
        "a.json": '{"batch_per_rank": 4}',
    }.items():
        path = tmp_path / name
        path.write_text(text)
        assert parse_argv(["--config", str(path)]).batch_per_rank == 4
        assert parse_argv(["--config", str(path), "--batch-per-rank", "9"]).batch_per_rank == 9


def test_show_config_prints_what_it_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_argv(["--backend", "ddp", "--world-size", "2", "--batch-per-rank", "4", "--show-config"])
    shown = make_config(tomllib.loads(capsys.readouterr().out))
    assert (shown.backend, shown.transport, shown.world_size) == ("ddp", "mpi", 2)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["exactly one", "global_batch", "batch_per_rank"]),
        (["--global-batch", "4", "--batch-per-rank", "4"], ["exactly one"]),
        (["--backend", "hvd", "--batch-per-rank", "4"], ["backend='hvd'", "'horovod'"]),
        (["--batch-per-rnk", "4"], ["'--batch-per-rnk'", "'--batch-per-rank'"]),
        (["--batch-per-rank", "four"], ["batch_per_rank='four'", "integer"]),
        (["--batch-per-rank", "0"], ["batch_per_rank='0'", "greater than or equal to 1"]),
        (
            ["--backend", "ddp", "--world-size", "8", "--global-batch", "100"],
            ["global_batch=100 does not divide by world_size=8", "96 or 104"],
        ),
        (["--backend", "ddp", "--world-size", "8", "--global-batch", "4"], ["use 8"]),
        (["--world-size", "2", "--batch-per-rank", "4"], ["backend=single", "world_size=2", "ddp or horovod"]),
        (["--backend", "single", "--transport", "mpi", "--batch-per-rank", "4"], ["transport=mpi"]),
        (["--backend", "ddp", "--transport", "none", "--batch-per-rank", "4"], ["needs a transport", "mpi, gloo or nccl"]),
        (["--backend", "ddp", "--batch-per-rank", "4", "--cycle-ms", "5"], ["cycle_ms", "Horovod's", "backend=ddp"]),
        (["--backend", "ddp", "--batch-per-rank", "4", "--fusion-mib", "5"], ["fusion_mib", "Horovod's", "backend=ddp"]),
        (["--backend", "horovod", "--batch-per-rank", "4", "--bucket-mib", "5"], ["bucket_mib", "DDP's", "matched"]),
        (["--batch-per-rank", "4", "--bucket-mib", "5"], ["bucket_mib", "backend=single"]),
        (
            ["--backend", "horovod", "--settings", "matched", "--batch-per-rank", "4", "--fusion-mib", "5"],
            ["fusion_mib", "matched", "bucket_mib"],
        ),
        (["--backend", "horovod", "--batch-per-rank", "4", "--cycle-ms", "5"], ["cycle_ms", "shipped", "--settings tuned"]),
        (["--backend", "ddp", "--batch-per-rank", "4", "--settings", "tuned"], ["settings=tuned", "bucket_mib", "none is given"]),
        (["--dataset", "digits", "--batch-per-rank", "1798"], ["takes 1798 samples, but digits has 1797", "smaller batch"]),
        (["--dataset", "digits", "--image-size", "30", "--batch-per-rank", "4"], ["image_size=30", "24 or 32"]),
        (["--data-dir", "/data", "--batch-per-rank", "4"], ["data_dir='/data'", "leave it out"]),
        (["--batch-per-rank", "4", "--dataset", "imagenet"], ["dataset='imagenet'", "imagefolder", "package.module:factory"]),
        (["--batch-per-rank", "4", "--dataset", "cifar10"], ["cifar10", "--data-dir"]),
        (["--batch-per-rank", "4", "--sharding", "fixed"], ["sharding=fixed", "endless"]),
        (["--batch-per-rank", "4", "--accumulate", "3"], ["accumulate=3", "4 images", "divisor"]),
        (["--batch-per-rank", "4", "--precision", "tf32"], ["precision=tf32", "device=cpu", "bf16-mixed"]),
        (["--batch-per-rank", "4", "--sync-batchnorm"], ["sync_batchnorm", "device=cuda"]),
        (["--batch-per-rank", "4", "--compression", "fp16"], ["compression=fp16", "backend=single"]),
        (["--backend", "ddp", "--batch-per-rank", "4", "--device", "cuda", "--transport", "mpi"], ["transport=mpi", "nccl"]),
        (["--backend", "ddp", "--batch-per-rank", "4", "--transport", "nccl"], ["transport=nccl", "mpi or gloo"]),
        (["--backend", "horovod", "--batch-per-rank", "4", "--compression", "bf16"], ["bfloat16", "--compression fp16"]),
        (
            ["--backend", "ddp", "--batch-per-rank", "4", "--compression", "fp16", "--precision", "float64"],
            ["compression=fp16", "precision=float64"],
        ),
        (["--batch-per-rank", "4", "--nesterov", "--momentum", "0"], ["nesterov", "momentum=0"]),
        (["--batch-per-rank", "4", "--clip-norm", "inf"], ["clip_norm", "finite"]),
        (["--batch-per-rank", "4", "--base-lr", "nan"], ["base_lr"]),
        (["--batch-per-rank", "4", "--seed", "99999999999999999999"], ["seed", "less than"]),
        (["--batch-per-rank", "4", "--threads", "1000000"], ["threads", "4096"]),
        (["--config", "nowhere.toml"], ["nowhere.toml", "No such file"]),
        (["--config", "nowhere.yaml"], [".toml or .json"]),
    ],
)
def test_bad_input_is_one_line_with_value_rule_and_way_out(argv: list[str], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        parse_argv(argv)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_unknown_field_in_a_file_suggests_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("batch_per_rank = 4\nworldsize = 2\n")
    with pytest.raises(UsageError, match="unknown field 'worldsize'; did you mean 'world_size'"):
        parse_argv(["--config", str(path)])


def test_frozen() -> None:
    config = RunConfig(batch_per_rank=4)
    with pytest.raises(ValidationError):
        config.batch_per_rank = 5  # type: ignore[misc]


def test_batch_arithmetic() -> None:
    strong = RunConfig(backend="ddp", world_size=4, global_batch=32)
    weak = RunConfig(backend="ddp", world_size=4, batch_per_rank=32)
    assert (strong.samples_per_step, strong.samples_per_rank) == (32, 8)
    assert (weak.samples_per_step, weak.samples_per_rank) == (128, 32)


def test_one_learning_rate_rule_for_all_backends() -> None:
    single = RunConfig(global_batch=64, base_lr=0.1, lr_warmup_steps=4)
    horovod = RunConfig(backend="horovod", world_size=4, batch_per_rank=16, base_lr=0.1, lr_warmup_steps=4)
    expected = [0.00625, 0.0125, 0.01875, 0.025, 0.025]  # 0.1 * 64/256, reached after four steps
    assert [single.learning_rate(step) for step in range(5)] == pytest.approx(expected)
    assert [horovod.learning_rate(step) for step in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize(("backend", "transport", "cell"), [("ddp", "gloo", "ddp/gloo"), ("horovod", "mpi", "horovod/mpi")])
def test_a_cell_names_framework_and_transport(backend: str, transport: str, cell: str) -> None:
    config = make_config({"backend": backend, "transport": transport, "batch_per_rank": 1})
    assert config.cell == cell
    assert RunConfig(batch_per_rank=1).cell == "single"


def test_the_learning_rate_never_rises_above_its_bound() -> None:
    scaled = {"global_batch": 2560, "base_lr": 0.1, "lr_warmup_steps": 4}
    assert [RunConfig(**scaled, max_lr=0.5).learning_rate(step) for step in range(5)] == [0.125, 0.25, 0.375, 0.5, 0.5]
    assert RunConfig(**scaled, max_lr=2.0).peak_learning_rate == RunConfig(**scaled).peak_learning_rate == 1.0

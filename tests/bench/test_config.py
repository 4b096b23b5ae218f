"""RunConfig: what it accepts, what it refuses and how it says so, and the round trips."""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backends.catalogue import CATALOGUE
from bench.config import RunConfig, UsageError, make_config, parse_argv, strictly

TUNED = {"settings": "tuned", "bucket_mib": 0.1}
OWN = {"model": "my.module:net", "dataset": "digits", "image_size": 64, "nesterov": True}
PLANNED = {"study": "weak", "launch": 0, "position": 3, "curves": ("weak", "strong")}
EXAMPLES: list[dict[str, Any]] = [
    {"batch_per_rank": 4},
    {"backend": "ddp", "world_size": 2, "global_batch": 8},
    {"backend": "ddp", "transport": "gloo", "world_size": 3, "batch_per_rank": 5, **TUNED},
    {"backend": "horovod", "settings": "matched", "batch_per_rank": 1, "bucket_mib": 1.5},
    {"global_batch": 7, "base_lr": 0.1 + 0.2, "log_path": Path("a b.jsonl"), **OWN, **PLANNED},
]


@pytest.mark.parametrize("fields", EXAMPLES)
def test_round_trips(fields: dict[str, Any]) -> None:
    config = RunConfig(**fields)
    assert parse_argv(config.to_argv()) == config
    assert make_config(json.loads(config.model_dump_json())) == config


def test_show_config_prints_what_it_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_argv(["--backend", "ddp", "--batch-per-rank", "4", "--show-config"])
    shown = make_config(tomllib.loads(capsys.readouterr().out))
    assert (shown.backend, shown.transport, shown.world_size) == ("ddp", "mpi", 1)


BAD: list[tuple[str, list[str]]] = [
    ("", ["exactly one", "global_batch", "batch_per_rank"]),
    ("--batch-per-rnk 4", ["'--batch-per-rnk'", "'--batch-per-rank'"]),
    ("run --batch-per-rank 4", ["unknown command 'run'", "doctor, collectives"]),
    ("doctr", ["unknown command 'doctr'; did you mean 'doctor'"]),
    ("--batch-per-rank four", ["batch_per_rank='four'", "integer"]),
    ("--batch-per-rank 0", ["batch_per_rank='0'", "greater than or equal to 1"]),
    ("--backend ddp --world-size 8 --global-batch 100", ["not divide by", "96 or 104"]),
    ("--dataset digits --batch-per-rank 1798", ["takes 1798 samples, but digits has 1797"]),
]
BAD_BESIDE_A_BATCH: list[tuple[str, list[str]]] = [
    ("--global-batch 4", ["exactly one"]),
    ("--backend hvd", ["backend='hvd'", "horovod"]),
    ("--world-size 2", ["backend=single", "world_size=2", "ddp or horovod"]),
    ("--backend single --transport mpi", ["transport=mpi"]),
    ("--backend ddp --transport none", ["needs a transport", "mpi or gloo or nccl"]),
    ("--backend ddp --mode async", ["mode", "parameter server", "backend=ddp"]),
    ("--target 0.9", ["target=0.9 is of trainings"]),
    ("--epochs 2", ["epochs=2: synthetic images are endless"]),
    ("--epochs 2 --preprocessing outside", ["preprocessing=outside has no place"]),
    ("--epochs 2 --target 1.5", ["target='1.5'", "less than or equal to 1"]),
    ("--backend ps --mode async --clip-norm 1", ["clip_norm=1.0 has no place with mode=async"]),
    ("--backend horovod --bucket-mib 5", ["DDP (matched or tuned)", "Horovod (matched)"]),
    ("--bucket-mib 5", ["bucket_mib", "backend=single"]),
    ("--backend horovod --settings tuned --bucket-mib 5", ["settings=tuned", "(matched)"]),
    ("--backend ddp --settings tuned", ["settings=tuned", "bucket_mib", "none is given"]),
    ("--dataset digits --image-size 30", ["image_size=30", "24 or 32"]),
    ("--data-dir /data", ["data_dir='/data'", "leave it out"]),
    ("--dataset imagenet", ["dataset='imagenet'", "imagefolder", "package.module:factory"]),
    ("--dataset cifar10", ["cifar10", "--data-dir"]),
    ("--sharding fixed", ["sharding=fixed", "endless"]),
    ("--accumulate 3", ["accumulate=3", "4 images", "divisor"]),
    ("--emulate t.json --accumulate 2", ["accumulate=2: with emulate compute sleeps"]),
    ("--precision tf32", ["precision=tf32", "device=cpu", "bf16-mixed"]),
    ("--overlap off", ["overlap=off", "backend=single"]),
    ("--exchange off", ["exchange=off", "backend=single"]),
    ("--backend ddp --exchange off --overlap off", ["overlap=off", "exchange=off leaves out"]),
    ("--backend ddp --settings matched --overlap off --bucket-mib 5", ["overlap=off"]),
    ("--backend ddp --device cuda --transport mpi", ["transport=mpi", "nccl"]),
    ("--backend ddp --transport nccl", ["transport=nccl", "mpi or gloo"]),
    ("--clip-norm inf", ["clip_norm", "finite"]),
    ("--threads 1000000", ["threads", "4096"]),
    ("--log-path ''", ["log_path='' is empty", "leave it out"]),
    ("--log-path 'a\x00b'", ["log_path='a\\x00b'", "control character"]),
    ("--study 'a\nb'", ["study='a\\nb'", "control character"]),
]
BAD += [(f"--batch-per-rank 4 {line}", words) for line, words in BAD_BESIDE_A_BATCH]


@pytest.mark.parametrize(("line", "words"), BAD)
def test_bad_input_is_one_line_with_value_rule_and_way_out(line: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        parse_argv(shlex.split(line))
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worldsize = 2", ["unknown key 'worldsize'; did you mean 'world_size'"]),
        ("batch_per_rank = true", ["batch_per_rank=True", "integer"]),
        ("batch_per_rank = 4.0", ["batch_per_rank=4.0", "integer"]),
        ('nesterov = "yes"', ["nesterov='yes'", "boolean"]),
        ("base_lr = nan", ["base_lr", "finite"]),
        ("model = 50", ["model=50", "string"]),
        ("study = 2026-01-01", ["study=", "string"]),
    ],
)
def test_a_file_is_read_strictly(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        strictly(tomllib.loads(text))
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_the_command_line_is_text_and_is_parsed() -> None:
    line = "--batch-per-rank 4 --base-lr 1 --nesterov --curves weak,batch"
    config = parse_argv(line.split())
    assert (config.batch_per_rank, config.base_lr, config.nesterov) == (4, 1.0, True)
    assert config.curves == ("weak", "batch")


def test_help_is_in_groups_and_what_studies_set_comes_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse_argv(["--help"])
    text = capsys.readouterr().out
    for name, field in RunConfig.model_fields.items():
        assert field.description
        assert "--" + name.replace("_", "-") in text
    heads = [text.index(f"\n{title}:\n") for title in RunConfig.groups.values()]
    assert heads == sorted(heads)
    # no field stands before the first group
    assert next(iter(RunConfig.model_fields)) == next(iter(RunConfig.groups))
    last = text[heads[-1] :]
    assert all(flag in last for flag in ("--study", "--launch", "--position", "--curves"))
    assert "--log-path" not in last


def test_batch_arithmetic() -> None:
    strong = RunConfig(backend="ddp", world_size=4, global_batch=32)
    weak = RunConfig(backend="ddp", world_size=4, batch_per_rank=32)
    assert (strong.samples_per_step, strong.samples_per_rank) == (32, 8)
    assert (weak.samples_per_step, weak.samples_per_rank) == (128, 32)


def test_one_learning_rate_rule_for_all_backends() -> None:
    single = RunConfig(global_batch=64, base_lr=0.1, lr_warmup_steps=4)
    horovod = RunConfig(
        backend="horovod", world_size=4, batch_per_rank=16, base_lr=0.1, lr_warmup_steps=4
    )
    expected = [0.00625, 0.0125, 0.01875, 0.025, 0.025]  # 0.1 * 64/256, reached after four steps
    assert [single.learning_rate(step) for step in range(5)] == pytest.approx(expected)
    assert [horovod.learning_rate(step) for step in range(5)] == pytest.approx(expected)


def test_the_learning_rate_never_rises_above_its_bound() -> None:
    scaled = {"global_batch": 2560, "base_lr": 0.1, "lr_warmup_steps": 4}
    bound = RunConfig(**scaled, max_lr=0.5)
    assert [bound.learning_rate(step) for step in range(5)] == [0.125, 0.25, 0.375, 0.5, 0.5]
    assert RunConfig(**scaled, max_lr=2.0).peak_learning_rate == 1.0
    assert RunConfig(**scaled).peak_learning_rate == 1.0


def test_a_backend_may_refuse_an_option_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {("compile", True): "cannot", ("accumulate", ...): "takes one batch a step"}
    monkeypatch.setitem(CATALOGUE, "ddp", replace(CATALOGUE["ddp"], refused=refused))
    ddp = {"backend": "ddp", "batch_per_rank": 4}
    assert make_config(ddp).backend == "ddp"
    with pytest.raises(UsageError, match="accumulate=2: takes one batch a step"):
        make_config({**ddp, "accumulate": 2})

"""What is measured on one GPU, in the order of its worth, and what each step should take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STUDY = "one-gpu"  # single, DDP and Horovod on one rank, by turns
BATCHES = (32, 128, 512)  # images per rank
MODELS = ("resnet50", "resnet101", "vgg16", "inception_v3")  # of the published tables
PRECISIONS = {  # name: options
    "float32": ("--precision", "float32"),
    "tf32": ("--precision", "tf32"),
    "bf16": ("--precision", "bf16-mixed", "--memory-format", "channels_last"),
}
# a host core makes fewer images than a GPU trains: one batch stays on the device
_RESIDENT = ("--preprocessing", "resident", "--max-lr", "0.001")


@dataclass(frozen=True)
class Step:
    """One command of python -m, with the file or folder it creates."""

    name: str
    words: tuple[str, ...]
    file: str
    expected_s: float
    needs_horovod: bool = False


def plan(device: str, image_size: int = 224, model: str = "resnet50") -> Iterator[Step]:
    """All steps. `device` cpu is for trying them: what one process without CUDA can."""
    sized = ("--device", device, "--image-size", str(image_size), *_RESIDENT)
    work = (*sized, "--model", model)
    if device == "cpu":
        yield _overhead(device, (*work, "--batch-per-rank", "2"))
        yield _timeline(model, (*sized, "--batch-per-rank", "2"))
        yield _run("sweep/runs/float32-2", (*work, "--curves", "batch", "--batch-per-rank", "2"))
        return
    best = (*work, *PRECISIONS["bf16"], "--batch-per-rank", "128")
    words: tuple[str, ...]
    words = ("slurm", "run", STUDY, "--site", "local-gpu", "--blocks", "6", "--time-limit-s", "90")
    yield Step(f"study {STUDY}", (*words, "--results", "{out}"), "results", 240, True)
    yield _overhead(device, best)
    for backend in ("ddp", "horovod"):
        words = ("--backend", backend, "--transport", "nccl", "--observe", "breakdown", *best)
        yield _run(f"breakdown/runs/{backend}", words, needs_horovod=backend == "horovod")
    for name in MODELS:
        yield _timeline(name, (*sized, *PRECISIONS["bf16"], "--batch-per-rank", "64"))
    for batch in BATCHES:
        for precision, options in reversed(PRECISIONS.items()):
            words = ("--curves", "batch", *work, *options, "--batch-per-rank", str(batch))
            yield _run(f"sweep/runs/{precision}-{batch}", words)
    yield _run("compiled/runs/single", ("--compile", *best), expected_s=100)


def _overhead(device: str, words: tuple[str, ...]) -> Step:
    """Our loop and a bare one in turns, on one model."""
    counts = ("--windows", "12", "--steps-per-window", "10", "--warmup-steps", "10")
    command = ("tests.overhead", "--rank", "turns", *words, *counts, "--log-path", "{out}")
    return Step(f"overhead on {device}", command, "overhead/turns-single-00.jsonl", 35)


def _timeline(model: str, words: tuple[str, ...]) -> Step:
    command = ("bench", "timeline", "--out", "{out}", *words, "--model", model)
    return Step(f"timeline {model}", command, f"timelines/{model}.json", 15)


def _run(
    name: str, words: tuple[str, ...], expected_s: float = 20, needs_horovod: bool = False
) -> Step:
    counts = ("--warmup-steps", "30", "--windows", "8", "--steps-per-window", "5")
    command = ("bench", *words, *counts, "--log-path", "{out}")
    return Step(name, command, f"{name}.jsonl", expected_s, needs_horovod)

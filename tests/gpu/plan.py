"""What is measured on one GPU, in the order of its worth, and what each step should take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BLOCKS = 6  # of single, DDP and Horovod at one rank: the fewest that allow a verdict
BATCHES = (32, 128, 512)  # images per rank
PRECISIONS = {  # name: options
    "float32": ("--precision", "float32"),
    "tf32": ("--precision", "tf32"),
    "bf16": ("--precision", "bf16-mixed", "--memory-format", "channels_last"),
}
_ARMS = ("single", "ddp", "horovod")
_NEEDS_HOROVOD = {"horovod"}


@dataclass(frozen=True)
class Step:
    """One command of python -m, with the file it creates."""

    name: str
    words: tuple[str, ...]
    file: str
    expected_s: float
    needs_horovod: bool = False


def plan(device: str, image_size: int = 224, model: str = "resnet50") -> Iterator[Step]:
    """All steps. `device` cpu is for trying them: without the precisions of CUDA, and over MPI."""
    work = ("--device", device, "--model", model, "--image-size", str(image_size))
    precisions = {k: v for k, v in PRECISIONS.items() if device == "cuda" or k == "float32"}
    batches = BATCHES if device == "cuda" else (2,)
    best, largest = precisions["bf16" if device == "cuda" else "float32"], batches[-1]
    yield _overhead(device, work, best, batches[0])
    for block in range(BLOCKS):
        order = _ARMS if block % 2 == 0 else _ARMS[::-1]  # counterbalanced, as in every study
        for position, backend in enumerate(order):
            name = f"one-rank/runs/b{block:02d}-{position}-{backend}"
            words = (*work, *best, "--batch-per-rank", str(batches[len(batches) // 2]))
            own = ("--backend", backend, "--study", "one-rank", "--block", str(block))
            place = ("--position", str(position), "--curves", "weak", "--seed", str(block))
            yield _run(name, (*own, *place, *words), backend in _NEEDS_HOROVOD)
    for precision, options in precisions.items():
        for batch in batches:
            words = (*work, *options, "--batch-per-rank", str(batch))
            yield _run(f"sweep/runs/{precision}-{batch}", ("--curves", "batch", *words))
            out = f"timelines/{model}-{precision}-{batch}.json"
            record = ("bench", "timeline", "--out", "{out}", *words)
            yield Step(f"timeline {precision} {batch}", record, out, 15)
    observed = ("--observe", "breakdown", *work, *best, "--batch-per-rank", str(largest))
    for backend in _ARMS[1:]:
        name = f"breakdown/runs/{backend}"
        yield _run(name, ("--backend", backend, *observed), backend in _NEEDS_HOROVOD)


def _overhead(device: str, work: tuple[str, ...], best: tuple[str, ...], batch: int) -> Step:
    """Our loop and a bare one in turns, on one model."""
    words = ("--rank", "turns", *work, *best, "--batch-per-rank", str(batch))
    counts = ("--windows", "8", "--steps-per-window", "10", "--warmup-steps", "10")
    command = ("tests.overhead", *words, *counts, "--log-path", "{out}")
    return Step(f"overhead on {device}", command, "overhead/turns-single-00.jsonl", 60)


def _run(name: str, words: tuple[str, ...], needs_horovod: bool = False) -> Step:
    counts = ("--warmup-steps", "30", "--windows", "4", "--steps-per-window", "10")
    command = ("bench", *words, *counts, "--max-lr", "0.001", "--log-path", "{out}")
    return Step(name, command, f"{name}.jsonl", 15, needs_horovod)

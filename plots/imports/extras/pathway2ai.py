"""pathway2ai: `step 100 | train_loss 0.7557 | test_loss 0.7426 | step time 12.70ms`."""

from __future__ import annotations

from plots.imports.observation import NUMBER, Format, matched

FORMAT = Format(
    read=matched(
        rf"step (?P<step>\d+) \| train_loss (?P<train_loss>{NUMBER}) \| "
        rf"test_loss (?P<test_loss>{NUMBER}) \| step time (?P<step_ms>{NUMBER})ms",
        marker="step time",
    ),
    written_by="jinyangli/pathway2ai",
    notes=(
        "a time is of one step of a hundred",
        "test loss is computed on training data",
        "step 0 is warm-up",
    ),
)

"""One GPU, one call, no network: build Horovod with NCCL there, and measure what it can tell."""

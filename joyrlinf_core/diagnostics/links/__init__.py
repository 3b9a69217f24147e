"""Parts of `nccl-test`."""

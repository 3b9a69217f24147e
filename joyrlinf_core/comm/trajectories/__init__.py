"""Batches on their way from rollout ranks to actors, as flat bytes along the shard map."""

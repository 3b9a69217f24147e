"""What four Gloo ranks see of trajectory exchanges along several maps, started once."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.trajectories import all_to_all, p2p
from joyrlinf_core.comm.trajectories.buffers import Link
from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import RunPlan
from joyrlinf_core.plan.shards import build_shards, deal

WORLD = 4
CPU = torch.device("cpu")
SIZE = 2
ROWS = 3
MODES = {"v1": p2p.exchange, "v2": all_to_all.exchange}

MAPS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "colocated": ((0, 1, 2, 3), (0, 1, 2, 3), 4),
    "disaggregated 1+1": ((0,), (1,), 3),
    "disaggregated 2+2": ((0, 1), (2, 3), 4),
    "three to one": ((0, 1, 2), (3,), 3),
    "two to one": ((0, 2), (1,), 4),
    "one to two": ((3,), (0, 1), 3),
    "one to three": ((1,), (0, 2, 3), 5),
    "split": ((1,), (2, 3), 4),
    "split, overlapping": ((0, 1, 2), (2, 3), 7),
    "hybrid": ((2, 3), (0, 1, 2, 3), 6),
    "hybrid, uneven": ((0, 1, 2), (0, 1, 2, 3), 7),
    "hybrid, one rollout": ((0,), (0, 1), 4),
}
"""Rollout ranks, actors, groups. Rank 0 simulates in `split` and is not in the group."""


@cache
def _preset() -> RunPlan:
    return build_plan(load_config("quickstart").config, None)


def plan_of(
    rollout: tuple[int, ...], actor: tuple[int, ...], groups: int, mode: str = "v1"
) -> RunPlan:
    """Return a plan with these ranks and groups; what an exchange does not read is a preset's."""
    plan = _preset()
    placement = plan.placement.model_copy(update={"rollout_ranks": rollout, "actor_ranks": actor})
    batch = plan.batch.model_copy(update={"num_groups": groups, "group_size": SIZE})
    algorithm = plan.config.algorithm.model_copy(update={"comm_mode": mode})
    return plan.model_copy(
        update={
            "placement": placement,
            "shards": build_shards(placement, batch),
            "config": plan.config.model_copy(update={"algorithm": algorithm}),
        }
    )


def whole(groups: int, index: int, *, values: bool = False) -> dict[str, torch.Tensor]:
    """Return the batch of all ranks together; every index has other numbers."""
    generator = torch.Generator().manual_seed(1000 * groups + index)
    shape = (ROWS, groups * SIZE)

    def normal(*axes: int) -> torch.Tensor:
        return torch.randn(*shape, *axes, generator=generator)

    batch = {
        "inputs/images": torch.randint(256, (*shape, 5, 5, 3), generator=generator).byte(),
        "inputs/state": normal(7),
        "replay/prefix": normal(3, 2).to(torch.bfloat16),
        "replay/none": torch.empty(*shape, 0),
        "dones": normal(5) > 0,
        "versions": torch.randint(2**40, shape, generator=generator),
        "group": torch.arange(shape[1]) // SIZE,
    }
    return batch | ({"prev_values": normal()} if values else {})


def share(
    batch: dict[str, torch.Tensor], ranks: tuple[int, ...], rank: int, groups: int
) -> dict[str, torch.Tensor] | None:
    """Return the columns of one of the ranks that groups are dealt to; None for others."""
    if rank not in ranks:
        return None
    mine = deal(groups, len(ranks))[ranks.index(rank)]
    columns = slice(mine.start * SIZE, mine.stop * SIZE)
    return {n: v[columns] if v.dim() == 1 else v[:, columns] for n, v in batch.items()}


def same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    """Whether two batches are equal, types and shapes included."""
    return got.keys() == expected.keys() and all(
        value.dtype == expected[name].dtype
        and value.shape == expected[name].shape
        and torch.equal(value, expected[name])
        for name, value in got.items()
    )


def memory(tensors: dict[str, torch.Tensor]) -> set[int]:
    """Addresses of the storages of tensors that are not empty."""
    return {v.untyped_storage().data_ptr() for v in tensors.values() if v.numel()}


class Ranks:
    """Groups and exchanges of one rank; every method is called on all ranks in one order."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def exchange(self, plan: RunPlan, *, checksum: bool = False) -> TrajectoryExchange | None:
        """Return an exchange in a group of its own; None on ranks outside."""
        place = plan.placement
        ranks = sorted({*place.rollout_ranks, *place.actor_ranks})
        group = None
        if not all(shard.in_process for shard in plan.shards):
            group = dist.new_group(ranks, timeout=timedelta(seconds=60))
        if self.rank not in ranks:
            return None
        return TrajectoryExchange(plan, self.rank, group, CPU, checksum=checksum)

    def lockstep(self, name: str, mode: str) -> dict[str, Any]:
        """Three batches of a map; the last has more fields."""
        rollout, actor, groups = MAPS[name]
        plan = plan_of(rollout, actor, groups, mode)
        exchange = self.exchange(plan, checksum=True)
        if exchange is None:
            return {}
        raw = spy_on_messages(exchange)
        seen: dict[str, Any] = {"same": [], "stamps": [], "merged": [], "own": []}
        for index in (5, 6, 7):
            batch = whole(groups, index, values=index == 7)
            own = share(batch, rollout, self.rank, groups)
            got = exchange.exchange(own, index, oldest=index - self.rank, newest=index + self.rank)
            expected = share(batch, actor, self.rank, groups)
            if got is None or expected is None:
                seen["same"].append(got is None and expected is None)
                continue
            seen["same"].append(same(got.tensors, expected))
            seen["stamps"].append([got.index, got.oldest, got.newest])
            seen["merged"].append(memory(got.tensors) != {raw["place"]})
            seen["own"].append(own is not None and memory(got.tensors) <= memory(own))
            if index == 6:
                got.release()  # the last one may use its memory
        seen["sent"] = raw["sent"]
        seen["received"] = raw["received"]
        return seen

    def stream(self, name: str, mode: str) -> dict[str, Any]:
        """Sources that end after 2, 3, 4 batches, in the order of ranks; actors keep everything."""
        rollout, actor, groups = MAPS[name]
        exchange = self.exchange(plan_of(rollout, actor, groups, mode))
        if exchange is None:
            return {}
        if self.rank in rollout:
            for index in range(2 + rollout.index(self.rank)):
                own = share(whole(groups, index), rollout, self.rank, groups)
                assert own is not None
                exchange.send(own, index, index, index)
                for value in own.values():
                    value.zero_()
            exchange.send_end()
            return {"ended": True}
        kept = []
        thread = threading.Thread(target=lambda: kept.extend(iter(exchange.receive, None)))
        thread.start()
        thread.join()
        expected = [share(whole(groups, r.index), actor, self.rank, groups) for r in kept]
        return {
            "indices": [received.index for received in kept],
            "same": [same(r.tensors, e or {}) for r, e in zip(kept, expected, strict=True)],
        }

    def reuse(self) -> list[bool]:
        """Whether memory moved between a batch and the next one, without and after a release."""
        exchange = self.exchange(plan_of((0,), (1,), 2))
        if self.rank == 0:
            for index in range(4):
                exchange.send(whole(2, index), index, 0, 0)
        if self.rank != 1:
            return []
        kept = [exchange.receive(), exchange.receive()]
        places = [memory(received.tensors) for received in kept]
        kept[0].release()
        kept[0].release()
        kept.append(exchange.receive())
        kept.append(exchange.receive())
        places += [memory(received.tensors) for received in kept[2:]]
        rest = all(same(r.tensors, whole(2, r.index)) for r in kept[1:])
        return [places[1] != places[0], places[2] == places[0], places[3] not in places[:3], rest]

    def pieces(self, mode: str) -> list[bool]:
        """Whether batches are whole that go in pieces of 100 bytes, as through a device."""
        rollout, actor, groups = MAPS["hybrid, uneven"]
        exchange = self.exchange(plan_of(rollout, actor, groups, mode))
        exchange._link = Link(MODES[mode], exchange._link._group, CPU, piece_bytes=100)
        kept = []
        for index in (0, 1):
            batch = whole(groups, index)
            own = share(batch, rollout, self.rank, groups)
            got = exchange.exchange(own, index, 0, 0)
            kept.append(same(got.tensors, share(batch, actor, self.rank, groups)))
        return kept

    def counts(self) -> list[bool]:
        """Whether both primitives move random counts alike, and right."""
        generator = torch.Generator().manual_seed(0)
        group = dist.group.WORLD
        right = []
        for _ in range(30):
            table = torch.randint(0, 40, (WORLD, WORLD), generator=generator)
            table *= torch.rand(WORLD, WORLD, generator=generator) < 0.6
            table.fill_diagonal_(0)
            rows = table.tolist()
            parts = {
                (a, b): torch.full((rows[a][b],), 10 * a + b, dtype=torch.uint8)
                for a, b in itertools.product(range(WORLD), repeat=2)
            }
            send = torch.cat([parts[self.rank, b] for b in range(WORLD)])
            expected = torch.cat([parts[a, self.rank] for a in range(WORLD)])
            for exchange in MODES.values():
                recv = torch.full_like(expected, 255)
                exchange(send, rows[self.rank], recv, [row[self.rank] for row in rows], group)
                right.append(torch.equal(recv, expected))
        return right

    def refused(self, break_it: Callable[[TrajectoryExchange], None]) -> str:
        """Return why rank 1 refuses the second of two batches, which rank 0 breaks."""
        exchange = self.exchange(plan_of((0,), (1,), 2), checksum=True)
        if self.rank == 0:
            exchange.send(whole(2, 3), 3, 0, 0)
            break_it(exchange)
            exchange.send(whole(2, 4), 4, 0, 0)
        if self.rank == 1:
            exchange.receive()
            return reason(exchange.receive)
        return ""

    def unlike(self, mode: str) -> list[str]:
        """Return why rank 2 refuses batches of two sources that do not belong together."""
        told = []
        for what in ("fields", "index"):
            exchange = self.exchange(plan_of((0, 1), (2,), 2, mode))
            if self.rank < 2:
                values, index = what == "fields" and self.rank == 1, 8 + self.rank
                own = share(whole(2, 8, values=values), (0, 1), self.rank, 2)
                exchange.send(own, 8 if what == "fields" else index, 0, 0)
            elif self.rank == 2:
                told.append(reason(exchange.receive))
        return told

    def left(self, mode: str) -> str:
        """Return how rank 1 notices that rank 0 is gone."""
        exchange = self.exchange(plan_of((0,), (1,), 2, mode))
        if self.rank == 0:
            dist.destroy_process_group(exchange._link._group)
        return reason(exchange.receive) if self.rank == 1 else ""


def spy_on_messages(exchange: TrajectoryExchange) -> dict[str, Any]:
    """Note bytes sent, digests of bytes received, and where the last were received."""
    seen: dict[str, Any] = {"sent": 0, "received": [], "place": 0}
    if exchange._link is not None:
        large = exchange._link.large

        def spied(send, send_counts, recv, recv_counts, longest):
            large(send, send_counts, recv, recv_counts, longest)
            seen["sent"] += len(send)
            digest = hashlib.sha256(recv.numpy().tobytes()).hexdigest()
            seen["received"].append([recv_counts, digest])
            seen["place"] = recv.untyped_storage().data_ptr()

        exchange._link.large = spied
    return seen


def reason(receive: Callable[[], Any]) -> str:
    try:
        receive()
    except RunFailedError as error:
        return str(error)
    return "nothing was refused"


def damage_bytes(exchange: TrajectoryExchange) -> None:
    """Change a bit of the next message, behind its checksum."""
    large = exchange._link.large

    def damaged(send, *rest):
        send[len(send) // 2] ^= 4
        large(send, *rest)

    exchange._link.large = damaged


def damage_header(place: int) -> Callable[[TrajectoryExchange], None]:
    """Change one byte of the next header; what it announces is not sent."""

    def apply(exchange: TrajectoryExchange) -> None:
        small = exchange._link.small

        def damaged(send, *rest):
            send[place] += 1
            small(send, *rest)

        exchange._link.small = damaged
        exchange._link.large = lambda *_: None

    return apply


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    try:
        ranks = Ranks(rank)
        seen: dict[str, Any] = {
            "lockstep": {f"{n}, {m}": ranks.lockstep(n, m) for n in MAPS for m in MODES},
            "stream": {
                f"{n}, {m}": ranks.stream(n, m)
                for n in ("disaggregated 2+2", "three to one", "one to two", "split")
                for m in MODES
            },
            "reuse": ranks.reuse(),
            "pieces": {mode: ranks.pieces(mode) for mode in MODES},
            "counts": ranks.counts(),
            "damaged": ranks.refused(damage_bytes),
            "foreign": ranks.refused(damage_header(0)),
            "version": ranks.refused(damage_header(8)),
            "unlike": {mode: ranks.unlike(mode) for mode in MODES},
            "left": {mode: ranks.left(mode) for mode in MODES},
        }
        Path(directory, f"{rank}.json").write_text(json.dumps(seen))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def start(directory: Path) -> list[dict[str, Any]]:
    """Return what each rank saw."""
    spawn(rank_main, args=(str(directory),), nprocs=WORLD)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(WORLD)]

"""What needs no second rank; `tests/core/engine/test_remote_envs.py` talks."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.comm.messages import Field, Header, pack, payload_bytes, unpack
from joyrlinf_core.errors import RunFailedError

LAYOUT = [
    Field(torch.int64, (3, 2)),
    Field(torch.float32, (3, 0)),
    Field(torch.float32, (3,)),
    Field(torch.uint8, (3, 5)),
    Field(torch.bool, (3,)),
]


def tensors() -> list[torch.Tensor]:
    return [
        torch.tensor([[-(2**62), 2**62], [0, 1], [2, 3]]),
        torch.zeros(3, 0),
        torch.tensor([float("inf"), -0.0, 1e-42]),
        torch.arange(15, dtype=torch.uint8).reshape(3, 5),
        torch.tensor([True, False, True]),
    ]


def test_what_is_packed_is_unpacked() -> None:
    payload = pack(tensors(), LAYOUT)
    assert payload.dtype == torch.uint8
    assert payload.numel() == payload_bytes(LAYOUT) == 48 + 0 + 12 + 15 + 3
    for found, sent in zip(unpack(payload, LAYOUT), tensors(), strict=True):
        assert found.dtype == sent.dtype
        assert torch.equal(found, sent)
        assert found.untyped_storage().data_ptr() == payload.untyped_storage().data_ptr()


def test_tensors_are_brought_into_the_layout() -> None:
    actions = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T
    layout = [Field(torch.float32, (3, 2))]
    assert unpack(pack([actions], layout), layout)[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_wrong_shape_is_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(1,\), not \(3,\)"):
        pack([torch.zeros(1)], [Field(torch.float32, (3,))])


def test_a_payload_of_another_size_is_refused() -> None:
    with pytest.raises(RunFailedError, match="77 bytes came where 78 were due"):
        unpack(torch.zeros(77, dtype=torch.uint8), LAYOUT)


def test_a_header_has_64_bytes_and_comes_back() -> None:
    header = Header(3, sequence=2**40, rows=5, chunk=10, flag=True, nbytes=9 * 2**30)
    packed = header.pack(line=6)
    assert packed.numel() * packed.itemsize == 64
    assert Header.unpack(packed, line=6) == header


@pytest.mark.parametrize("place", [0, 1])
def test_a_header_of_something_else_is_refused(place: int) -> None:
    packed = Header(1, 1).pack(line=2)
    packed[place] += 1
    with pytest.raises(RunFailedError, match="disagree on who talks to whom"):
        Header.unpack(packed, line=2)

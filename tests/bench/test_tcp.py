"""The wire that gradients took is read from the process's own connections."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from bench.backends.hvd_start import require_interface_taken
from bench.config import RunConfig, UsageError
from bench.launch import machine
from bench.study import comparability


def test_bytes_are_counted_by_interface_in_both_directions() -> None:
    before = machine.tcp_bytes().get("lo", 0)
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as there:
        here, _ = server.accept()
        with here:
            there.sendall(b"x" * 1000)
            assert len(here.recv(1000, socket.MSG_WAITALL)) == 1000
            deadline = time.monotonic() + 60
            # both ends are ours; a byte sent counts once it is acknowledged, which may take a while
            while (after := machine.tcp_bytes()).get("lo", 0) - before < 2000:
                assert time.monotonic() < deadline, (before, after)
            later = machine.tcp_bytes(after)
    assert later == {}, "nothing since then"
    assert set(after) == {"lo"}


def test_every_address_of_this_host_has_its_interface() -> None:
    names = {name for _, name in socket.if_nameindex()}
    assert machine.interfaces_by_address()["127.0.0.1"] == "lo"
    assert {*machine.interfaces_by_address().values()} <= names
    assert machine.host_name_interface() in {*names, ""}


def test_horovods_gloo_does_not_take_the_interface_that_it_is_given() -> None:
    require_interface_taken("", "eth0")
    require_interface_taken("ib0", "ib0")
    refused = "HOROVOD_GLOO_IFACE='ib0': .* address of the host's name, on eth0, .*; name that one"
    with pytest.raises(UsageError, match=refused):
        require_interface_taken("ib0", "eth0")


RUN = RunConfig(backend="ddp", transport="gloo", world_size=2, batch_per_rank=4)
WORK = {"gradient_bytes": 1_000_000}
SENT = RUN.steps * 2 * 1_000_000


@pytest.mark.parametrize(
    ("by_rank", "expected"),
    [
        ([{"eth0": SENT, "lo": 2000}, {"eth0": SENT, "lo": 0}], "TCP over eth0"),
        ([{"eth0": SENT, "lo": SENT // 3}, {}], "TCP over eth0, lo"),
        ([{"lo": 50_000}, {"lo": 60_000}], "no TCP"),
    ],
)
def test_the_wire_is_what_carried_the_gradients(
    by_rank: list[dict[str, int]], expected: str
) -> None:
    facts = comparability.facts(RUN, {}, {"tcp_bytes": by_rank}, WORK)
    assert facts["wire"] == expected


def test_where_no_gradient_is_exchanged_there_is_no_wire() -> None:
    alone, apart = RunConfig(batch_per_rank=4), RUN.model_copy(update={"exchange": "off"})
    ends: list[Any] = [(alone, {"tcp_bytes": [{}]}), (apart, {"tcp_bytes": [{}, {}]}), (RUN, {})]
    assert not any("wire" in comparability.facts(run, {}, end, WORK) for run, end in ends)

"""A real name server, by UDP and TCP, that says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from tests.harness.processes import free_port

Question = tuple[str, str]  # name, type


class NameServer(asyncio.DatagramProtocol):
    """`records` are lines as in a zone file, without name and type; what is not there does not exist."""

    def __init__(self) -> None:
        self.port = 0
        self.records: dict[Question, tuple[int, list[str]]] = {}
        self.additional: list[tuple[str, int, str, str]] = []  # name, TTL, type, data; with every SRV
        self.rcodes: dict[Question, str] = {}
        self.silent: set[Question] = set()
        self.cut_short = False  # answers by UDP
        self.garbage = False
        self.asked: list[tuple[str, str, str]] = []  # name, type, udp or tcp

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    def say(self, name: str, kind: str, *data: str, ttl: int = 60) -> None:
        self.records[name, kind] = (ttl, list(data))

    def answer(self, query: bytes, by: str) -> bytes | None:
        message = dns.message.from_wire(query)
        (asked,) = message.question
        question = asked.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(asked.rdtype)
        self.asked.append((*question, by))
        if question in self.silent:
            return None
        if self.garbage:
            return query[:2] + b"\x80\x00 what?"
        reply = dns.message.make_response(message)
        if self.cut_short and by == "udp":
            reply.flags |= dns.flags.TC
        else:
            self._fill(reply, question, asked.name)
        return reply.to_wire(max_size=65535)

    def _fill(self, reply: dns.message.Message, question: Question, name: dns.name.Name) -> None:
        if question in self.rcodes:
            reply.set_rcode(dns.rcode.from_text(self.rcodes[question]))
        elif not any(known == question[0] for known, _ in self.records):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif (alias := self.records.get((question[0], "CNAME"))) is not None:
            reply.answer.append(dns.rrset.from_text(name, alias[0], "IN", "CNAME", alias[1][0]))
            target = dns.name.from_text(alias[1][0])
            self._fill(reply, (target.to_text(omit_final_dot=True), question[1]), target)
        elif question in self.records:
            ttl, data = self.records[question]
            if data:
                reply.answer.append(dns.rrset.from_text(name, ttl, "IN", question[1], *data))
            if question[1] == "SRV":
                reply.additional += [dns.rrset.from_text(f"{n}.", t, "IN", k, d) for n, t, k, d in self.additional]

    # ------------------------------------------------------------------ sockets

    def connection_made(self, transport: Any) -> None:  # uvloop's is no subclass of asyncio's
        self._transport = transport

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        if (reply := self.answer(data, "udp")) is not None:
            self._transport.sendto(reply, sender)

    async def by_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(2), "big")
        if (reply := self.answer(await reader.readexactly(length), "tcp")) is not None:
            writer.write(len(reply).to_bytes(2, "big") + reply)
        writer.close()


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    served = NameServer()
    served.port = free_port()  # none that the kernel gives to others, who may have it by UDP
    async with await asyncio.start_server(served.by_tcp, "127.0.0.1", served.port):
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: served, local_addr=("127.0.0.1", served.port)
        )
        try:
            yield served
        finally:
            transport.close()

"""Sends back whatever it gets, on loopback: ``python -m rabbitmq_resilience.clusters.network.echo PORT``.

It stands where a broker does, behind the same kind of proxy, so that what a round trip takes is the network's doing and
not RabbitMQ's.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from rabbitmq_resilience.clusters.machine.claims import LOOPBACK

_PIECE_BYTES = 65_536


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(_answer, LOOPBACK, port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

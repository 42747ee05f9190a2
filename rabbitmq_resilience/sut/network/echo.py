"""Run an echo server on loopback: ``python -m rabbitmq_resilience.sut.network.echo PORT``.

The server takes the place of a broker behind the same kind of proxy. So a round trip to it takes the time of the
network and not of RabbitMQ.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK

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

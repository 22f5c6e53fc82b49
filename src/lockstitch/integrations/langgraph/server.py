"""The checkpointer of a LangGraph Server, configured by one line in its ``langgraph.json``.

``"checkpointer": {"path": "lockstitch.integrations.langgraph.server.checkpointer"}`` makes the
server keep its threads in the store that ``LOCKSTITCH_STORE`` names. The server calls this function
once in every thread that runs an event loop, enters the context manager that it returns, and leaves
it when it stops.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph.saver import Saver

STORE = "LOCKSTITCH_STORE"


@asynccontextmanager
async def checkpointer() -> AsyncIterator[Saver]:
    """Open the store that the environment names; for the configuration of a LangGraph Server."""
    url = os.environ.get(STORE)
    if not url:
        raise UsageError(
            f"the environment names no store for the checkpoints: set {STORE} to an address such "
            "as postgresql://host/database or sqlite:////absolute/path/agent.db"
        )
    # Opening and closing take a moment that must not block the server's loop.
    saver = await asyncio.to_thread(Saver, url)
    try:
        yield saver
    finally:
        await asyncio.to_thread(saver.close)

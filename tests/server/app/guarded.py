import os
from contextlib import asynccontextmanager

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from lockstitch.integrations.langgraph import Guard


@asynccontextmanager
async def checkpointer():
    async with AsyncPostgresSaver.from_conn_string(os.environ["CHECKPOINTS"]) as saver:
        await saver.setup()
        yield Guard(saver)

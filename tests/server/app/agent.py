"""The graph that the server serves in the tests; its model is the strict provider."""

import asyncio
import os
from pathlib import Path

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langgraph.types import interrupt


def note(job: str) -> None:
    """Write down that a job was begun."""
    with Path("jobs").open("a", encoding="utf-8") as file:
        file.write(f"{job}\n")


async def work(job: str) -> str:
    """Do a job."""
    await asyncio.to_thread(note, job)
    if job == "stuck" and not await asyncio.to_thread(Path("unstuck").exists):
        await asyncio.sleep(600)
    if job == "asking":
        return f"a person said {interrupt({'question': job})}"
    return f"the real result of {job}"


model = ChatAnthropic(
    model="claude-fable-5",
    base_url=os.environ["PROVIDER"],
    api_key="none",
    max_retries=0,
    max_tokens=100,
    default_headers={"Connection": "close"},
)
graph = create_agent(model, [work])

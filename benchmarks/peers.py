"""Put every kind of broken message list through Lockstitch and its peers, in one run.

    python benchmarks/peers.py           # needs the packages of the peers; absent ones are named

The lists are those of tests/kinds_of_break, and the judges are the oracles under tests/oracles,
which share no code with Lockstitch. A cell says what became of one list:

    ok       the provider would accept it, and nothing that was said or returned is gone
    loses    it would be accepted, but a text, an argument or a real tool result is gone
    refused  the provider would still answer 400
    raises   the peer failed on it
    -        this list is not broken for this API
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.dump import dump  # noqa: E402 - the tests are no package that could be installed
from tests.kinds_of_break.conversations import BROKEN, Conversation  # noqa: E402
from tests.kinds_of_break.pairs import pairs  # noqa: E402
from tests.kinds_of_break.render import FORMS  # noqa: E402
from tests.oracles import problems  # noqa: E402

Repair = Callable[[list[Any]], Any]


def lockstitch(dialect: str) -> Repair:
    """Return Lockstitch's repair for one API."""
    from lockstitch import heal

    return lambda messages: heal(messages, dialect)


def turnsafe(provider: str) -> Repair:
    """Return turnsafe's repair for one API."""
    from turnsafe import repair

    return lambda messages: repair(messages, provider=provider)


def litellm_chat() -> Repair:
    """Return what LiteLLM does on its OpenAI route before it translates for Anthropic."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing
    import litellm
    from litellm.litellm_core_utils.prompt_templates.factory import (
        sanitize_messages_for_tool_calling,
    )

    litellm.modify_params = True
    repair: Repair = sanitize_messages_for_tool_calling
    return repair


def deepagents() -> Repair:
    """Return what the middleware of deepagents does to the messages of a LangChain agent."""
    from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware

    def patch(messages: list[Any]) -> list[Any]:
        update = PatchToolCallsMiddleware().before_agent({"messages": messages}, None)
        return messages if update is None else update["messages"][1:]

    return patch


# What is compared: the package, the form in which it takes lists, and its repair.
PEERS: tuple[tuple[str, str, Callable[[], Repair]], ...] = (
    ("lockstitch", "anthropic", lambda: lockstitch("anthropic")),
    ("turnsafe", "anthropic", lambda: turnsafe("anthropic")),
    ("lockstitch", "openai-chat", lambda: lockstitch("openai-chat")),
    ("turnsafe", "openai-chat", lambda: turnsafe("openai")),
    ("litellm", "openai-chat", litellm_chat),
    ("lockstitch", "langchain-objects", lambda: lockstitch("langchain")),
    ("deepagents", "langchain-objects", deepagents),
    ("lockstitch", "openai-responses", lambda: lockstitch("openai-responses")),
    ("lockstitch", "gemini", lambda: lockstitch("gemini")),
    ("lockstitch", "bedrock", lambda: lockstitch("bedrock")),
)


def outcome(conversation: Conversation, form: str, repair: Repair) -> str:
    """Return what became of one conversation."""
    dialect, render = FORMS[form]
    messages = render(conversation.turns)
    if not problems(dialect, messages):
        return "-"
    try:
        repaired = repair(deepcopy(messages))
    except Exception:  # noqa: BLE001 - that a peer fails is the outcome
        return "raises"
    if problems(dialect, repaired):
        return "refused"
    text = dump(repaired)
    # Where a tool result has no call, that it is gone is not held against anybody.
    words = [mark for mark in conversation.kept if mark not in conversation.text]
    if any(mark not in text for mark in words):
        return "loses"
    found = pairs(dialect, repaired)
    apart = [
        result
        for result, call in conversation.belongs.items()
        if not any(call in said and result in answer for said, answer in found)
    ]
    return "loses" if apart else "ok"


def main() -> int:
    """Print a row for each peer and API: how many lists came out right, and each of them."""
    kinds = [conversation.name[:2] for conversation in BROKEN]
    print(f"{'':12} {'API':18} {'right':>8}  {'  '.join(f'{kind:7}' for kind in kinds)}")
    for package, form, made in PEERS:
        try:
            name = f"{package} {version(package)}"
            repair = made()
        except (PackageNotFoundError, ModuleNotFoundError):
            print(f"{package:12} {form:18} is not installed")
            continue
        cells = [outcome(conversation, form, repair) for conversation in BROKEN]
        broken = [cell for cell in cells if cell != "-"]
        share = f"{broken.count('ok')} of {len(broken)}"
        print(f"{name:18} {form:18} {share:>8}  {'  '.join(f'{cell:7}' for cell in cells)}")
    print()
    for conversation in BROKEN:
        number, _, words = conversation.name.partition("_")
        print(f"{number} {words.replace('_', ' ')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

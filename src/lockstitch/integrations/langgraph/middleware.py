"""Middleware for LangChain's ``create_agent`` that makes every request to the model valid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest

from lockstitch.integrations.langgraph.hooks import (
    ResultSearch,
    checked_dialect,
    dialect_for,
    model_name,
    opens_with_user,
    sendable,
)

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentState, ModelResponse
    from langchain_core.messages import AnyMessage, BaseMessage
    from langgraph.runtime import Runtime


class HealMiddleware(AgentMiddleware[Any, Any, Any]):
    """Middleware that heals an agent's conversation: in its state once, and before every call.

    In the state, open calls are answered with the results that the checkpointer has beside earlier
    checkpoints of the thread, late results are moved, and incomplete replies are reduced to what
    arrived. The update is one step of the graph, and later steps find nothing to do. What is sent
    is healed again, because middleware in between may have cut it. A list without errors is passed
    on as the same object. It can be combined with approvals and summaries in any order.

    ``dialect`` names a profile such as ``langchain:mistral`` for what is sent, and ``model`` a
    version that some rules depend on. By default both are taken from the model of the request.
    Raises ``UsageError`` for a dialect that is not one of LangChain messages.
    """

    def __init__(self, dialect: str | None = None, *, model: str | None = None) -> None:
        super().__init__()
        checked_dialect(dialect)
        self.dialect = dialect
        self.model = model

    def __repr__(self) -> str:
        """Return its options."""
        return f"{type(self).__name__}(dialect={self.dialect!r}, model={self.model!r})"

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        search = ResultSearch(state["messages"])
        search.look()
        return _changed(search)

    async def abefore_model(
        self, state: AgentState[Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        search = ResultSearch(state["messages"])
        await search.alook()
        return _changed(search)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        return handler(self._healed(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        return await handler(self._healed(request))

    def _healed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        held = cast("list[BaseMessage]", request.messages)
        dialect = self.dialect or dialect_for(request.model)
        name = self.model or model_name(request.model)
        sent = sendable(held, dialect, name, is_opened=opens_with_user(request.model))
        if sent is held:
            return request
        return request.override(messages=cast("list[AnyMessage]", sent))


def _changed(search: ResultSearch) -> dict[str, Any] | None:
    update = search.update()
    return None if update is None else {"messages": update}

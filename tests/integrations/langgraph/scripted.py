"""A model that says what it is told, and remembers what it was sent."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    """A model that gives these replies in order, then ``ok``, and keeps what it was sent."""

    replies: list[AIMessage]
    sent: list[list[BaseMessage]]

    def __init__(self, *replies: AIMessage) -> None:
        super().__init__(replies=list(replies), sent=[])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.sent.append(list(messages))
        reply = self.replies.pop(0) if self.replies else AIMessage("ok")
        return ChatResult(generations=[ChatGeneration(message=reply.model_copy())])

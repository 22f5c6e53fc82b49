"""The same conversation in the objects of each SDK, and the SDK's own way to send it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import anthropic
import anthropic.types
import botocore.config  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
import openai
import openai.types.chat
import openai.types.responses
from google import genai
from google.genai import types as google
from langchain_core import messages as langchain

from .recorder import Recorder


class Kit(ABC):
    """How one SDK says a question, calls, a result; ``objects`` are the classes it says it in."""

    dialect: str
    checked_as: str
    objects: tuple[type, ...] = ()

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    @abstractmethod
    def ask(self, text: str) -> Any:
        """Give a message of the user."""

    @abstractmethod
    def call(self, *ids: str) -> list[Any]:
        """Give what the assistant says to call a tool once for every id."""

    @abstractmethod
    def result(self, call: str, text: str) -> Any:
        """Give the message that carries one result."""

    @abstractmethod
    def sent(self, messages: Any) -> Any:
        """Have the SDK send the messages, and give the body that arrived."""


class Anthropic(Kit):
    """Blocks of a reply inside message params."""

    dialect = checked_as = "anthropic"
    objects = (anthropic.types.TextBlock, anthropic.types.ToolUseBlock)

    def ask(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def call(self, *ids: str) -> list[Any]:
        content: list[Any] = [anthropic.types.TextBlock(type="text", text="Let me look.")]
        content += [
            anthropic.types.ToolUseBlock(type="tool_use", id=f"toolu_{i}", name="look", input={})
            for i in ids
        ]
        return [{"role": "assistant", "content": content}]

    def result(self, call: str, text: str) -> Any:
        block = {"type": "tool_result", "tool_use_id": f"toolu_{call}", "content": text}
        return {"role": "user", "content": [block]}

    def sent(self, messages: Any) -> Any:
        with anthropic.Anthropic(base_url=self.recorder.url, api_key="x", max_retries=0) as client:
            client.messages.create(model="m", max_tokens=9, messages=messages)
        return self.recorder.body


class OpenAIChat(Kit):
    """Reply messages between message params."""

    dialect = checked_as = "openai-chat"
    objects = (openai.types.chat.ChatCompletionMessage,)

    def ask(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def call(self, *ids: str) -> list[Any]:
        calls = [
            {"id": f"call_{i}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for i in ids
        ]
        said = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
        return [openai.types.chat.ChatCompletionMessage.model_validate(said)]

    def result(self, call: str, text: str) -> Any:
        return {"role": "tool", "tool_call_id": f"call_{call}", "content": text}

    def sent(self, messages: Any) -> Any:
        with openai.OpenAI(base_url=self.recorder.url, api_key="x", max_retries=0) as client:
            client.chat.completions.create(model="m", messages=messages)
        return self.recorder.body


class OpenAIResponses(Kit):
    """Output items of a response between input items."""

    dialect = checked_as = "openai-responses"
    objects = (
        openai.types.responses.ResponseReasoningItem,
        openai.types.responses.ResponseFunctionToolCall,
    )

    def ask(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def call(self, *ids: str) -> list[Any]:
        thought = openai.types.responses.ResponseReasoningItem(
            type="reasoning", id=f"rs_{'_'.join(ids)}", summary=[], encrypted_content="gAAA"
        )
        return [
            thought,
            *(
                openai.types.responses.ResponseFunctionToolCall(
                    type="function_call", id=f"fc_{i}", call_id=i, name="look", arguments="{}"
                )
                for i in ids
            ),
        ]

    def result(self, call: str, text: str) -> Any:
        return {"type": "function_call_output", "call_id": call, "output": text}

    def sent(self, messages: Any) -> Any:
        with openai.OpenAI(base_url=self.recorder.url, api_key="x", max_retries=0) as client:
            client.responses.create(model="m", input=messages)
        return self.recorder.body


class Google(Kit):
    """Contents of parts, all of them objects."""

    dialect = checked_as = "gemini"
    objects = (google.Content,)

    def ask(self, text: str) -> Any:
        return google.Content(role="user", parts=[google.Part(text=text)])

    def call(self, *ids: str) -> list[Any]:
        parts = [
            google.Part(
                function_call=google.FunctionCall(id=i, name=f"look_{i}", args={}),
                thought_signature=b"\x00\xffsigned" if i == ids[0] else None,
            )
            for i in ids
        ]
        return [google.Content(role="model", parts=parts)]

    def result(self, call: str, text: str) -> Any:
        response = google.FunctionResponse(id=call, name=f"look_{call}", response={"result": text})
        return google.Content(role="user", parts=[google.Part(function_response=response)])

    def sent(self, messages: Any) -> Any:
        options = google.HttpOptions(base_url=self.recorder.url)
        with genai.Client(api_key="x", vertexai=False, http_options=options) as client:
            client.models.generate_content(model="gemini-2.5-pro", contents=messages)
        return self.recorder.body


class LangChain(Kit):
    """LangChain's messages, turned into those of OpenAI the way LangChain does it."""

    dialect = "langchain"
    checked_as = "openai-chat"
    objects = (langchain.BaseMessage,)

    def ask(self, text: str) -> Any:
        return langchain.HumanMessage(text)

    def call(self, *ids: str) -> list[Any]:
        calls = [langchain.ToolCall(name="look", args={}, id=i) for i in ids]
        return [langchain.AIMessage("Let me look.", tool_calls=calls)]

    def result(self, call: str, text: str) -> Any:
        return langchain.ToolMessage(text, tool_call_id=call)

    def sent(self, messages: Any) -> Any:
        return langchain.convert_to_openai_messages(langchain.convert_to_messages(messages))


class LangChainChunks(LangChain):
    """LangChain's messages as a stream leaves them."""

    def call(self, *ids: str) -> list[Any]:
        chunks: list[Any] = [
            {"name": "look", "args": "{}", "id": i, "index": n, "type": "tool_call_chunk"}
            for n, i in enumerate(ids)
        ]
        return [langchain.AIMessageChunk(content="", tool_call_chunks=chunks)]


@cache
def _session() -> Any:
    return botocore.session.get_session()


class Bedrock(Kit):
    """Plain dicts, which botocore checks against the service's own model."""

    dialect = checked_as = "bedrock"

    def ask(self, text: str) -> Any:
        return {"role": "user", "content": [{"text": text}]}

    def call(self, *ids: str) -> list[Any]:
        uses = [{"toolUse": {"toolUseId": f"t_{i}", "name": "look", "input": {}}} for i in ids]
        return [{"role": "assistant", "content": [{"text": "Let me look."}, *uses]}]

    def result(self, call: str, text: str) -> Any:
        result = {"toolUseId": f"t_{call}", "content": [{"text": text}]}
        return {"role": "user", "content": [{"toolResult": result}]}

    def sent(self, messages: Any) -> Any:
        client = _session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=self.recorder.url,
            aws_access_key_id="x",
            aws_secret_access_key="x",  # noqa: S106 - nobody checks it
            config=botocore.config.Config(retries={"total_max_attempts": 1}),
        )
        client.converse(modelId="m", messages=messages)
        client.close()
        return self.recorder.body


KITS: tuple[type[Kit], ...] = (
    Anthropic,
    OpenAIChat,
    OpenAIResponses,
    Google,
    LangChain,
    LangChainChunks,
    Bedrock,
)

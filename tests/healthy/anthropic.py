"""Valid histories of the Anthropic Messages API."""

from __future__ import annotations

from typing import Any

from tests.property.pieces import PIXEL

Block = dict[str, Any]
CACHE = {"type": "ephemeral"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def text(words: str, **more: Any) -> Block:
    return {"type": "text", "text": words, **more}


def call(key: str, name: str = "bash", **more: Any) -> Block:
    return {"type": "tool_use", "id": key, "name": name, "input": {"command": "ls"}, **more}


def result(key: str, content: Any = "a.py", **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": key, "content": content, **more}


def thinking(words: str, signature: str = "EqMBCkYIBRgC") -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def server(key: str, name: str, **given: Any) -> Block:
    return {"type": "server_tool_use", "id": key, "name": name, "input": given}


def answer(key: str, kind: str, content: Any) -> Block:
    return {"type": f"{kind}_tool_result", "tool_use_id": key, "content": content}


PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
}
FOUND = {
    "type": "web_search_result",
    "title": "Weather",
    "url": "https://example.org/weather",
    "encrypted_content": "EqgfCioIARgB",
    "page_age": "1 day",
}
CITED = {
    "type": "web_search_result_location",
    "url": "https://example.org/weather",
    "title": "Weather",
    "encrypted_index": "Eo8BCioIAhgB",
    "cited_text": "sunny",
}
RAN = {
    "type": "code_execution_result",
    "stdout": "4\n",
    "stderr": "",
    "return_code": 0,
    "content": [],
}
SHELL = {
    "type": "bash_code_execution_result",
    "stdout": "",
    "stderr": "",
    "return_code": 0,
    "content": [],
}
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 1024}

HISTORIES: dict[str, Any] = {
    "nothing": [],
    "one question": [user("Hello")],
    "prefill": [user("Write a haiku as JSON"), assistant("{")],
    "consecutive user messages": [user("Hello"), user("Are you there?"), assistant("Yes.")],
    "consecutive assistant messages": [user("Go"), assistant("One."), assistant("Two."), user("?")],
    "parallel calls": [
        user("Look around"),
        assistant(text("Sure."), call("toolu_1"), call("toolu_2", "read")),
        user(result("toolu_1"), result("toolu_2", [text("print()")])),
        assistant("Done."),
    ],
    "results in completion order": [
        user("Look around"),
        assistant(call("toolu_1"), call("toolu_2")),
        user(result("toolu_2"), result("toolu_1")),
    ],
    "text after the results": [
        user("Look around"),
        assistant(call("toolu_1")),
        user(result("toolu_1"), text("and hurry")),
        assistant("Done."),
    ],
    "the user speaks again after the results": [
        user("Look around"),
        assistant(call("toolu_1")),
        user(result("toolu_1")),
        user("and hurry"),
    ],
    "calls of one turn in two messages": [
        user("Look around"),
        assistant(text("Sure."), call("toolu_1")),
        assistant(call("toolu_2")),
        user(result("toolu_1"), result("toolu_2")),
    ],
    "results without content, empty and as errors": [
        user("Look around"),
        assistant(call("toolu_1"), call("toolu_2"), call("toolu_3")),
        user(
            {"type": "tool_result", "tool_use_id": "toolu_1"},
            result("toolu_2", ""),
            result("toolu_3", [text("No such file")], is_error=True),
        ),
    ],
    "images and documents in results": [
        user("Look at it"),
        assistant(call("toolu_1")),
        user(
            result(
                "toolu_1",
                [
                    text("Here it is"),
                    PICTURE,
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
                    },
                    {"type": "search_result", "source": "s", "title": "t", "content": [text("x")]},
                ],
            )
        ),
    ],
    "only an image": [user(PICTURE), assistant("A pixel.")],
    "an image by address and by file": [
        user(
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            text("Compare"),
        )
    ],
    "documents and an upload": [
        user(
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "A paper",
                "context": "from last year",
                "citations": {"enabled": True},
            },
            {"type": "container_upload", "file_id": "file_2"},
            text("Summarise"),
        )
    ],
    "four cache marks": {
        **BODY,
        "system": [text("Be brief", cache_control=CACHE)],
        "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
        "messages": [
            user(text("One", cache_control=CACHE)),
            assistant(text("Two"), call("toolu_1", cache_control=CACHE)),
            user(result("toolu_1", cache_control={"type": "ephemeral", "ttl": "1h"})),
        ],
    },
    "a cache mark that is null": [user(text("One", cache_control=None))],
    "web search with citations": [
        user("How is the weather?"),
        assistant(
            text("I look it up."),
            server("srvtoolu_1", "web_search", query="weather"),
            answer("srvtoolu_1", "web_search", [FOUND]),
            text("It is sunny.", citations=[CITED]),
        ),
        user("Thanks"),
    ],
    "web search that failed": [
        user("How is the weather?"),
        assistant(
            server("srvtoolu_1", "web_search", query="weather"),
            answer(
                "srvtoolu_1",
                "web_search",
                {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            ),
            text("I could not look."),
        ),
    ],
    "two server calls at once": [
        user("Compare"),
        assistant(
            server("srvtoolu_1", "web_search", query="a"),
            server("srvtoolu_2", "web_search", query="b"),
            answer("srvtoolu_1", "web_search", [FOUND]),
            answer("srvtoolu_2", "web_search", []),
            text("Same."),
        ),
        user("Thanks"),
    ],
    "code execution in its three names": [
        user("Compute"),
        assistant(
            server("srvtoolu_1", "code_execution", code="2+2"),
            answer("srvtoolu_1", "code_execution", RAN),
            server("srvtoolu_2", "bash_code_execution", command="true"),
            answer("srvtoolu_2", "bash_code_execution", SHELL),
            server("srvtoolu_3", "text_editor_code_execution", command="view", path="a"),
            answer(
                "srvtoolu_3",
                "text_editor_code_execution",
                {
                    "type": "text_editor_code_execution_view_result",
                    "file_type": "text",
                    "content": "x",
                },
            ),
            text("Four."),
        ),
        user("Thanks"),
    ],
    "tool search, then the tool it found": [
        user("What is the weather?"),
        assistant(
            server("srvtoolu_1", "tool_search_tool_regex", query="weather"),
            answer(
                "srvtoolu_1",
                "tool_search",
                {
                    "type": "tool_search_tool_search_result",
                    "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
                },
            ),
            call("toolu_1", "get_weather"),
        ),
        user(result("toolu_1", "sunny")),
        assistant("Sunny."),
    ],
    "tool references in a result": [
        user("What is the weather?"),
        assistant(call("toolu_1", "find_tools")),
        user(result("toolu_1", [{"type": "tool_reference", "tool_name": "get_weather"}])),
    ],
    "web fetch": [
        user("Read it"),
        assistant(
            server("srvtoolu_1", "web_fetch", url="https://example.org"),
            answer(
                "srvtoolu_1",
                "web_fetch",
                {
                    "type": "web_fetch_result",
                    "url": "https://example.org",
                    "retrieved_at": None,
                    "content": {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
                    },
                },
            ),
            text("Read."),
        ),
        user("Thanks"),
    ],
    "paused at the end": [
        user("Research this"),
        assistant(text("I search."), server("srvtoolu_1", "web_search", query="this")),
    ],
    "paused after finished searches": [
        user("Research this"),
        assistant(
            server("srvtoolu_1", "web_search", query="this"),
            answer("srvtoolu_1", "web_search", [FOUND]),
            server("srvtoolu_2", "web_search", query="that"),
        ),
    ],
    "code on the server that calls a client tool": [
        user("Query all regions"),
        assistant(
            text("I write code for that."),
            server("srvtoolu_1", "code_execution", code="await query()"),
            call(
                "toolu_1",
                "query",
                caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"},
            ),
        ),
        user(result("toolu_1", "[1, 2]")),
        assistant(answer("srvtoolu_1", "code_execution", RAN), text("Three.")),
        user("Thanks"),
    ],
    "code on the server that still waits for its tool": [
        user("Query all regions"),
        assistant(
            server("srvtoolu_1", "code_execution", code="await query()"),
            call(
                "toolu_1",
                "query",
                caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_1"},
            ),
        ),
        user(result("toolu_1", "[1, 2]")),
    ],
    "server call beside a client call": [
        user("Both please"),
        assistant(
            server("srvtoolu_1", "web_search", query="a"),
            answer("srvtoolu_1", "web_search", []),
            call("toolu_1"),
        ),
        user(result("toolu_1")),
        assistant("Done."),
    ],
    "tools of an MCP server": [
        user("Ask the server"),
        assistant(
            {
                "type": "mcp_tool_use",
                "id": "mcptoolu_1",
                "name": "echo",
                "server_name": "example",
                "input": {"say": "hi"},
            },
            {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "is_error": False,
                "content": [text("hi")],
            },
            text("It said hi."),
        ),
        user("Thanks"),
    ],
    "advisor": [
        user("Think hard"),
        assistant(
            server("srvtoolu_1", "advisor"),
            answer("srvtoolu_1", "advisor", {"type": "advisor_result", "text": "Do it"}),
            text("Fine."),
        ),
        user("Thanks"),
    ],
    "thinking": [
        user("Think"),
        assistant(thinking("Hm."), text("Yes.")),
        user("Why?"),
        assistant(thinking("Because."), text("Because.")),
        user("Fine"),
    ],
    "redacted thinking": [
        user("Think"),
        assistant({"type": "redacted_thinking", "data": "EmwKAhgB"}, thinking("Hm."), text("Yes.")),
        user("Fine"),
    ],
    "signed thinking without its words": [
        user("Think"),
        assistant(thinking(""), text("Yes.")),
        user("Fine"),
    ],
    "interleaved thinking": [
        user("Look around"),
        assistant(thinking("First the list."), text("Sure."), call("toolu_1")),
        user(result("toolu_1")),
        assistant(thinking("Now the file."), call("toolu_2", "read")),
        user(result("toolu_2")),
        assistant(thinking("Enough."), text("Done.")),
    ],
    "a body with thinking on": {
        **BODY,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
        "messages": [
            user("Look around"),
            assistant(thinking("First the list."), call("toolu_1")),
            user(result("toolu_1")),
        ],
    },
    "a system prompt beside the messages": {
        **BODY,
        "system": "Be brief",
        "messages": [user("Hello")],
    },
    "a system message that only sets an option": [
        user("Hi"),
        {"role": "system", "content": [], "output_config": {"effort": "medium"}},
        {"role": "assistant", "content": "Hello"},
        user("Bye"),
    ],
    "a system message on the way": [
        user("Hello"),
        {"role": "system", "content": "From now on be brief."},
        assistant("Hi."),
        user("Look around"),
        assistant(call("toolu_1")),
        user(result("toolu_1")),
        {"role": "system", "content": [text("Answer in German.")]},
    ],
    "a compaction block": [
        user("Hello"),
        assistant({"type": "compaction", "content": "They greeted."}, text("Where were we?")),
        user("At the start"),
    ],
    "a fallback block": [
        user("Hello"),
        assistant(
            text("I can not."),
            {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
            text("But I can."),
        ),
        user("Fine"),
    ],
    "a search result as a source": [
        user(
            {
                "type": "search_result",
                "source": "https://example.org",
                "title": "t",
                "content": [text("words")],
                "citations": {"enabled": True},
            },
            text("Cite it"),
        )
    ],
    "fields nobody knows": [
        {**user("Hello"), "uuid": "7", "timestamp": 1},
        assistant(text("Hi.", shade="blue"), {"type": "hologram", "beam": [1, 2.5, None]}),
        user("Fine"),
    ],
    "names and inputs of many kinds": [
        user("Look around"),
        assistant(
            call("toolu_01A-b_C", "mcp__files__read-file"),
            {"type": "tool_use", "id": "2", "name": "n", "input": {}},
        ),
        user(result("toolu_01A-b_C"), result("2", "€ and \u2028 and 🧵")),
    ],
}

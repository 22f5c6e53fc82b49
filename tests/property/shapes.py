"""One strategy a dialect for a message that has a known shape, right or wrong in its place."""

from __future__ import annotations

from hypothesis import strategies as st

from .pieces import (
    PIXEL,
    Strategy,
    arguments_object,
    arguments_text,
    call_id,
    name,
    no_name,
    odd_payload,
    often,
    result_text,
    text,
)

fixed = st.fixed_dictionaries
just = st.just
pick = st.sampled_from


def _some(*blocks: Strategy, most: int = 4) -> Strategy:
    return st.lists(st.one_of(*blocks), max_size=most)


# Anthropic ---------------------------------------------------------------------------------------

cache_control = just({"type": "ephemeral"})
hollow = pick([{"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 3}])
a_text = often(
    fixed({"type": just("text"), "text": text}, optional={"cache_control": cache_control}),
    hollow,
    fixed({"type": just("text"), "cache_control": cache_control}),
    weight=12,
)
a_image = fixed(
    {
        "type": just("image"),
        "source": pick(
            [
                {"type": "base64", "media_type": "image/png", "data": PIXEL},
                {"type": "url", "url": "https://example.org/a.png"},
                {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
            ]
        ),
    }
)
a_document = fixed(
    {
        "type": just("document"),
        "source": just({"type": "text", "media_type": "text/plain", "data": "<T§>"}),
    }
)
a_call = fixed(
    {
        "type": just("tool_use"),
        "id": call_id,
        "name": often(name, no_name, weight=9),
        "input": arguments_object,
    },
    optional={"cache_control": cache_control},
)
a_result = fixed(
    {"type": just("tool_result"), "tool_use_id": call_id},
    optional={
        "content": often(result_text, _some(a_text, a_image, most=3), odd_payload, weight=2),
        "is_error": st.booleans(),
    },
)
a_thinking = st.one_of(
    fixed({"type": just("thinking"), "thinking": pick(["<R§>", ""]), "signature": just("EqMB")}),
    fixed({"type": just("thinking"), "thinking": pick(["<R§>", ""]), "signature": just("")}),
    fixed({"type": just("thinking"), "thinking": just("<R§>")}),
    fixed({"type": just("redacted_thinking"), "data": pick(["Eo0B", ""])}),
)
SERVER_TOOLS = {
    "web_search": "web_search_tool_result",
    "code_execution": "code_execution_tool_result",
}
server_id = pick(["srvtoolu_1", "srvtoolu_2"])
a_server_call = fixed(
    {
        "type": just("server_tool_use"),
        "id": server_id,
        "name": pick(list(SERVER_TOOLS)),
        "input": pick([{}, {"query": "<A§>"}]),
    }
)
a_server_result = fixed(
    {
        "type": pick(list(SERVER_TOOLS.values())),
        "tool_use_id": server_id,
        "content": just([]),
    }
)
a_mcp_call = fixed(
    {
        "type": just("mcp_tool_use"),
        "id": just("mcptoolu_1"),
        "name": name,
        "server_name": just("files"),
        "input": just({}),
    }
)
a_mcp_result = fixed(
    {"type": just("mcp_tool_result"), "tool_use_id": just("mcptoolu_1"), "content": just("<T§>")}
)
a_unknown = just({"type": "hologram", "beam": "<U§>"})
a_user = often(_some(a_text, a_result, a_result, a_image, a_document, a_unknown), text, weight=2)
a_assistant = often(
    _some(a_text, a_call, a_call, a_thinking, a_server_call, a_server_result, a_unknown), text
)
a_anything = _some(a_text, a_call, a_result, a_thinking, a_mcp_call, a_mcp_result)
anthropic = often(
    st.one_of(
        fixed({"role": just("user"), "content": a_user}),
        fixed({"role": just("assistant"), "content": a_assistant}),
    ),
    fixed({"role": pick(["user", "assistant"]), "content": a_anything}),
    fixed({"role": pick(["system", "tool", "developer"]), "content": text}),
    fixed({"role": pick(["user", "assistant"]), "content": just([])}),
)

# OpenAI Chat -------------------------------------------------------------------------------------

c_text = often(fixed({"type": just("text"), "text": text}), hollow, weight=12)
c_image = just({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
c_refusal = just({"type": "refusal", "refusal": "<T§>"})
c_call = often(
    fixed(
        {
            "id": call_id,
            "type": just("function"),
            "function": fixed(
                {"name": often(name, no_name, weight=9), "arguments": arguments_text}
            ),
        }
    ),
    fixed(
        {
            "id": call_id,
            "type": just("custom"),
            "custom": fixed({"name": name, "input": just("<A§>")}),
        }
    ),
)
c_content = often(text, _some(c_text, most=2), weight=3)
c_assistant = fixed(
    {"role": just("assistant"), "content": often(c_content, just(None), weight=2)},
    optional={
        "tool_calls": often(st.lists(c_call, min_size=1, max_size=3), just([])),
        "refusal": pick([None, "<T§>"]),
        "reasoning_content": just("<R§>"),
        "name": just("helper"),
    },
)
c_tool = fixed(
    {
        "role": just("tool"),
        "tool_call_id": call_id,
        "content": often(result_text, _some(c_text), odd_payload),
    },
    optional={"name": name},
)
c_tool_with_calls = c_tool.flatmap(
    lambda tool: st.lists(c_call, max_size=2).map(lambda calls: {**tool, "tool_calls": calls})
)
openai_chat = often(
    st.one_of(
        fixed({"role": just("user"), "content": often(c_content, _some(c_text, c_image))}),
        c_assistant,
        c_assistant,
        c_tool,
        c_tool,
    ),
    fixed({"role": pick(["system", "developer"]), "content": c_content}),
    c_tool_with_calls,
    fixed({"role": just("assistant"), "content": _some(c_text, c_refusal, most=2)}),
    fixed({"role": pick(["user", "system"]), "content": just(None)}),
    fixed({"role": just("user"), "content": text}, optional={"tool_calls": st.lists(c_call)}),
)

# OpenAI Responses --------------------------------------------------------------------------------

KINDS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
item_id = pick(["fc_1", "fc_2", "rs_1", "msg_1", "ctc_1", "item_1", "fc_" + "z" * 70])
r_text = often(
    fixed({"type": just("input_text"), "text": text}), just({"type": "input_text"}), weight=12
)
r_user = fixed(
    {
        "type": just("message"),
        "role": pick(["user", "user", "developer", "system"]),
        "content": often(_some(r_text), text, weight=1),
    }
)
r_assistant = fixed(
    {
        "type": just("message"),
        "role": just("assistant"),
        "content": st.lists(
            fixed({"type": just("output_text"), "text": text, "annotations": just([])}),
            max_size=2,
        ),
    },
    optional={"id": item_id, "status": just("completed")},
)
r_easy = fixed({"role": pick(["user", "assistant"]), "content": text})
r_call = fixed(
    {
        "type": just("function_call"),
        "call_id": call_id,
        "name": name,
        "arguments": arguments_text,
    },
    optional={"id": item_id, "status": just("completed")},
)
r_output = fixed(
    {
        "type": just("function_call_output"),
        "call_id": call_id,
        "output": often(result_text, odd_payload, _some(r_text, most=2)),
    }
)
r_custom = fixed(
    {"type": just("custom_tool_call"), "call_id": call_id, "name": name, "input": just("<A§>")}
)
r_custom_output = fixed(
    {"type": just("custom_tool_call_output"), "call_id": call_id, "output": result_text}
)
r_shell = fixed(
    {
        "type": just("local_shell_call"),
        "call_id": call_id,
        "id": just("lsh_1"),
        "status": just("completed"),
        "action": just({"type": "exec", "command": ["ls", "<A§>"], "env": {}}),
    }
)
r_shell_output = fixed(
    {"type": just("local_shell_call_output"), "call_id": call_id, "output": result_text}
)
r_patch = fixed(
    {
        "type": just("apply_patch_call"),
        "call_id": call_id,
        "status": just("completed"),
        "operation": just({"type": "update_file", "path": "a.py", "diff": "<A§>"}),
    }
)
r_patch_output = fixed(
    {
        "type": just("apply_patch_call_output"),
        "call_id": call_id,
        "status": just("completed"),
        "output": result_text,
    }
)
summary = pick(
    [
        [],
        [{"type": "summary_text", "text": "<R§>"}],
        [{"type": "summary_text", "text": "<R§>\ud83d"}],
        [{"type": "summary_text"}, {"type": "summary_text", "text": "<R§>"}],
    ]
)
r_reasoning = often(
    fixed(
        {"type": just("reasoning"), "id": pick(["rs_1", "rs_2"])},
        optional={"summary": summary, "encrypted_content": just("gAAA")},
    ),
    fixed({"type": just("reasoning"), "summary": summary, "encrypted_content": just("gAAA")}),
    weight=2,
)
r_hosted = pick(
    [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "<A§>"},
        },
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
        {"type": "hologram", "id": "hg_1", "beam": "<U§>"},
    ]
)
openai_responses = st.one_of(
    *[r_user, r_assistant, r_easy, r_call, r_call, r_call, r_output, r_output, r_output],
    *[r_custom, r_custom_output, r_shell, r_shell_output, r_patch, r_patch_output],
    *[r_reasoning, r_reasoning, r_hosted],
)

# Gemini ------------------------------------------------------------------------------------------

CAMEL = ("functionCall", "functionResponse", "inlineData", "thoughtSignature")
SNAKE = ("function_call", "function_response", "inline_data", "thought_signature")
gemini_id = pick(["call00001", "call00002"])


def _gemini(keys: tuple[str, str, str, str]) -> Strategy:
    call, response, inline, signature = keys
    g_text = fixed({"text": text}, optional={signature: just("c2ln")})
    g_thought = just({"text": "<R§>", "thought": True})
    g_call = fixed(
        {
            call: fixed(
                {"name": often(name, no_name, weight=9), "args": arguments_object},
                optional={"id": gemini_id},
            )
        },
        optional={signature: just("c2ln")},
    )
    output = often(fixed({"output": result_text}), odd_payload)
    g_response = fixed(
        {response: fixed({"name": name, "response": output}, optional={"id": gemini_id})}
    )
    g_image = just({inline: {"mimeType": "image/png", "data": PIXEL}})
    g_empty: Strategy = just({})
    user = _some(g_text, g_response, g_response, g_image)
    model = _some(g_text, g_call, g_call, g_thought, g_empty)
    return often(
        st.one_of(
            fixed({"role": just("user"), "parts": user}),
            fixed({"role": just("model"), "parts": model}),
            fixed({"role": just("user"), "parts": st.lists(g_response, min_size=1, max_size=3)}),
        ),
        fixed({"role": pick(["user", "model"]), "parts": _some(g_text, g_call, g_response)}),
        fixed({"role": pick(["function", "system", "assistant"]), "parts": _some(g_text)}),
    )


gemini = often(_gemini(CAMEL), _gemini(SNAKE), weight=1)

# Bedrock -----------------------------------------------------------------------------------------

b_text = fixed({"text": text})
b_call = fixed({"toolUse": fixed({"toolUseId": call_id, "name": name, "input": arguments_object})})
b_result = fixed(
    {
        "toolResult": fixed(
            {
                "toolUseId": call_id,
                "content": often(
                    st.lists(fixed({"text": result_text}), min_size=1, max_size=2),
                    just([{"json": {"answer": "<T§>"}}]),
                    just([{"text": None}, {"text": "<T§>"}]),
                    just([]),
                    odd_payload,
                ),
            },
            optional={"status": pick(["success", "error"])},
        )
    }
)
b_reasoning = pick(
    [
        {"reasoningContent": {"reasoningText": {"text": "<R§>", "signature": "EqMB"}}},
        {"reasoningContent": {"reasoningText": {"text": "<R§>"}}},
        {"reasoningContent": {"redactedContent": "Eo0B"}},
    ]
)
b_cache = just({"cachePoint": {"type": "default"}})
b_image = just({"image": {"format": "png", "source": {"bytes": PIXEL}}})
b_document = just({"document": {"format": "txt", "name": "n", "source": {"text": "<T§>"}}})
b_unknown = just({"hologram": {"beam": "<U§>"}})
bedrock = often(
    st.one_of(
        fixed({"role": just("user"), "content": _some(b_text, b_result, b_result, b_image)}),
        fixed({"role": just("user"), "content": _some(b_text, b_document, b_cache, b_result)}),
        fixed({"role": just("assistant"), "content": _some(b_text, b_call, b_call, b_reasoning)}),
        fixed({"role": just("assistant"), "content": _some(b_text, b_call, b_cache)}),
    ),
    fixed({"role": pick(["user", "assistant"]), "content": _some(b_call, b_result, b_unknown)}),
    fixed({"role": pick(["system", "tool"]), "content": _some(b_text)}),
)

# LangChain ---------------------------------------------------------------------------------------

l_call = fixed(
    {
        "name": often(name, no_name, weight=9),
        "args": often(
            pick([{"q": "<A§>"}, {}]), pick(['{"q": "<A§>"}', "<A§>", None, [], ["<A§>"], 3])
        ),
        "id": call_id,
        "type": just("tool_call"),
    }
)
l_bare = pick([{}, {"id": "call00001"}, {"args": {"q": "<A§>"}}, {"function": {"name": "grep"}}])
l_invalid = fixed(
    {
        "name": name,
        "args": pick(['{"q": "<A§>', ""]),
        "id": call_id,
        "error": just("not JSON"),
        "type": just("invalid_tool_call"),
    }
)
l_block = often(fixed({"type": just("text"), "text": text}), hollow, weight=12)
l_thinking = just({"type": "thinking", "thinking": "<R§>", "signature": "EqMB"})
l_use = fixed({"type": just("tool_use"), "id": call_id, "name": name, "input": just({"q": "<A§>"})})
l_ai = fixed(
    {
        "type": just("ai"),
        "content": often(text, _some(l_block, l_thinking, l_use, most=3), weight=3),
        "tool_calls": st.lists(often(l_call, l_bare, weight=9), max_size=3),
    },
    optional={
        "invalid_tool_calls": st.lists(l_invalid, max_size=1),
        "additional_kwargs": just({}),
        "id": pick(["run-1", None]),
    },
)
l_tool = fixed(
    {
        "type": just("tool"),
        "content": often(result_text, odd_payload, _some(l_block, most=2)),
        "tool_call_id": call_id,
    },
    optional={"status": pick(["success", "error"]), "artifact": just({"rows": 1}), "name": name},
)
l_tool_with_calls = l_tool.flatmap(
    lambda tool: st.lists(l_call, max_size=2).map(lambda calls: {**tool, "tool_calls": calls})
)
l_human = fixed({"type": just("human"), "content": often(text, _some(l_block, most=2))})
l_system = fixed({"type": just("system"), "content": text})
l_plain = often(
    st.one_of(l_human, l_ai, l_ai, l_tool, l_tool, l_system), l_tool_with_calls, weight=9
)


MESSAGES: dict[str, Strategy] = {
    "anthropic": anthropic,
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "gemini": gemini,
    "bedrock": bedrock,
    "langchain": l_plain,
}

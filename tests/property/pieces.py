"""The small pieces that all dialects are generated from: ids, texts, arguments, junk."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PLACEHOLDERS = (
    "[Request interrupted by user for tool use]",
    "[Tool execution was interrupted]",
    "aborted",
    (
        "[openclaw] missing tool result in session history; "
        "inserted synthetic error result for transcript repair."
    ),
)


def often(usual: Strategy, *rare: Strategy, weight: int = 6) -> Strategy:
    """*usual* most of the time, sometimes one of *rare*."""
    return st.one_of(*[usual] * weight, *rare)


good_text = st.sampled_from(["<T§>", "<T§> two words", "é <T§>\n", "<T§>\u2028<T§>"])
bad_text = st.sampled_from(["", " ", "\n\t", "<T§>\x00", "\ud83d<T§>", "<T§>\udc00 \x00"])
text = often(good_text, bad_text)
result_text = often(good_text, bad_text, st.sampled_from(PLACEHOLDERS))

odd_payload = st.sampled_from([{"rows": ["<T§>"]}, 7, None, ["<T§>"], True])

good_id = st.sampled_from(["call00001", "call00002", "call00003"])
bad_id = st.sampled_from(["", "read:0", "has space", "x" * 70, "x" * 64 + "_y", "toolu_01ABC"])
call_id = often(good_id, bad_id, weight=8)

name = st.sampled_from(["read_file", "grep"])
no_name = st.sampled_from(["", None, 3])

good_object = st.sampled_from([{"q": "<A§>"}, {}, {"q": ["<A§>", {"deep": 1.5}]}])
broken_json = st.sampled_from(
    ['{"q": "<A§>', "", '{"q": NaN}', "<A§>", '["<A§>"]', '{"q": "<A§>"}}']
)
good_json = st.sampled_from(['{"q": "<A§>"}', "{}", ' {"q": [1, "<A§>"]} '])
arguments_text = often(
    good_json,
    broken_json,
    st.sampled_from(['{"q": "<A§>\\u0000"}', {"q": "<A§>"}, {}, None]),
    st.sampled_from(["[]", "null", "3", '"<A§>"', " ", [], 3]),
)
arguments_object = often(good_object, broken_json, st.sampled_from([None, ["<A§>"], 7, [], "null"]))

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec=None), max_size=6),
    st.sampled_from(["<U§>", "user", "assistant", "call00001", "text", "tool_use", ""]),
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=5,
)

KEYS = [
    "role",
    "content",
    "type",
    "text",
    "id",
    "name",
    "input",
    "tool_use_id",
    "is_error",
    "thinking",
    "signature",
    "data",
    "tool_calls",
    "tool_call_id",
    "function",
    "arguments",
    "refusal",
    "call_id",
    "output",
    "summary",
    "status",
    "parts",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "args",
    "response",
    "toolUse",
    "toolResult",
    "toolUseId",
    "reasoningContent",
    "reasoningText",
    "kwargs",
    "lc",
    "additional_kwargs",
    "invalid_tool_calls",
    "cache_control",
    "source",
    "citations",
    "caller",
    "encrypted_content",
    "thoughtSignature",
    "inlineData",
    "document",
    "cachePoint",
]
KINDS = [
    "text",
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "mcp_tool_use",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "custom_tool_call",
    "item_reference",
    "human",
    "ai",
    "tool",
    "system",
    "constructor",
    "image",
    "document",
    "function",
    "input_text",
    "output_text",
]
ROLES = ["user", "assistant", "tool", "system", "model", "developer", "function", "human"]

half_known = st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5)


@st.composite
def crooked(draw: st.DrawFn) -> Any:
    """An object with the right names and the wrong things under them."""
    value = draw(half_known)
    if draw(st.booleans()):
        value["type"] = draw(st.sampled_from(KINDS))
    if draw(st.booleans()):
        value["role"] = draw(st.sampled_from(ROLES))
    for key in ("content", "parts", "tool_calls", "output"):
        if draw(st.integers(0, 3)) == 0:
            value[key] = draw(st.lists(half_known | json_values, max_size=3))
    return value


junk_messages = st.lists(crooked() | json_values, max_size=5)

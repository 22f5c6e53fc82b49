"""What becomes of each kind of thing that a message may hold."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.profiles import DIALECTS, PROFILES
from lockstitch.dialects.render import find_left_out, render
from tests.dump import dump
from tests.healthy import anthropic, bedrock, gemini, langchain, openai_chat, openai_responses
from tests.property.pieces import PIXEL

from .gist import gist

every_target = pytest.mark.parametrize("target", DIALECTS)
NOTE = "[image/png, 70 bytes, left out]"


def _to(target: str, messages: list[Any], source: str = "anthropic") -> list[Any]:
    """The list in another dialect, found valid on both sides."""
    assert lockstitch.check(messages, source) == []
    made = render(messages, source, target)
    assert lockstitch.check(made, target) == []
    return made


def _called(*results: Any, **more: Any) -> list[Any]:
    calls = [anthropic.call(f"toolu_{number}", **more) for number in range(len(results))]
    answers = [
        {**anthropic.result(f"toolu_{number}"), **(r if isinstance(r, dict) else {"content": r})}
        for number, r in enumerate(results)
    ]
    return [anthropic.user("Go"), anthropic.assistant(*calls), anthropic.user(*answers)]


# Images ------------------------------------------------------------------------------------------

PICTURES: dict[str, Callable[[], Any]] = {
    "anthropic": lambda: anthropic.user(anthropic.PICTURE),
    "openai-chat": lambda: openai_chat.said(
        "user", [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]
    ),
    "openai-responses": lambda: {
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}],
    },
    "gemini": lambda: gemini.user(gemini.PICTURE),
    "bedrock": lambda: bedrock.user(bedrock.PICTURE),
    "langchain": lambda: langchain.human(
        [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}]
    ),
}


@pytest.mark.parametrize("source", DIALECTS)
@every_target
def test_a_picture_goes_everywhere(source: str, target: str) -> None:
    messages = [PICTURES[source]()]
    made = _to(target, messages, source)
    if source != target:
        assert PIXEL in dump(made)
    assert find_left_out(messages, source, target) == []


@every_target
def test_a_picture_in_a_result(target: str) -> None:
    messages = _called([anthropic.text("Here"), anthropic.PICTURE, anthropic.text("it is")])
    made = _to(target, messages)
    if target == "openai-chat":
        assert made[-1]["content"] == f"Here\n{NOTE}\nit is"
        assert find_left_out(messages, "anthropic", target) == ["messages.2.content.0"]
    elif target != "anthropic":
        assert PIXEL in dump(made)
        assert gist(made, target).calls[0][2] == "Here\nit is"
        assert find_left_out(messages, "anthropic", target) == []


def test_an_error_with_a_picture_is_text_for_anthropic() -> None:
    failed = bedrock.result("tooluse_1", {"text": "no"}, bedrock.PICTURE, status="error")
    messages = [bedrock.user("Go"), bedrock.assistant(bedrock.call("tooluse_1"))]
    messages.append(bedrock.user(failed))
    [result] = _to("anthropic", messages, "bedrock")[-1]["content"]
    assert (result["content"], result["is_error"]) == (f"no\n{NOTE}", True)
    assert find_left_out(messages, "bedrock", "anthropic") == ["messages.2.content.0"]


def test_what_the_assistant_draws_is_named() -> None:
    messages = [gemini.user("Draw"), gemini.model(gemini.PICTURE), gemini.user("Thanks")]
    made = _to("openai-chat", messages, "gemini")
    assert made[1] == {"role": "assistant", "content": NOTE}
    assert find_left_out(messages, "gemini", "openai-chat") == ["contents.1.parts.0"]


@every_target
def test_a_picture_by_its_address(target: str) -> None:
    source = {"type": "url", "url": "https://example.org/a.png"}
    messages = [anthropic.user({"type": "image", "source": source})]
    made = _to(target, messages)
    assert "https://example.org/a.png" in dump(made)
    noted = "[image at https://example.org/a.png, left out]" in dump(made)
    assert noted == (target in ("gemini", "bedrock"))
    assert bool(find_left_out(messages, "anthropic", target)) == noted


def test_other_media_are_named() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    upload = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    messages = [anthropic.user({"type": "document", "source": pdf}, upload)]
    [message] = _to("openai-chat", messages)
    words = [part["text"] for part in message["content"]]
    assert words == ["[application/pdf, 5 bytes, left out]", "[image at file_1, left out]"]
    assert find_left_out(messages, "anthropic", "openai-chat") == [
        "messages.0.content.0",
        "messages.0.content.1",
    ]


def test_a_document_of_words_is_words() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "MARK"}
    messages = [anthropic.user({"type": "document", "source": source})]
    assert _to("gemini", messages)[0]["parts"] == [{"text": "[document]\nMARK"}]
    assert find_left_out(messages, "anthropic", "gemini") == []


def _png(side: int, weight: int = 0) -> str:
    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + b"\0" * weight
    return base64.b64encode(data).decode()


def _shown(*images: str) -> list[Any]:
    urls = [f"data:image/png;base64,{image}" for image in images]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [openai_chat.said("user", parts)]


def test_a_picture_that_is_too_large_there() -> None:
    messages = _shown(_png(9000), _png(10))
    kinds = [block["type"] for block in _to("anthropic", messages, "openai-chat")[0]["content"]]
    assert kinds == ["text", "image"]
    assert find_left_out(messages, "openai-chat", "anthropic") == ["messages.0.content.0"]
    assert find_left_out(messages, "openai-chat", "gemini") == []


def test_many_pictures_must_be_smaller() -> None:
    messages = _shown(*[_png(10)] * 20, _png(3000))
    assert find_left_out(messages, "openai-chat", "anthropic") == ["messages.0.content.20"]
    assert find_left_out(messages[:20], "openai-chat", "bedrock") == []
    _to("anthropic", messages, "openai-chat")


def test_a_list_that_is_too_heavy_there_loses_its_oldest_pictures() -> None:
    messages = _shown(*[_png(10, 1024 * 1024)] * 5)
    target = "openai-responses:copilot"
    made = _to(target, messages, "openai-chat")
    kinds = [block["type"] for block in made[0]["content"]]
    assert kinds == ["input_text"] * 2 + ["input_image"] * 3
    gone = ["messages.0.content.0", "messages.0.content.1"]
    assert find_left_out(messages, "openai-chat", target) == gone


# Calls and results -------------------------------------------------------------------------------


@every_target
def test_ids_stay_where_they_may(target: str) -> None:
    assert "toolu_0" in dump(_to(target, _called("a")))


IDS = ["functions.bash:0", "toolu_01/x=", "x" * 100, "x" * 100 + "y", "call00001"]


@pytest.mark.parametrize("target", PROFILES)
def test_ids_are_mapped_alike_on_both_sides(target: str) -> None:
    messages = [openai_chat.said("user", "Go")]
    for _ in range(2):
        calls = [openai_chat.call(key, arguments=f'{{"for": "{key}"}}') for key in IDS]
        messages.append(openai_chat.said("assistant", None, tool_calls=calls))
        messages += [openai_chat.tool(key, f"of {key}") for key in reversed(IDS)]
    made = _to(target, messages, "openai-chat")
    wanted = [("bash", {"for": key}, f"of {key}") for key in IDS]
    assert gist(made, target).calls == wanted * 2


def test_calls_without_ids_get_some() -> None:
    messages = gemini.HISTORIES["parallel calls without ids"]
    calls = _to("anthropic", messages, "gemini")[1]["content"]
    assert len({call["id"] for call in calls}) == 3


@pytest.mark.parametrize("name", ["files.read", "a b\u2028c", "n" * 200, "ä"])
@pytest.mark.parametrize("target", PROFILES)
def test_names_fit(name: str, target: str) -> None:
    call = gemini.call(name)
    messages = [gemini.user("Go"), gemini.model(call), gemini.user(gemini.response(name))]
    _to(target, messages, "gemini")


@pytest.mark.parametrize("text", ["[1, 2]", "7", "null", '"words"', '{"a": "\\u0000b"}'])
@pytest.mark.parametrize("target", [name for name in PROFILES if name != "openai-chat"])
def test_arguments_of_every_kind(text: str, target: str) -> None:
    calls = [openai_chat.call("call_1", arguments=text)]
    messages = [openai_chat.said("user", "Go"), openai_chat.said("assistant", "", tool_calls=calls)]
    made = render([*messages, openai_chat.tool("call_1")], "openai-chat", target)
    assert lockstitch.check(made, target) == []
    [(_, given, _)] = gist(made, target).calls
    value = json.loads(text.replace("\\u0000", "\ufffd"))
    if not isinstance(value, dict):
        value = {} if value is None else {"arguments": value}
    assert given == value


def test_other_kinds_of_calls_are_calls() -> None:
    calls = [
        {"type": "custom_tool_call", "call_id": "1", "name": "sql", "input": "select"},
        {"type": "local_shell_call", "call_id": "2", "id": "l", "action": {"command": ["ls"]}},
        {"type": "shell_call", "call_id": "3", "action": {"commands": ["ls"]}},
        {"type": "apply_patch_call", "call_id": "4", "operation": {"path": "a.py"}},
        {"type": "computer_call", "call_id": "5", "id": "c", "action": {"type": "screenshot"}},
    ]
    chunk = {"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 0}}
    outputs = [
        {"type": "custom_tool_call_output", "call_id": "1", "output": "rows"},
        {"type": "local_shell_call_output", "call_id": "2", "output": "words"},
        {"type": "shell_call_output", "call_id": "3", "output": [chunk]},
        {"type": "apply_patch_call_output", "call_id": "4", "status": "failed", "output": "no"},
        {"type": "computer_call_output", "call_id": "5", "output": openai_responses.SCREEN},
    ]
    messages = [openai_responses.user(), *calls, *outputs]
    made = _to("anthropic", messages, "openai-responses")
    assert gist(made, "anthropic").calls == [
        ("sql", {"input": "select"}, "rows"),
        ("local_shell", {"command": ["ls"]}, "words"),
        ("shell", {"commands": ["ls"]}, "out\nerr"),
        ("apply_patch", {"path": "a.py"}, "no"),
        ("computer", {"type": "screenshot"}, ""),
    ]
    results = made[-1]["content"]
    assert [result.get("is_error", False) for result in results] == [False] * 3 + [True, False]
    assert results[-1]["content"] == [anthropic.PICTURE]


FAILED: dict[str, Callable[[Any], bool]] = {
    "anthropic": lambda made: made[-1]["content"][0]["is_error"] is True,
    "gemini": lambda made: "error" in made[-1]["parts"][0]["functionResponse"]["response"],
    "bedrock": lambda made: made[-1]["content"][0]["toolResult"]["status"] == "error",
    "langchain": lambda made: made[-1]["status"] == "error",
}


@pytest.mark.parametrize("source", FAILED)
@every_target
def test_a_failure_stays_one_where_that_can_be_said(source: str, target: str) -> None:
    failed = _called({"content": "no such file", "is_error": True})
    messages = _to(source, failed)
    made = _to(target, messages, source)
    assert gist(made, target).calls[0][2] == "no such file"
    assert target not in FAILED or FAILED[target](made)


@every_target
def test_results_keep_their_order(target: str) -> None:
    messages = anthropic.HISTORIES["results in completion order"]
    made = dump(_to(target, messages))
    assert made.rindex("toolu_2") < made.rindex("toolu_1")


@every_target
def test_an_output_that_came_late_stands_behind_its_call(target: str) -> None:
    messages = openai_responses.HISTORIES["an output after a message"]
    if target != "openai-responses":
        made = dump(_to(target, messages, "openai-responses"))
        assert made.index("a.py") < made.index("and hurry")


@every_target
def test_a_result_whose_call_lies_at_the_provider_is_text(target: str) -> None:
    messages = openai_responses.HISTORIES["references to stored items"]
    made = _to(target, messages, "openai-responses")
    if target != "openai-responses":
        assert ("user", "[tool result call_1]") in gist(made, target).texts
        gone = ["input.1", "input.2"]
        assert find_left_out(messages, "openai-responses", target) == gone


# What only one dialect has -----------------------------------------------------------------------


@every_target
def test_server_tools_become_labelled_text(target: str) -> None:
    messages = anthropic.HISTORIES["web search with citations"]
    made = dump(_to(target, messages))
    if target != "anthropic":
        assert "[server_tool_use] " in made
        assert "[web_search_tool_result] " in made
        assert "https://example.org/weather" in made
        assert "EqgfCioIARgB" not in made
        assert find_left_out(messages, "anthropic", target) == ["messages.1.content.2"]


REASONING = {
    "anthropic": ("interleaved thinking", ["1.content.0", "3.content.0", "5.content.0"]),
    "openai-chat": ("thoughts beside a call", ["1.reasoning_content"]),
    "openai-responses": ("reasoning before an answer and before calls", ["1", "4"]),
    "gemini": ("thoughts and signatures", ["1.parts.0", "1.parts.1.thoughtSignature"]),
    "bedrock": ("reasoning", ["1.content.0", "3.content.0"]),
    "langchain": ("content of the Responses kind", ["1.content.0"]),
}


@pytest.mark.parametrize("source", REASONING)
@every_target
def test_reasoning_is_left_out_and_named(source: str, target: str) -> None:
    name, places = REASONING[source]
    modules = {
        "anthropic": anthropic,
        "openai-chat": openai_chat,
        "openai-responses": openai_responses,
        "gemini": gemini,
        "bedrock": bedrock,
        "langchain": langchain,
    }
    messages = modules[source].HISTORIES[name]
    key = PROFILES[source].list_key
    _to(target, messages, source)
    wanted = [] if source == target else [f"{key}.{place}" for place in places]
    assert find_left_out(messages, source, target) == wanted


@every_target
def test_a_system_message_in_front(target: str) -> None:
    messages = langchain.HISTORIES["a system prompt"]
    made = _to(target, messages, "langchain")
    role, text = gist(made, target).texts[0]
    if target in ("openai-chat", "openai-responses", "langchain"):
        assert (role, text) == ("system", "Be brief")
    else:
        assert (role, text) == ("user", "[lockstitch] System message:")
        assert ("user", "Be brief") in gist(made, target).texts


def test_a_system_message_on_the_way_stays_one_for_anthropic() -> None:
    said = openai_chat.said
    messages = [said("user", "Hi"), said("system", "Be brief"), said("assistant", "Yes.")]
    assert _to("anthropic", messages, "openai-chat")[1]["role"] == "system"
    later = [*messages, said("system", "Or not"), said("user", "Go on")]
    roles = [message["role"] for message in _to("anthropic", later, "openai-chat")]
    assert roles == ["user", "system", "assistant", "user"]


@every_target
def test_what_a_function_said_is_never_a_system_message(target: str) -> None:
    messages = openai_chat.HISTORIES["the older function call"]
    made = _to(target, messages, "openai-chat")
    if target != "openai-chat":
        assert "system" not in {role for role, _ in gist(made, target).texts}
        assert "[function bash]" in dump(made)
        assert "[function_call] " in dump(made)


def test_refusals_are_words() -> None:
    made = _to("anthropic", openai_chat.HISTORIES["a refusal"], "openai-chat")
    assert [text for role, text in gist(made, "anthropic").texts if role == "assistant"] == [
        "No.",
        "No.",
    ]


def test_words_under_a_guard_or_with_citations_are_words() -> None:
    for name, words in {"content for the guardrail": "Hello", "citations": "w"}.items():
        made = _to("openai-chat", bedrock.HISTORIES[name], "bedrock")
        assert words in [text for _, text in gist(made, "openai-chat").texts]


def test_payloads_in_other_items_are_named_by_size() -> None:
    item = {"type": "image_generation_call", "id": "ig_1", "result": "A" * 5000}
    messages = [openai_responses.user(), item, openai_responses.answer()]
    made = _to("anthropic", messages, "openai-responses")
    assert "[3750 bytes, left out]" in made[1]["content"][0]["text"]
    assert find_left_out(messages, "openai-responses", "anthropic") == ["input.1"]


# Turns -------------------------------------------------------------------------------------------


def test_a_batch_over_two_messages_is_one_turn() -> None:
    made = _to("openai-chat", anthropic.HISTORIES["calls of one turn in two messages"])
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool"]


def test_an_answer_and_its_calls_are_one_turn() -> None:
    made = _to("anthropic", openai_responses.HISTORIES["a phase"], "openai-responses")
    assert [block["type"] for block in made[1]["content"]] == ["text", "tool_use"]


@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
def test_what_the_user_says_behind_results_stands_with_them(target: str) -> None:
    made = _to(target, openai_chat.HISTORIES["the user speaks after an answer"], "openai-chat")
    assert len(made) == 3
    assert len(made[-1]["content"]) == 2


def test_gemini_keeps_results_apart() -> None:
    made = _to("gemini", anthropic.HISTORIES["text after the results"])
    assert [content["role"] for content in made] == ["user", "model", "user", "user", "model"]


def test_neighbours_are_merged_where_turns_alternate() -> None:
    made = _to("bedrock", openai_chat.HISTORIES["same role twice"], "openai-chat")
    assert made[0]["content"] == [{"text": "Hello"}, {"text": "There?"}]


def test_the_user_speaks_first() -> None:
    messages = openai_chat.HISTORIES["starts with the assistant"]
    assert _to("anthropic", messages, "openai-chat")[0]["role"] == "user"


def test_empty_words() -> None:
    messages = openai_chat.HISTORIES["empty words"]
    made = _to("anthropic", messages, "openai-chat")
    assert gist(made, "anthropic").texts == [
        ("user", "[lockstitch] This message was empty."),
        ("user", "Hello"),
    ]


# What is not a list of the dialect ---------------------------------------------------------------


def test_unknown_names_are_refused() -> None:
    for names in (("anthropic", "esperanto"), ("esperanto", "anthropic")):
        with pytest.raises(lockstitch.UsageError):
            render([], *names)


def _deep(levels: int, key: str | None = None) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value] if key is None else {key: value}
    return value


@pytest.mark.parametrize("source", DIALECTS)
@every_target
def test_depth_does_no_harm(source: str, target: str) -> None:
    pits = [_deep(3000), _deep(3000, "content"), _deep(3000, "text"), _deep(300, "a")]
    messages = [anthropic.user(words) for words in ("Go",)]
    for pit in pits:
        messages += _called("a", input=pit)[1:]
        messages += _called(pit)[1:]
        messages += [anthropic.assistant({"type": "hologram", "beam": pit})]
        messages += [{"role": "user", "content": pit}, {"role": "user", "parts": pit}]
        messages += [{"role": "assistant", "content": [{"guardContent": pit}]}]
        messages += [{"type": "function_call", "call_id": "1", "arguments": pit}]
        messages += [{"type": "function_call_output", "call_id": "1", "output": pit}]
        messages += [{"type": "web_search_call", "action": pit}]
    render(messages, source, target)
    find_left_out(messages, source, target)


def test_deep_arguments_are_still_arguments() -> None:
    messages = _called("a", input=_deep(3000, "a"))
    for target in DIALECTS:
        _to(target, messages)


@pytest.mark.parametrize("source", DIALECTS)
@every_target
def test_odd_values_do_no_harm(source: str, target: str) -> None:
    odd = [None, 7, 1.5, True, "words", b"bytes", [], {}, {1: 2}, {("a",): {3}}, object()]
    messages: list[Any] = list(odd)
    for value in odd:
        messages += [
            {"role": value, "content": value, "parts": value, "type": value},
            {"role": "user", "content": [value, {"type": "image", "source": value}]},
            {"role": "assistant", "content": value, "tool_calls": [value], "audio": value},
            {"role": "assistant", "tool_calls": [{"id": value, "function": value}]},
            {"role": "tool", "tool_call_id": value, "content": [value]},
            {"role": "user", "parts": [{"inlineData": value}, {"functionResponse": value}]},
            {"role": "user", "content": [{"toolResult": value}, {"document": value}]},
            {"type": "ai", "content": [value], "additional_kwargs": value, "tool_calls": value},
            {"type": "custom_tool_call", "call_id": "1", "name": value, "input": value},
        ]
    assert isinstance(render(messages, source, target), list)

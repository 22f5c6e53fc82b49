"""The pytest plugin in other people's runs: each a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest  # noqa: TC002 - the fixtures below are its own

pytest_plugins = "pytester"

AGENT = """
    import json
    from urllib.request import Request, urlopen

    def ask(url, *messages):
        body = {"model": "m", "max_tokens": 9, "messages": messages}
        request = Request(url + "/v1/messages", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["content"][0]["text"]
"""


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    # The run is that of a stranger: without this project's options and other plugins.
    names = ("cacheprovider", "xdist", "hypothesispytest", "langsmith_plugin", "anyio")
    off = [word for name in names for word in ("-p", f"no:{name}")]
    return pytester.runpytest_subprocess(*off, *words)


def test_the_fixture_is_there_without_a_line_of_setup(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(agent=AGENT)
    pytester.makepyfile(
        """
        from agent import ask

        def test_it_answers(lockstitch_provider):
            lockstitch_provider.reply("Hello.")
            assert ask(lockstitch_provider.url, {"role": "user", "content": "Hi"}) == "Hello."
            assert ask(lockstitch_provider.url, {"role": "user", "content": "Hi"}) == "ok"
            lockstitch_provider.assert_accepted()

        def test_each_test_has_its_own(lockstitch_provider, monkeypatch):
            assert lockstitch_provider.requests == []
            for name, value in lockstitch_provider.environment.items():
                monkeypatch.setenv(name, value)
        """
    )
    run(pytester, "-W", "error").assert_outcomes(passed=2)


def test_a_refused_request_is_a_failure_in_the_providers_words(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(agent=AGENT)
    pytester.makepyfile(
        """
        from urllib.error import HTTPError
        from agent import ask

        def test_it_is_valid(lockstitch_provider):
            call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
            try:
                ask(
                    lockstitch_provider.url,
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": "Well?"},
                )
            except HTTPError as error:
                error.close()
            lockstitch_provider.assert_accepted()
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: request 1 to /v1/messages was refused:",
            "*LS101 orphan-call at messages.1.content.0*`tool_use` ids were found without*",
        ]
    )


def test_it_costs_nothing_where_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded(request):
            assert request.config.pluginmanager.has_plugin("lockstitch")
            assert not {"lockstitch", "aiohttp", "msgspec"} & set(sys.modules)
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(lockstitch_provider): ...")
    result = run(pytester, "-p", "no:lockstitch")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'lockstitch_provider' not found"])


def test_it_is_listed_with_its_words(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--fixtures")
    result.stdout.fnmatch_lines(
        ["lockstitch_provider*", "*A strict LLM provider on this machine:*"]
    )


def test_without_the_extra_it_says_how_to_get_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(pytester.mkdir("without"))
    (folder / "aiohttp.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'aiohttp'\", name='aiohttp')\n", "utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    pytester.makepyfile("def test_it(lockstitch_provider): ...")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the provider needs aiohttp*pip install 'lockstitch?provider?'"])
    assert "Traceback" not in result.stdout.str()

"""A strict provider on this machine: it refuses what the real ones refuse, in their own words.

One module an API (``anthropic``, ``openai_chat``, ``openai_responses``, ``gemini``, ``bedrock``)
over ``wire``; ``judge`` decides, ``replies`` and ``scripts`` say what is answered, ``faults`` and
``delivery`` what goes wrong, ``service`` puts them together. All of that is without sockets, which
are in ``server``.
"""

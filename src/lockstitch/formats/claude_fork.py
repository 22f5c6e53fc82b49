"""A branch of a Claude Code file, written as a session of its own."""

from __future__ import annotations

from lockstitch.errors import UsageError
from lockstitch.formats import lines
from lockstitch.formats.base import Transcript
from lockstitch.formats.claude_branches import Branch
from lockstitch.formats.claude_chain import Chain
from lockstitch.formats.claude_straighten import derived_uuid
from lockstitch.formats.records import Record, amended


def fork(transcript: Transcript, line: str) -> bytes:
    """Give a file in which the branch that starts at a line is the conversation.

    The turns that took the branch's place are left out, and the session gets an id of its own.
    """
    chain: Chain
    branches: list[Branch]
    chain, branches = transcript.state
    branch = next((one for one in branches if _holds(chain, one, line)), None)
    if branch is None:
        raise UsageError(f"no branch that a resume leaves behind holds line {line}")
    rivals = _rivals(chain, branch)
    session = derived_uuid(str(transcript.session), line)
    kept = [
        _renamed(transcript.context.data, record, session)
        for number, record in enumerate(chain.records)
        if number not in rivals
    ]
    return lines.write(transcript.context.data, kept)


def _holds(chain: Chain, branch: Branch, line: str) -> bool:
    return any(chain.records[number].place == line for number in branch.members)


def _rivals(chain: Chain, branch: Branch) -> set[int]:
    """Give the records of the conversation that are not on the branch."""
    path = chain.walk.path
    start = path.index(branch.onward) if branch.onward in path else len(path)
    rivals = set(path[start:])
    for group in chain.groups.values():
        if rivals & set(group.members):
            rivals.update(group.members, group.results)
    return rivals


def _renamed(data: bytes, record: Record, session: str) -> Record:
    if not record.is_record or "sessionId" not in record.value:
        return record
    return amended(data, record, ("sessionId",), session)

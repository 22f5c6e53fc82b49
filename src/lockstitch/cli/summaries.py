"""The group and summary of each command: generated from them by `make docs`.

Help shows them without loading any command.
"""

SUMMARIES: dict[str, tuple[str, str]] = {
    "scan": (
        "sessions",
        "Find every agent session on this machine, or below PATH, and check them all.",
    ),
    "check": (
        "sessions",
        "Find what is wrong with a session, or with a message list or request body.",
    ),
    "repair": (
        "sessions",
        "Repair broken sessions in place: planned, shown, backed up, undoable.",
    ),
    "undo": (
        "sessions",
        "Take the last repair of a session back, byte for byte.",
    ),
    "backups": (
        "sessions",
        "List, show and prune the backups that repairs have kept.",
    ),
    "show": (
        "sessions",
        "Show a session for a person to read, calls joined with their results.",
    ),
    "export": (
        "sessions",
        "Print a stored session as the messages of a request, healed, or as a document.",
    ),
    "heal": (
        "requests",
        "Make a message list or request body valid, and say what was done.",
    ),
    "compact": (
        "sessions",
        "Make a session that is too long shorter, as its own program would.",
    ),
    "checkpoints": (
        "store",
        "List the places of a session to go back to.",
    ),
    "rewind": (
        "store",
        "Let a session go on from an earlier place; nothing is deleted.",
    ),
    "fork": (
        "store",
        "Make a new session out of the beginning of another one.",
    ),
    "search": (
        "sessions",
        "Find sessions by what was said in them.",
    ),
    "migrate": (
        "store",
        "Copy sessions from one store into another one.",
    ),
    "import": (
        "store",
        "Copy a session of another program into a store, to go on from there.",
    ),
    "delete": (
        "store",
        "Remove a session for good, with what belongs to it.",
    ),
    "retain": (
        "store",
        "Remove sessions that are old, or more than you want to keep.",
    ),
    "vacuum": (
        "store",
        "Free the space of deleted sessions, and erase what they said from it.",
    ),
    "explain": (
        "",
        "Explain a code: what it is, what causes it, what heal does about it.",
    ),
    "proxy": (
        "requests",
        "Heal requests on their way from any client to its provider.",
    ),
    "run": (
        "sessions",
        "Repair the session that a command is about to resume, and run it behind the proxy.",
    ),
    "watch": (
        "sessions",
        "Check sessions while they are written; report what breaks, and repair it when asked.",
    ),
    "provider": (
        "requests",
        "Run a strict provider on this machine, for tests and demos.",
    ),
    "ui": (
        "sessions",
        "Show sessions on a page in the browser: read, repair, undo, rewind, export.",
    ),
    "demo": (
        "",
        "Kill an agent in mid-tool, once with a message list and once with a session.",
    ),
    "completion": (
        "",
        "Print a script that lets your shell complete lockstitch's commands.",
    ),
}

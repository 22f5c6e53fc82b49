"""The statements that read checkpoints: each finds its rows by a primary key, and no others.

A list of threads comes from hopping over the primary key from one thread to the next; what joins
two sets of rows looks them up one by one (``LATERAL`` with a ``LIMIT`` or an ``OFFSET``, which keep
it from being turned into a join), because a join would be planned from estimates that are worst for
the few threads that are huge.
"""

from __future__ import annotations

# Threads and their namespaces behind a place, in the order of the primary key.
KEYS = """
WITH RECURSIVE walk AS (
    (SELECT c.thread_id, c.checkpoint_ns, 1 AS number FROM {checkpoints} c
    WHERE {first} ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT 1)
    UNION ALL
    SELECT f.thread_id, f.checkpoint_ns, w.number + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns FROM {checkpoints} c
        WHERE (c.thread_id, c.checkpoint_ns) > (w.thread_id, w.checkpoint_ns) {bound}
        ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT 1
    ) f WHERE w.number < %(size)s
)
SELECT thread_id, checkpoint_ns FROM walk
"""
FIRST_OF_ALL = "true {bound}"
FIRST_BEHIND = "(c.thread_id, c.checkpoint_ns) > (%(thread)s, %(namespace)s) {bound}"
FIRST_OF_THREAD = "c.thread_id = %(thread)s {bound}"
BOUND = "AND c.thread_id <= %(thread)s"

_VERSIONS = """
jsonb_each_text(CASE jsonb_typeof(c.checkpoint -> 'channel_versions')
    WHEN 'object' THEN c.checkpoint -> 'channel_versions' ELSE '{{}}' END) v
"""
_BLOB = """
SELECT b.type, b.blob FROM {checkpoint_blobs} b WHERE b.thread_id = k.thread
AND b.checkpoint_ns = k.namespace AND b.channel = v.key AND b.version = v.value LIMIT 1
"""
_WRITE = """
FROM {checkpoint_writes} w WHERE w.thread_id = k.thread AND w.checkpoint_ns = k.namespace
AND w.checkpoint_id = c.checkpoint_id
"""

HEADS = (
    """
SELECT k.thread, k.namespace, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata,
    (SELECT coalesce(sum(octet_length(f.blob)), 0) FROM """  # noqa: S608 - all of it our own
    + _VERSIONS
    + " CROSS JOIN LATERAL ("
    + _BLOB
    + """) f) + (SELECT coalesce(sum(octet_length(w.blob)), 0) """
    + _WRITE
    + """)
FROM unnest(%(threads)s::text[], %(namespaces)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, number)
CROSS JOIN LATERAL (
    SELECT checkpoint_id, parent_checkpoint_id, checkpoint, metadata FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace
    ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT 1
) c
ORDER BY k.number
"""
)

_CHECKPOINT = """
FROM unnest(%(threads)s::text[], %(namespaces)s::text[], %(ids)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, id, number)
CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.checkpoint FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace AND c.checkpoint_id = k.id
    LIMIT 1
) c
"""
BLOBS = (
    "SELECT k.number - 1, v.key, f.type, f.blob "
    + _CHECKPOINT
    + " CROSS JOIN LATERAL "
    + _VERSIONS
    + " CROSS JOIN LATERAL ("
    + _BLOB
    + ") f WHERE %(channels)s::text[] IS NULL OR v.key = ANY(%(channels)s::text[])"
)
# Which of them have a value beside the row, without the value.
TAGS = BLOBS.replace("f.type, f.blob", "f.type, NULL::bytea", 1)
WRITES = (
    "SELECT k.number - 1, w.task_id, w.path, w.idx, w.channel, w.type, w.blob "
    + _CHECKPOINT
    + " CROSS JOIN LATERAL (SELECT w.task_id, {task_path} AS path, w.idx, w.channel, w.type, "
    + "w.blob "
    + _WRITE
    + " OFFSET 0) w WHERE %(channels)s::text[] IS NULL OR w.channel = ANY(%(channels)s::text[])"
)

# The last checkpoints of every namespace, and what they hang on.
PARENTS = """
SELECT k.number - 1, p.checkpoint_id, p.parent_checkpoint_id
FROM unnest(%(threads)s::text[], %(namespaces)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, number)
CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace
    ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT %(size)s
) p
"""
SOURCES = """
SELECT c.checkpoint_id, c.metadata ->> 'source', c.metadata ? 'lockstitch' FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id = ANY(%(ids)s::text[])
"""
METADATA = """
SELECT c.checkpoint_id, c.metadata FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id = ANY(%(ids)s::text[])
"""
ANCESTORS = """
SELECT c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id < %(before)s
ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT %(size)s
"""
# The namespaces of a thread in which something was stored behind a checkpoint.
LATER = """
SELECT c.checkpoint_ns FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns > '' GROUP BY c.checkpoint_ns
HAVING max(c.checkpoint_id) > %(behind)s
"""
# Roughly how many threads there are, from what the server has counted anyway, or from the size.
ESTIMATE = """
SELECT CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * c.reltuples
    ELSE coalesce(s.n_distinct, pg_relation_size(c.oid) / 4000) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
    AND s.attname = 'thread_id'
WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints'
"""

# All that a thread has, for whoever looks for what should not be there; {runs} are namespaces.
_EVERYWHERE = """
WHERE t.thread_id = %(thread)s AND (t.checkpoint_ns = %(namespace)s {runs})
"""
EVERY_CHECKPOINT = (
    "SELECT t.checkpoint_ns, t.checkpoint_id, 'json', "
    "convert_to(t.checkpoint::text, 'UTF8'), convert_to(t.metadata::text, 'UTF8') "
    "FROM {checkpoints} t" + _EVERYWHERE
)
EVERY_BLOB = (
    "SELECT t.checkpoint_ns, t.channel || '.' || t.version, t.type, t.blob, NULL::bytea "
    "FROM {checkpoint_blobs} t" + _EVERYWHERE
)
EVERY_WRITE = (
    "SELECT t.checkpoint_ns, t.task_id || '.' || t.idx, t.type, t.blob, NULL::bytea "
    "FROM {checkpoint_writes} t" + _EVERYWHERE
)
RUNS = "OR position(':' in t.checkpoint_ns) > 0"

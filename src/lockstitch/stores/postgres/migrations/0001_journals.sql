-- Sessions, their records, and large values, in a schema of their own.
--
-- Every write is one call of a function below: one statement, one transaction, one round trip, no
-- state of the connection. It checks the writer's epoch under the lock of the session's row, so
-- what is refused is refused by the same transaction that would have written. Records and large
-- values are only ever inserted. A role that writes needs USAGE on the schema, SELECT and INSERT
-- on all tables and UPDATE on lockstitch.sessions; one that reads needs USAGE and SELECT.

CREATE TABLE lockstitch.sessions (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    session text COLLATE "C" PRIMARY KEY,
    -- The head: the last record's number and digest, and the last epoch given out.
    seq bigint NOT NULL,
    digest bytea NOT NULL,
    epoch bigint NOT NULL,
    -- Milliseconds since 1970: when it was made, and what its last record says.
    created bigint NOT NULL,
    changed bigint NOT NULL,
    -- The lease: '' and NULL while nobody holds it. The deadline is by this server's clock.
    token text NOT NULL DEFAULT '',
    holder text NOT NULL DEFAULT '',
    deadline timestamptz,
    -- Until when somebody wants to be notified of new records.
    followed timestamptz
) WITH (fillfactor = 70);

CREATE TABLE lockstitch.records (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE TABLE lockstitch.blobs (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

-- Whatever the role or the database has as its default: this transaction waits for the disk, and
-- for nobody's lock without end.
CREATE FUNCTION lockstitch.durably_v1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '30s', true);
    END IF;
END
$$;

-- Take a session's lease: outcome is done, held or missing. The tokens in gone are of holders that
-- the caller knows to be no more.
CREATE FUNCTION lockstitch.acquire_v1(
    _session text, _token text, _holder text, _lease float8, _gone text[], _create boolean,
    _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT remaining float8
) LANGUAGE plpgsql AS $$
DECLARE
    found_ lockstitch.sessions;
    now_ timestamptz;
BEGIN
    PERFORM lockstitch.durably_v1();
    SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session FOR UPDATE;
    IF NOT FOUND AND _create THEN
        INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed)
        VALUES (_session, 0, _start, 0, floor(extract(epoch FROM clock_timestamp()) * 1000), 0)
        ON CONFLICT DO NOTHING;
        SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session FOR UPDATE;
    END IF;
    IF found_.id IS NULL THEN
        outcome := 'missing';
        RETURN;
    END IF;
    now_ := clock_timestamp();
    seq := found_.seq; digest := found_.digest; epoch := found_.epoch;
    IF found_.token <> '' AND found_.deadline > now_ AND found_.token <> ALL (_gone) THEN
        outcome := 'held';
        token := found_.token; holder := found_.holder;
        remaining := extract(epoch FROM found_.deadline - now_);
        RETURN;
    END IF;
    outcome := 'done';
    epoch := found_.epoch + 1;
    UPDATE lockstitch.sessions s
    SET epoch = found_.epoch + 1, token = _token, holder = _holder,
        deadline = now_ + make_interval(secs => _lease)
    WHERE s.id = found_.id;
END
$$;

-- Add records behind number _after: outcome is done, already, fenced, moved, damaged,
-- missing, or again if the caller should ask anew.
-- Names of large values come in order, so that two writers of the same ones cannot deadlock.
CREATE FUNCTION lockstitch.append_v1(
    _session text, _epoch bigint, _token text, _after bigint, _before bytea,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[],
    _names text[], _blobs bytea[], _lease float8,
    OUT outcome text, OUT seq bigint, OUT digest bytea
) LANGUAGE plpgsql AS $$
DECLARE
    last_ int := cardinality(_keys);
    id_ bigint;
    followed_ timestamptz;
BEGIN
    PERFORM lockstitch.durably_v1();
    UPDATE lockstitch.sessions s
    SET seq = _after + last_, digest = coalesce(_digests[last_], _before),
        changed = coalesce(_ats[last_], s.changed),
        deadline = clock_timestamp() + make_interval(secs => _lease)
    WHERE s.session = _session AND s.epoch = _epoch AND s.token = _token
        AND s.seq = _after AND s.digest = _before
    RETURNING s.id, s.followed, s.seq, s.digest INTO id_, followed_, seq, digest;
    IF NOT FOUND THEN
        SELECT * INTO outcome, seq, digest
        FROM lockstitch.refusal_v1(_session, _epoch, _token, _after, _before, _keys);
        RETURN;
    END IF;
    outcome := 'done';
    IF cardinality(_names) > 0 THEN
        INSERT INTO lockstitch.blobs (name, body)
        SELECT * FROM unnest(_names, _blobs) ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
    SELECT id_, _after + n, _epoch, key, at, body, d
    FROM unnest(_keys, _ats, _bodies, _digests) WITH ORDINALITY AS u (key, at, body, d, n);
    -- Notifying makes commits queue, one fsync each, so only what is followed is told.
    IF followed_ > clock_timestamp() THEN
        PERFORM pg_notify('lockstitch', _session || ' ' || seq);
    END IF;
END
$$;

-- Say why nothing was added.
CREATE FUNCTION lockstitch.refusal_v1(
    _session text, _epoch bigint, _token text, _after bigint, _before bytea, _keys text[],
    OUT outcome text, OUT seq bigint, OUT digest bytea
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_ lockstitch.sessions;
    there_ text[];
BEGIN
    SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    seq := found_.seq; digest := found_.digest;
    IF found_.epoch <> _epoch OR found_.token <> _token THEN
        outcome := 'fenced';
    ELSIF found_.seq = _after THEN
        -- It has come to stand there since, or the caller did not know its digest.
        outcome := CASE WHEN found_.digest <> _before THEN 'damaged' ELSE 'again' END;
    ELSIF found_.seq = _after + cardinality(_keys) THEN
        SELECT array_agg(r.key ORDER BY r.seq) INTO there_
        FROM lockstitch.records r
        WHERE r.session = found_.id AND r.seq > _after AND r.epoch = _epoch;
        outcome := CASE WHEN there_ = _keys THEN 'already' ELSE 'moved' END;
    ELSE
        outcome := 'moved';
    END IF;
END
$$;

-- Keep leases alive; one that is being written to just now is kept alive by that.
CREATE FUNCTION lockstitch.renew_v1(_tokens text[], _sessions text[], _lease float8)
RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH mine AS (
        SELECT s.id FROM lockstitch.sessions s
        JOIN unnest(_tokens, _sessions) AS u (token, session)
            ON s.session = u.session AND s.token = u.token
        WHERE s.deadline < clock_timestamp() + make_interval(secs => _lease * 0.8)
        ORDER BY s.id FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE lockstitch.sessions s SET deadline = clock_timestamp() + make_interval(secs => _lease)
    FROM mine WHERE s.id = mine.id;
    RETURN QUERY SELECT u.token FROM unnest(_tokens, _sessions) AS u (token, session)
    WHERE NOT EXISTS (
        SELECT FROM lockstitch.sessions s WHERE s.session = u.session AND s.token = u.token
    );
END
$$;

-- Give leases back.
CREATE FUNCTION lockstitch.release_v1(_tokens text[], _sessions text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH mine AS (
        SELECT s.id FROM lockstitch.sessions s
        JOIN unnest(_tokens, _sessions) AS u (token, session)
            ON s.session = u.session AND s.token = u.token
        ORDER BY s.id FOR UPDATE OF s
    )
    UPDATE lockstitch.sessions s SET token = '', holder = '', deadline = NULL
    FROM mine WHERE s.id = mine.id;
END
$$;

-- Copy the first records of a session into a new one: outcome is done, missing, short or held.
CREATE FUNCTION lockstitch.fork_v1(
    _source text, _upto bigint, _target text, _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    source_ bigint;
    last_ lockstitch.records;
    target_ lockstitch.sessions;
    copied_ bigint;
BEGIN
    PERFORM lockstitch.durably_v1();
    SELECT s.id INTO source_ FROM lockstitch.sessions s WHERE s.session = _source;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    SELECT * INTO last_ FROM lockstitch.records r WHERE r.session = source_ AND r.seq = _upto;
    IF NOT FOUND AND _upto <> 0 THEN
        outcome := 'short';
        RETURN;
    END IF;
    INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed)
    VALUES (
        _target, _upto, coalesce(last_.digest, _start), coalesce(last_.epoch, 0),
        floor(extract(epoch FROM clock_timestamp()) * 1000), coalesce(last_.at, 0)
    )
    ON CONFLICT DO NOTHING RETURNING * INTO target_;
    IF NOT FOUND THEN
        SELECT * INTO target_ FROM lockstitch.sessions s WHERE s.session = _target;
        outcome := CASE
            WHEN target_.seq = _upto AND target_.digest = coalesce(last_.digest, _start)
            THEN 'done' ELSE 'held' END;
    ELSE
        INSERT INTO lockstitch.records
        SELECT target_.id, r.seq, r.epoch, r.key, r.at, r.body, r.digest
        FROM lockstitch.records r WHERE r.session = source_ AND r.seq <= _upto;
        GET DIAGNOSTICS copied_ = ROW_COUNT;
        IF copied_ <> _upto THEN
            RAISE EXCEPTION 'records are missing' USING ERRCODE = 'data_corrupted';
        END IF;
        outcome := 'done';
    END IF;
    seq := target_.seq; digest := target_.digest; epoch := target_.epoch;
END
$$;

-- Ask to be notified of a session's records for a while. The lock of its row orders this against
-- every append: one that was not notified of is there to be seen when this has returned.
CREATE FUNCTION lockstitch.follow_v1(_session text, _seconds float8)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE lockstitch.sessions s
    SET followed = clock_timestamp() + make_interval(secs => _seconds)
    WHERE s.session = _session;
    RETURN FOUND;
END
$$;

-- Removing sessions, putting other records in the place of theirs, and adding without a lease.
--
-- A role that writes needs UPDATE on lockstitch.blobs now, too, and one that removes DELETE on all
-- tables. What is removed is out of sight at once, and off the disk when the server has vacuumed.

-- Which session names which large value, so that what nobody names can be removed with it.
CREATE TABLE lockstitch.uses (
    name text COLLATE "C" NOT NULL,
    session bigint NOT NULL,
    PRIMARY KEY (name, session)
);
CREATE INDEX uses_of_session ON lockstitch.uses (session);

INSERT INTO lockstitch.uses (name, session)
SELECT DISTINCT named[1], r.session
FROM lockstitch.records r,
    LATERAL regexp_matches(encode(r.body, 'escape'), '"(?:blob|x)":"([0-9a-f]{32})"', 'g') AS named
WHERE EXISTS (SELECT FROM lockstitch.blobs)
ON CONFLICT DO NOTHING;

-- Keep large values that a session names. One that is there is updated without a change: whoever
-- removes what nobody names waits for that, and finds that it is named.
CREATE FUNCTION lockstitch.keep_v1(_id bigint, _names text[], _blobs bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(_names) > 0 THEN
        INSERT INTO lockstitch.blobs (name, body)
        SELECT * FROM unnest(_names, _blobs)
        ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name;
        INSERT INTO lockstitch.uses (name, session)
        SELECT name, _id FROM unnest(_names) AS u (name) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Remove the records of a session, and the large values that nobody else names.
CREATE FUNCTION lockstitch.clear_v1(_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    names_ text[];
BEGIN
    DELETE FROM lockstitch.records r WHERE r.session = _id;
    WITH gone AS (DELETE FROM lockstitch.uses u WHERE u.session = _id RETURNING u.name)
    SELECT array_agg(name ORDER BY name) INTO names_ FROM gone;
    IF names_ IS NOT NULL THEN
        PERFORM FROM lockstitch.blobs b WHERE b.name = ANY (names_) ORDER BY b.name FOR UPDATE;
        DELETE FROM lockstitch.blobs b WHERE b.name = ANY (names_)
            AND NOT EXISTS (SELECT FROM lockstitch.uses u WHERE u.name = b.name);
    END IF;
END
$$;

-- As append_v1, which knew nothing of who names what.
CREATE FUNCTION lockstitch.append_v2(
    _session text, _epoch bigint, _token text, _after bigint, _before bytea,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[],
    _names text[], _blobs bytea[], _lease float8,
    OUT outcome text, OUT seq bigint, OUT digest bytea
) LANGUAGE plpgsql AS $$
DECLARE
    id_ bigint;
BEGIN
    SELECT * INTO outcome, seq, digest FROM lockstitch.append_v1(
        _session, _epoch, _token, _after, _before, _keys, _ats, _bodies, _digests,
        ARRAY[]::text[], ARRAY[]::bytea[], _lease
    );
    IF outcome = 'done' AND cardinality(_names) > 0 THEN
        SELECT s.id INTO id_ FROM lockstitch.sessions s WHERE s.session = _session;
        PERFORM lockstitch.keep_v1(id_, _names, _blobs);
    END IF;
END
$$;

-- As fork_v1.
CREATE FUNCTION lockstitch.fork_v2(
    _source text, _upto bigint, _target text, _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO outcome, seq, digest, epoch
    FROM lockstitch.fork_v1(_source, _upto, _target, _start);
    IF outcome = 'done' AND EXISTS (
        SELECT FROM lockstitch.uses u JOIN lockstitch.sessions s ON s.id = u.session
        WHERE s.session = _source
    ) THEN
        -- Values that are named by the source only must not go before the copy names them.
        PERFORM FROM lockstitch.blobs b
        WHERE b.name IN (
            SELECT u.name FROM lockstitch.uses u
            JOIN lockstitch.sessions s ON s.id = u.session WHERE s.session = _source
        ) ORDER BY b.name FOR UPDATE;
        INSERT INTO lockstitch.uses (name, session)
        SELECT u.name, t.id FROM lockstitch.uses u
        JOIN lockstitch.sessions s ON s.id = u.session AND s.session = _source
        JOIN lockstitch.sessions t ON t.session = _target
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Add records behind number _after without a lease: outcome is done, held, or moved if the session
-- does not stand there, with where it stands. The tokens in gone are of holders that are no more.
CREATE FUNCTION lockstitch.add_v1(
    _session text, _gone text[], _after bigint, _before bytea, _epoch bigint,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[], _names text[], _blobs bytea[],
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT remaining float8
) LANGUAGE plpgsql AS $$
DECLARE
    found_ lockstitch.sessions;
    last_ int := cardinality(_keys);
BEGIN
    PERFORM lockstitch.durably_v1();
    SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session FOR UPDATE;
    IF NOT FOUND AND _after = 0 THEN
        INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed)
        VALUES (_session, 0, _before, 0, floor(extract(epoch FROM clock_timestamp()) * 1000), 0)
        ON CONFLICT DO NOTHING;
        SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session FOR UPDATE;
    END IF;
    seq := coalesce(found_.seq, 0); digest := found_.digest; epoch := coalesce(found_.epoch, 0);
    IF found_.token <> '' AND found_.deadline > clock_timestamp()
        AND found_.token <> ALL (_gone) THEN
        outcome := 'held';
        token := found_.token; holder := found_.holder;
        remaining := extract(epoch FROM found_.deadline - clock_timestamp());
        RETURN;
    END IF;
    -- A holder that is gone is taken over, so that it cannot come back.
    epoch := greatest(epoch, 1) + CASE WHEN found_.token <> '' THEN 1 ELSE 0 END;
    IF found_.id IS NULL OR seq <> _after OR digest <> _before OR epoch <> _epoch THEN
        outcome := 'moved';
        RETURN;
    END IF;
    outcome := 'done';
    seq := _after + last_; digest := coalesce(_digests[last_], _before);
    UPDATE lockstitch.sessions s
    SET seq = add_v1.seq, digest = add_v1.digest, epoch = _epoch,
        changed = coalesce(_ats[last_], s.changed), token = '', holder = '', deadline = NULL
    WHERE s.id = found_.id;
    PERFORM lockstitch.keep_v1(found_.id, _names, _blobs);
    INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
    SELECT found_.id, _after + n, _epoch, key, at, body, d
    FROM unnest(_keys, _ats, _bodies, _digests) WITH ORDINALITY AS u (key, at, body, d, n);
    IF found_.followed > clock_timestamp() THEN
        PERFORM pg_notify('lockstitch', _session || ' ' || add_v1.seq);
    END IF;
END
$$;

-- Put records in the place of all: outcome is done, fenced or moved. The session gets another
-- number, so that whoever reads it in parts notices.
CREATE FUNCTION lockstitch.replace_v1(
    _session text, _epoch bigint, _token text, _after bigint, _start bytea,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[],
    _names text[], _blobs bytea[], _lease float8,
    OUT outcome text, OUT seq bigint, OUT digest bytea
) LANGUAGE plpgsql AS $$
DECLARE
    found_ lockstitch.sessions;
    last_ int := cardinality(_keys);
    id_ bigint;
BEGIN
    PERFORM lockstitch.durably_v1();
    SELECT * INTO found_ FROM lockstitch.sessions s WHERE s.session = _session FOR UPDATE;
    seq := found_.seq;
    IF NOT FOUND OR found_.epoch <> _epoch OR found_.token <> _token THEN
        outcome := 'fenced';
        RETURN;
    ELSIF found_.seq <> _after THEN
        outcome := 'moved';
        RETURN;
    END IF;
    outcome := 'done';
    UPDATE lockstitch.sessions s
    SET id = DEFAULT, seq = last_, digest = coalesce(_digests[last_], _start),
        changed = coalesce(_ats[last_], s.changed),
        deadline = clock_timestamp() + make_interval(secs => _lease)
    WHERE s.id = found_.id RETURNING s.id, s.seq, s.digest INTO id_, seq, digest;
    PERFORM lockstitch.keep_v1(id_, _names, _blobs);
    INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
    SELECT id_, n, _epoch, key, at, body, d
    FROM unnest(_keys, _ats, _bodies, _digests) WITH ORDINALITY AS u (key, at, body, d, n);
    PERFORM lockstitch.clear_v1(found_.id);
END
$$;

-- Remove a session: true, or false if the lease is not its last one.
CREATE FUNCTION lockstitch.delete_v1(_session text, _epoch bigint, _token text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    id_ bigint;
BEGIN
    PERFORM lockstitch.durably_v1();
    DELETE FROM lockstitch.sessions s
    WHERE s.session = _session AND s.epoch = _epoch AND s.token = _token RETURNING s.id INTO id_;
    IF id_ IS NULL THEN
        RETURN false;
    END IF;
    PERFORM lockstitch.clear_v1(id_);
    RETURN true;
END
$$;

-- Names that are exchanged after a repair, leases in which the time of day plays no part, and
-- forks that share the records of their source.
--
-- A holder says that it is alive by counting on: beats grows with every append and with every
-- renewal. Who wants the session watches that number by a clock of its own, and takes the session
-- over when it has stood still for as long as the lease is long (term). The functions of the
-- versions before are replaced where they looked at the server's clock, so that whoever still
-- runs with them counts, too. The columns deadline and followed are not used any more.

ALTER TABLE lockstitch.sessions
    ADD COLUMN beats bigint NOT NULL DEFAULT 0,
    ADD COLUMN term float8 NOT NULL DEFAULT 0,
    -- Who saw which number when, for processes that come and go: JSON, see watching.py.
    ADD COLUMN watched text NOT NULL DEFAULT '',
    -- New records are notified of while beats is less.
    ADD COLUMN told bigint NOT NULL DEFAULT 0;

-- Whether a session is held: not by the holders in gone, which are no more, and not by the one
-- that was silent for the length of its lease, if it still is.
CREATE FUNCTION lockstitch.is_held_v1(
    _row lockstitch.sessions, _gone text[], _silent text, _beats bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _row.token <> '' AND _row.token <> ALL (_gone)
        AND NOT (_row.token = _silent AND _row.beats = _beats)
$$;

-- Take a session's lease: outcome is done, held or missing.
CREATE FUNCTION lockstitch.acquire_v2(
    _session text, _token text, _holder text, _lease float8, _gone text[],
    _silent text, _beats bigint, _create boolean, _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT beats bigint, OUT term float8, OUT watched text
) LANGUAGE plpgsql AS $$
DECLARE
    found_ lockstitch.sessions;
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
    seq := found_.seq; digest := found_.digest; epoch := found_.epoch;
    IF lockstitch.is_held_v1(found_, _gone, _silent, _beats) THEN
        outcome := 'held';
        token := found_.token; holder := found_.holder; beats := found_.beats;
        term := found_.term; watched := found_.watched;
        RETURN;
    END IF;
    outcome := 'done';
    epoch := found_.epoch + 1;
    UPDATE lockstitch.sessions s
    SET epoch = found_.epoch + 1, token = _token, holder = _holder, term = _lease,
        beats = found_.beats + 1, watched = ''
    WHERE s.id = found_.id;
END
$$;

-- For those that know no beats: a holder is waited for until it gives the session back.
CREATE OR REPLACE FUNCTION lockstitch.acquire_v1(
    _session text, _token text, _holder text, _lease float8, _gone text[], _create boolean,
    _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT remaining float8
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT a.outcome, a.seq, a.digest, a.epoch, a.token, a.holder, a.term
    INTO outcome, seq, digest, epoch, token, holder, remaining
    FROM lockstitch.acquire_v2(
        _session, _token, _holder, _lease, _gone, '', 0, _create, _start
    ) AS a;
END
$$;

-- As before, but that a holder counts on, and that what is told of is counted, too.
CREATE OR REPLACE FUNCTION lockstitch.append_v1(
    _session text, _epoch bigint, _token text, _after bigint, _before bytea,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[],
    _names text[], _blobs bytea[], _lease float8,
    OUT outcome text, OUT seq bigint, OUT digest bytea
) LANGUAGE plpgsql AS $$
DECLARE
    last_ int := cardinality(_keys);
    id_ bigint;
    is_told_ boolean;
BEGIN
    PERFORM lockstitch.durably_v1();
    UPDATE lockstitch.sessions s
    SET seq = _after + last_, digest = coalesce(_digests[last_], _before),
        changed = coalesce(_ats[last_], s.changed), beats = s.beats + 1, term = _lease
    WHERE s.session = _session AND s.epoch = _epoch AND s.token = _token
        AND s.seq = _after AND s.digest = _before
    RETURNING s.id, s.told > s.beats, s.seq, s.digest INTO id_, is_told_, seq, digest;
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
    IF is_told_ THEN
        PERFORM pg_notify('lockstitch', _session || ' ' || seq);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION lockstitch.renew_v1(
    _tokens text[], _sessions text[], _lease float8
) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH mine AS (
        SELECT s.id FROM lockstitch.sessions s
        JOIN unnest(_tokens, _sessions) AS u (token, session)
            ON s.session = u.session AND s.token = u.token
        ORDER BY s.id FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE lockstitch.sessions s SET beats = s.beats + 1, term = _lease
    FROM mine WHERE s.id = mine.id;
    RETURN QUERY SELECT u.token FROM unnest(_tokens, _sessions) AS u (token, session)
    WHERE NOT EXISTS (
        SELECT FROM lockstitch.sessions s WHERE s.session = u.session AND s.token = u.token
    );
END
$$;

-- Add records without a lease, as before: outcome is done, held, or moved.
CREATE FUNCTION lockstitch.add_v2(
    _session text, _gone text[], _silent text, _beats bigint,
    _after bigint, _before bytea, _epoch bigint,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[], _names text[], _blobs bytea[],
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT beats bigint, OUT term float8, OUT watched text
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
    IF lockstitch.is_held_v1(found_, _gone, _silent, _beats) THEN
        outcome := 'held';
        token := found_.token; holder := found_.holder; beats := found_.beats;
        term := found_.term; watched := found_.watched;
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
    SET seq = add_v2.seq, digest = add_v2.digest, epoch = _epoch,
        changed = coalesce(_ats[last_], s.changed), token = '', holder = '', watched = '',
        beats = s.beats + 1
    WHERE s.id = found_.id;
    PERFORM lockstitch.keep_v2(found_.id, _after + 1, _names, _blobs);
    INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
    SELECT found_.id, _after + n, _epoch, key, at, body, d
    FROM unnest(_keys, _ats, _bodies, _digests) WITH ORDINALITY AS u (key, at, body, d, n);
    IF found_.told > found_.beats THEN
        PERFORM pg_notify('lockstitch', _session || ' ' || add_v2.seq);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION lockstitch.add_v1(
    _session text, _gone text[], _after bigint, _before bytea, _epoch bigint,
    _keys text[], _ats bigint[], _bodies bytea[], _digests bytea[], _names text[], _blobs bytea[],
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint,
    OUT token text, OUT holder text, OUT remaining float8
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT a.outcome, a.seq, a.digest, a.epoch, a.token, a.holder, a.term
    INTO outcome, seq, digest, epoch, token, holder, remaining
    FROM lockstitch.add_v2(
        _session, _gone, '', 0, _after, _before, _epoch,
        _keys, _ats, _bodies, _digests, _names, _blobs
    ) AS a;
END
$$;

CREATE OR REPLACE FUNCTION lockstitch.replace_v1(
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
    SET id = DEFAULT, base = 0, seq = last_, digest = coalesce(_digests[last_], _start),
        changed = coalesce(_ats[last_], s.changed), beats = s.beats + 1, term = _lease
    WHERE s.id = found_.id RETURNING s.id, s.seq, s.digest INTO id_, seq, digest;
    PERFORM lockstitch.keep_v2(id_, 1, _names, _blobs);
    INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
    SELECT id_, n, _epoch, key, at, body, d
    FROM unnest(_keys, _ats, _bodies, _digests) WITH ORDINALITY AS u (key, at, body, d, n);
    PERFORM lockstitch.clear_v1(found_.id);
END
$$;

-- Note who saw a holder's number when, unless it has moved on or is being moved just now.
CREATE FUNCTION lockstitch.watch_v1(_session text, _token text, _beats bigint, _watched text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH one AS (
        SELECT s.id FROM lockstitch.sessions s
        WHERE s.session = _session AND s.token = _token AND s.beats = _beats
        FOR UPDATE SKIP LOCKED
    )
    UPDATE lockstitch.sessions s SET watched = _watched FROM one WHERE s.id = one.id;
END
$$;

-- Ask to be notified of a session's next records. The lock of its row orders this against every
-- append: one that was not notified of is there to be seen when this has returned.
CREATE OR REPLACE FUNCTION lockstitch.follow_v1(_session text, _seconds float8)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE lockstitch.sessions s SET told = s.beats + 1000 WHERE s.session = _session;
    RETURN FOUND;
END
$$;

-- Give a session another name, and its own to another one: outcome is done, held, moved, missing
-- or taken. What is damaged in their rows stays as it is.
CREATE FUNCTION lockstitch.exchange_v1(
    _session text, _aside text, _successor text, _id bigint, _seq bigint, _digest bytea,
    _gone text[], _silent text, _beats bigint, OUT outcome text, OUT token text, OUT holder text, OUT beats bigint,
    OUT term float8
) LANGUAGE plpgsql AS $$
DECLARE
    old_ lockstitch.sessions;
    new_ lockstitch.sessions;
BEGIN
    PERFORM lockstitch.durably_v1();
    -- Both rows in one order, whoever exchanges what.
    PERFORM FROM lockstitch.sessions s
    WHERE s.session IN (_session, _successor) ORDER BY s.id FOR UPDATE;
    SELECT * INTO old_ FROM lockstitch.sessions s WHERE s.session = _session;
    SELECT * INTO new_ FROM lockstitch.sessions s WHERE s.session = _successor;
    IF old_.id IS NULL OR new_.id IS NULL THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF lockstitch.is_held_v1(old_, _gone, _silent, _beats) THEN
        outcome := 'held';
        token := old_.token; holder := old_.holder; beats := old_.beats; term := old_.term;
        RETURN;
    ELSIF lockstitch.is_held_v1(new_, _gone, '', 0) THEN
        outcome := 'held';
        token := new_.token; holder := new_.holder; beats := new_.beats; term := new_.term;
        RETURN;
    ELSIF EXISTS (SELECT FROM lockstitch.sessions s WHERE s.session = _aside) THEN
        outcome := 'taken';
        RETURN;
    ELSIF _id IS NOT NULL AND (_id, _seq, _digest) IS DISTINCT FROM (old_.id, old_.seq, old_.digest)
    THEN
        outcome := 'moved';
        RETURN;
    END IF;
    outcome := 'done';
    UPDATE lockstitch.sessions s
    SET session = _aside, epoch = s.epoch + 1, token = '', holder = '', watched = ''
    WHERE s.id = old_.id;
    UPDATE lockstitch.sessions s
    SET session = _session, epoch = greatest(s.epoch, old_.epoch), token = '', holder = ''
    WHERE s.id = new_.id;
END
$$;

-- A fork has its first records, up to base, from others: each part says whose they are. Records
-- stay for as long as a part names them, also when the session that wrote them is gone.
ALTER TABLE lockstitch.sessions ADD COLUMN base bigint NOT NULL DEFAULT 0;
CREATE TABLE lockstitch.parts (
    session bigint NOT NULL,
    owner bigint NOT NULL,
    after bigint NOT NULL,
    upto bigint NOT NULL,
    PRIMARY KEY (session, upto)
);
CREATE INDEX parts_of_owner ON lockstitch.parts (owner, upto);

-- From which record on a session names a large value; 0 where that is not known.
ALTER TABLE lockstitch.uses ADD COLUMN seq bigint NOT NULL DEFAULT 0;

CREATE FUNCTION lockstitch.keep_v2(_id bigint, _seq bigint, _names text[], _blobs bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(_names) > 0 THEN
        INSERT INTO lockstitch.blobs (name, body)
        SELECT * FROM unnest(_names, _blobs)
        ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name;
        INSERT INTO lockstitch.uses (name, session, seq)
        SELECT name, _id, _seq FROM unnest(_names) AS u (name) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION lockstitch.append_v2(
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
        PERFORM lockstitch.keep_v2(id_, _after + 1, _names, _blobs);
    END IF;
END
$$;

-- Remove the records of a session that no fork has, those that only it had from others, and the
-- large values that nobody else names.
CREATE OR REPLACE FUNCTION lockstitch.clear_v1(_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    names_ text[];
    owners_ bigint[];
    owner_ bigint;
BEGIN
    SELECT array_agg(DISTINCT p.owner ORDER BY p.owner) INTO owners_
    FROM lockstitch.parts p WHERE p.session = _id;
    -- One after the other, so that the last of two that go at once sees that it is the last.
    FOREACH owner_ IN ARRAY coalesce(owners_, ARRAY[]::bigint[]) || _id LOOP
        PERFORM pg_advisory_xact_lock(1819239275, (owner_ % 2147483647)::int);
    END LOOP;
    DELETE FROM lockstitch.parts p WHERE p.session = _id;
    FOREACH owner_ IN ARRAY coalesce(owners_, ARRAY[]::bigint[]) || _id LOOP
        IF NOT EXISTS (SELECT FROM lockstitch.sessions s WHERE s.id = owner_) THEN
            DELETE FROM lockstitch.records r WHERE r.session = owner_ AND r.seq > coalesce(
                (SELECT max(p.upto) FROM lockstitch.parts p WHERE p.owner = owner_), 0
            );
        END IF;
    END LOOP;
    WITH gone AS (DELETE FROM lockstitch.uses u WHERE u.session = _id RETURNING u.name)
    SELECT array_agg(name ORDER BY name) INTO names_ FROM gone;
    IF names_ IS NOT NULL THEN
        PERFORM FROM lockstitch.blobs b WHERE b.name = ANY (names_) ORDER BY b.name FOR UPDATE;
        DELETE FROM lockstitch.blobs b WHERE b.name = ANY (names_)
            AND NOT EXISTS (SELECT FROM lockstitch.uses u WHERE u.name = b.name);
    END IF;
END
$$;

-- Make a session of the first records of another one, which stay where they are: outcome is done,
-- missing, short or held.
CREATE FUNCTION lockstitch.fork_v3(
    _source text, _upto bigint, _target text, _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    source_ lockstitch.sessions;
    last_ lockstitch.records;
    target_ lockstitch.sessions;
    there_ bigint;
BEGIN
    PERFORM lockstitch.durably_v1();
    -- Who writes the source is not kept from it, who removes it is.
    SELECT * INTO source_ FROM lockstitch.sessions s WHERE s.session = _source FOR KEY SHARE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    SELECT r.* INTO last_ FROM lockstitch.records r
    WHERE r.seq = _upto AND r.session = CASE WHEN _upto > source_.base THEN source_.id ELSE (
        SELECT p.owner FROM lockstitch.parts p
        WHERE p.session = source_.id AND p.after < _upto AND p.upto >= _upto
    ) END;
    IF NOT FOUND AND _upto <> 0 THEN
        outcome := 'short';
        RETURN;
    END IF;
    INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed, base)
    VALUES (
        _target, _upto, coalesce(last_.digest, _start), coalesce(last_.epoch, 0),
        floor(extract(epoch FROM clock_timestamp()) * 1000), coalesce(last_.at, 0), _upto
    )
    ON CONFLICT DO NOTHING RETURNING * INTO target_;
    IF NOT FOUND THEN
        SELECT * INTO target_ FROM lockstitch.sessions s WHERE s.session = _target;
        outcome := CASE
            WHEN target_.seq = _upto AND target_.digest = coalesce(last_.digest, _start)
            THEN 'done' ELSE 'held' END;
        seq := target_.seq; digest := target_.digest; epoch := target_.epoch;
        RETURN;
    END IF;
    outcome := 'done';
    seq := target_.seq; digest := target_.digest; epoch := target_.epoch;
    INSERT INTO lockstitch.parts (session, owner, after, upto)
    SELECT target_.id, p.owner, p.after, least(p.upto, _upto)
    FROM lockstitch.parts p WHERE p.session = source_.id AND p.after < _upto;
    IF _upto > source_.base THEN
        INSERT INTO lockstitch.parts (session, owner, after, upto)
        VALUES (target_.id, source_.id, source_.base, _upto);
    END IF;
    SELECT count(*) INTO there_ FROM lockstitch.parts p
    JOIN lockstitch.records r ON r.session = p.owner AND r.seq > p.after AND r.seq <= p.upto
    WHERE p.session = target_.id;
    IF there_ <> _upto THEN
        RAISE EXCEPTION 'records are missing' USING ERRCODE = 'data_corrupted';
    END IF;
    -- Values that are named by the source only must not go before the fork names them.
    PERFORM FROM lockstitch.blobs b
    WHERE b.name IN (
        SELECT u.name FROM lockstitch.uses u WHERE u.session = source_.id AND u.seq <= _upto
    ) ORDER BY b.name FOR UPDATE;
    INSERT INTO lockstitch.uses (name, session, seq)
    SELECT u.name, target_.id, u.seq FROM lockstitch.uses u
    WHERE u.session = source_.id AND u.seq <= _upto ON CONFLICT DO NOTHING;
    IF to_jsonb(source_) ->> 'about' IS NOT NULL THEN
        PERFORM lockstitch.describe_fork_v1(target_.id);
    END IF;
END
$$;

-- Say of a fork what the last of its records says that describes it; see the next version.
CREATE FUNCTION lockstitch.describe_fork_v1(_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    body_ bytea;
BEGIN
    SELECT r.body INTO body_ FROM lockstitch.parts p
    JOIN lockstitch.records r ON r.session = p.owner AND r.seq > p.after AND r.seq <= p.upto
    WHERE p.session = _id AND substring(r.body FROM 1 FOR 19) = '{"kind":"described"'::bytea
    ORDER BY r.seq DESC LIMIT 1;
    IF FOUND THEN
        UPDATE lockstitch.sessions s SET about = body_ WHERE s.id = _id;
        PERFORM lockstitch.label_v1(s.session, body_) FROM lockstitch.sessions s WHERE s.id = _id;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION lockstitch.fork_v2(
    _source text, _upto bigint, _target text, _start bytea,
    OUT outcome text, OUT seq bigint, OUT digest bytea, OUT epoch bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO outcome, seq, digest, epoch
    FROM lockstitch.fork_v3(_source, _upto, _target, _start);
END
$$;

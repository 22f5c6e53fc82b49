-- Names that are exchanged after a repair, and leases in which the time of day plays no part.
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

-- Give a session another name, and its own to another one: outcome is done, held, moved, missing
-- or taken. What is damaged in their rows stays as it is.
CREATE FUNCTION lockstitch.exchange_v1(
    _session text, _aside text, _successor text, _id bigint, _seq bigint, _digest bytea,
    _gone text[], OUT outcome text, OUT token text, OUT holder text, OUT beats bigint,
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
    IF old_.token <> '' AND old_.token <> ALL (_gone) THEN
        outcome := 'held';
        token := old_.token; holder := old_.holder; beats := old_.beats; term := old_.term;
        RETURN;
    ELSIF new_.token <> '' AND new_.token <> ALL (_gone) THEN
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
    SET session = _aside, epoch = s.epoch + 1, token = '', holder = '' WHERE s.id = old_.id;
    UPDATE lockstitch.sessions s
    SET session = _session, epoch = greatest(s.epoch, old_.epoch), token = '', holder = ''
    WHERE s.id = new_.id;
END
$$;

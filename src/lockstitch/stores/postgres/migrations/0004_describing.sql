-- What sessions are called and belong to, and listing those first that were changed last.
--
-- Triggers keep it up, so the functions that write need not know of it. They cost nothing for a
-- record that does not describe its session.

-- about is the body of the last record that describes the session. minute is when it was changed,
-- in steps of 65536 milliseconds: other than the time itself, which every record changes, it can
-- have an index without making every write a costly one.
ALTER TABLE lockstitch.sessions
    ADD COLUMN about bytea,
    ADD COLUMN minute bigint NOT NULL GENERATED ALWAYS AS (changed / 65536) STORED;
CREATE INDEX sessions_by_minute ON lockstitch.sessions (minute);

-- Which sessions have a tag, in the order of their names.
CREATE TABLE lockstitch.labels (
    tag text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    PRIMARY KEY (tag, session)
);
CREATE INDEX labels_of_session ON lockstitch.labels (session);

-- Those who write need no rights on the labels: the triggers have those of whoever made the tables.
CREATE FUNCTION lockstitch.label_v1(_session text, _body bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lockstitch.labels l WHERE l.session = _session;
    IF _body IS NOT NULL THEN
        INSERT INTO lockstitch.labels (tag, session)
        SELECT DISTINCT tag, _session
        FROM json_array_elements_text(substring(
            -- They stand last. The rest may hold a NUL, which PostgreSQL takes for no JSON.
            convert_from(_body, 'UTF8') FROM E'"tags":(\\[(?:"(?:[^"\\\\]|\\\\.)*",?)+\\])\\}$'
        )::json) AS t (tag);
    END IF;
EXCEPTION WHEN data_exception THEN
    -- Not what Lockstitch writes: it is kept as a record like any other, and has no tags.
    RETURN;
END
$$;

CREATE FUNCTION lockstitch.describe_v1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    session_ text;
BEGIN
    UPDATE lockstitch.sessions s SET about = NEW.body WHERE s.id = NEW.session
    RETURNING s.session INTO session_;
    PERFORM lockstitch.label_v1(session_, NEW.body);
    RETURN NULL;
END
$$;
CREATE TRIGGER describe AFTER INSERT ON lockstitch.records FOR EACH ROW
WHEN (substring(NEW.body FROM 1 FOR 19) = '{"kind":"described"'::bytea)
EXECUTE FUNCTION lockstitch.describe_v1();

-- A session that is removed, or whose records give way to others, which get another number.
CREATE FUNCTION lockstitch.forget_v1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM lockstitch.label_v1(OLD.session, NULL);
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.about := NULL;
    RETURN NEW;
END
$$;
CREATE TRIGGER forget BEFORE DELETE OR UPDATE OF id ON lockstitch.sessions FOR EACH ROW
WHEN (OLD.about IS NOT NULL) EXECUTE FUNCTION lockstitch.forget_v1();

-- A session that gets another name, as a repair gives it.
CREATE FUNCTION lockstitch.rename_v1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM lockstitch.label_v1(OLD.session, NULL);
    PERFORM lockstitch.label_v1(NEW.session, NEW.about);
    RETURN NULL;
END
$$;
CREATE TRIGGER rename AFTER UPDATE OF session ON lockstitch.sessions FOR EACH ROW
WHEN (OLD.about IS NOT NULL AND OLD.session <> NEW.session)
EXECUTE FUNCTION lockstitch.rename_v1();

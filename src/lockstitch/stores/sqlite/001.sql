-- The first form of a store: sessions, what happened in them, and the large values they name.

-- A session, and where it stands: seq, digest and epoch are those of its head. The holder is the
-- one who may write (JSON, see holders.py); it counts until the machine's clock shows the deadline,
-- unless its process is gone. term is the length of its lease in seconds.
create table sessions (
    number   integer primary key,
    name     text    not null unique,
    seq      integer not null,
    digest   blob    not null,
    epoch    integer not null,
    created  integer not null,
    changed  integer not null,
    holder   text,
    deadline real,
    term     real
);

-- Records in the order in which they were written, of all sessions: only the last page is open.
-- codec 1 means that the body is compressed with zlib; the digest is that of the plain body.
create table events (
    session integer not null,
    seq     integer not null,
    epoch   integer not null,
    at      integer not null,
    key     text    not null,
    codec   integer not null,
    digest  blob    not null,
    body    blob    not null,
    unique (session, seq)
);

-- Large values by their content's name (16 bytes).
create table blobs (
    name  blob    primary key,
    codec integer not null,
    body  blob    not null
);

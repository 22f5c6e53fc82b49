-- The records of a session as one row of bytes (see pieces.py), cut into pieces of which each but
-- the last fills a page. id is the session's number times 2^24, plus one a piece. first is the
-- number of the first record that begins in the piece or behind it, start how many bytes behind
-- the piece's beginning that is. codec 1 means that several pieces were made one, compressed with
-- zlib. What an earlier version wrote stays in events and comes before what is here.
create table pieces (
    id    integer primary key,
    first integer not null,
    start integer not null,
    codec integer not null,
    body  blob    not null
);

-- A fork: up to a record, its records are those of another session. Where that one was removed,
-- its records stay under its number, as far as forks need them.
create table forks (
    session integer primary key,
    source  integer not null,
    upto    integer not null
);
create index forks_of on forks (source, upto);

-- The first record that names a large value, 0 where that is not known.
alter table uses add column seq integer not null default 0;

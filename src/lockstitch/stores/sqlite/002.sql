-- Which session names which large value, so that what nobody names can be removed with it.
create table uses (
    name    blob    not null,
    session integer not null,
    primary key (name, session)
) without rowid;
create index uses_of_session on uses (session);

-- The highest number of a session that was removed: numbers are never given twice, so that a
-- writer that was stopped meanwhile cannot take another session for its own.
create table graves (
    number integer not null
);
insert into graves (number) values (0);

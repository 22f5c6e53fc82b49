-- Which session names which large value, so that what nobody names can be removed with it.
create table uses (
    session integer not null,
    name    blob    not null,
    primary key (session, name)
) without rowid;

-- The highest number of a session that was removed: numbers are never given twice, so that a
-- writer that was stopped meanwhile cannot take another session for its own.
create table graves (
    number integer not null
);
insert into graves (number) values (0);

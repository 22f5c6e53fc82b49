-- What sessions are called and belong to, and listing those first that were changed last.

-- The body of the last record that describes the session, null for none.
alter table sessions add column about blob;

-- When it was changed, in steps of 65536 milliseconds. Other than the time itself, which every
-- record changes, it can have an index that costs nearly nothing.
alter table sessions add column minute integer not null default 0;
update sessions set minute = changed >> 16;
create index sessions_by_minute on sessions (minute);

create trigger minute_of_changed after update of changed on sessions
when new.minute <> new.changed >> 16
begin
    update sessions set minute = new.changed >> 16 where number = new.number;
end;

create trigger minute_of_new after insert on sessions
when new.minute <> new.changed >> 16
begin
    update sessions set minute = new.changed >> 16 where number = new.number;
end;

-- Which sessions have a tag, in the order of their names.
create table labels (
    tag     text    not null,
    name    text    not null,
    session integer not null,
    primary key (tag, name)
) without rowid;

-- A session that gets another name, as a repair gives it.
create trigger labels_of_renamed after update of name on sessions
when new.name <> old.name and new.about is not null
begin
    update labels set name = new.name where session = new.number;
end;

-- Gives the tables of version 16, the last one before the first release, the names of version 17.
ALTER TABLE changes RENAME COLUMN sight TO visibility;
ALTER TABLE items RENAME COLUMN begins_in TO initial_state;
ALTER TABLE items RENAME COLUMN begins_in_at TO initial_state_at;
ALTER TABLE items RENAME COLUMN begins_in_confirmed TO initial_state_confirmed;
ALTER TABLE items RENAME COLUMN unheard TO unannounced;
ALTER TABLE seeds RENAME COLUMN filled TO delta;
UPDATE meta SET name = 'newest_seed' WHERE name = 'seeds_moved';
ALTER TABLE quarantine RENAME COLUMN place TO location;
ALTER TABLE subscriptions RENAME COLUMN origin TO made_by;
ALTER TABLE incomplete RENAME TO incomplete_changes;
ALTER TABLE incomplete_changes RENAME COLUMN untold TO missing;
DROP INDEX incomplete_by_source;
CREATE INDEX incomplete_changes_by_source ON incomplete_changes (source, seq);
CREATE TABLE crawls (
    source TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    parts INTEGER NOT NULL,
    position TEXT NOT NULL,
    objects INTEGER NOT NULL,
    started INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    finished INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO crawls
    SELECT source, lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' ||
                         substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)),
        part, place, objects, began, moved, done
    FROM walks;
DROP TABLE walks;

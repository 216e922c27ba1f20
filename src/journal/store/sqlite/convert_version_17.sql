-- Converts the tables of version 17.
ALTER TABLE subscriptions ADD COLUMN paused_by TEXT;
ALTER TABLE subscriptions ADD COLUMN delivered INTEGER;
CREATE INDEX quarantine_by_source ON quarantine (source, id);
CREATE INDEX ingest_jobs_by_state ON ingest_jobs (source, state, updated) WHERE state NOT IN ('archived', 'cancelled');
CREATE TABLE sources (
    source TEXT PRIMARY KEY,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    week INTEGER NOT NULL,
    longest_pause INTEGER NOT NULL,
    earlier_pause INTEGER NOT NULL
) WITHOUT ROWID;
-- How long the pauses were is not known, so the time since the first event begins with the last one.
INSERT INTO sources
    SELECT json ->> 'source', max(received), max(received), max(received) / 604800000, 0, 0 FROM changes
    GROUP BY json ->> 'source';

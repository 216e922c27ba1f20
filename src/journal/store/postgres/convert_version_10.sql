-- Converts the tables of version 10.
ALTER TABLE subscriptions ADD COLUMN paused_by text;
ALTER TABLE subscriptions ADD COLUMN delivered bigint;
COMMENT ON COLUMN subscriptions.paused_by IS 'Who paused it; null if nobody is known.';
COMMENT ON COLUMN subscriptions.delivered IS 'Time of the last confirmed message.';
CREATE INDEX quarantine_by_source ON quarantine (source, id);
CREATE INDEX ingest_jobs_by_state ON ingest_jobs (source, state, updated) WHERE state NOT IN ('archived', 'cancelled');
CREATE TABLE sources (
    source text COLLATE "C" PRIMARY KEY,
    first_event bigint NOT NULL,
    last_event bigint NOT NULL,
    week bigint NOT NULL,
    longest_pause bigint NOT NULL,
    earlier_pause bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE sources IS 'Times of the events of each source that made changes, in milliseconds since 1970.';
COMMENT ON COLUMN sources.week IS 'Week of last_event, numbered from 1970.';
COMMENT ON COLUMN sources.longest_pause IS 'Longest time between two events that ended in that week.';
COMMENT ON COLUMN sources.earlier_pause IS 'The same of the week before.';
-- How long the pauses were is not known, so the time since the first event begins with the last one.
INSERT INTO sources
    SELECT json::json ->> 'source', max(received), max(received), max(received) / 604800000, 0, 0 FROM changes
    GROUP BY json::json ->> 'source';

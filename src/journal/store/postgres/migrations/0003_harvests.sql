CREATE TABLE harvests (
    source text COLLATE "C" PRIMARY KEY,
    position text NOT NULL,
    requested bigint
);
COMMENT ON TABLE harvests IS 'Position of the harvest of each source.';
COMMENT ON COLUMN harvests.position IS 'Where the harvest continues, in the format of its kind. Written together with the records before it.';
COMMENT ON COLUMN harvests.requested IS 'When an administrator last requested a run, in milliseconds since 1970.';

CREATE TABLE harvest_runs (
    id text COLLATE "C" PRIMARY KEY,
    source text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    updated bigint NOT NULL,
    state text NOT NULL,
    reason text,
    pages bigint NOT NULL,
    records bigint NOT NULL,
    changes bigint NOT NULL,
    quarantined bigint NOT NULL,
    repaired bigint NOT NULL
);
CREATE INDEX harvest_runs_by_source ON harvest_runs (source, id);
COMMENT ON TABLE harvest_runs IS 'The newest runs of the harvest of each source. Times are milliseconds since 1970.';
COMMENT ON COLUMN harvest_runs.id IS 'UUID of version 7: in the order of the runs.';
COMMENT ON COLUMN harvest_runs.state IS 'running, completed or failed.';
COMMENT ON COLUMN harvest_runs.updated IS 'When the last page was written, or the run ended.';
COMMENT ON COLUMN harvest_runs.changes IS 'Changes that the records of the run made.';
COMMENT ON COLUMN harvest_runs.quarantined IS 'Records that could not be read.';
COMMENT ON COLUMN harvest_runs.repaired IS 'Pages with errors that the harvest repaired.';

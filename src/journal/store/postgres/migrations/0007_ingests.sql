CREATE TABLE ingest_jobs (
    source text COLLATE "C" NOT NULL,
    dataset text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    request text NOT NULL,
    state text NOT NULL,
    due bigint,
    attempts bigint NOT NULL,
    status text,
    message text,
    requested bigint NOT NULL,
    updated bigint NOT NULL,
    PRIMARY KEY (source, dataset)
);
CREATE INDEX ingest_jobs_by_time ON ingest_jobs (source, due) WHERE due IS NOT NULL;
COMMENT ON TABLE ingest_jobs IS 'Jobs that archive datasets. Times are milliseconds since 1970.';
COMMENT ON COLUMN ingest_jobs.id IS 'UUID of version 7: in the order of the first requests.';
COMMENT ON COLUMN ingest_jobs.request IS 'JSON of the request.';
COMMENT ON COLUMN ingest_jobs.state IS 'waiting, running, archived, failed, blocked, cancelling or cancelled.';
COMMENT ON COLUMN ingest_jobs.due IS 'When the next attempt begins.';
COMMENT ON COLUMN ingest_jobs.attempts IS 'Successive attempts that have failed.';

CREATE TABLE results (
    object text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    received bigint NOT NULL,
    result text NOT NULL
);
COMMENT ON TABLE results IS 'The newest result of work on each object, such as the archiving of a dataset.';
COMMENT ON COLUMN results.seq IS 'The change that the result made.';
COMMENT ON COLUMN results.result IS 'JSON of the result.';

CREATE VIEW ingest_fileset_platform AS
    SELECT r #>> '{request,ingest_type}' AS ingest_type,
        r #>> '{request,base_url}' AS base_url,
        to_timestamp(received / 1000.0) AS updated,
        (r ->> 'hit')::boolean AS hit,
        r ->> 'status' AS status,
        r ->> 'platform_name' AS platform_name,
        r ->> 'platform_domain' AS platform_domain,
        r ->> 'platform_id' AS platform_id,
        r ->> 'ingest_strategy' AS ingest_strategy,
        (r ->> 'total_size')::bigint AS total_size,
        (r ->> 'file_count')::bigint AS file_count,
        r ->> 'archiveorg_item_name' AS archiveorg_item_name,
        r #>> '{fileset_bundle,archiveorg_bundle_path}' AS archiveorg_item_bundle_path,
        r #>> '{fileset_bundle,terminal,terminal_url}' AS web_bundle_url,
        r #>> '{fileset_bundle,terminal,terminal_dt}' AS web_bundle_dt,
        r -> 'manifest' AS manifest
    FROM (SELECT received, result::jsonb AS r FROM results) AS parsed
    WHERE r ? 'platform_name';
COMMENT ON VIEW ingest_fileset_platform IS 'Results of archiving datasets, with the columns of Sandcrawler''s table.';

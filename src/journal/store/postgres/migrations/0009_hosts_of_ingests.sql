ALTER TABLE ingest_jobs ADD COLUMN host text COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN ingest_jobs.host IS 'Host from which the dataset is requested; before the first attempt, the publisher at a resolver can stand for it.';
UPDATE ingest_jobs SET host = split_part(split_part(regexp_replace(dataset,
    '^(https?://((dx\.|www\.)?doi\.org|hdl\.handle\.net|n2t\.net)/|[a-z][a-z0-9+.-]*:(//)?)', ''), '/', 1), ':', 1);
CREATE INDEX ingest_jobs_by_host ON ingest_jobs (source, host, due) WHERE due IS NOT NULL;

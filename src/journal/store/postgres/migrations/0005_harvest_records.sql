CREATE TABLE harvest_records (
    source text COLLATE "C" NOT NULL,
    identifier text COLLATE "C" NOT NULL,
    listed bigint NOT NULL,
    PRIMARY KEY (source, identifier)
);
COMMENT ON TABLE harvest_records IS 'Records that the repository of a source has listed, if it does not report all deletions.';
COMMENT ON COLUMN harvest_records.listed IS 'Start of the newest run that has listed the record, in milliseconds since 1970.';

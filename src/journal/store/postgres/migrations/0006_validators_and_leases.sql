ALTER TABLE harvest_records ADD COLUMN validator text NOT NULL DEFAULT '';
COMMENT ON COLUMN harvest_records.validator IS 'Properties by which a harvest recognizes an unchanged record.';
ALTER TABLE harvests ADD COLUMN lease bigint;
COMMENT ON COLUMN harvests.lease IS 'End of the subscription at the hub of the feed, in milliseconds since 1970.';

ALTER TABLE harvest_records ADD COLUMN validator text NOT NULL DEFAULT '';
COMMENT ON COLUMN harvest_records.validator IS 'Properties by which a harvest recognizes an unchanged record.';

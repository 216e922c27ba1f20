-- Converts the tables of version 9, the last one before the first release.
ALTER TABLE crawls ALTER COLUMN id TYPE text USING id::text;

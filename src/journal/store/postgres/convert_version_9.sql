-- Converts the tables of version 9, the last one before the first release.
ALTER TABLE crawls ALTER COLUMN id TYPE text USING id::text;
CREATE TABLE definition_revisions (
    kind text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO definition_revisions SELECT 'subscriptions', revision FROM subscription_revision;
INSERT INTO definition_revisions (kind) VALUES ('harvests');
DROP TABLE subscription_revision;

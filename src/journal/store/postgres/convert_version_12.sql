-- Converts the tables of version 12. The objects count as accepted with the newest change, and as published if the public
-- sees one of their items: a time that is too late makes readers read an object once more.
ALTER TABLE journal_head ADD COLUMN accepted bigint NOT NULL DEFAULT 0,
    ADD COLUMN token_key uuid NOT NULL DEFAULT gen_random_uuid();
UPDATE journal_head SET accepted = 1000 * coalesce(received, 0);
COMMENT ON COLUMN journal_head.accepted IS 'Newest time of acceptance that a batch has given to objects.';
COMMENT ON COLUMN journal_head.token_key IS 'Secret key of the tokens that readers of the registry get.';
ALTER TABLE objects ADD COLUMN accepted bigint NOT NULL DEFAULT 0, ADD COLUMN published bigint;
UPDATE objects SET accepted = h.accepted,
    published = CASE WHEN EXISTS (SELECT FROM items WHERE items.object = objects.object AND existence
        AND coalesce(state, initial_state, 'ACTIVE') IN ('ACTIVE', 'UNAVAILABLE')) THEN h.accepted END
    FROM journal_head h;
ALTER TABLE objects ALTER COLUMN accepted DROP DEFAULT;
COMMENT ON COLUMN objects.accepted IS 'Microseconds since 1970 at which the newest facts were accepted, in the order of the batches.';
COMMENT ON COLUMN objects.published IS 'The same for the newest facts that the public sees; null if it has never seen the object.';
CREATE INDEX objects_by_acceptance ON objects (accepted, object);
CREATE INDEX objects_by_publication ON objects (published, object) WHERE published IS NOT NULL;

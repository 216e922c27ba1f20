-- Converts the tables of version 19. The objects count as accepted with the newest change, and as published if the public
-- sees one of their items: a time that is too late makes readers read an object once more.
ALTER TABLE objects ADD COLUMN accepted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE objects ADD COLUMN published INTEGER;
UPDATE objects SET accepted = 1000 * coalesce((SELECT received FROM changes ORDER BY seq DESC LIMIT 1), 0);
UPDATE objects SET published = accepted WHERE EXISTS (SELECT 1 FROM items
    WHERE items.object = objects.object AND existence
        AND coalesce(state, initial_state, 'ACTIVE') IN ('ACTIVE', 'UNAVAILABLE'));
CREATE INDEX objects_by_acceptance ON objects (accepted);
CREATE INDEX objects_by_publication ON objects (published) WHERE published IS NOT NULL;
INSERT INTO meta (name, value) VALUES ('token_key', randomblob(16));

-- Converts the tables of version 18.
ALTER TABLE items ADD COLUMN visible_from INTEGER;
ALTER TABLE items ADD COLUMN visible_until INTEGER;
ALTER TABLE items ADD COLUMN came INTEGER;
ALTER TABLE items ADD COLUMN denied INTEGER;
CREATE INDEX items_by_date ON items (coalesce(visible_from, visible_until))
    WHERE coalesce(visible_from, visible_until) IS NOT NULL;
CREATE INDEX items_denied ON items (denied) WHERE denied IS NOT NULL;

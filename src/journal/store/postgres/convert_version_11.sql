-- Converts the tables of version 11.
ALTER TABLE items ADD COLUMN visible_from bigint, ADD COLUMN visible_until bigint, ADD COLUMN came bigint,
    ADD COLUMN denied bigint;
COMMENT ON COLUMN items.visible_from IS 'Announced date from which the item is public; null if it has come.';
COMMENT ON COLUMN items.visible_until IS 'Announced date until which the item is public; null if it has come.';
COMMENT ON COLUMN items.came IS 'The announced date that has set the state.';
COMMENT ON COLUMN items.denied IS 'The announced date that had set a state before, if the source has said another date afterwards.';
CREATE INDEX items_by_date ON items (coalesce(visible_from, visible_until), object, uri)
    WHERE coalesce(visible_from, visible_until) IS NOT NULL;
CREATE INDEX items_denied ON items (denied) WHERE denied IS NOT NULL;

ALTER TABLE harvests
    ADD COLUMN definition text,
    ADD COLUMN paused boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN harvests.definition IS 'Settings of a harvest that was made over HTTP, as JSON; null for one of the configuration.';
COMMENT ON COLUMN harvests.paused IS 'Whether an administrator has paused the harvest.';

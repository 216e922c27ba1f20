-- Converts the tables of version 13. The first reader computes the order times.
CREATE TABLE order_times (
    seq bigint PRIMARY KEY,
    order_time bigint NOT NULL
);
COMMENT ON TABLE order_times IS 'Order times: that of the newest change up to each of these numbers, in milliseconds since 1970.';
CREATE TABLE segments (
    first bigint PRIMARY KEY,
    last bigint NOT NULL,
    manifest text NOT NULL
);
COMMENT ON TABLE segments IS 'Spans of changes that are sealed in files.';
COMMENT ON COLUMN segments.manifest IS 'JSON: contents and name of the file.';
ALTER TABLE restores ADD COLUMN identities text;
COMMENT ON COLUMN restores.identities IS 'Identifiers of the journals whose numbers end with head, separated by spaces.';

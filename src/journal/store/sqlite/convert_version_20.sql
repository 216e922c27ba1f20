-- Converts the tables of version 20. The first reader computes the order times.
CREATE TABLE order_times (
    seq INTEGER PRIMARY KEY,
    order_time INTEGER NOT NULL
);
CREATE TABLE segments (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    manifest TEXT NOT NULL
);
ALTER TABLE restores ADD COLUMN identities TEXT;

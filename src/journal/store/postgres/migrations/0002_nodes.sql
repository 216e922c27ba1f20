CREATE TABLE nodes (
    instance uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    address text,
    version text NOT NULL,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires timestamptz NOT NULL,
    head bigint NOT NULL,
    leaving boolean NOT NULL DEFAULT false,
    offers text[] NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE nodes IS 'Live nodes. A node renews its row, and thereby all its duties, several times per lease.';
COMMENT ON COLUMN nodes.instance IS 'Identifier of this run of the node.';
COMMENT ON COLUMN nodes.expires IS 'End of the lease, by the clock of this server. Any node removes the row afterwards.';
COMMENT ON COLUMN nodes.head IS 'Number of the newest change that the node knew at its last renewal.';
COMMENT ON COLUMN nodes.offers IS 'Duties of the configuration of this node. Only nodes that offer such a duty get it.';

CREATE TABLE duties (
    name text COLLATE "C" PRIMARY KEY,
    term uuid NOT NULL UNIQUE,
    holder uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX duties_by_holder ON duties (holder);
COMMENT ON TABLE duties IS 'Work that exactly one node does at a time. A duty has a row while a node has it.';
COMMENT ON COLUMN duties.term IS 'New for each tenure. A write for a duty is refused if the row with its term is gone.';

CREATE TABLE subscription_revision (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    revision bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE subscription_revision IS 'One row: number of modifications of subscriptions, apart from cursors and new dead letters. Nodes read the subscriptions again when it changes.';
INSERT INTO subscription_revision DEFAULT VALUES;

#!/usr/bin/env bash
# Permits replication from the primary of compose.yaml. The image runs this script once, when it creates the database.
set -euo pipefail

psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --set=password="$REPLICATION_PASSWORD" <<'SQL'
CREATE ROLE replicator REPLICATION LOGIN PASSWORD :'password';
-- Applies from the next start. From then on each commit waits for the standby.
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo "host replication replicator all scram-sha-256" >>"$PGDATA/pg_hba.conf"

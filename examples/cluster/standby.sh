#!/usr/bin/env bash
# Starts the standby of compose.yaml, at the first start from a copy of the primary.
set -euo pipefail

if [ ! -e "$PGDATA" ]; then
    chown postgres: "${PGDATA%/*}"
    rm -rf "$PGDATA.new"
    # --write-recovery-conf makes the copy a standby, and stores the connection with its password.
    PGPASSWORD="$REPLICATION_PASSWORD" gosu postgres pg_basebackup --pgdata="$PGDATA.new" --write-recovery-conf \
        --wal-method=stream --checkpoint=fast --dbname="host=primary user=replicator application_name=standby"
    # The copy contains the settings of the primary. The standby has no standby of its own.
    sed -i /synchronous_standby_names/d "$PGDATA.new/postgresql.auto.conf"
    mv "$PGDATA.new" "$PGDATA"
fi
exec docker-entrypoint.sh postgres

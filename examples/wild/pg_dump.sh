#!/bin/sh
# PostgreSQL in the first VM; the others dump its database at the same time.
#
#   pg_dump.sh prepare ROWS | pg_dump.sh dump ROWS
set -eu
for folder in /usr/lib/postgresql/*/bin; do PATH="$folder:$PATH"; done
port=5632
if [ "$1" = prepare ]; then
    [ "$(hostname)" = vm0 ] || exit 0
    initdb --auth=trust --no-sync --username=owner db >init.log
    echo "host all all 0.0.0.0/0 trust" >>db/pg_hba.conf
    # It stays until the job ends.
    pg_ctl -D db -w -l server.log start -o \
        "-p $port -k $PWD -c listen_addresses=$HOSENET_IP -c fsync=off -c max_connections=10" >start.log
    psql -q -h "$HOSENET_IP" -p "$port" -U owner postgres -c "create table t as select i,
        md5(i::text) || md5((2 * i)::text) || md5((3 * i)::text) as words
        from generate_series(1, $2) as s (i)"
    exit
fi
if [ "$HOSENET_RANK" = 0 ]; then exec python3 meet.py; fi
pg_dump -h vm0 -p "$port" -U owner postgres >dump
python3 meet.py
rows=$(grep -c '^[0-9]' dump)
[ "$rows" -eq "$2" ] && echo "dumped $rows rows: PASSED"

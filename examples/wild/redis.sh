#!/bin/sh
# Redis in the first VM, its own benchmark in the others: values are written, one request at a time.
#
#   redis.sh prepare | redis.sh load REQUESTS BYTES
set -eu
port=7000
if [ "$1" = prepare ]; then
    [ "$(hostname)" = vm0 ] || exit 0
    # It stays until the job ends.
    redis-server --daemonize yes --bind "$HOSENET_IP" --port "$port" --save "" --protected-mode no
    exit
fi
if [ "$HOSENET_RANK" = 0 ]; then exec python3 meet.py; fi
redis-benchmark -h vm0 -p "$port" -n "$2" -d "$3" -c 1 -t set --csv
redis-cli -h vm0 -p "$port" strlen key:__rand_int__
python3 meet.py
echo "wrote $2 values: PASSED"

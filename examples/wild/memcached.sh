#!/bin/sh
# memcached in the first VM under load of the others: small values, one request at a time. As many
# requests in twice the time are twice the latency.
#
#   memcached.sh prepare | memcached.sh load REQUESTS
set -eu
port=11311
if [ "$1" = prepare ]; then
    [ "$(hostname)" = vm0 ] || exit 0
    # It stays until the job ends.
    memcached -d -l "$HOSENET_IP" -p "$port" -m 64
    exit
fi
if [ "$HOSENET_RANK" = 0 ]; then exec python3 meet.py; fi
memcslap --servers="vm0:$port" --concurrency=1 --execute-number="$2" --test=set
python3 meet.py
echo "$2 requests: PASSED"

#!/bin/sh
# Each rank copies the next one's file by rsync, from its daemon: a real copy over TCP, all at once.
#
#   rsync_ring.sh prepare MEGABYTES | rsync_ring.sh copy MEGABYTES
set -eu
bytes=$(($2 * 1000000))
if [ "$1" = prepare ]; then
    mkdir shared
    head -c "$bytes" /dev/urandom >shared/data
    printf 'use chroot = no\n[shared]\npath = %s/shared\n' "$PWD" >rsyncd.conf
    # It stays until the job ends.
    rsync --daemon --config=rsyncd.conf --port=8730 --address="$HOSENET_IP"
    exit
fi
next=$(((HOSENET_RANK + 1) % HOSENET_SIZE))
rsync --port=8730 --whole-file "vm$next::shared/data" copied
[ "$(wc -c <copied)" -eq "$bytes" ] && echo "copied $bytes bytes: PASSED"

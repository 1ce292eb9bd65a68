#!/usr/bin/env bash
# Makes a Debian 12 machine ready for Hosenet, and runs it. `./provision.sh help` tells the rest.
#
# Every step looks first and acts only on what is missing, so a second call changes nothing. Package
# sources are whatever apt and pip are set up with here: mirrors, proxies and offline caches serve.
set -euo pipefail
export LC_ALL=C.UTF-8

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
VENV=$ROOT/.venv
STATE=/var/lib/hosenet/provision     # what was put on this machine, so that uninstall finds it
LOG=/var/log/hosenet-provision.log
COMMAND=/usr/local/bin/testbed
COMMAND_MARK='# Hosenet: written by provision.sh, removed by its uninstall.'
PYTHON=/usr/bin/python3              # Debian's: the one its Mininet belongs to, not pyenv's or conda's
EXAMPLE=examples/bandwidth-scaling.yaml

PACKAGES=(mininet openvswitch-switch iperf3 iproute2 iputils-ping ethtool tcpdump kmod procps tcc
          ca-certificates libjemalloc2 python3 python3-venv bubblewrap)
TEST_PACKAGES=(git shellcheck)

OVS_SCRIPTS=/usr/share/openvswitch/scripts
OVS_RUN=/run/openvswitch
SEND_BUFFER_BYTES=33554432           # of ovs-vswitchd's one send socket; see docs/live-network.md
WMEM_DEFAULT=/proc/sys/net/core/wmem_default

EXIT_MACHINE=3
CHANGED=0                            # whether this call changed anything

# ------------------------------------------------------------------------------------- words

usage() {
    cat <<'TEXT'
Usage: sudo ./provision.sh VERB

  install    install what is missing: Debian packages, a locked Python environment (.venv),
             Open vSwitch with the settings the testbed needs, `testbed` on the PATH
             (--with-tests: the test tools too)
  run        install, then `testbed run examples/bandwidth-scaling.yaml`
  test       install with the test tools, then run all checks and tests
  doctor     what this machine can and cannot do, and the command for what is missing
  uninstall  remove what install put on this machine outside the checkout, and .venv
  help       this text

Every verb may be repeated: what is there already is left alone.
In a chroot, without /proc, or with HOSENET_NO_START=1, Open vSwitch is installed but not started.
Exit codes: 0 good, 1 a check or a test failed, 2 usage, 3 the machine cannot do it.
TEXT
}

say()  { printf '%s\n' "provision: $*" >&2; }
fail() { say "$1"; [ $# -lt 2 ] || say "what to do: $2"; exit "$EXIT_MACHINE"; }

# quietly WHAT HINT COMMAND...: one line that says what is done; a failure shows the output's tail.
quietly() {
    local what=$1 hint=$2
    shift 2
    say "$what"
    CHANGED=1
    printf '\n=== %s  %s\n' "$(date -u +%FT%TZ)" "$*" >>"$LOG"
    local before code=0
    before=$(wc -l <"$LOG")
    # In a subshell of its own, not as a condition: there `set -e` would be ignored. Without the
    # lock's descriptor: a daemon started here would hold it for good.
    set +e
    (set -e; "$@") >>"$LOG" 2>&1 </dev/null 9>&-
    code=$?
    set -e
    if [ "$code" -ne 0 ]; then
        tail -n "+$((before + 1))" "$LOG" | tail -n 25 | sed 's/^/    | /' >&2
        say "this failed: $* (all of its output: $LOG)"
        fail "could not finish: $what" "$hint"
    fi
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "'$1' needs root" "sudo $ROOT/provision.sh $1"
    mkdir -p "$STATE"
    : >>"$LOG"
    exec 9>/run/lock/hosenet-provision.lock
    flock --nonblock 9 || { say "another provision.sh is at work; waiting for it"; flock 9; }
}

# Whoever owns the checkout runs what writes into it, so that no root-owned file ends up there.
OWNER=$(stat -c %u "$ROOT")
as_owner() {
    if [ "$OWNER" -eq 0 ] || [ "$(id -u)" -ne 0 ]; then
        "$@"
        return
    fi
    local group home=/nonexistent groups=--clear-groups
    group=$(stat -c %g "$ROOT")
    if getent passwd "$OWNER" >/dev/null; then
        home=$(getent passwd "$OWNER" | cut -d: -f6)
        groups=--init-groups
    fi
    setpriv --reuid="$OWNER" --regid="$group" "$groups" env HOME="$home" "$@"
}

# ---------------------------------------------------------------------------------- packages

missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            printf '%s\n' "$package"
    done
}

installed_packages() {
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' | awk '$1 == "installed" { print $2 }' | sort -u
}

install_packages() {
    command -v dpkg-query >/dev/null || fail "this is not Debian: there is no dpkg-query" \
        "vagrant up   (the Vagrantfile makes a Debian 12 machine)"
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    quietly "asking for the current package lists" \
        "check /etc/apt/sources.list and the network, then call this again" "${apt[@]}" update
    installed_packages >"$STATE/before"
    quietly "installing Debian packages: ${missing[*]}" \
        "apt-get -f install, then call this again" \
        "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
    # What they brought along counts too: uninstall takes back all that was not there before.
    installed_packages | comm -13 "$STATE/before" - >>"$STATE/packages"
    rm "$STATE/before"
}

# --------------------------------------------------------------------- the Python environment

# stamp FILE...: what an environment made from these files is known by.
stamp() {
    { "$PYTHON" --version; printf '%s\n' "$ROOT" "Mininet alone"; cat -- /dev/null "$@"; } |
        sha256sum | cut -d' ' -f1
}

stamped() { [ "$(cat "$VENV/$1" 2>/dev/null)" = "$2" ]; }

set_stamp() { printf '%s\n' "$2" | as_owner tee "$VENV/$1" >/dev/null; }

pip() {
    # Wheels are built (Ryu has none to offer) by the tools of requirements/build.txt, which are in
    # the environment itself: hence without isolation, and with nothing fetched unchecked.
    as_owner "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install \
        --no-build-isolation "$@"
}

# Of Debian's Python packages the environment sees Mininet alone (docs/decisions/04): with all of
# them in sight, an old OpenSSL binding or numpy of Debian's would meet new locked ones.
make_environment() {
    local mininet packages
    as_owner "$PYTHON" -m venv --clear "$VENV"
    mininet=$("$PYTHON" -c 'import mininet; print(mininet.__path__[0])')
    packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    as_owner ln -s "$mininet" "$packages/mininet"
}

install_python() {
    local build=$ROOT/requirements/build.txt run=$ROOT/requirements/run.txt
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, $PYTHON is $("$PYTHON" --version)" \
            "vagrant up   (the Vagrantfile makes a Debian 12 machine)"
    local hint="check pip's index settings (pip config list) and the network, then call this again"
    if ! "$VENV/bin/python" -c 'import mininet' 2>/dev/null || ! stamped .python "$(stamp)"; then
        quietly "making the Python environment $VENV" "rm -rf $VENV, then call this again" \
            make_environment
        set_stamp .python "$(stamp)"
    fi
    if ! stamped .run "$(stamp "$build" "$run")"; then
        quietly "installing the locked build tools" "$hint" pip --require-hashes -r "$build"
        quietly "installing the locked Python packages (Ryu and os-ken among them)" "$hint" \
            pip --require-hashes -r "$run"
        set_stamp .run "$(stamp "$build" "$run")"
    fi
    if ! stamped .project "$(stamp "$ROOT/pyproject.toml")"; then
        quietly "installing Hosenet itself, from this checkout" "$hint" \
            pip --no-deps --no-index --editable "$ROOT"
        set_stamp .project "$(stamp "$ROOT/pyproject.toml")"
    fi
    compile_loops
}

# Machine code of the simulator's inner loops, beside their sources: no first run waits for it. Numba
# takes it for current by the sources' sizes and times, hence those.
compile_loops() {
    local kept
    kept=$(cd "$ROOT" && grep -rl --include='*.py' ' = LazyLoop(' testbed | sort |
        xargs stat -c '%n %s %Y' | cat - "$ROOT/requirements/run.txt" | sha256sum)
    compgen -G "$ROOT/testbed/*/__pycache__/*.nbi" >/dev/null && stamped .loops "$kept" && return
    quietly "compiling the simulator's inner loops, once (half a minute)" \
        "call this again; without it, the first long simulation compiles them" \
        as_owner env -C "$ROOT" "$VENV/bin/python" -m testbed.runs.precompile
    set_stamp .loops "$kept"
}

install_test_python() {
    local lock=$ROOT/requirements/test.txt
    stamped .test "$(stamp "$lock")" && return
    quietly "installing the locked test tools" \
        "check pip's index settings (pip config list) and the network, then call this again" \
        pip --require-hashes -r "$lock"
    set_stamp .test "$(stamp "$lock")"
}

# ------------------------------------------------------------------------------- the command

install_command() {
    local wanted
    # Root leaves no __pycache__ in someone else's checkout.
    wanted=$(printf '%s\n' '#!/bin/sh' "$COMMAND_MARK" \
        "[ \"\$(id -u)\" = \"$OWNER\" ] || export PYTHONDONTWRITEBYTECODE=1" \
        "exec '$VENV/bin/testbed' \"\$@\"")
    [ "$(cat "$COMMAND" 2>/dev/null)" = "$wanted" ] && return
    if [ -e "$COMMAND" ] && ! grep -qF "$COMMAND_MARK" "$COMMAND"; then
        fail "$COMMAND belongs to something else" "mv $COMMAND $COMMAND.other"
    fi
    say "putting testbed on the PATH: $COMMAND"
    CHANGED=1
    printf '%s\n' "$wanted" >"$COMMAND.new"
    chmod 755 "$COMMAND.new"
    mv "$COMMAND.new" "$COMMAND"
}

# ------------------------------------------------------------------------------ Open vSwitch

may_start() {
    [ "${HOSENET_NO_START:-0}" != 1 ] && [ -e /proc/self/net/dev ] && ! ischroot
}

has_kernel_datapath() {
    [ -e /sys/module/openvswitch ] || modprobe --quiet openvswitch 2>/dev/null
}

with_systemd() { [ -d /run/systemd/system ]; }

daemon_pid() {
    local pid
    pid=$(cat "$OVS_RUN/$1.pid" 2>/dev/null) &&
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] && printf '%s\n' "$pid"
}

ovs_runs() { daemon_pid ovsdb-server >/dev/null && daemon_pid ovs-vswitchd >/dev/null; }

start_kernel_ovs() {
    if with_systemd; then
        systemctl enable --now openvswitch-switch.service
    else
        "$OVS_SCRIPTS/ovs-ctl" --system-id=random --no-record-hostname --no-mlockall start
    fi
}

# ovs-vswitchd without the kernel's module: as a run starts it that finds none. It opens its one send
# socket when the first packet leaves, not when it starts: the larger default buffer stays in force
# until a packet has been sent through a throw-away bridge.
start_userspace_ovs() {
    ! with_systemd || systemctl stop openvswitch-switch.service ovs-vswitchd.service || true
    touch "$STATE/userspace-tso"
    PYTHONPATH=$ROOT "$VENV/bin/python" -B -c \
        'from testbed.backends.emu.open_vswitch import start; start()'
}

open_send_socket() {
    local kept port=hnprime0 peer=hnprime1 bridge=hnprime
    kept=$(cat "$WMEM_DEFAULT")
    # `quietly` gave this function a shell of its own, so this is the function's end.
    # shellcheck disable=SC2064  # what was kept is wanted as it is now
    trap "printf '%s\n' $kept >$WMEM_DEFAULT
          ovs-vsctl --timeout=10 --if-exists del-br $bridge
          ip link delete $port 2>/dev/null || true" EXIT
    printf '%s\n' "$SEND_BUFFER_BYTES" >"$WMEM_DEFAULT"
    ip link delete "$port" 2>/dev/null || true
    ip link add "$port" type veth peer name "$peer"
    ip link set "$port" up
    ip link set "$peer" up
    ovs-vsctl --timeout=20 -- --if-exists del-br "$bridge" -- add-br "$bridge" \
        -- set Bridge "$bridge" datapath_type=netdev fail_mode=secure \
        -- add-port "$bridge" "$port" -- set Interface "$port" ofport_request=1
    local attempt
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        # A frame of the "local experimental" type, to a veth whose other end nobody reads.
        ovs-ofctl -O OpenFlow13 packet-out "$bridge" \
            "in_port=CONTROLLER packet=ffffffffffff02000000000188b50000 actions=output:1"
        sleep 0.3
        [ -z "$(send_socket)" ] || return 0
    done
    echo "no send socket after $attempt packets"
    return 1
}

# The send socket as `ss` prints it, one line; nothing while there is none. Its row is the one that
# listens to no protocol and no interface.
send_socket() {
    local pid
    pid=$(daemon_pid ovs-vswitchd) || return 0
    ss -H -0 -e -m -p | awk '/^[^ \t]/ { if (row) print row; row = "" } { row = row $0 }
                             END { if (row) print row }' |
        grep -F "pid=$pid," | grep -F '[0]:*' || true
}

# What is wrong with a running userspace Open vSwitch; nothing if it is as the testbed needs it.
userspace_fault() {
    local socket buffer
    socket=$(send_socket)
    case $socket in *vnethdr*) ;; *) echo "TCP offload is off (userspace-tso-enable)"; return ;; esac
    buffer=$(sed -E 's/.*[(,]tb([0-9]+).*/\1/' <<<"$socket")
    [ "$buffer" -ge "$SEND_BUFFER_BYTES" ] || {
        echo "its send buffer is $buffer bytes, not $SEND_BUFFER_BYTES"
        return
    }
    grep -q switch_preload "/proc/$(daemon_pid ovs-vswitchd)/maps" ||
        echo "a full queue takes packets of others with it"
}

bridges() { ovs-vsctl --timeout=10 list-br; }

clear_for_restart() {
    local fault=$1 held
    held=$(bridges | tr '\n' ' ')
    if [ -n "$held" ] && ! grep -qv '^hn-' < <(bridges); then
        say "asking testbed to clean up its own bridges first"
        "$COMMAND" clean >&2 9>&- || true
        held=$(bridges | tr '\n' ' ')
    fi
    [ -z "$held" ] || fail "Open vSwitch must be restarted ($fault) but holds bridges: $held" \
        "sudo ovs-vsctl del-br NAME for each you can spare, then call this again"
    quietly "stopping Open vSwitch: $fault" "sudo $OVS_SCRIPTS/ovs-ctl --no-ovsdb-server stop" \
        "$OVS_SCRIPTS/ovs-ctl" --no-ovsdb-server stop
}

ensure_ovs() {
    if ! may_start; then
        say "not starting Open vSwitch here (chroot, no /proc, or HOSENET_NO_START=1)"
        return
    fi
    if has_kernel_datapath; then
        ovs_runs || quietly "starting Open vSwitch (the kernel's datapath)" \
            "tail /var/log/openvswitch/ovs-vswitchd.log" start_kernel_ovs
        return
    fi
    local fault
    if ovs_runs; then
        # Nothing sent so far: whether it is set up well shows only once its socket is open.
        [ -n "$(send_socket)" ] ||
            quietly "opening Open vSwitch's send socket with a buffer of 32 MiB" \
                "tail /var/log/openvswitch/ovs-vswitchd.log" open_send_socket
        fault=$(userspace_fault)
        [ -n "$fault" ] || return 0
        clear_for_restart "$fault"
    fi
    local hint="tail /var/log/openvswitch/ovs-vswitchd.log, then call this again"
    quietly "starting Open vSwitch (userspace datapath: this kernel has no openvswitch module)" \
        "$hint" start_userspace_ovs
    quietly "opening its send socket with a buffer of 32 MiB" "$hint" open_send_socket
    fault=$(userspace_fault)
    [ -z "$fault" ] || fail "Open vSwitch runs, but $fault" "$hint"
}

# ------------------------------------------------------------------------------------- verbs

finish_install() {
    install_command
    ensure_ovs
    exec 9>&-
    if [ "$CHANGED" -eq 0 ]; then
        say "everything is in place; nothing installed, nothing changed"
    else
        say "installed"
    fi
}

doctor() {
    [ -x "$VENV/bin/testbed" ] || fail "Hosenet is not installed here" "sudo $ROOT/provision.sh install"
    say "testbed doctor:"
    "$VENV/bin/testbed" doctor
}

# The verdict comes last, but an earlier failure decides the exit code.
finish_with_doctor() {
    local code=$1 verdict=0
    doctor || verdict=$?
    [ "$code" -ne 0 ] || code=$verdict
    exit "$code"
}

verb_install() {
    install_packages "${PACKAGES[@]}"
    install_python
    [ "${1:-}" != --with-tests ] || { install_packages "${TEST_PACKAGES[@]}"; install_test_python; }
    finish_install
    may_start || return 0
    finish_with_doctor 0
}

verb_run() {
    install_packages "${PACKAGES[@]}"
    install_python
    finish_install
    local code=0
    (cd "$ROOT" && "$COMMAND" run "$EXAMPLE") || code=$?
    finish_with_doctor "$code"
}

# check WHAT COMMAND...: all of them run, the first failure is remembered.
FAILED=0
check() {
    local what=$1
    shift
    say "$what"
    "$@" || { say "failed: $what"; FAILED=1; }
}

verb_test() {
    install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    install_python
    install_test_python
    finish_install
    cd "$ROOT"
    local bin=$VENV/bin root_files
    check "formatting" as_owner "$bin/ruff" format --check .
    check "lint" as_owner "$bin/ruff" check .
    check "types" as_owner "$bin/mypy"
    check "types of the labs' checks" as_owner "$bin/mypy" labs/*/*_checks.py
    check "layers" as_owner "$bin/lint-imports" --no-cache --no-logo
    check "size and shape" as_owner "$bin/python" -m tests.support.shape --check --quiet
    check "tests that need no root" as_owner "$bin/python" -m pytest -n auto tests/unit
    if [ -d tests/netns ]; then
        root_files=$(mktemp -d)
        # A feature that install has just provided must be there: a skip would hide its absence.
        check "tests in network namespaces and on Open vSwitch" \
            env HOSENET_TEST_REQUIRE="root namespaces ovs mininet ryu os-ken" \
            HYPOTHESIS_STORAGE_DIRECTORY="$root_files" PYTHONPYCACHEPREFIX="$root_files" \
            "$bin/python" -m pytest -p no:cacheprovider tests/netns tests/emu
        rm -rf "$root_files"
    fi
    finish_with_doctor "$FAILED"
}

verb_uninstall() {
    if [ -e "$COMMAND" ] && grep -qF "$COMMAND_MARK" "$COMMAND"; then
        [ ! -x "$VENV/bin/testbed" ] || "$COMMAND" clean >&2 || true
        say "removing $COMMAND"
        rm -f "$COMMAND"
    fi
    if [ -e "$STATE/userspace-tso" ] && daemon_pid ovsdb-server >/dev/null; then
        say "putting Open vSwitch's settings back (in force when ovs-vswitchd next starts)"
        ovs-vsctl --timeout=10 --no-wait remove Open_vSwitch . other_config userspace-tso-enable \
            emc-insert-inv-prob=0
        # Without the kernel's module nothing but install had started the daemon.
        if ovs_runs && [ -z "$(bridges)" ]; then
            say "stopping Open vSwitch, which holds no bridge"
            "$OVS_SCRIPTS/ovs-ctl" stop >>"$LOG" 2>&1
        fi
    fi
    remove_packages
    say "removing $VENV"
    rm -rf "$VENV" "$ROOT/hosenet.egg-info" "$ROOT"/testbed/*/__pycache__/*.nb[ic]
    rm -rf "$STATE"
    rmdir --ignore-fail-on-non-empty "$(dirname "$STATE")" 2>/dev/null || true
    rm -f "$LOG"
    say "uninstalled; run folders (runs/) are left alone"
}

# Exactly the packages that install added, and only if nothing else has come to need them.
remove_packages() {
    [ -s "$STATE/packages" ] || return 0
    local ours others
    mapfile -t ours < <(sort -u "$STATE/packages" | comm -12 - <(installed_packages))
    [ ${#ours[@]} -gt 0 ] || return 0
    others=$(apt-get -s remove "${ours[@]}" | awk '/^Remv / { print $2 }' | sort -u |
        comm -13 <(printf '%s\n' "${ours[@]}") - | tr '\n' ' ')
    if [ -n "$others" ]; then
        say "left the Debian packages that install added, as these need them by now: $others"
        say "to remove all of them: sudo apt-get remove ${ours[*]}"
        return
    fi
    quietly "removing the ${#ours[@]} Debian packages that install added: ${ours[*]}" \
        "sudo apt-get remove ${ours[*]}" \
        env DEBIAN_FRONTEND=noninteractive apt-get -q -y remove "${ours[@]}"
}

main() {
    local verb=${1:-help}
    shift || true
    case $verb in
        install) need_root install; verb_install "$@" ;;
        run) need_root run; verb_run ;;
        test) need_root test; verb_test ;;
        doctor) doctor ;;
        uninstall) need_root uninstall; verb_uninstall ;;
        help | -h | --help) usage ;;
        *) say "unknown verb: $verb"; usage >&2; exit 2 ;;
    esac
}

main "$@"

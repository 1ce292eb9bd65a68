#!/usr/bin/env bash
# Makes a Debian 12 or 13 machine ready for Hosenet, and runs it. `./provision.sh help` tells the rest.
#
# Every step looks first and acts only on what is missing, so a second call changes nothing. Package
# sources are whatever apt and pip are set up with here: mirrors, proxies and offline caches serve.
set -euo pipefail
export LC_ALL=C.UTF-8

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
VENV=$ROOT/.venv
printf -v SHOWN_ROOT %q "$ROOT"      # as a command that is proposed has to name it
SHOWN_VENV=$SHOWN_ROOT/.venv
STATE=/var/lib/hosenet/provision     # what was put on this machine, so that uninstall finds it
LOG=/var/log/hosenet-provision.log
LOCK=$STATE/lock                     # where only root can hold or replace it
COMMAND=/usr/local/bin/testbed
COMMAND_MARK='# Hosenet: written by provision.sh, removed by its uninstall.'
PYTHON=/usr/bin/python3              # Debian's: the one its Mininet belongs to, not pyenv's or conda's
OS_RELEASE=/etc/os-release
APT_TIMEOUT_S=${HOSENET_APT_TIMEOUT_S:-300}  # how long to wait for another apt or dpkg
ENVIRONMENT_MIB=1400                 # .venv with the test tools; measured: 1,290 MiB
DOWNLOADS_MIB=300                    # what pip holds below $TMPDIR meanwhile; measured: 248 MiB
PACKAGES_MIB=400                     # on a minimal Debian, archives included; measured: 270 MiB
EXAMPLE=examples/bandwidth-scaling.yaml

PACKAGES=(mininet openvswitch-switch iperf3 iproute2 iputils-ping ethtool tcpdump kmod procps tcc
          ca-certificates libjemalloc2 python3 python3-venv bubblewrap)
TEST_PACKAGES=(git shellcheck)

OVS_SCRIPTS=/usr/share/openvswitch/scripts
OVS_RUN=/run/openvswitch
OVS_LOG=/var/log/openvswitch
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
  test       install with the test tools, then run the checks and tests
             (--all: also the long ones: repetitions, chaos, whole pages)
  doctor     what this machine can and cannot do, and the command for what is missing
  uninstall  remove what install put on this machine outside the checkout, and .venv
  help       this text

Every verb may be repeated: what is there already is left alone.
Made for Debian 12 and 13; `sudo HOSENET_ANY_RELEASE=1 ./provision.sh VERB` continues elsewhere.
In a chroot, without /proc, or with HOSENET_NO_START=1, Open vSwitch is installed but not started.
Exit codes: 0 good, 1 a check or a test failed, 2 usage, 3 the machine cannot do it.
TEXT
}

say()  { printf '%s\n' "provision: $*" >&2; }
fail() { say "$1"; [ $# -lt 2 ] || say "what to do: $2"; exit "$EXIT_MACHINE"; }

# quietly STEP WHAT COMMAND...: one line that says what is done; a failure shows the output's tail
# and the step's hint.
quietly() {
    local step=$1 what=$2
    shift 2
    say "$what"
    CHANGED=1
    must "writing to $LOG" tee -a "$LOG" <<<$'\n'"=== $(date -u +%FT%TZ)  $*"
    local before code=0
    before=$(wc -l <"$LOG")
    # In a subshell of its own, not as a condition: there `set -e` would be ignored. Without the
    # lock's descriptor: a daemon started here would hold it for good.
    set +e
    (set -e; "$@") >>"$LOG" 2>&1 </dev/null 9>&-
    code=$?
    set -e
    if [ "$code" -ne 0 ]; then
        say "this failed; the end of its output (all of it: $LOG):"
        give_up "$step" "$what" "$(tail -n "+$((before + 1))" "$LOG")" "$code"
    fi
}

# must WHAT COMMAND...: a small change, without a line of its own unless it fails.
must() {
    local what=$1 output code=0
    shift
    output=$("$@" 2>&1) || code=$?
    [ "$code" -ne 0 ] || return 0
    { printf '%s\n' "$output" >>"$LOG"; } 2>/dev/null || true
    give_up change "$what" "$output" "$code"
}

# give_up STEP WHAT OUTPUT CODE: the end of the failure's output, the step and its hint; exit 3.
give_up() {
    [ -z "$3" ] || tail -n 25 <<<"$3" | sed 's/^/    | /' >&2
    fail "could not finish (exit code $4): $2" "$(hint "$1")"
}

need_root() { [ "$(id -u)" -eq 0 ] || fail "'$1' needs root" "sudo $SHOWN_ROOT/provision.sh $1"; }

# One call at a time; the first change to the machine.
open_log() {
    # What runs, and whose tenants are up, stands in it: that concerns root alone.
    must "making the folder ${STATE%/*}" install -d -m 700 "${STATE%/*}"
    must "making the folder $STATE" mkdir -p "$STATE"
    must "writing to $LOG" tee -a "$LOG" </dev/null
    must "opening the lock $LOCK" touch "$LOCK"
    exec 9>"$LOCK"
    flock --nonblock 9 || { say "another provision.sh is at work; waiting for it"; flock 9; }
}

# Whoever owns the checkout runs what writes into it, so that no root-owned file ends up there.
OWNER=$(stat -c %u "$ROOT" 2>/dev/null || id -u)
as_owner() {
    if [ "$OWNER" -eq 0 ] || [ "$(id -u)" -ne 0 ]; then
        "$@"
        return
    fi
    local group name=$OWNER home=/nonexistent groups=--clear-groups
    group=$(stat -c %g "$ROOT")
    if getent passwd "$OWNER" >/dev/null; then
        IFS=: read -r name _ _ _ _ home _ < <(getent passwd "$OWNER")
        groups=--init-groups
    fi
    # Perl gives up the terminal, by which a process of the owner's could type commands into root's
    # shell (TIOCSTI). A session of its own (setsid) would not be ended by Ctrl-C.
    # By these names pytest calls its folder in /tmp: root's own would be refused to root afterwards.
    perl -e 'if (open my $tty, "<", "/dev/tty") { ioctl $tty, 0x5422, 0 or die "TIOCNOTTY: $!\n" }
             exec @ARGV or die "$ARGV[0]: $!\n"' \
        setpriv --reuid="$OWNER" --regid="$group" "$groups" \
        env HOME="$home" USER="$name" LOGNAME="$name" "$@"
}

# --------------------------------------------------------------------- before the first change

# shellcheck source=/dev/null
release() { (. "$OS_RELEASE" 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || true; }

# shellcheck source=/dev/null
release_name() {
    (. "$OS_RELEASE" 2>/dev/null && echo "${PRETTY_NAME:-${ID:-}${VERSION_ID:+ $VERSION_ID}}") || uname -s
}

# The release, as packages come from it; what its kernel and tools can do is probed where it matters.
check_release() {
    local name
    name=$(release_name)
    case $(release) in
        'debian 12' | 'debian 13') return ;;
        'ubuntu 24.04') say "$name is untested; Hosenet is tested on Debian 12 and 13"; return ;;
    esac
    if [ "${HOSENET_ANY_RELEASE:-0}" = 1 ]; then
        say "${name:-this system} is unknown; continuing, as HOSENET_ANY_RELEASE=1 says"
        return
    fi
    local simulator="python3 -m venv venv && venv/bin/pip install $SHOWN_ROOT"
    fail "this script installs on Debian 12 and 13; this is ${name:-an unknown system}" \
        "vagrant up (makes a Debian machine), or for the simulator alone, with Python 3.11 to 3.13: $simulator"
}

check_python() {
    [ -x "$PYTHON" ] || return 0  # the packages bring it
    local remedy="vagrant up   (makes a Debian machine)"
    # There Python is one of the three, unless something has taken its place.
    case $(release) in
        'debian 12' | 'debian 13' | 'ubuntu 24.04')
            remedy="sudo apt-get install --reinstall python3-minimal python3, then call this again" ;;
    esac
    "$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
        fail "$PYTHON is $("$PYTHON" --version), and the locks are for Python 3.11, 3.12 and 3.13" \
            "$remedy"
}

check_checkout() {
    as_owner test -w "$ROOT" ||
        fail "user $OWNER cannot write to the checkout $ROOT, where the Python environment goes" \
            "clone it to a folder of that user's, on a file system that is not mounted read-only"
    # Of a file with the executable bit, access(2) denies execution only where noexec says so.
    case $(stat -c %A "$ROOT/provision.sh") in
        -??x*) [ -x "$ROOT/provision.sh" ] || fail "the checkout $ROOT is on a file system mounted noexec" \
            "clone it to one from which programs can be run" ;;
    esac
}

# need_space PATH MIB...: for each file system the sum of what its paths need.
need_space() {
    local -A needed=()
    local path mount available
    while [ $# -gt 1 ]; do
        path=$1
        while [ ! -e "$path" ]; do path=$(dirname "$path"); done
        mount=$(df --output=target "$path" 2>/dev/null | tail -n 1) || true
        [ -e "$mount" ] || mount=$path  # without /proc df knows no mount point
        needed[$mount]=$((${needed[$mount]:-0} + $2))
        shift 2
    done
    for mount in "${!needed[@]}"; do
        available=$(df --output=avail -k "$mount" 2>/dev/null | tail -n 1 | tr -d ' ') || true
        [[ $available =~ ^[0-9]+$ ]] || continue  # "-": df does not know it
        available=$((available / 1024))
        [ "$available" -ge "${needed[$mount]}" ] ||
            fail "$mount has $available MiB left, and the installation needs ${needed[$mount]} MiB there" \
                "free some (apt-get clean; old folders below runs/), then call this again"
    done
}

check_space() {
    local needs=()
    [ -e "$VENV/.run" ] || needs+=("$ROOT" "$ENVIRONMENT_MIB" "${TMPDIR:-/tmp}" "$DOWNLOADS_MIB")
    [ -z "$(missing_packages "${PACKAGES[@]}")" ] || needs+=(/usr "$PACKAGES_MIB")
    need_space "${needs[@]}"
}

prepare() {
    check_release
    need_root "$1"
    check_python
    check_checkout
    check_space
    open_log
}

# -------------------------------------------------------------------------------------- hints

# hint STEP: where to look first when a step has failed. The output above it names the cause.
hint() {
    local again="then call this again"
    case $1 in
        packages) echo "check the network, the mirror in /etc/apt/sources.list* and the space (df -h);" \
            "if packages are installed in part: sudo apt-get --fix-broken install; $again" ;;
        environment) echo "check the space (df -h), and:" \
            "sudo apt-get install --reinstall python3-venv mininet; $again" ;;
        python) echo "check the network, https_proxy, pip's settings ($SHOWN_VENV/bin/pip config list)" \
            "and the space (df -h); $again" ;;
        switch) echo "read $OVS_LOG/ovs-vswitchd.log; a container needs CAP_NET_ADMIN and /dev/net/tun," \
            "or: vagrant up; $again" ;;
        *) echo "check that there is space (df -h) and that nothing is mounted read-only (findmnt);" \
            "$again" ;;
    esac
}

# The last line of modprobe's answer: why the kernel does not load Open vSwitch's module.
module_fault() {
    local answer
    answer=$(modprobe openvswitch 2>&1 | tail -n 1) || true
    printf '%s\n' "openvswitch does not load: ${answer:-no message}"
}

# ---------------------------------------------------------------------------------- packages

missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            printf '%s\n' "$package"
    done
}

# Those installed in part, too: a failed installation leaves such.
installed_packages() {
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' | awk '$1 !~ /^(not-|config-f)/ { print $2 }' | sort -u
}

# Lists and packages in one step: update succeeds where no list could be had, and only then
# install fails.
apt_install() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o "DPkg::Lock::Timeout=$APT_TIMEOUT_S")
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends "$@"
}

install_packages() {
    command -v dpkg-query >/dev/null ||
        fail "this is not Debian: there is no dpkg-query" "vagrant up   (makes a Debian machine)"
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    must "listing the Debian packages" list_before
    quietly packages "installing Debian packages: ${missing[*]}" install_recorded "${missing[@]}"
}

# A list that is there is of a call that was killed.
list_before() {
    record_packages && installed_packages >"$STATE/before.new" && mv "$STATE/before.new" "$STATE/before"
}

# `quietly` gave this function a shell of its own: what a failed installation has left counts too.
install_recorded() {
    trap record_packages EXIT
    apt_install "$@"
}

# What the packages brought along counts: uninstall takes back all that was not there before.
record_packages() {
    [ -e "$STATE/before" ] || return 0
    installed_packages | comm -13 "$STATE/before" - >>"$STATE/packages" && rm "$STATE/before"
}

# --------------------------------------------------------------------- the Python environment

# stamp FILE...: what an environment made from these files is known by.
stamp() {
    { "$PYTHON" --version; printf '%s\n' "$ROOT" "Mininet alone"; cat -- /dev/null "$@"; } |
        sha256sum | cut -d' ' -f1
}

stamped() { [ "$(cat "$VENV/$1" 2>/dev/null)" = "$2" ]; }

set_stamp() { must "writing to $VENV/$1" as_owner tee "$VENV/$1" <<<"$2"; }

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
    check_python
    if ! "$VENV/bin/python" -c 'import mininet' 2>/dev/null || ! stamped .python "$(stamp)"; then
        quietly environment "making the Python environment $VENV" make_environment
        set_stamp .python "$(stamp)"
    fi
    if ! stamped .run "$(stamp "$build" "$run")"; then
        quietly python "installing the locked build tools" pip --require-hashes -r "$build"
        quietly python "installing the locked Python packages" \
            pip --require-hashes -r "$run"
        set_stamp .run "$(stamp "$build" "$run")"
    fi
    if ! stamped .project "$(stamp "$ROOT/pyproject.toml")"; then
        quietly python "installing Hosenet itself, from this checkout" \
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
    quietly python "compiling the simulator's inner loops, once (half a minute)" \
        as_owner env -C "$ROOT" "$VENV/bin/python" -m testbed.play.precompile
    set_stamp .loops "$kept"
}

install_test_python() {
    local lock=$ROOT/requirements/test.txt
    stamped .test "$(stamp "$lock")" && return
    quietly python "installing the locked test tools" pip --require-hashes -r "$lock"
    set_stamp .test "$(stamp "$lock")"
}

# ------------------------------------------------------------------------------- the command

install_command() {
    local wanted quote="'\\''"
    # Root leaves no __pycache__ in someone else's checkout.
    wanted=$(printf '%s\n' '#!/bin/sh' "$COMMAND_MARK" \
        "[ \"\$(id -u)\" = \"$OWNER\" ] || export PYTHONDONTWRITEBYTECODE=1" \
        "exec '${VENV//\'/"$quote"}/bin/testbed' \"\$@\"")
    [ "$(cat "$COMMAND" 2>/dev/null)" = "$wanted" ] && return
    if [ -e "$COMMAND" ] && ! grep -qF "$COMMAND_MARK" "$COMMAND"; then
        fail "$COMMAND belongs to something else" "sudo mv $COMMAND $COMMAND.other"
    fi
    quietly command "putting testbed on the PATH: $COMMAND" write_command "$wanted"
}

write_command() {
    trap 'rm -f "$COMMAND.new"' EXIT
    printf '%s\n' "$1" >"$COMMAND.new"
    chmod 755 "$COMMAND.new"
    mv "$COMMAND.new" "$COMMAND"
}

# ------------------------------------------------------------------------------ Open vSwitch

may_start() {
    [ "${HOSENET_NO_START:-0}" != 1 ] && [ -e /proc/self/net/dev ] && ! ischroot
}

has_kernel_datapath() { [ -e /sys/module/openvswitch ] || modprobe openvswitch 2>/dev/null; }

with_systemd() { [ -d /run/systemd/system ]; }

daemon_pid() {
    local pid
    pid=$(cat "$OVS_RUN/$1.pid" 2>/dev/null) &&
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] && printf '%s\n' "$pid"
}

ovs_runs() { daemon_pid ovsdb-server >/dev/null && daemon_pid ovs-vswitchd >/dev/null; }

# Open vSwitch's daemons and units say in their logs alone why they do not start.
logged_by_ovs() {
    local start
    start=$(date -u +%FT%T)
    "$@" || {
        awk -v start="$start" '$0 >= start' "$OVS_LOG"/ovs*.log || true
        ! with_systemd || systemctl --no-pager --lines=10 status ovsdb-server ovs-vswitchd || true
        return 1
    }
}

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
    quietly switch "stopping Open vSwitch: $fault" "$OVS_SCRIPTS/ovs-ctl" --no-ovsdb-server stop
}

ensure_ovs() {
    if ! may_start; then
        say "not starting Open vSwitch here (chroot, no /proc, or HOSENET_NO_START=1)"
        return
    fi
    if has_kernel_datapath; then
        ovs_runs || quietly switch "starting Open vSwitch (the kernel's datapath)" \
            logged_by_ovs start_kernel_ovs
        return
    fi
    local fault
    if ovs_runs; then
        # Nothing sent so far: whether it is set up well shows only once its socket is open.
        [ -n "$(send_socket)" ] ||
            quietly switch "opening Open vSwitch's send socket with a buffer of 32 MiB" \
                open_send_socket
        fault=$(userspace_fault)
        [ -n "$fault" ] || return 0
        clear_for_restart "$fault"
    fi
    quietly switch "starting Open vSwitch (userspace datapath, as $(module_fault))" \
        logged_by_ovs start_userspace_ovs
    quietly switch "opening its send socket with a buffer of 32 MiB" open_send_socket
    fault=$(userspace_fault)
    [ -z "$fault" ] || fail "Open vSwitch runs, but $fault" \
        "tail /var/log/openvswitch/ovs-vswitchd.log, then call this again"
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
    [ -x "$VENV/bin/testbed" ] || fail "Hosenet is not installed here" "sudo $SHOWN_ROOT/provision.sh install"
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

# check WHAT COMMAND...: all of them run, the first failure is remembered, and what was shown is
# kept for the list of failures at the end.
FAILED=0
SHOWN=""
kept() { tee --append --ignore-interrupts ${SHOWN:+"$SHOWN"}; }
check() {
    local what=$1
    shift
    say "$what"
    "$@" 2>&1 | kept || { FAILED=1; say "failed: $what" 2>&1 | kept >&2; }
}

# Thousands of lines of output and the doctor's verdict stand between a failure and the prompt: the
# last lines name every failure once more.
finish_checks() {
    local code=0
    (finish_with_doctor "$FAILED") || code=$?
    if [ "$FAILED" -ne 0 ]; then
        say "what failed (its output is above):"
        grep -aE '^(FAILED|ERROR) |^provision: failed: ' "$SHOWN" >&2 || true
    fi
    exit "$code"
}

# Pythons that the product starts write no bytecode (jobs/python_child.py), and root's none here:
# without this, each of some hundreds would compile the whole of it.
compile_checkout() {
    as_owner "$VENV/bin/python" -m compileall -q -j 0 bench controller jobs reproductions testbed \
        topologies tests/support
}

check_sources() {
    local bin=$VENV/bin
    check "formatting" as_owner "$bin/ruff" format --check .
    check "lint" as_owner "$bin/ruff" check .
    check "types" as_owner "$bin/mypy"
    check "layers" as_owner "$bin/lint-imports" --no-cache --no-logo
}

# check_without_root SELECTION PROFILE: tests that need neither root nor a network, with PROFILE's
# number of examples a property. One worker more than there are processors, as some tests wait.
check_without_root() {
    check "tests that need no root" as_owner "$VENV/bin/python" -m pytest -n $(($(nproc) + 1)) \
        --dist worksteal --hypothesis-profile="$2" -m "$1" tests/unit
}

# check_as_root WHAT SELECTION FOLDER: tests that make what root alone may make.
check_as_root() {
    local root_files
    [ -d "$3" ] || return 0
    root_files=$(mktemp -d)
    # A feature that install has just provided must be there: a skip would hide its absence.
    check "$1" env HOSENET_TEST_REQUIRE="root namespaces ovs mininet ryu os-ken" \
        HYPOTHESIS_STORAGE_DIRECTORY="$root_files" PYTHONDONTWRITEBYTECODE=1 \
        "$VENV/bin/python" -m pytest -p no:cacheprovider -m "$2" "$3"
    rm -rf "$root_files"
}

check_in_namespaces() { check_as_root "tests in network namespaces" "$1" tests/netns; }
check_on_switch() { check_as_root "tests on Open vSwitch" "$1" tests/emu; }

# beside POLICY COMMAND...: runs COMMAND beside what follows, by the kernel's policy --other or --idle;
# end_beside shows what it said.
BESIDE=()
BESIDE_SHOWS=()
beside() {
    local policy=$1 shows
    shift
    shows=$(mktemp)
    BESIDE_SHOWS+=("$shows")
    # A group of its own, which no Ctrl-C at the terminal reaches but by the trap.
    set -m
    (
        set +m
        chrt "$policy" --pid 0 "$BASHPID"
        "$@"
        exit "$FAILED"
    ) >"$shows" 2>&1 </dev/null &
    BESIDE+=($!)
    set +m
}

end_beside() {
    local number
    for number in "${!BESIDE[@]}"; do
        wait "${BESIDE[number]}" || FAILED=1
        cat "${BESIDE_SHOWS[number]}"
    done
}

kill_beside() {
    local group
    for group in "${BESIDE[@]}"; do kill -INT -- "-$group" 2>/dev/null || true; done
    rm -f "${BESIDE_SHOWS[@]}" "$SHOWN"
}

# Tests on Open vSwitch mostly wait for traffic: all others run meanwhile. What needs no root has the
# processors where nothing else wants them: at niceness 19 too it would hold up each process that a
# live test starts by milliseconds. Tests in namespaces of their own meet none of the network's.
check_side_by_side() {
    say "all other checks run beside the tests on Open vSwitch, and are shown after them"
    trap kill_beside EXIT
    trap 'exit 130' INT TERM
    beside --other check_in_namespaces "$1"
    beside --idle check_sources
    beside --idle check_without_root "$1" quick
    check_on_switch "$1"
    end_beside
}

# Tests marked long are left out but for --all, which has bands that need an otherwise idle machine:
# docs/testing.md says which they are.
verb_test() {
    case ${1:-} in
        '' | --all) ;;
        *) say "unknown option of test: $1"; usage >&2; exit 2 ;;
    esac
    install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    install_python
    install_test_python
    finish_install
    cd "$ROOT"
    unset PYTHONDONTWRITEBYTECODE
    SHOWN=$(mktemp)
    trap 'rm -f "$SHOWN"' EXIT
    compile_checkout || FAILED=1
    if [ "${1:-}" = --all ]; then
        check_sources
        check_without_root "" hosenet
        check_in_namespaces ""
        check_on_switch ""
    else
        check_side_by_side "not long"
    fi
    finish_checks
}

verb_uninstall() {
    if [ -e "$COMMAND" ] && grep -qF "$COMMAND_MARK" "$COMMAND"; then
        [ ! -x "$VENV/bin/testbed" ] || "$COMMAND" clean >&2 || true
        say "removing $COMMAND"
        must "removing $COMMAND" rm -f "$COMMAND"
    fi
    if [ -e "$STATE/userspace-tso" ] && daemon_pid ovsdb-server >/dev/null; then
        say "putting Open vSwitch's settings back (in force when ovs-vswitchd next starts)"
        ovs-vsctl --timeout=10 --no-wait remove Open_vSwitch . other_config userspace-tso-enable \
            emc-insert-inv-prob=0 || say "Open vSwitch's settings stay as they are: its message is above"
        # Without the kernel's module nothing but install had started the daemon.
        local held
        if ovs_runs && held=$(bridges) && [ -z "$held" ]; then
            say "stopping Open vSwitch, which holds no bridge"
            "$OVS_SCRIPTS/ovs-ctl" stop >&2 || say "Open vSwitch does not stop: its message is above"
        fi
    fi
    remove_packages
    say "removing $VENV"
    must "removing $VENV" rm -rf "$VENV" "$ROOT/hosenet.egg-info" "$ROOT"/testbed/*/__pycache__/*.nb[ic]
    must "removing $STATE" rm -rf "$STATE"
    rmdir --ignore-fail-on-non-empty "$(dirname "$STATE")" 2>/dev/null || true
    must "removing $LOG" rm -f "$LOG"
    say "uninstalled; run folders (runs/) are left alone"
}

# Exactly the packages that install added, and only if nothing else has come to need them.
remove_packages() {
    local ours others
    must "listing the Debian packages" record_packages
    [ -s "$STATE/packages" ] || return 0
    mapfile -t ours < <(sort -u "$STATE/packages" | comm -12 - <(installed_packages))
    [ ${#ours[@]} -gt 0 ] || return 0
    others=$(apt-get -s remove "${ours[@]}" 2>&1) || give_up packages "removing Debian packages" "$others" $?
    others=$(awk '/^Remv / { print $2 }' <<<"$others" | sort -u |
        comm -13 <(printf '%s\n' "${ours[@]}") - | tr '\n' ' ')
    if [ -n "$others" ]; then
        say "left the Debian packages that install added, as these need them by now: $others"
        say "to remove all of them: sudo apt-get remove ${ours[*]}"
        return
    fi
    quietly packages "removing the ${#ours[@]} Debian packages that install added: ${ours[*]}" \
        env DEBIAN_FRONTEND=noninteractive apt-get -q -y remove "${ours[@]}"
}

main() {
    local verb=${1:-help}
    shift || true
    case $verb in
        install) prepare install; verb_install "$@" ;;
        run) prepare run; verb_run ;;
        test) prepare test; verb_test "$@" ;;
        doctor) doctor ;;
        uninstall) need_root uninstall; open_log; verb_uninstall ;;
        help | -h | --help) usage ;;
        *) say "unknown verb: $verb"; usage >&2; exit 2 ;;
    esac
}

# A test sources this file for one function of it.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"

package unitgen

import "strings"

// File is a unit file to install.
type File struct{ Name, Text string }

// Installed are the units that toad setup installs for a user, in a fixed order. pins are the folders that hold
// pins (…/web.container.d), absolute, one watch each; the folders need not exist. Units that a person or a target
// starts have an [Install] section.
func Installed(p Program, pins ...string) []File {
	files := []File{
		{"toad.socket", socketText},
		{WebSocket, webSocketText},
		{"toad.service", serviceText},
		{"toad-reconcile.service", reconcileText},
		{"toad-held.service", heldText},
		{"toad-alert@.service", alertText},
		{"toad-deliver.service", deliverText},
		{FencePath, fencePathText},
		{"toad-fence.service", fenceText},
		{FenceAgain, fenceAgainText},
		{"toad-tick.timer", tickTimerText},
		{"toad-tick.service", tickText},
	}
	if p.Container != nil {
		files[2] = File{ContainerFile, containerText}
		files = append(files, File{LookSocket, lookSocketText}, File{LookService, lookText}, File{ContainerCopy, containerText})
	}
	if len(p.Listen) > 0 {
		files = append(files, File{TCPSocket, tcpSocketText})
	}
	if p.Agent {
		files = append(files, agentFiles()...)
	}
	fill := strings.NewReplacer(
		"{agent}", p.starts("agent", "run"),
		"{serve}", p.starts(p.serve()...),
		"{container}", p.container(),
		"{look-host}", p.starts("look"),
		"{listen}", p.streams(),
		"{reconcile}", p.starts("reconcile"),
		"{look}", p.starts("reconcile", "--look"),
		"{tick}", p.starts("tick"),
		"{deliver}", p.starts("alert", "--deliver"),
		// %i is for systemd to fill in, so it is not escaped.
		"{alert}", strings.Replace(p.starts("alert", "INSTANCE"), "INSTANCE", "%i", 1),
		"{watched}", watched(p, pins),
		"{changed}", changed(p, pins),
	)
	for i := range files {
		files[i].Text = head + fill.Replace(files[i].Text)
	}
	return files
}

// starts are the lines that make a service run toad with these arguments.
func (p Program) starts(args ...string) string {
	var lines []string
	for _, assignment := range p.environment() {
		lines = append(lines, "Environment="+quote(assignment))
	}
	return strings.Join(append(lines, "ExecStart="+command(append([]string{p.Exe}, args...)...)), "\n")
}

// container are the lines of the daemon's own container that depend on the host.
func (p Program) container() string {
	c := p.Container
	if c == nil {
		return ""
	}
	lines := []string{"Rootfs=" + path(c.Rootfs), "Exec=" + strings.TrimPrefix(command(append([]string{"/toad"}, p.serve()...)...), ":")}
	for _, folder := range []string{p.State, c.Quadlets, c.Config} {
		lines = append(lines, "Volume="+path(folder)+":"+path(folder))
	}
	assignments := append(p.environment(), "HOME="+c.Home, "USER="+c.User)
	if c.ConfigHome != "" {
		assignments = append(assignments, "XDG_CONFIG_HOME="+c.ConfigHome)
	}
	for _, assignment := range assignments {
		lines = append(lines, "Environment="+quote(assignment))
	}
	return strings.Join(lines, "\n")
}

// serve is how the daemon is started. It is told of the addresses that systemd opens for it, or it would not take one
// that others can reach.
func (p Program) serve() []string {
	args := []string{"serve"}
	for _, address := range p.Listen {
		args = append(args, "--listen", address)
	}
	for _, host := range p.Hosts {
		args = append(args, "--host", host)
	}
	return args
}

func (p Program) streams() string {
	var lines []string
	for _, address := range p.Listen {
		lines = append(lines, "ListenStream="+address)
	}
	return strings.Join(lines, "\n")
}

const head = "# Written by toad setup, which writes it anew. To change it, use systemctl --user edit.\n"

// Own reports whether a file is one that toad setup has written.
func Own(text string) bool { return strings.HasPrefix(text, "# Written by toad setup") }

// The limits are off because a daemon that crashes in a loop would otherwise take the socket down for good.
const socketText = `[Unit]
Description=toad: where requests arrive

[Socket]
ListenStream=%t/toad/toad.sock
SocketMode=0600
DirectoryMode=0700
TriggerLimitIntervalSec=0
PollLimitIntervalSec=2s
PollLimitBurst=4

[Install]
WantedBy=sockets.target
`

// TCPSocket is the unit that holds the TCP addresses. It is one of its own: a port that another program has taken must
// not take the Unix socket down with it.
const TCPSocket = "toad-tcp.socket"

// WebSocket is the unit that holds the socket of the page.
const WebSocket = "toad-web.socket"

// Whoever may connect sees the page, and can do nothing: the folder says who that is. It is alone there, so that a gateway
// can be given this folder and nothing else of toad's.
const webSocketText = `[Unit]
Description=toad: where the web page is asked for

[Socket]
Service=toad.service
ListenStream=%t/toad-web/web.sock
SocketMode=0660
DirectoryMode=0750
TriggerLimitIntervalSec=0
PollLimitIntervalSec=2s
PollLimitBurst=4

[Install]
WantedBy=sockets.target
`

const tcpSocketText = `[Unit]
Description=toad: where requests with a token arrive

[Socket]
Service=toad.service
{listen}
FreeBind=yes
TriggerLimitIntervalSec=0
PollLimitIntervalSec=2s
PollLimitBurst=4

[Install]
WantedBy=sockets.target
`

const serviceText = `[Unit]
Description=toad: accepts, records and answers
Requires=toad.socket
After=toad.socket
StartLimitIntervalSec=0

[Service]
Type=notify
{serve}
` + confined + `Restart=on-failure
RestartSec=1s
WatchdogSec=10s
WatchdogSignal=KILL

[Install]
Also=toad.socket
`

// The daemon in a container of its own, and what it asks of the host there.
const (
	ContainerFile = "toad.container" // a Quadlet, not a unit: its folder is another
	// ContainerCopy lies beside the units, out of the way of what copies Quadlets over. It says that toad is installed in
	// this shape, and the Quadlet is put back from it.
	ContainerCopy = "toad.container.copy"
	LookSocket    = "toad-look.socket"
	LookService   = "toad-look.service"
)

// It runs a folder, not an image: the image of a container that is idle would not survive a prune. Mounted are folders
// only, for a mounted socket is a stale one when its file is made anew. With the bus among them the container is no
// sandbox against toad itself, but it keeps the rest of the host out of reach of its mistakes. %b is the boot, which the
// host's own processes read from /proc; Podman does not pass WATCHDOG_USEC on.
const containerText = `[Unit]
Description=toad: accepts, records and answers, in a container of its own
Requires=toad.socket
After=toad.socket
Wants=toad-look.socket
StartLimitIntervalSec=0

[Container]
ContainerName=toad
{container}
Volume=%t:%t
Environment=XDG_RUNTIME_DIR=%t DBUS_SESSION_BUS_ADDRESS=unix:path=%t/bus
Environment=TOAD_LOOK=%t/toad/look.sock TOAD_BOOT_ID=%b WATCHDOG_USEC=10000000
PodmanArgs=--env=JOURNAL_STREAM
UserNS=keep-id
Network=none
ReadOnly=true
ReadOnlyTmpfs=false
DropCapability=all
NoNewPrivileges=true
SecurityLabelDisable=true
LogDriver=passthrough
Notify=true

[Service]
Restart=on-failure
RestartSec=1s
WatchdogSec=10s
WatchdogSignal=KILL

[Quadlet]
DefaultDependencies=false
`

const lookSocketText = `[Unit]
Description=toad: where its container asks about the host

[Socket]
ListenStream=%t/toad/look.sock
SocketMode=0600
DirectoryMode=0700
TriggerLimitIntervalSec=0
PollLimitIntervalSec=2s
PollLimitBurst=4

[Install]
WantedBy=sockets.target
`

const lookText = `[Unit]
Description=toad: tells its container of the host
StartLimitIntervalSec=0

[Service]
Type=exec
{look-host}
` + confined + `TimeoutStopSec=5s
`

// Enrolled units are ordered after this one. Where the user manager was killed with all that ran, Podman takes its
// containers for running still, and no podman command works until each of them has been reset; it is done before they
// start. Podman 5.4 panics over every such container, once it has reset that one, so migrate is run until it does
// not. Where that takes too long, Podman is told what a boot tells it, by taking away the sign that it has run.
//
// It stays active when it is done, so that nothing pulls it in again under running services, and nobody starts it by hand.
const reconcileText = `[Unit]
Description=toad: settles what must run before any enrolled unit starts
DefaultDependencies=no
After=dbus.socket
Conflicts=shutdown.target
Before=shutdown.target
OnFailure=toad-held.service toad-tick.service
RefuseManualStart=yes

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStartPre=-:/bin/sh -c 'd="$XDG_RUNTIME_DIR/libpod/tmp"; \
  test ! -e "$d/alive" || grep -qsE "podman|catatonit" "/proc/$(cat "$d/pause.pid" 2>/dev/null)/comm" || \
  timeout 15 /bin/sh -c "until podman system migrate; do :; done" >/dev/null 2>&1 || rm -f "$d/alive"'
{reconcile}
TimeoutStartSec=30s
TimeoutStopSec=5s

[Install]
WantedBy=default.target
`

// It must work when toad does not, so it is plain shell. It names each unit whose pin asks for an admission that the
// user manager does not have; "<0>" makes the journal file that as an emergency.
const heldText = `[Unit]
Description=toad: names the units that are held down
DefaultDependencies=no
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=:/bin/sh -c ' \
  c="${XDG_CONFIG_HOME:-$HOME/.config}"; \
  for pin in "$c"/containers/systemd/*.d/zz-toad.conf "$c"/systemd/user/*.d/zz-toad.conf; do \
    v=$(grep -o "TOAD_ADMITTED_[A-Za-z0-9_]*" "$pin" 2>/dev/null | grep -v "_idle$" | head -n 1); \
    test -z "$v" || env | grep -q "^$v=" || \
      echo "<0>toad: $(basename "${pin%%/zz-toad.conf}" .d) is held down: toad-reconcile failed, so its candidate is not admitted; run: toad doctor"; \
  done; \
  echo "<3>toad: toad-reconcile failed; run: journalctl --user -u toad-reconcile"'
TimeoutStartSec=30s
`

// OnFailure= comes again with every automatic restart of the unit, more often than a start limit allows.
const alertText = `[Unit]
Description=toad: tells that %i failed
StartLimitIntervalSec=0

[Service]
Type=oneshot
{alert}
TimeoutStartSec=1min
`

// It fails while an alert is left, and systemd's own backoff brings it again, across restarts of the daemon. After a boot
// the tick starts it.
const deliverText = `[Unit]
Description=toad: delivers alerts
StartLimitIntervalSec=0

[Service]
Type=exec
{deliver}
Restart=on-failure
RestartSec=2s
RestartSteps=8
RestartMaxDelaySec=10min
RuntimeMaxSec=10min
`

const tickTimerText = `[Unit]
Description=toad: slow duties

[Timer]
OnCalendar=hourly
Persistent=true

[Install]
WantedBy=timers.target
`

const tickText = `[Unit]
Description=toad: slow duties

[Service]
Type=oneshot
{tick}
` + confined + `TimeoutStartSec=10min
`

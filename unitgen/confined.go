package unitgen

import sd "github.com/coreos/go-systemd/v22/dbus"

// What a user manager can keep its units from without a namespace of their own: gaining privileges (a deployment needs no
// setuid program), leaving secrets in a core dump, making code as they run, and kinds of sockets, namespaces, schedulers
// and system calls that toad never uses. A mount namespace would mean a user namespace too, from within which a check could
// not see the processes of containers.
const confined = `NoNewPrivileges=yes
LimitCORE=0
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
`

// confinement is confined for a transient unit.
var confinement = []sd.Property{
	property("NoNewPrivileges", true),
	property("LimitCORE", uint64(0)),
	property("LimitCORESoft", uint64(0)),
	property("LockPersonality", true),
	property("MemoryDenyWriteExecute", true),
	property("RestrictAddressFamilies", allowed{true, []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}}),
	property("RestrictNamespaces", uint64(0)), // the ones it may make
	property("RestrictRealtime", true),
	property("RestrictSUIDSGID", true),
	property("SystemCallArchitectures", []string{"native"}),
}

// allowed is a list of what alone is allowed, (bas).
type allowed struct {
	Only bool
	Of   []string
}

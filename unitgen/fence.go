package unitgen

import "strings"

// The units of the fence. Both name the folders of the pins, so they change with the enrollment.
const (
	FencePath  = "toad-fence.path"
	FenceAgain = "toad-fence-again.service"
)

// Looked is the file in toad's runtime folder that bears the time at which the last whole look began.
const Looked = "looked"

// watchedPaths are what others can change and toad relies on.
func watchedPaths(p Program, pins []string) []string {
	if p.Enrollment == "" {
		return pins
	}
	return append([]string{p.Enrollment}, pins...)
}

func watched(p Program, pins []string) string {
	var lines []string
	for _, of := range watchedPaths(p, pins) {
		lines = append(lines, "PathChanged="+path(of))
	}
	return strings.Join(lines, "\n")
}

// changed is the condition that something is newer than the last look.
func changed(p Program, pins []string) string {
	const script = `stamp=$1; shift; test ! -e "$stamp" || test -n "$(find "$@" -newer "$stamp" -print -quit 2>/dev/null)"`
	argv := append([]string{"/bin/sh", "-c", script, "sh", "STAMP"}, watchedPaths(p, pins)...)
	return "ExecCondition=" + strings.Replace(command(argv...), "STAMP", "%t/toad/"+Looked, 1)
}

const fencePathText = `[Unit]
Description=toad: watches the pins and the enrollment

[Path]
{watched}

[Install]
WantedBy=paths.target
`

// Nothing is ordered after it: each change of a pin would make that unit's restart wait. Without a limit, or a
// burst of changes would end the watch for good. The first change is often a temporary file, so it waits until the burst
// is over before it looks.
const fenceText = `[Unit]
Description=toad: looks at what changed in the pins and the enrollment
OnSuccess=` + FenceAgain + `
OnFailure=` + FenceAgain + `
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStartPre=/bin/sleep 1
{look}
` + confined + `TimeoutStartSec=1min
`

// A path unit does not watch while the unit that it has started runs, and so misses what changes between that one's last
// look and its end. This one begins when the path unit watches again.
const fenceAgainText = `[Unit]
Description=toad: looks at what changed while the fence was not watched
StartLimitIntervalSec=0

[Service]
Type=oneshot
{changed}
{look}
` + confined + `TimeoutStartSec=1min
`

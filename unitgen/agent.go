package unitgen

// AgentTimer starts a tick of the agent, on a box that belongs to an environment.
const AgentTimer = "toad-agent.timer"

// agentFiles are the units of a box that belongs to an environment.
func agentFiles() []File {
	return []File{{AgentTimer, agentTimerText}, {"toad-agent.service", agentText}}
}

// The delay is another one each time: boxes that booted together, or were installed together, do not come together.
const agentTimerText = `[Unit]
Description=toad: when the agent checks in

[Timer]
OnCalendar=*:0/2
RandomizedDelaySec=90s
AccuracySec=1s
Persistent=true

[Install]
WantedBy=timers.target
`

// 75 is "later": the timer is the retry. A tick waits for the probations of a whole bundle, and one that is killed is carried
// on by the next, so the limit is only against one that hangs.
const agentText = `[Unit]
Description=toad: converges to the bundle that is published
After=toad-reconcile.service podman.socket
StartLimitIntervalSec=0

[Service]
Type=oneshot
{agent}
SuccessExitStatus=75
TimeoutStartSec=2h
UMask=0077
`

// Package fault names the points at which a test may kill the process, cut the power, or fail a call. Without the build
// tag "faults" a point does nothing.
package fault

// Points are all points that a mutation of the host passes, before and after it, and what it is. A * stands for the part
// of a name that differs. The suite that injects faults holds this list against what it meets.
var Points = []struct{ Name, What string }{
	{"record.put.*", "a service's record is about to be saved; * is the operation's phase"},
	{"record.saved.*", "it is saved, and nothing that follows from it is done"},
	{"file.rename.zz-toad.conf", "a pin is about to take effect"},
	{"file.rename.zz-toad.previous", "the way back is about to be laid beside a pin, or to become the pin"},
	{"file.remove.zz-toad.conf", "a pin is about to be removed"},
	{"file.remove.zz-toad.previous", "the way back beside a pin is about to be removed"},
	{"bus.StartTransientUnit.before", "a timer, a check or an act is about to be made"},
	{"bus.StartTransientUnit.after", "it is made"},
	{"bus.SetEnvironment.before", "a candidate is about to be admitted"},
	{"bus.SetEnvironment.after", "it is admitted"},
	{"bus.UnsetEnvironment.before", "an admission is about to end"},
	{"bus.UnsetEnvironment.after", "it has ended"},
	{"bus.Reload.before", "the manager is about to read the pins"},
	{"bus.Reload.after", "it has read them"},
	{"bus.ResetFailedUnit.before", "a unit's start limit is about to be forgotten"},
	{"bus.ResetFailedUnit.after", "it is forgotten"},
	{"bus.RestartUnit.before", "a unit is about to be moved to another release"},
	{"bus.RestartUnit.after", "its restart job is queued"},
	{"bus.StartUnit.before", "a dependent, or the delivery of alerts, is about to be started"},
	{"bus.StartUnit.after", "its start job is queued"},
	{"bus.StopUnit.before", "a timer, a check or a unit is about to be stopped"},
	{"bus.StopUnit.after", "its stop job is queued"},
	{"podman.pull.before", "an image is about to be pulled"},
	{"podman.pull.after", "it is here"},
	{"podman.retain.before", "a release is about to be kept"},
	{"podman.retain.after", "it is kept"},
	{"podman.load.before", "a release is about to come back from its archive"},
	{"podman.load.after", "it is back"},
}

// Package fault names the points at which a test may kill the process, cut the power, or fail a call. Without the build
// tag "faults" a point does nothing.
package fault

import "path"

// Row is a point, or all points whose names match: a * stands for the part that differs.
type Row struct {
	Name, What string
	// By is empty for a point that the matrix tries; else it says what stands for it.
	By string
}

// byBinary is the suite that kills at the points of binary services.
const byBinary = "tests/binary: TestEveryPointOfABinaryServiceEndsOnOneOfTwoReleases"

// byAgent is the suite that kills a tick of the agent.
const byAgent = "tests/agent: TestATickThatIsKilledIsCarriedOn"

// byCopy: only where layers cannot be read, and what a killed caller leaves is replaced.
const byCopy = "podmanc: TestE2ECopyOut"

// steps says why the steps of a write are not tried one by one by the matrix.
const steps = "before the file changes: its rename; each step is killed in internal/atomicfile"

// Points are all points of the code, before and after each mutation of the host. The first row that matches a name counts.
// A test holds this table against the code, and the matrix of tests/recovery against what it meets.
var Points = []Row{
	{"record.put.*", "a service's record is about to be saved; * is the operation's phase", ""},
	{"record.saved.*", "it is saved, and nothing that follows from it is done", ""},
	{"file.rename.zz-toad.conf", "a pin is about to take effect", ""},
	{"file.renamed.zz-toad.conf", "it is in place, not loaded and not flushed", ""},
	{"file.rename.zz-toad.previous", "the way back is about to be laid beside a pin", ""},
	{"file.renamed.zz-toad.previous", "it is laid", ""},
	{"file.remove.zz-toad.previous", "the way back beside a pin is about to be removed", ""},
	{"file.removed.zz-toad.previous", "it is removed", ""},
	{"file.rename.*.watch.json", "what a check has seen is about to be saved", ""},
	{"file.renamed.*.watch.json", "it is saved", ""},
	{"file.rename.*-g*[0-9].json", "an operation's copy is about to be written", ""},
	{"file.renamed.*-g*[0-9].json", "it is written", ""},
	{"file.rename.*-g*.json", "an alert is about to be spooled, or marked as delivered", ""},
	{"file.renamed.*-g*.json", "it is", ""},
	{"file.rename.*.abort", "word that an operation is to be given up is about to be left", ""},
	{"file.renamed.*.abort", "it is left", ""},
	{"file.append.*.log", "a line is about to be added to an operation's log", ""},
	{"file.appended.*.log", "it is added", ""},
	{"file.rename.*.sock", "a door is about to turn to another side", ""},
	{"file.renamed.*.sock", "it has turned", ""},
	{"bus.StartTransientUnit.before", "a timer, a check or an act is about to be made", ""},
	{"bus.StartTransientUnit.after", "it is made", ""},
	{"bus.SetEnvironment.before", "a candidate is about to be admitted", ""},
	{"bus.SetEnvironment.after", "it is admitted", ""},
	{"bus.UnsetEnvironment.before", "an admission is about to end", ""},
	{"bus.UnsetEnvironment.after", "it has ended", ""},
	{"bus.Reload.before", "the manager is about to read the pins", ""},
	{"bus.Reload.after", "it has read them", ""},
	{"bus.ResetFailedUnit.before", "a unit's start limit is about to be forgotten", ""},
	{"bus.ResetFailedUnit.after", "it is forgotten", ""},
	{"bus.RestartUnit.before", "a unit is about to be moved to another release", ""},
	{"bus.RestartUnit.after", "its restart job is queued", ""},
	{"bus.StartUnit.before", "a dependent, or the delivery of alerts, is about to be started", ""},
	{"bus.StartUnit.after", "its start job is queued", ""},
	{"bus.StopUnit.before", "a timer, a check or a unit is about to be stopped", ""},
	{"bus.StopUnit.after", "its stop job is queued", ""},
	{"podman.pull.before", "an image is about to be pulled", ""},
	{"podman.pull.after", "it is here", ""},
	{"podman.retain.before", "a release is about to be kept", ""},
	{"podman.retain.after", "it is kept", ""},
	{"podman.copy.before", "a container that never runs is about to be made, to read an image's files", byCopy},
	{"podman.copy.after", "it is gone again", byCopy},
	{"podman.load.before", "a release is about to come back from its archive", ""},
	{"podman.load.after", "it is back", ""},
	{"podman.secret.before", "a secret is about to be put into Podman's store", byAgent},
	{"podman.secret.after", "it is there", byAgent},
	{"podman.drop.before", "a secret that no bundle needs any more, or a volume, is about to go", byAgent},
	{"podman.drop.after", "it is gone", byAgent},
	{"release.stage.before", "the file of a binary service is about to be taken in", byBinary},
	{"release.stage.after", "it is here, under its sha256", byBinary},
	{"release.lay.before", "a link of the way back is about to be laid beside the one in force", byBinary},
	{"release.lay.after", "it is laid", byBinary},
	{"release.turn.before", "the link that a plain unit runs is about to lead to another file", byBinary},
	{"release.turn.after", "it does", byBinary},
	{"release.unlay.before", "the link of the way back is about to be removed", byBinary},
	{"release.unlay.after", "it is removed", byBinary},
	{"release.keep.before", "the second copy of a file is about to be made", byBinary},
	{"release.keep.after", "it is kept", byBinary},
	{"release.manifest.before", "the manifest of an artifact is about to be noted", "release.stage.after: without it the artifact is pulled once more"},
	{"release.manifest.after", "it is noted", "release.stage.after"},
	{"release.drop.before", "a file that nothing names any more is about to go", "release.keep.after: nobody reads it"},
	{"release.drop.after", "it is gone", "release.keep.after"},

	{"serve.heartbeat", "the daemon is about to show that it is not hung", "tests/promote: TestAHangKillsTheDaemon"},
	{"file.*.serve.alive", "the file by which it shows it", "serve.heartbeat"},
	{"podman.attach.before", "a proof is about to be stored beside an image in its registry", "tests/rehearsal: no operation waits for it, and it is done again until it is kept here too"},
	{"podman.attach.after", "it is stored", "tests/rehearsal"},
	{"retain.blob", "a layer is written, not flushed", "podman.retain.before: an archive counts from its index on"},
	{"file.remove.*.sock", "a door that led nowhere before is about to lead nowhere again", "record.put.restoring: it was turned in promoting only"},
	{"file.removed.*.sock", "it leads nowhere", "record.put.restoring"},
	{"file.link.*", "a link is about to be made", steps},
	{"file.create.*", "a temporary file is about to be made", steps},
	{"file.write.*", "it is about to be filled", steps},
	{"file.sync.*", "it is about to be flushed", steps},
	{"file.rename.*", "a record, an archive's part or an installed file is about to take effect", "record.put.*, podman.retain.before"},
	{"file.renamed.*", "it is in place", "record.saved.*, podman.retain.after"},
	{"file.syncdir.*", "a folder is about to be flushed after a change", "file.renamed.*, file.removed.* and file.appended.*: the change is seen in all of them"},
	{"file.remove.*", "what is left of an operation beyond the last hundred, or a file that a sweep finds, is about to go", "file.rename.*-g*[0-9].json beside it: nobody reads it"},
	{"file.removed.*", "it is gone", "file.renamed.*-g*[0-9].json"},
	{"file.append.*", "a file is about to be made longer", "file.append.*.log: there is no other yet"},
	{"file.appended.*", "it is longer", "file.appended.*.log"},
	{"file.mkdir.*", "a folder is about to be made", "the first write into it"},
	{"file.chmod.*", "a folder is about to be closed to others", "the first write into it"},
	{"file.chmodded.*", "it is closed", "the first write into it"},
	{"file.made.*", "it is made", "the first write into it"},
}

// Find returns the row of a point.
func Find(name string) (Row, bool) {
	for _, r := range Points {
		if ok, _ := path.Match(r.Name, name); ok {
			return r, true
		}
	}
	return Row{}, false
}

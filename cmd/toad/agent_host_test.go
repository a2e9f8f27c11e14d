package main

import (
	"slices"
	"testing"

	"toad/probation/record"
	"toad/probation/rollout"
)

// Where the state lies on a disk of its own, as scripts/install has it, the room for images is looked for in the home.
func TestRoomForABundleIsLookedForWherePodmanKeepsImages(t *testing.T) {
	t.Setenv("HOME", "/home/apps")
	t.Setenv("XDG_DATA_HOME", "")
	records, err := record.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	places, err := agentGround{&host{records: records, rollout: &rollout.Rollout{}}}.places()
	if err != nil || !slices.Contains(places, "/home/apps/.local/share/containers") || !slices.Contains(places, records.Dir()) {
		t.Errorf("have %v, %v", places, err)
	}
}

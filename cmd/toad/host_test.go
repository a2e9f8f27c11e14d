package main

import "testing"

// A journal entry is Podman's only if Podman's process wrote it, and not for a container.
func TestWhoseWordsAnEntryHolds(t *testing.T) {
	for _, tt := range []struct {
		entry            entry
		podmans, telling bool
	}{
		{entry{Message: "Error: crun: permission denied", Command: "podman"}, true, true},
		{entry{Message: "Error: OCI permission denied", Command: "conmon", Container: "ab"}, false, true}, // the application's, by journald
		{entry{Message: "Error: OCI permission denied", Command: "app"}, false, true},                     // the application's, passed through
		{entry{Message: "container died", Command: "podman", Event: "died"}, false, false},
		{entry{Message: "Error: no space", Command: "conmon"}, false, true},
	} {
		text := tt.entry.text()
		if podmans, telling := tt.entry.ofPodman(text), tt.entry.worthTelling(text); podmans != tt.podmans || telling != tt.telling {
			t.Errorf("%+v: Podman's %v, worth telling %v", tt.entry, podmans, telling)
		}
	}
}

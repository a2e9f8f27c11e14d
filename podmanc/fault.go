package podmanc

import "toad/internal/fault"

// between puts a fault point before and after what changes something in Podman's store or in the archive.
func between(what string, do func() error) error {
	if err := fault.Point("podman." + what + ".before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return fault.Point("podman." + what + ".after")
}

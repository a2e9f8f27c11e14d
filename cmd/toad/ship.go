package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func shipCmd(g *globals) *ffcli.Command {
	d := &deployment{g: g}
	fs := d.flags("toad ship")
	return &ffcli.Command{
		Name: "ship", ShortUsage: "toad ship [flags] SERVICE FILE", FlagSet: fs,
		ShortHelp: "hand over the file of a binary service, and deploy it",
		LongHelp: "Hands a program over to toad and puts it into force if it holds through its\n" +
			"probation, as toad deploy does with an image. The release is named by the sha256 of\n" +
			"the file, and stays on the host as long as toad keeps it to go back to: then\n" +
			"toad deploy SERVICE sha256:… is enough. The service is enrolled with kind = \"binary\".\n\n" +
			"The flags, the output and the exit status are those of toad deploy.\n\n" +
			"Example: toad ship tool ./tool\n" +
			"Example: toad ship tool ./tool --retry",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return hint(usagef("ship takes a service and a file, have %d arguments", len(args)), "toad ship tool ./tool")
			}
			d.service = args[0]
			return d.ship(ctx, args[1])
		},
	}
}

func (d *deployment) ship(ctx context.Context, path string) error {
	if err := checkGeneration(d.generation); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return usagef("%w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(path + " is not a file")
	}
	if err != nil {
		return usagef("%w", err)
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	d.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	c, err := d.g.client()
	if err != nil {
		return err
	}
	svc, err := c.Service(ctx, d.service)
	if err != nil {
		return reached(c, err)
	}
	// What goes on already, or is in force, needs no file.
	if op := svc.Operation; !(op != nil && !op.Ended() && op.Digest == d.digest) && !(svc.Promoted != nil && svc.Promoted.Digest == d.digest) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := c.PutFile(ctx, d.service, d.digest, size, f); err != nil {
			return reached(c, err)
		}
		d.g.say("%s is %s, and is on the host", path, d.digest)
	}
	return d.deploy(ctx, c, svc)
}

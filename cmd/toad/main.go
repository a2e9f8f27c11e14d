// Command toad activates releases of containers that run as Podman Quadlets, and tells the truth about them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends a command that hangs
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

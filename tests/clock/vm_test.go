//go:build e2e

// Package clock runs toad in a virtual machine whose wall clock is really stepped, and which boots with a wrong one.
package clock

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toad/tests/host"
)

// patience is how long a boot or one command inside may take: every instruction of the machine is emulated.
const patience = 15 * time.Minute

// vm is a virtual machine with the disk of a test host.
type vm struct {
	dir    string // its disk, its console's log, the socket of its runner
	kernel string // with its initrd beside it
	qemu   *exec.Cmd
	port   net.Conn
	lines  *bufio.Reader
}

// runner runs inside what it is told: a command in base64 a line, whose exit status and output come back the same way.
const runner = `#!/bin/bash
port=$(grep -l '^toad$' /sys/class/virtio-ports/*/name) || exit 1
exec 3<>"/dev/$(basename "$(dirname "$port")")"
echo ready >&3
while IFS= read -r -u 3 line; do
	out=$(base64 -d <<<"$line" | bash 2>&1 3>&-)
	printf '%d %s\n' $? "$(base64 -w 0 <<<"$out")" >&3
done
`

const runnerUnit = `[Unit]
After=dbus.socket

[Service]
ExecStartPre=-/sbin/modprobe -a overlay tun fuse
ExecStart=/usr/local/bin/runner
Restart=always
`

// newVM makes the disk: what every test host has, a kernel, toad, and the runner.
func newVM(t *testing.T) *vm {
	t.Helper()
	v := &vm{dir: t.TempDir()}
	base := host.Base(t, "linux-image-cloud-amd64")
	kernels, err := filepath.Glob(filepath.Join(base, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		t.Fatalf("kernels in %s: %v %v", base, kernels, err)
	}
	v.kernel = kernels[0]
	command(t, "mke2fs", "-q", "-t", "ext4", "-d", base, v.file("disk"), "4G")
	root := v.file("root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-o", "loop", v.file("disk"), root)
	defer command(t, "umount", root)
	command(t, "cp", "-a", host.Tree(t)+"/.", root)
	command(t, "install", "-m", "755", os.Getenv("TOAD_BIN"), root+"/usr/local/bin/toad")
	for name, text := range map[string]string{"usr/local/bin/runner": runner, "etc/systemd/system/runner.service": runnerUnit} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"multi-user.target.wants/runner.service": "../runner.service",
		// It has no network, and would wait for one for ever.
		"systemd-networkd-wait-online.service": "/dev/null", "podman-auto-update.service": "/dev/null",
	} {
		if err := os.Symlink(to, filepath.Join(root, "etc/systemd/system", name)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v *vm) file(name string) string { return filepath.Join(v.dir, name) }

// boot starts the machine with its clock at a time, or at the real one, and waits until it takes commands.
func (v *vm) boot(t *testing.T, clock time.Time) {
	t.Helper()
	began := time.Now()
	rtc := "base=utc"
	if !clock.IsZero() {
		rtc = "base=" + clock.UTC().Format("2006-01-02T15:04:05")
	}
	v.qemu = exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "2", "-m", "1536",
		"-nodefaults", "-display", "none", "-net", "none", "-rtc", rtc,
		"-kernel", v.kernel, "-initrd", strings.Replace(v.kernel, "vmlinuz", "initrd.img", 1), "-append", "root=/dev/vda rw console=ttyS0",
		"-drive", "if=virtio,format=raw,file="+v.file("disk"), "-serial", "file:"+v.file("console"), "-device", "virtio-serial",
		"-chardev", "socket,id=port,server=on,wait=off,path="+v.file("port"), "-device", "virtserialport,chardev=port,name=toad")
	v.qemu.Stderr = os.Stderr
	v.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.qemu.Start(); err != nil {
		t.Fatalf("%v; scripts/test --all installs it", err)
	}
	t.Cleanup(func() { v.cut() })
	host.Eventually(t, "the machine to be there", time.Minute, func() (ok bool) {
		var err error
		v.port, err = net.Dial("unix", v.file("port"))
		return err == nil
	})
	v.lines = bufio.NewReader(v.port)
	if line := v.read(t); line != "ready" {
		t.Fatalf("the runner says %q", line)
	}
	v.root(t, "systemctl is-active --wait user@1000.service || systemctl start user@1000.service")
	t.Logf("up after %v", time.Since(began).Round(time.Second))
}

// cut is a power cut.
func (v *vm) cut() {
	if v.qemu != nil {
		_ = v.qemu.Process.Kill()
		_ = v.qemu.Wait()
		_ = v.port.Close()
		_ = os.Remove(v.file("port"))
		v.qemu = nil
	}
}

func (v *vm) read(t *testing.T) string {
	t.Helper()
	_ = v.port.SetReadDeadline(time.Now().Add(patience))
	line, err := v.lines.ReadString('\n')
	if err != nil {
		console, _ := os.ReadFile(v.file("console"))
		t.Fatalf("nothing from the machine: %v\n%s", err, console[max(0, len(console)-3000):])
	}
	return strings.TrimSpace(line)
}

// try runs a script as root inside.
func (v *vm) try(t *testing.T, script string) (out string, exit int) {
	t.Helper()
	if _, err := fmt.Fprintln(v.port, base64.StdEncoding.EncodeToString([]byte(script))); err != nil {
		t.Fatal(err)
	}
	status, text, _ := strings.Cut(v.read(t), " ")
	exit, err := strconv.Atoi(status)
	data, err2 := base64.StdEncoding.DecodeString(text)
	if err != nil || err2 != nil {
		t.Fatalf("%s: the runner says %q %q", script, status, text)
	}
	return strings.TrimSpace(string(data)), exit
}

// root is try for what has to succeed.
func (v *vm) root(t *testing.T, script string) string {
	t.Helper()
	out, exit := v.try(t, script)
	if exit != 0 {
		t.Fatalf("%s: exit %d\n%s", script, exit, out)
	}
	return out
}

const asUser = "cd /home/toad && exec setpriv --reuid 1000 --regid 1000 --init-groups env -i HOME=/home/toad USER=toad LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin " +
	"XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus bash -c \"$(base64 -d <<<"

// user is root for what runs as the user toad.
func (v *vm) user(t *testing.T, script string) string {
	t.Helper()
	return v.root(t, asUser+base64.StdEncoding.EncodeToString([]byte(script))+")\"")
}

// write writes a file of the user toad.
func (v *vm) write(t *testing.T, name, text string) {
	t.Helper()
	v.user(t, fmt.Sprintf("mkdir -p %s && base64 -d <<<%s >%s", filepath.Dir(name), base64.StdEncoding.EncodeToString([]byte(text)), name))
}

// until repeats what is asked inside until it says what is wanted.
func (v *vm) until(t *testing.T, what, script string, ok func(string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		out, _ := v.try(t, asUser+base64.StdEncoding.EncodeToString([]byte(script))+")\"")
		if ok(out) {
			return out
		}
		select {
		case <-ctx.Done():
			log, _ := v.try(t, "journalctl -b -n 120 -o short-monotonic --no-pager")
			t.Fatalf("not within %v: %s; it says %q\n%s", patience, what, out, log)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func command(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

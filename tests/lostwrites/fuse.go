package lostwrites

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel writes the disk through one file of a FUSE mount, whose root is that file. Only what a loop device asks of
// such a file is answered; the rest does not exist.
const (
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42

	headIn, headOut = 40, 16
	maxWrite        = 128 << 10
)

var le = binary.LittleEndian

// export mounts the disk as the file at path, and serves it until it is unmounted.
func (d *Disk) export(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", fd)
	if err := unix.Mount("lostwrites", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("mount %s: %w", path, err)
	}
	go d.serve(fd)
	return nil
}

// serve answers one request after another, so that the order of the log is the order of the disk.
func (d *Disk) serve(fd int) {
	defer unix.Close(fd)
	buf := make([]byte, maxWrite+4096)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT): // ENOENT: the request was taken back
			continue
		case err != nil || n < headIn: // ENODEV: unmounted
			return
		}
		op, unique, body := le.Uint32(buf[4:]), le.Uint64(buf[8:]), buf[headIn:n]
		if op == opForget || op == opBatchForget || op == opInterrupt {
			continue
		}
		answer, errno := d.answer(op, body)
		out := make([]byte, headOut, headOut+len(answer))
		le.PutUint32(out, uint32(headOut+len(answer)))
		le.PutUint32(out[4:], uint32(-int32(errno)))
		le.PutUint64(out[8:], unique)
		_, _ = unix.Write(fd, append(out, answer...)) // who asked may be gone
	}
}

func (d *Disk) answer(op uint32, in []byte) ([]byte, syscall.Errno) {
	switch op {
	case opInit:
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[8:], maxWrite)
		le.PutUint32(out[12:], 1<<5) // big writes
		le.PutUint16(out[16:], 16)
		le.PutUint16(out[18:], 12)
		le.PutUint32(out[20:], maxWrite)
		le.PutUint32(out[24:], 1)
		return out, 0
	case opGetattr, opSetattr:
		out := make([]byte, 16+88)
		le.PutUint64(out[16:], 1)
		le.PutUint64(out[24:], uint64(len(d.now)))
		le.PutUint64(out[32:], uint64(len(d.now)/512))
		le.PutUint32(out[76:], unix.S_IFREG|0o600)
		le.PutUint32(out[80:], 1)
		le.PutUint32(out[96:], block)
		return out, 0
	case opOpen:
		return make([]byte, 16), 0
	case opStatfs:
		out := make([]byte, 80)
		le.PutUint32(out[40:], block)
		return out, 0
	case opRead:
		from, size := le.Uint64(in[8:]), uint64(le.Uint32(in[16:]))
		end := min(from+size, uint64(len(d.now)))
		return d.now[min(from, end):end], 0
	case opWrite:
		at, data := int64(le.Uint64(in[8:])), in[40:]
		d.write(at, data)
		out := make([]byte, 8)
		le.PutUint32(out, uint32(len(data)))
		return out, 0
	case opFsync:
		d.flush()
		return nil, 0
	case opFlush, opRelease, opDestroy:
		return nil, 0
	}
	return nil, syscall.ENOSYS
}

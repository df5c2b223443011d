package shmlink

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first n bytes of the file of a cable.
func mapFile(f *os.File, n int) ([]byte, error) {
	if err := checkFile(f); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, os.NewSyscallError("mmap", err)
}

// unmap unmaps memory of mapFile.
func unmap(mem []byte) { _ = unix.Munmap(mem) }

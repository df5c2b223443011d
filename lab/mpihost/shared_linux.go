package mpihost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// The memory that the ranks of a host have in common, where they are processes, is one
// file without a name (memfd) that all of them inherit: it is gone with the last of
// them, however that ends. It begins with an index of the segments, of which it grows
// a new one behind the others:
//
//	bytes 0..7    segments there are
//	from 64 on    an entry each: 8 bytes of offset, 8 of size, 1 of the name's length, the name
//
// Who reads or changes the index holds a record lock on its first byte. These are a
// process's own, and end with it.
const (
	indexBytes  = 1 << 20
	indexHeader = 64
	entryBytes  = 128
	entryName   = 17 // where the name begins
	maxName     = entryBytes - entryName
	maxSegments = (indexBytes - indexHeader) / entryBytes
)

// NewShared makes the memory of a host; its ranks inherit the file.
func NewShared(host string) (*os.File, error) {
	fd, err := unix.MemfdCreate("fabrictest-"+host, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the ranks of %s: %w", host, os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), "memory of "+host)
	if err := f.Truncate(indexBytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sharedFile is the memory of this rank's host.
type sharedFile struct {
	fd    int
	page  int64
	index []byte

	mu     sync.Mutex
	mapped map[string][]byte
}

func openShared(fd int) (env.SharedMemory, error) {
	unix.CloseOnExec(fd)
	var st unix.Stat_t
	err := os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	if err == nil && st.Size < indexBytes {
		err = fmt.Errorf("it has %d bytes", st.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not the memory of this host (%w): a program between the launcher and this one closed it", fd, err)
	}
	index, err := unix.Mmap(fd, 0, indexBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the memory of this host: %w", os.NewSyscallError("mmap", err))
	}
	return &sharedFile{fd: fd, page: int64(os.Getpagesize()), index: index, mapped: make(map[string][]byte)}, nil
}

// Segment implements env.Shared.
func (s *sharedFile) Segment(name string, size int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < 1 || name == "" || len(name) > maxName {
		return nil, fmt.Errorf("segment %q: %w: %d bytes, and a name of %d (1 to %d)", name, verbs.ErrInvalid, size, len(name), maxName)
	}
	mem, known := s.mapped[name]
	if !known {
		offset, there, err := s.place(name, size)
		if err != nil {
			return nil, fmt.Errorf("segment %q: %w", name, err)
		}
		if mem, err = unix.Mmap(s.fd, offset, there, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("segment %q: %w", name, os.NewSyscallError("mmap", err))
		}
		s.mapped[name] = mem
	}
	if len(mem) != size {
		return nil, fmt.Errorf("segment %q: %w: %d bytes are asked for, and another rank has made it of %d", name, verbs.ErrInvalid, size, len(mem))
	}
	return mem, nil
}

// place finds a segment in the file, or makes it.
func (s *sharedFile) place(name string, size int) (offset int64, there int, err error) {
	if err := s.lock(unix.F_WRLCK); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.lock(unix.F_UNLCK)) }()
	n := int(binary.NativeEndian.Uint64(s.index))
	end := int64(indexBytes)
	for i := range n {
		e := s.entry(i)
		offset, there = int64(binary.NativeEndian.Uint64(e)), int(binary.NativeEndian.Uint64(e[8:]))
		if string(e[entryName:entryName+int(e[16])]) == name {
			return offset, there, nil
		}
		end = offset + s.pages(there)
	}
	if n == maxSegments {
		return 0, 0, fmt.Errorf("there are %d segments, which is as many as can be", n)
	}
	if err := unix.Ftruncate(s.fd, end+s.pages(size)); err != nil {
		return 0, 0, os.NewSyscallError("ftruncate", err)
	}
	e := s.entry(n)
	binary.NativeEndian.PutUint64(e, uint64(end))
	binary.NativeEndian.PutUint64(e[8:], uint64(size))
	e[16] = byte(len(name))
	copy(e[entryName:], name)
	binary.NativeEndian.PutUint64(s.index, uint64(n+1)) // a rank that dies before has made nothing
	return end, size, nil
}

func (s *sharedFile) entry(i int) []byte {
	at := indexHeader + i*entryBytes
	return s.index[at : at+entryBytes]
}

// pages is how much room a segment takes.
func (s *sharedFile) pages(size int) int64 { return (int64(size) + s.page - 1) / s.page * s.page }

func (s *sharedFile) lock(kind int16) error {
	for {
		err := unix.FcntlFlock(uintptr(s.fd), unix.F_SETLKW, &unix.Flock_t{Type: kind, Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fcntl", err)
		}
	}
}

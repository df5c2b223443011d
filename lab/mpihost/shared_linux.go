package mpihost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Ranks of a host in processes share memory through a memfd that all of them
// inherit. It starts with an index of the segments, which follow it:
//
//	bytes 0..7    number of segments
//	from 64 on    an entry each: 8 bytes offset, 8 bytes size, 1 byte name length, the name
//
// A record lock on the first byte protects the index. The kernel releases it at process exit.
const (
	indexBytes   = 1 << 20
	indexHeader  = 64
	entryBytes   = 128
	entrySize    = 8  // offset of the segment's size in an entry
	entryNameLen = 16 // offset of the length of the name
	entryName    = 17 // offset of the name
	maxName      = entryBytes - entryName
	maxSegments  = (indexBytes - indexHeader) / entryBytes
)

// NewSharedMemory creates the shared memory of a host, with no segments, for its ranks to inherit.
func NewSharedMemory(host string) (*os.File, error) {
	fd, err := unix.MemfdCreate("fabrictest-"+host, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shared memory of %s: %w", host, os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), "memory of "+host)
	if err := f.Truncate(indexBytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sharedFile is the shared memory of this rank's host.
type sharedFile struct {
	fd    int
	page  int64
	index []byte

	mu     sync.Mutex
	mapped map[string][]byte
}

// openSharedMemory opens the shared memory of this rank's host, a file that the rank has inherited
// as descriptor fd. It maps only the index, which lists the segments.
func openSharedMemory(fd int) (transport.SharedMemory, error) {
	unix.CloseOnExec(fd)
	var st unix.Stat_t
	err := os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	if err == nil && st.Size < indexBytes {
		err = fmt.Errorf("its file has only %d bytes", st.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not the shared memory of this host (%w): a program between the launcher and this one closed it", fd, err)
	}
	index, err := unix.Mmap(fd, 0, indexBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shared memory of this host: %w", os.NewSyscallError("mmap", err))
	}
	return &sharedFile{fd: fd, page: int64(os.Getpagesize()), index: index, mapped: make(map[string][]byte)}, nil
}

// Segment implements transport.SharedMemory: it returns the memory with a name, which the first
// call of any rank of the host creates. All calls must give the same size.
func (s *sharedFile) Segment(name string, size int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < 1 || name == "" || len(name) > maxName {
		return nil, fmt.Errorf("segment %q: %w: %d bytes (at least 1), and a name of %d bytes (1 to %d)", name, verbs.ErrInvalid, size, len(name), maxName)
	}
	mem, known := s.mapped[name]
	if !known {
		offset, actualSize, err := s.findOrAdd(name, size)
		if err != nil {
			return nil, fmt.Errorf("segment %q: %w", name, err)
		}
		if mem, err = unix.Mmap(s.fd, offset, actualSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("segment %q: %w", name, os.NewSyscallError("mmap", err))
		}
		s.mapped[name] = mem
	}
	if len(mem) != size {
		return nil, fmt.Errorf("segment %q: %w: %d bytes requested, and another rank created it with %d", name, verbs.ErrInvalid, size, len(mem))
	}
	return mem, nil
}

// findOrAdd returns the offset and the actual size of a segment. If there is none of that
// name, it appends one of the given size to the file and the index.
func (s *sharedFile) findOrAdd(name string, size int) (offset int64, actualSize int, err error) {
	if err := s.lock(unix.F_WRLCK); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.lock(unix.F_UNLCK)) }()
	n := int(binary.NativeEndian.Uint64(s.index))
	end := int64(indexBytes)
	for i := range n {
		e := s.entry(i)
		offset, actualSize = int64(binary.NativeEndian.Uint64(e)), int(binary.NativeEndian.Uint64(e[entrySize:]))
		if string(e[entryName:entryName+int(e[entryNameLen])]) == name {
			return offset, actualSize, nil
		}
		end = offset + s.pageAligned(actualSize)
	}
	if n == maxSegments {
		return 0, 0, fmt.Errorf("the maximum of %d segments is reached", n)
	}
	if err := unix.Ftruncate(s.fd, end+s.pageAligned(size)); err != nil {
		return 0, 0, os.NewSyscallError("ftruncate", err)
	}
	e := s.entry(n)
	binary.NativeEndian.PutUint64(e, uint64(end))
	binary.NativeEndian.PutUint64(e[entrySize:], uint64(size))
	e[entryNameLen] = byte(len(name))
	copy(e[entryName:], name)
	binary.NativeEndian.PutUint64(s.index, uint64(n+1)) // last: a rank that dies before leaves no partial entry
	return end, size, nil
}

// entry returns entry i of the index: offset and size of a segment (8 bytes each), the length of
// its name (1 byte), and the name.
func (s *sharedFile) entry(i int) []byte {
	at := indexHeader + i*entryBytes
	return s.index[at : at+entryBytes]
}

// pageAligned rounds a size up to whole pages.
func (s *sharedFile) pageAligned(size int) int64 { return (int64(size) + s.page - 1) / s.page * s.page }

// lock locks the index (F_WRLCK) or unlocks it (F_UNLCK), by the first byte of the file. It waits
// for other processes.
func (s *sharedFile) lock(kind int16) error {
	for {
		err := unix.FcntlFlock(uintptr(s.fd), unix.F_SETLKW, &unix.Flock_t{Type: kind, Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fcntl", err)
		}
	}
}

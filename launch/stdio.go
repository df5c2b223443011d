package launch

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
)

// stdio is the standard input and output of a proxy, as a stream.
type stdio struct{ in, out *os.File }

var _ control.Stream = (*stdio)(nil)

// takeStdio returns the standard input and output of this process as a stream, and replaces them by
// /dev/null and standard error: nothing else may read from the stream or write to it.
func takeStdio() (s *stdio, err error) {
	s = &stdio{}
	if s.in, err = duplicate(0); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if s.out, err = duplicate(1); err != nil {
		return nil, errors.Join(fmt.Errorf("standard output: %w", err), s.in.Close())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	defer null.Close()
	if err := errors.Join(replaceFD(int(null.Fd()), 0), replaceFD(2, 1)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// duplicate returns a duplicate of a descriptor, which must be a pipe or a socket: other files have no
// deadlines, or are shared with other programs.
func duplicate(fd int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return nil, fmt.Errorf("%w: neither a pipe nor a socket", ErrNotLaunched)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		return nil, errors.Join(err, unix.Close(own))
	}
	return os.NewFile(uintptr(own), "control"), nil
}

// Read implements control.Stream.
func (s *stdio) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write implements control.Stream.
func (s *stdio) Write(b []byte) (int, error) { return s.out.Write(b) }

// SetReadDeadline implements control.Stream.
func (s *stdio) SetReadDeadline(t time.Time) error { return s.in.SetReadDeadline(t) }

// SetWriteDeadline implements control.Stream.
func (s *stdio) SetWriteDeadline(t time.Time) error { return s.out.SetWriteDeadline(t) }

// Close implements control.Stream.
func (s *stdio) Close() error { return errors.Join(s.in.Close(), s.out.Close()) }

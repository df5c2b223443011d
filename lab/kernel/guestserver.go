package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// GuestServer runs programs and stores files for clients, one request a connection. It serves one lab
// without authentication: in a guest it listens on the control link only, which ends in the lab's
// namespace. It works outside of a guest too.
type GuestServer struct {
	// Start starts a program, and returns a channel that receives its wait status when it has
	// ended. nil uses exec.
	Start func(*exec.Cmd) (ended <-chan syscall.WaitStatus, err error)
	// Devices replaces the RDMA devices; if it is nil, requests for that fail.
	Devices func([]Device) error

	devicesMu sync.Mutex
}

// Serve serves each connection in a goroutine, until the listener is closed.
func (s *GuestServer) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // for example out of descriptors: retry
			continue
		}
		go func() {
			defer conn.Close()
			c := control.New(conn, control.Config{Limits: control.ProgramLimits})
			if err := s.serve(c); err != nil {
				c.Close(err)
			}
		}()
	}
}

// serve handles the request of a connection, and sends an Exit frame if it succeeds.
func (s *GuestServer) serve(c *control.Conn) error {
	var r guestRequest
	err := c.ReadHello(guestProtocol, &r)
	if err != nil {
		return err
	}
	code := 0
	switch r.Op {
	case opExec:
		code, err = s.exec(c, r)
	case opPut:
		err = putFile(c, r)
	case opDevices:
		err = s.setDevices(r.Devices)
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		return err
	}
	return c.Write(control.Frame{Kind: control.Exit, Num: uint64(code)})
}

// setDevices checks the list of devices, and calls s.Devices, one call at a time, to replace the
// guest's RDMA devices.
func (s *GuestServer) setDevices(all []Device) error {
	if s.Devices == nil {
		return errors.New("devices are not supported here")
	}
	if err := CheckDevices(all); err != nil {
		return err
	}
	s.devicesMu.Lock()
	defer s.devicesMu.Unlock()
	return s.Devices(all)
}

// putFile receives the content of the file r.Path in Stdin frames. It writes a temporary file and
// renames it when complete, because a running program's file cannot be written to.
func putFile(c *control.Conn, r guestRequest) (err error) {
	if !filepath.IsAbs(r.Path) {
		return fmt.Errorf("put %s: want an absolute path in the guest", r.Path)
	}
	if err := os.MkdirAll(filepath.Dir(r.Path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(r.Path), ".put-*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	for written := int64(0); written < r.Size; {
		part, err := c.Read()
		if err != nil {
			return fmt.Errorf("put %s: after %d of %d bytes: %w", r.Path, written, r.Size, err)
		}
		if part.Kind != control.Stdin || written+int64(len(part.Body)) > r.Size {
			return fmt.Errorf("put %s: unexpected %v frame of %d bytes after %d of %d bytes", r.Path, part.Kind, len(part.Body), written, r.Size)
		}
		if _, err := f.Write(part.Body); err != nil {
			return err
		}
		written += int64(len(part.Body))
	}
	if err := f.Chmod(fs.FileMode(r.Mode).Perm()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), r.Path)
}

// exec runs the program of a request and returns its exit code. c carries the program's standard
// streams. exec returns an error only if the program does not start. Background processes of the
// program continue after its end.
func (s *GuestServer) exec(c *control.Conn, r guestRequest) (code int, err error) {
	if len(r.Args) == 0 {
		return 0, errors.New("no program to run")
	}
	p, err := newProgram(r)
	if err != nil {
		return 0, err
	}
	defer p.close()
	var ended <-chan syscall.WaitStatus
	if s.Start != nil {
		ended, err = s.Start(p.cmd)
	} else if err = p.cmd.Start(); err == nil {
		ended = control.Wait(p.cmd)
	}
	p.closeChildEnds()
	if err != nil {
		return 0, err
	}
	code, _ = c.ServeProgram(&control.Program{
		PID: p.cmd.Process.Pid, Ended: ended, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr,
	})
	return code, nil
}

// program is a command with pipes.
type program struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // server ends
	childEnds             []*os.File
}

// newProgram returns the program of a request, not started, with pipes for its standard streams and
// in a session of its own.
func newProgram(r guestRequest) (*program, error) {
	path, err := exec.LookPath(r.Args[0])
	if err != nil {
		return nil, fmt.Errorf("the guest has no program %s: put it there first", r.Args[0])
	}
	p := &program{cmd: &exec.Cmd{Path: path, Args: r.Args, Env: os.Environ()}}
	// A new session: signals to its group reach its children, and not the server.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe := func() (reader, writer *os.File) { // keeps the first error in err
		var pipeErr error
		if reader, writer, pipeErr = os.Pipe(); pipeErr != nil && err == nil {
			err = pipeErr
		}
		return reader, writer
	}
	childIn, stdin := pipe()
	stdout, childOut := pipe()
	stderr, childErr := pipe()
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.childEnds = []*os.File{childIn, childOut, childErr}
	if err != nil {
		p.closeChildEnds()
		p.close()
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = childIn, childOut, childErr
	return p, nil
}

// closeChildEnds closes the program's ends of the pipes in this process.
func (p *program) closeChildEnds() {
	for _, f := range p.childEnds {
		f.Close()
	}
}

// close closes the server's ends of the pipes.
func (p *program) close() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

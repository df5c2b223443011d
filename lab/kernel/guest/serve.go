package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Server runs programs and stores files.
type Server struct {
	// Start starts a program, and sends its wait status once, after it has
	// returned. nil uses exec.
	Start func(*exec.Cmd) (ended <-chan syscall.WaitStatus, err error)
	// Devices sets the RDMA devices; nil is not supported.
	Devices func([]Device) error

	devicesMu sync.Mutex
}

// Serve serves connections until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: retry
			continue
		}
		go func() {
			defer conn.Close()
			if err := s.serve(conn); err != nil {
				_ = writeFrame(conn, kindError, []byte(err.Error())) // the client may have disconnected
			}
		}()
	}
}

func (s *Server) serve(conn net.Conn) error {
	r, err := readRequest(conn)
	if err != nil {
		return err
	}
	switch r.Op {
	case opExec:
		return s.exec(conn, r)
	case opPut:
		err = putFile(conn, r)
	case opDevices:
		err = s.setDevices(r.Devices)
	default:
		err = fmt.Errorf("unknown operation %q: is the client of another version?", r.Op)
	}
	if err != nil {
		return err
	}
	return writeFrame(conn, kindExit, exitPayload(0))
}

func (s *Server) setDevices(all []Device) error {
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

// putFile writes a temporary file and renames it when it is complete, because a
// program that is replaced may be running.
func putFile(conn net.Conn, r request) (err error) {
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
	for have := int64(0); have < r.Size; {
		k, part, err := readFrame(conn)
		if err != nil {
			return fmt.Errorf("put %s: after %d of %d bytes: %w", r.Path, have, r.Size, err)
		}
		if k != kindData || have+int64(len(part)) > r.Size {
			return fmt.Errorf("put %s: frame %d of %d bytes after %d of %d", r.Path, k, len(part), have, r.Size)
		}
		if _, err := f.Write(part); err != nil {
			return err
		}
		have += int64(len(part))
	}
	if err := f.Chmod(fs.FileMode(r.Mode).Perm()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), r.Path)
}

// startChild starts a program in a process that is not init.
func startChild(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		ended <- cmd.ProcessState.Sys().(syscall.WaitStatus)
	}()
	return ended, nil
}

// outputTimeout is how long output is read after the program's end: its background
// processes may keep it open.
const outputTimeout = 2 * time.Second

// exec runs a program. It returns an error only if the program does not start.
func (s *Server) exec(conn net.Conn, r request) error {
	if len(r.Args) == 0 {
		return errors.New("no program to run")
	}
	p, err := newProgram(r)
	if err != nil {
		return err
	}
	defer p.close()
	start := s.Start
	if start == nil {
		start = startChild
	}
	ended, err := start(p.cmd)
	p.closeChildEnds()
	if err != nil {
		return err
	}
	group := -p.cmd.Process.Pid
	out := &frameWriter{w: conn}
	var outputs sync.WaitGroup
	outputs.Go(func() { _, _ = copyFrames(out, kindStdout, p.stdout) })
	outputs.Go(func() { _, _ = copyFrames(out, kindStderr, p.stderr) })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.readInput(conn, group)
	}()
	var status syscall.WaitStatus
	select {
	case status = <-ended:
	case <-gone: // the client has disconnected
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-ended
		return nil
	}
	read := make(chan struct{})
	go func() { outputs.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(outputTimeout):
		p.stdout.Close()
		p.stderr.Close()
		<-read
	}
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	_ = writeFrame(out, kindExit, exitPayload(code))
	return nil
}

// program is a command with pipes.
type program struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // server ends
	childEnds             []*os.File
}

func newProgram(r request) (*program, error) {
	path, err := exec.LookPath(r.Args[0])
	if err != nil {
		return nil, fmt.Errorf("the guest has no program %s: put it there first", r.Args[0])
	}
	if info, err := os.Stat(r.Dir); r.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("the guest has no folder %s", r.Dir)
	}
	p := &program{cmd: &exec.Cmd{Path: path, Args: r.Args, Dir: r.Dir, Env: append(os.Environ(), r.Env...)}}
	// A new session: signals to its group reach its children, and not the server.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe := func() (reader, writer *os.File) {
		var perr error
		if reader, writer, perr = os.Pipe(); perr != nil && err == nil {
			err = perr
		}
		return reader, writer
	}
	in, stdin := pipe()
	stdout, out := pipe()
	stderr, errs := pipe()
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.childEnds = []*os.File{in, out, errs}
	if err != nil {
		p.closeChildEnds()
		p.close()
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	return p, nil
}

func (p *program) closeChildEnds() {
	for _, f := range p.childEnds {
		f.Close()
	}
}

func (p *program) close() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

// readInput handles frames of the client until it disconnects.
func (p *program) readInput(conn io.Reader, group int) {
	for {
		k, payload, err := readFrame(conn)
		switch {
		case err != nil:
			return
		case k == kindStdin && len(payload) == 0:
			p.stdin.Close()
		case k == kindStdin:
			if _, err := p.stdin.Write(payload); err != nil {
				p.stdin.Close() // the program does not read
			}
		case k == kindSignal && len(payload) == 1:
			_ = syscall.Kill(group, syscall.Signal(payload[0])) // it may have ended
		}
	}
}

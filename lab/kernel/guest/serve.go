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

// Server runs programs and takes files.
type Server struct {
	// Start starts a program, whose end it sends once, and never before it has
	// returned. nil starts it as any program does.
	Start func(*exec.Cmd) (ended <-chan syscall.WaitStatus, err error)
	// Devices changes the RDMA devices; nil has none.
	Devices func([]Device) error

	devicesMu sync.Mutex
}

// Serve serves every connection, until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many descriptors: some will be closed
			continue
		}
		go func() {
			defer conn.Close()
			if err := s.serve(conn); err != nil {
				_ = writeFrame(conn, kindError, []byte(err.Error())) // it may have gone
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
		err = take(conn, r)
	case opDevices:
		err = s.setDevices(r.Devices)
	default:
		err = fmt.Errorf("%q is nothing that a guest does: is it of another version?", r.Op)
	}
	if err != nil {
		return err
	}
	return writeFrame(conn, kindExit, exitPayload(0))
}

func (s *Server) setDevices(all []Device) error {
	if s.Devices == nil {
		return errors.New("there are no devices to change here")
	}
	if err := CheckDevices(all); err != nil {
		return err
	}
	s.devicesMu.Lock()
	defer s.devicesMu.Unlock()
	return s.Devices(all)
}

// take writes a file beside its place and moves it there when it is whole: a program
// that is being replaced may run, and half of one must not.
func take(conn net.Conn, r request) (err error) {
	if !filepath.IsAbs(r.Path) {
		return fmt.Errorf("put %s: name the file by its whole path in the guest", r.Path)
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
			return fmt.Errorf("put %s: after %d of %d octets: %w", r.Path, have, r.Size, err)
		}
		if k != kindData || have+int64(len(part)) > r.Size {
			return fmt.Errorf("put %s: frame %d of %d octets after %d of %d", r.Path, k, len(part), have, r.Size)
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

// startPlainly starts a program where nobody else waits for children.
func startPlainly(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = cmd.Wait() // the state says how it ended
		ended <- cmd.ProcessState.Sys().(syscall.WaitStatus)
	}()
	return ended, nil
}

// linger is how long after a program's end its outputs are read: what it left
// running may hold them for ever.
const linger = 2 * time.Second

// exec runs a program. Its error is one of starting it.
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
		start = startPlainly
	}
	ended, err := start(p.cmd)
	p.closeTheirs()
	if err != nil {
		return err
	}
	group := -p.cmd.Process.Pid
	out := &frames{w: conn}
	var outputs sync.WaitGroup
	outputs.Go(func() { _, _ = copyFrames(out, kindStdout, p.stdout) })
	outputs.Go(func() { _, _ = copyFrames(out, kindStderr, p.stderr) })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.listen(conn, group)
	}()
	var status syscall.WaitStatus
	select {
	case status = <-ended:
	case <-gone: // nobody wants to know any more
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-ended
		return nil
	}
	read := make(chan struct{})
	go func() { outputs.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(linger):
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

// program is one with pipes.
type program struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // our ends
	theirs                []*os.File
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
	// A session of its own, as from a terminal: a signal to its group reaches what it
	// has started, and not us.
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
	p.theirs = []*os.File{in, out, errs}
	if err != nil {
		p.closeTheirs()
		p.close()
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	return p, nil
}

func (p *program) closeTheirs() {
	for _, f := range p.theirs {
		f.Close()
	}
}

func (p *program) close() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

// listen hands on what the client sends, until it is gone.
func (p *program) listen(conn io.Reader, group int) {
	for {
		k, payload, err := readFrame(conn)
		switch {
		case err != nil:
			return
		case k == kindStdin && len(payload) == 0:
			p.stdin.Close()
		case k == kindStdin:
			if _, err := p.stdin.Write(payload); err != nil {
				p.stdin.Close() // the program reads no more
			}
		case k == kindSignal && len(payload) == 1:
			_ = syscall.Kill(group, syscall.Signal(payload[0])) // it may have ended
		}
	}
}

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// The descriptors that Up hands to a lab.
const (
	listenerFD = 3
	readyFD    = 4
)

// job is what a lab reads from its standard input.
type job struct {
	Config
	Text string `json:"text"` // of the scenario
}

// ServeMain is what a lab's process does, until it is told to go.
func ServeMain() error {
	ready := os.NewFile(readyFD, "ready")
	s, err := newServer()
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, "up")
	ready.Close()
	return s.serve()
}

// server is a lab.
type server struct {
	name     string
	stage    *nslab.Stage
	listener *net.UnixListener
	programs atomic.Int64
	pid      atomic.Int64
	down     sync.Once
}

func newServer() (*server, error) {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return nil, fmt.Errorf("read what to build: %w", err)
	}
	sc, err := scenarios.Parse(j.Name+".yaml", []byte(j.Text))
	if err != nil {
		return nil, err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return nil, err
	}
	s := &server{name: j.Name, listener: l.(*net.UnixListener)}
	open := nslab.OpenStage
	if !j.Direct {
		open = nslab.OpenSpliced
	}
	if s.stage, err = open(plan); err != nil {
		return nil, err
	}
	return s, s.stage.Begin(time.Now())
}

// serve obeys until the listener is closed.
func (s *server) serve() error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	// Taken, not ignored: programs would inherit that, and no Ctrl-C would reach them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-term
		s.stop()
	}()
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return s.stage.Close()
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many descriptors: some will be closed
			continue
		}
		go s.attend(conn)
	}
}

func (s *server) stop() { s.down.Do(func() { s.listener.Close() }) }

// hurry is how long a client may take to say what it wants.
const hurry = 5 * time.Second

// maxRequest is how long that may be: a program's environment is most of it.
const maxRequest = 4 << 20

// attend serves one client.
func (s *server) attend(conn *net.UnixConn) {
	defer conn.Close()
	if !ours(conn) {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(hurry))
	files, err := receiveFiles(conn)
	defer closeAll(files)
	var r request
	in := json.NewDecoder(&limited{conn, maxRequest})
	if err == nil {
		err = in.Decode(&r)
	}
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	out := json.NewEncoder(conn)
	switch r.Verb {
	case askInfo:
		err = out.Encode(answer{Info: &Info{Name: s.name, PID: int(s.pid.Load()), Topology: s.stage.Plan.Topology, Fabric: s.stage.Plan.Scenario.Fabric, Programs: int(s.programs.Load())}})
	case askSet:
		err = out.Encode(failed(s.set(&r)))
	case askExec:
		err = s.exec(conn, in, out, &r, files)
	case tellPID:
		s.pid.Store(int64(r.PID))
		err = out.Encode(answer{})
	case askDown:
		err = out.Encode(answer{})
		s.stop()
	default:
		err = fmt.Errorf("%q is nothing that a lab does", r.Verb)
	}
	if err != nil {
		_ = out.Encode(failed(err)) // the client may be gone
	}
}

func failed(err error) (a answer) {
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// ours reports whether a client is the user who started the lab: outside of the
// lab's user namespace everybody else is nobody.
func ours(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cerr == nil && err == nil && int(cred.Uid) == os.Getuid()
}

// set changes links.
func (s *server) set(r *request) error {
	if r.Link != "" {
		return s.stage.SetLink(r.Host, r.Link == "up")
	}
	sc, err := scenarios.Parse("set.yaml", []byte(r.Impair))
	if err != nil {
		return err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return err
	}
	return s.stage.Impair(plan, r.Host)
}

// limited reads no more than so many bytes.
type limited struct {
	*net.UnixConn
	left int
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errors.New("the request is too long")
	}
	n, err := l.UnixConn.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

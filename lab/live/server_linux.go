package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Text  string `json:"text"`            // of the scenario
	Trace string `json:"trace,omitempty"` // where standard error goes
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
	defer closeTrace(s.trace)
	return s.serve()
}

// backlog is how many clients may wait to be attended to; the kernel may allow
// fewer.
const backlog = 4096

// server is a lab.
type server struct {
	name     string
	rdma     string // the kind of the kernel's own devices, if any
	stage    *nslab.Stage
	listener *net.UnixListener
	trace    string // where standard error goes; empty for nowhere
	log      io.Writer
	programs atomic.Int64
	traces   atomic.Int64
	down     sync.Once
}

func newServer() (*server, error) {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return nil, fmt.Errorf("read what to build: %w", err)
	}
	// Nothing of where we were started may be kept from being removed or unmounted.
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	sc, err := scenarios.Parse("lab.yaml", []byte(j.Text))
	if err != nil {
		return nil, err
	}
	plan, err := lab.NewPlan(sc, lab.Options{})
	if err != nil {
		return nil, err
	}
	// Clients see the process that listened last: now it is this one, by its number
	// outside, which it does not know itself.
	if err := unix.Listen(listenerFD, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return nil, err
	}
	s := &server{name: j.Name, rdma: j.RDMA, listener: l.(*net.UnixListener), trace: j.Trace, log: os.Stderr}
	opts := nslab.StageOptions{Spliced: !j.Direct, Capture: nslab.CaptureOptions{File: j.Capture, Comment: "lab " + j.Name}}
	if s.stage, err = nslab.Open(plan, opts); err != nil {
		return nil, err
	}
	if j.RDMA != "" {
		if err := s.stage.AddRDMA(j.RDMA, j.Name); err != nil {
			return nil, errors.Join(err, s.stage.Close())
		}
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

// hurry is how long a client may take to say what it wants. (A test is less
// patient.)
var hurry = 10 * time.Second

// maxRequest is how long that may be: a program's environment is most of it.
const maxRequest = 4 << 20

// attend serves one client.
func (s *server) attend(conn *net.UnixConn) {
	defer conn.Close()
	if who, err := peer(conn); err != nil || int(who.Uid) != os.Getuid() {
		return // not the user who started the lab
	}
	_ = conn.SetDeadline(time.Now().Add(hurry))
	files, err := receiveFiles(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	out := &answers{to: json.NewEncoder(conn)}
	defer s.survive(func(err error) { _ = out.Encode(failed(err)) })
	var r request
	in := json.NewDecoder(&limited{conn, maxRequest})
	if err := in.Decode(&r); err != nil {
		_ = out.Encode(failed(fmt.Errorf("the request cannot be understood: %w", err)))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.obey(conn, in, out, &r, files); err != nil {
		_ = out.Encode(failed(err)) // the client may be gone
	}
}

func (s *server) obey(conn *net.UnixConn, in *json.Decoder, out *answers, r *request, files []*os.File) error {
	switch r.Verb {
	case askInfo:
		return out.Encode(answer{Info: &Info{
			Name: s.name, Topology: s.stage.Plan.Topology, Fabric: s.stage.Plan.Scenario.Fabric, Programs: int(s.programs.Load()), RDMA: s.rdma,
		}})
	case askSet:
		return out.Encode(failed(s.set(r)))
	case askExec:
		return s.exec(conn, in, out, r, files)
	case askDown:
		_ = out.Encode(answer{}) // it may not want to wait
		s.stop()
		select {} // the kernel closes the connection when everything has ended
	}
	return fmt.Errorf("%q is nothing that a lab does", r.Verb)
}

// answers is what a client is told, by several goroutines.
type answers struct {
	mu sync.Mutex
	to *json.Encoder
}

// Encode sends one.
func (a *answers) Encode(what answer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Encode(what)
}

func failed(err error) (a answer) {
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// set changes links.
func (s *server) set(r *request) error {
	switch r.Link {
	case "":
	case "up", "down":
		return s.stage.SetLink(r.Host, r.Link == "up")
	default:
		return fmt.Errorf("a link is up or down, not %q", r.Link)
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

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

// The descriptors that Up passes to a lab.
const (
	listenerFD = 3
	readyFD    = 4
)

// serverJob is the input of a lab, on its standard input.
type serverJob struct {
	Config
	Text     string `json:"text"`            // of the scenario
	CrashLog string `json:"trace,omitempty"` // where standard error goes
}

// ServeMain is the main function of a lab's process.
func ServeMain() error {
	ready := os.NewFile(readyFD, "ready")
	s, err := newServer()
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, "up")
	ready.Close()
	defer removeEmptyCrashLog(s.crashLog)
	return s.serve()
}

// backlog is the accept queue of the socket; the kernel may allow less.
const backlog = 4096

type server struct {
	name     string
	rdma     string // kind of the kernel RDMA devices; empty for none
	testbed  *nslab.Testbed
	listener *net.UnixListener
	crashLog string // file of standard error; empty for none
	log      io.Writer
	programs atomic.Int64
	panics   atomic.Int64
	down     sync.Once
}

func newServer() (*server, error) {
	var j serverJob
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return nil, fmt.Errorf("read what to build: %w", err)
	}
	// Do not keep the working directory from being removed or unmounted.
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
	// SO_PEERCRED of clients has the PID of the process that called listen last.
	if err := unix.Listen(listenerFD, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return nil, err
	}
	s := &server{name: j.Name, rdma: j.RDMA, listener: l.(*net.UnixListener), crashLog: j.CrashLog, log: os.Stderr}
	opts := nslab.TestbedOptions{UserSpace: !j.Direct, Capture: nslab.CaptureOptions{File: j.Capture, Comment: "lab " + j.Name}}
	if s.testbed, err = nslab.Open(plan, opts); err != nil {
		return nil, err
	}
	if j.RDMA != "" {
		if err := s.testbed.AddRDMA(j.RDMA, j.Name); err != nil {
			return nil, errors.Join(err, s.testbed.Close())
		}
	}
	return s, s.testbed.Begin(time.Now())
}

// serve accepts clients until the listener is closed.
func (s *server) serve() error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	// Caught, not ignored: programs would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-term
		s.stop()
	}()
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return s.testbed.Close()
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: retry
			continue
		}
		go s.handleConn(conn)
	}
}

func (s *server) stop() { s.down.Do(func() { s.listener.Close() }) }

// requestTimeout is how long a client may take to send its request. A test shortens
// it.
var requestTimeout = 10 * time.Second

// maxRequest bounds a request; most of it is the environment.
const maxRequest = 4 << 20

// handleConn handles the request of one client.
func (s *server) handleConn(conn *net.UnixConn) {
	defer conn.Close()
	if cred, err := peerCred(conn); err != nil || int(cred.Uid) != os.Getuid() {
		return // not the user who started the lab
	}
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	files, err := receiveFiles(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	out := &responseWriter{to: json.NewEncoder(conn)}
	defer s.recoverPanic(func(err error) { _ = out.Encode(errorResponse(err)) })
	var r request
	in := json.NewDecoder(&limitedConn{conn, maxRequest})
	if err := in.Decode(&r); err != nil {
		_ = out.Encode(errorResponse(fmt.Errorf("invalid request: %w", err)))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.handleRequest(conn, in, out, &r, files); err != nil {
		_ = out.Encode(errorResponse(err)) // the client may have disconnected
	}
}

func (s *server) handleRequest(conn *net.UnixConn, in *json.Decoder, out *responseWriter, r *request, files []*os.File) error {
	switch r.Op {
	case opInfo:
		return out.Encode(response{Info: &Info{
			Name: s.name, Topology: s.testbed.Plan.Topology, Fabric: s.testbed.Plan.Scenario.Fabric, Programs: int(s.programs.Load()), RDMA: s.rdma,
		}})
	case opSet:
		return out.Encode(errorResponse(s.set(r)))
	case opExec:
		return s.exec(conn, in, out, r, files)
	case opDown:
		_ = out.Encode(response{}) // the client may not wait
		s.stop()
		select {} // the connection closes when the process exits
	}
	return fmt.Errorf("unknown operation %q", r.Op)
}

// responseWriter writes responses. It is safe for concurrent use.
type responseWriter struct {
	mu sync.Mutex
	to *json.Encoder
}

// Encode writes one response.
func (a *responseWriter) Encode(what response) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Encode(what)
}

func errorResponse(err error) (a response) {
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// set changes links as opSet asks.
func (s *server) set(r *request) error {
	switch r.Link {
	case "":
	case "up", "down":
		return s.testbed.SetLink(r.Host, r.Link == "up")
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
	return s.testbed.Impair(plan, r.Host)
}

// limitedConn reads at most remaining bytes.
type limitedConn struct {
	*net.UnixConn
	remaining int
}

func (l *limitedConn) Read(b []byte) (int, error) {
	if l.remaining == 0 {
		return 0, errors.New("the request is too long")
	}
	n, err := l.UnixConn.Read(b[:min(len(b), l.remaining)])
	l.remaining -= n
	return n, err
}

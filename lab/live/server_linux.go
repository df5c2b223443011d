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

	"github.com/fabrictest/fabrictest/control"
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
	frames := control.New(conn, control.Config{Limits: control.ProgramLimits})
	defer s.recoverPanic(frames.Close)
	var r request
	if err := frames.ReadHello(protocol, &r); err != nil {
		frames.Close(fmt.Errorf("invalid request: %w", err))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.handleRequest(conn, frames, &r, files); err != nil {
		frames.Close(err)
	}
}

func (s *server) handleRequest(conn *net.UnixConn, frames *control.Conn, r *request, files []*os.File) error {
	var body []byte
	var err error
	switch r.Op {
	case opInfo:
		body, err = json.Marshal(&Info{
			Name: s.name, Topology: s.testbed.Plan.Topology, Fabric: s.testbed.Plan.Scenario.Fabric, Programs: int(s.programs.Load()), RDMA: s.rdma,
		})
	case opSet:
		err = s.set(r)
	case opExec:
		return s.exec(conn, frames, r, files)
	case opDown:
		_ = frames.Write(control.Frame{Kind: control.Reply}) // the client may not wait
		s.stop()
		select {} // the connection closes when the process exits
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		return err
	}
	return frames.Write(control.Frame{Kind: control.Reply, Body: body})
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

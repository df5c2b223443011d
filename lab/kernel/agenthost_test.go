package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

// fakeGuest is a guest without a machine: its agent runs in this process, with an emulated device
// on the loopback interface.
type fakeGuest struct {
	mu           sync.Mutex
	key          string
	console      string
	blockedTasks string // output of the program that lists blocked tasks
	off          chan error
	boots        int
	ran          [][]string // programs that were run, except agents
	agentFails   bool       // the agent ends at once
}

func newFakeGuest() *fakeGuest { return &fakeGuest{off: make(chan error, 1), boots: 1} }

func (f *fakeGuest) Put(_ context.Context, _ int, file File) error {
	if file.Path != keyPath || file.Mode != 0o600 {
		return fmt.Errorf("put %s with mode %v", file.Path, file.Mode)
	}
	b, err := io.ReadAll(file.Content)
	f.key = strings.TrimSpace(string(b))
	return err
}

func (f *fakeGuest) Exec(ctx context.Context, _ int, c Command) (int, error) {
	if c.Args[0] != agentProgram {
		f.ran = append(f.ran, c.Args)
		if c.Stdout != nil {
			_, _ = io.WriteString(c.Stdout, f.blockedTasks)
		}
		return 0, nil
	}
	if f.agentFails {
		_, _ = io.WriteString(c.Stderr, "no such device\n")
		return 1, nil
	}
	key, err := agent.ParseKey(f.key)
	if err != nil {
		return 0, err
	}
	h, err := bench.NewEmulatedHost("softiwarp", "lo")
	if err != nil {
		return 0, err
	}
	ln, err := net.Listen("tcp", c.Args[slices.Index(c.Args, "--listen")+1])
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = (&agent.Server{Key: key, Host: h}).Serve(ctx, ln)
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case why := <-f.off:
		return 0, why
	}
}

func (f *fakeGuest) Restart(context.Context, int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boots++
	f.console = "[    1.0] Linux\n"
	return nil
}

func (f *fakeGuest) ConsoleSince(_ int, after int64) (string, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.console[min(after, int64(len(f.console))):], int64(len(f.console)), nil
}

func (f *fakeGuest) print(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.console += text
}

// startedGuest returns a guest with its agent, its AgentHost, and a connection to the agent.
func startedGuest(t *testing.T) (*fakeGuest, *AgentHost, *agent.Client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.83.0.1:0") // an address that no other test uses
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // its port is free
	f := newFakeGuest()
	f.print("[    0.1] BUG: of no interest, at boot\n")
	g := NewAgentHost(f)
	g.Addr, g.startWait, g.endWait = ln.Addr().String(), time.Minute, 30*time.Second
	g.Addresses = []netip.Prefix{netip.MustParsePrefix("fd77::2:11/64")}
	client := must.Get(g.Start(t.Context()))(t)
	t.Cleanup(g.Stop)
	return f, g, client
}

const oops = "[   12.3] BUG: kernel NULL pointer dereference, address: 0000000000000008\n[   12.3] RIP: 0010:rxe_completer+0x1\n[   12.4] Kernel panic - not syncing: Fatal exception\n"

func TestAgentHostReportsPanicAndRestarts(t *testing.T) {
	f, g, client := startedGuest(t)
	if want := "ip address replace fd77::2:11/64 dev eth0 nodad"; len(f.ran) != 1 || strings.Join(f.ran[0], " ") != want {
		t.Errorf("programs %q were run", f.ran)
	}
	if err := g.Problem(nil); err != nil {
		t.Errorf("problem of a healthy guest: %v", err)
	}
	f.print(oops)
	f.off <- &GuestError{ID: 1, Reason: "panicked: Kernel panic - not syncing: Fatal exception", Panic: true}
	select {
	case <-client.Lost(): // at once, not after the IdleTimeout
	case <-time.After(10 * time.Second): // IdleTimeout is 15 s
		t.Fatal("the connection to the agent remains after the guest ended")
	}
	err := g.Problem(client.Err())
	if err == nil || !strings.HasPrefix(err.Error(), "its kernel crashed: BUG: kernel NULL pointer dereference, address: 0000000000000008 (Kernel panic - not syncing: Fatal exception)\n") ||
		!strings.Contains(err.Error(), "RIP: 0010:rxe_completer+0x1") || strings.Contains(err.Error(), "at boot") {
		t.Errorf("problem after a panic: %v", err)
	}
	again, err := g.Restart(t.Context())
	if err != nil || f.boots != 2 {
		t.Fatalf("restarted %d times: %v", f.boots-1, err)
	}
	defer again.Close()
	if id, err := again.Identity(); err != nil || len(id.Devices) != 1 {
		t.Errorf("the agent of the next boot: %+v, %v", id, err)
	}
	if err := g.Problem(nil); err != nil {
		t.Errorf("problem of a restarted guest: %v", err)
	}
}

func TestAgentHostReportsProblems(t *testing.T) {
	hang := &conformance.HangError{Waiting: "it waits"}
	for _, c := range []struct {
		name     string
		caseErr  error
		setFault func(*fakeGuest)
		want     []string // none: no problem
	}{
		{"a case hangs", hang, func(*fakeGuest) {}, nil},
		{
			"a case hangs, and a task is blocked", hang, func(f *fakeGuest) { f.blockedTasks = "task 7, exe, waits in the kernel:\n[<0>] rxe_destroy_qp" },
			[]string{"do not return", "\ntask 7", "rxe_destroy_qp"},
		},
		{
			"an error of the kernel", nil, func(f *fakeGuest) { f.print("[    9.9] BUG: workqueue lockup\n[   10.0] more\n") },
			[]string{"its kernel says: BUG: workqueue lockup\n", "[   10.0] more"},
		},
		{"another message of the kernel", nil, func(f *fakeGuest) { f.print("[    9.9] siw: something\n") }, nil},
		{"a killed machine", agent.ErrLost, func(f *fakeGuest) {
			f.off <- &GuestError{ID: 1, Reason: "is off (signal: killed)", Console: "the last lines"}
		}, []string{"guest 1 is off (signal: killed)\n", "the last lines"}},
		{"an agent that exited", agent.ErrLost, func(f *fakeGuest) { f.off <- errors.New("ended with code 2") }, []string{"ended with code 2"}},
		{"an agent that does not answer", agent.ErrLost, func(f *fakeGuest) { f.print("[    9.9] siw: something\n") }, []string{"lost", "siw: something"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, g, _ := startedGuest(t)
			if g.endWait = 30 * time.Second; c.name == "an agent that does not answer" {
				g.endWait = 10 * time.Millisecond
			}
			c.setFault(f)
			err := g.Problem(c.caseErr)
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not contain %q", err, want)
				}
			}
		})
	}
}

func TestAgentHostReportsWhyAgentEnded(t *testing.T) {
	f := newFakeGuest()
	f.agentFails = true
	if _, err := NewAgentHost(f).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "ended with code 1: no such device") {
		t.Errorf("got %v", err)
	}
}

func TestHeadTailKeepsBeginningAndEnd(t *testing.T) {
	w := new(daemon.HeadTail)
	for range 10_000 {
		_, _ = io.WriteString(w, "x")
	}
	_, _ = io.WriteString(w, "end")
	short := new(daemon.HeadTail)
	for _, s := range []string{"fatal: ", "no memory\n"} {
		_, _ = io.WriteString(short, s)
		_, _ = io.WriteString(w, s)
	}
	if got := short.String(); got != "fatal: no memory" {
		t.Errorf("got %q", got)
	}
	if got := w.String(); len(got) != 8<<10-1 || !strings.HasPrefix(got, "xxx") || !strings.HasSuffix(got, "endfatal: no memory") {
		t.Errorf("got %d octets, %.5q…%q", len(got), got, got[len(got)-20:])
	}
}

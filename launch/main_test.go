package launch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/testparallel"
	"github.com/fabrictest/fabrictest/launch"
)

// roleEnv makes the test binary a rank of some kind (see roles).
const roleEnv = "LAUNCH_TEST_ROLE"

// noRaceSleep keeps the race detector from sleeping a second at every exit.
const noRaceSleep = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		role, ok := roles[name]
		if !ok {
			panic("no role " + name)
		}
		role()
		return
	}
	testparallel.SetLimit(16)
	os.Exit(m.Run())
}

// spec is a rank that plays a role.
func spec(rank int, role string, args ...string) launch.Spec {
	return launch.Spec{
		Rank: rank, Host: "host" + string(rune('a'+rank%26)),
		Cmd: launch.Command{Path: os.Args[0], Args: args, Env: append(os.Environ(), roleEnv+"="+role, noRaceSleep)},
	}
}

// cast is a group of ranks that play these roles, by rank.
func cast(roles ...string) []launch.Spec {
	specs := make([]launch.Spec, len(roles))
	for i, r := range roles {
		specs[i] = spec(i, r)
	}
	return specs
}

// quick is patient with what goes well, however busy the machine is: none of this
// is waited for then. A test of what does not go well has less.
func quick(change ...func(*launch.Options)) launch.Options {
	o := launch.Options{
		Heartbeat: 50 * time.Millisecond, JoinTimeout: time.Minute, HangTimeout: 20 * time.Second, TermGrace: 20 * time.Second, DumpTimeout: 20 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// run starts a group and waits for its end.
func run(t *testing.T, specs []launch.Spec, o launch.Options) ([]launch.Outcome, error) {
	t.Helper()
	g := start(t.Context(), t, specs, o)
	return wait(t, g)
}

func start(ctx context.Context, t *testing.T, specs []launch.Spec, o launch.Options) *launch.Group {
	t.Helper()
	noLeaks(t)
	g, err := launch.Start(ctx, specs, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Stop(errors.New("the test is over"))
		<-g.Done()
	})
	return g
}

// wait fails the test, with what every rank is at, if the group does not end.
func wait(t *testing.T, g *launch.Group) ([]launch.Outcome, error) {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(2 * time.Minute):
		t.Fatalf("the group has not ended: %v", g.Dump(t.Context()))
	}
	outcomes, err := g.Wait()
	for _, o := range outcomes {
		t.Logf("rank %d: %s, exit %d, signal %q: %s", o.Rank, o.State, o.ExitCode, o.Signal, o.Error)
	}
	return outcomes, err
}

// want checks how ranks ended.
func want(t *testing.T, outcomes []launch.Outcome, states ...launch.State) {
	t.Helper()
	for i, s := range states {
		if o := outcomes[i]; o.State != s {
			t.Errorf("rank %d %s (%s), want %s; stderr: %s", i, o.State, o.Error, s, o.Stderr.Tail)
		}
	}
}

// wantError checks that an error says all of this.
func wantError(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

// atOnce is set while tests run side by side, and leaks are checked for all of
// them together.
var atOnce bool

// sideBySide runs tests that mostly wait, all at once.
func sideBySide(t *testing.T, tests map[string]func(*testing.T)) {
	noLeaks(t)
	atOnce = true
	t.Cleanup(func() { atOnce = false })
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// noLeaks checks, when everything else of the test is over, that it left no
// goroutine, descriptor or child process.
func noLeaks(t *testing.T) {
	t.Helper()
	if atOnce {
		return
	}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	t.Cleanup(func() {
		var now int
		var open []string
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			now, open = runtime.NumGoroutine(), descriptors(t)
			if now <= goroutines && len(open) <= len(files) {
				break
			}
		}
		if now > goroutines {
			b := make([]byte, 64<<10)
			t.Errorf("%d goroutines, %d before:\n%s", now, goroutines, b[:runtime.Stack(b, true)])
		}
		if len(open) > len(files) {
			t.Errorf("descriptors left open: %q, before: %q", open, files)
		}
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("child process %d was left (%v)", pid, err)
		}
	})
}

func descriptors(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, n := range names {
		if to, err := os.Readlink(n); err == nil {
			open = append(open, filepath.Base(n)+" "+to)
		}
	}
	slices.Sort(open)
	return open
}

// record keeps events.
type record struct {
	mu     sync.Mutex
	events []launch.Event
}

func (r *record) note(e launch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *record) of(rank int, k launch.EventKind) []launch.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []launch.Event
	for _, e := range r.events {
		if e.Rank == rank && e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// await returns the first event of a kind.
func (r *record) await(t *testing.T, rank int, k launch.EventKind, text string) launch.Event {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, e := range r.of(rank, k) {
			if strings.Contains(e.Text, text) {
				return e
			}
		}
	}
	t.Fatalf("rank %d: no event %v with %q", rank, k, text)
	return launch.Event{}
}

// vanished waits for processes to be gone. Dead ones that nobody has reaped do
// not run.
func vanished(t *testing.T, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Errorf("process %d lives on", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			time.Sleep(time.Millisecond)
		}
		// Orphans come to a test that is the first process of a container.
		for time.Now().Before(deadline) {
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped != 0 || err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

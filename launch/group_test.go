package launch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

func exchangeSpecs(n int) []launch.Spec {
	specs := make([]launch.Spec, n)
	for i := range specs {
		specs[i] = roleSpec(n-1-i, "exchange") // in any order
		specs[i].Job = fmt.Appendf(nil, "job %d", n-1-i)
	}
	return specs
}

func checkExchange(t *testing.T, outcomes []launch.Outcome) {
	t.Helper()
	for i, o := range outcomes {
		want := fmt.Sprintf("rank %d of %d on %s: job %d", i, len(outcomes), o.Host, i)
		if o.Rank != i || o.State != launch.Finished || string(o.Report) != want || !o.Joined || o.ExitCode != 0 {
			t.Errorf("rank %d: %s (%s), exit %d, report %q, want %q", i, o.State, o.Error, o.ExitCode, o.Report, want)
		}
	}
}

func TestRanksExchangeMessagesAndBarriers(t *testing.T) {
	for _, n := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var r eventLog
			began := time.Now()
			outcomes := must.Get(run(t, exchangeSpecs(n), testOptions(func(o *launch.Options) { o.OnEvent = r.add })))(t)
			t.Logf("%d ranks in %v", n, time.Since(began).Round(time.Millisecond))
			checkExchange(t, outcomes)
			for i := range n {
				for _, k := range []launch.EventKind{launch.Started, launch.Joined, launch.Marked, launch.Sampled, launch.Ended} {
					if got := len(r.events(i, k)); got != 1 {
						t.Errorf("rank %d: %d events %v, want 1", i, got, k)
					}
				}
			}
			if s := string(r.events(0, launch.Sampled)[0].Sample); s != `{"rounds":3}` {
				t.Errorf("sample %s", s)
			}
			if last := r.all[len(r.all)-1]; last.Kind != launch.Ended || last.Outcome.State != launch.Finished {
				t.Errorf("last event %v", last.Kind)
			}
		})
	}
}

func TestConcurrentGroupsAreIndependent(t *testing.T) {
	checkNoLeaks(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			g, err := launch.Start(t.Context(), exchangeSpecs(3), testOptions())
			if err != nil {
				t.Error(err)
				return
			}
			outcomes, err := g.Wait()
			if err != nil {
				t.Error(err)
			}
			checkExchange(t, outcomes)
		})
	}
	all.Wait()
}

func TestFailedRankStopsGroup(t *testing.T) {
	tests := []struct {
		role   string
		state  launch.State
		code   int
		signal string
		want   string
	}{
		{"panic", launch.Crashed, 2, "", "panic: index out of range"},
		{"abort", launch.Crashed, -1, "SIGABRT", "ended by SIGABRT"},
		{"segv", launch.Crashed, -1, "SIGSEGV", "ended by SIGSEGV"},
		{"exit", launch.Exited, 3, "", "exited with 3"},
		{"noclose", launch.Exited, 0, "", "without Close"},
		{"failing", launch.Failed, 1, "", "cannot find the fabric"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			outcomes, err := run(t, roleSpecs("sleep", tt.role, "commands"), testOptions())
			wantStates(t, outcomes, launch.Stopped, tt.state, launch.Stopped)
			wantErrorContaining(t, err, "rank 1 (hostb) "+string(tt.state), tt.want)
			if o := outcomes[1]; o.ExitCode != tt.code || o.Signal != tt.signal {
				t.Errorf("exit code %d and signal %q, want %d and %q", o.ExitCode, o.Signal, tt.code, tt.signal)
			}
			if o := outcomes[0]; o.Signal != "SIGTERM" {
				t.Errorf("the others ended by %q, want SIGTERM", o.Signal)
			}
		})
	}
}

func stopCollectsStateDumps(t *testing.T) {
	var r eventLog
	g := start(t.Context(), t, roleSpecs("commands", "blockeddump", "sleep"), testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	r.waitFor(t, 0, launch.Marked, "ready")
	r.waitFor(t, 1, launch.Marked, "ready")
	r.waitFor(t, 2, launch.Joined, "")
	g.Stop(fmt.Errorf("stopped by the test"))
	outcomes, err := wait(t, g)
	wantErrorContaining(t, err, "stopped by the test")
	wantStates(t, outcomes, launch.Stopped, launch.Stopped, launch.Stopped)
	for rank, want := range []string{"rank is idle", "waits for a message from rank 0, for ", "goroutine "} { // without OnDump: goroutine stacks
		if w := outcomes[rank].StateDump; !strings.Contains(w, want) {
			t.Errorf("state dump of rank %d is %q, want %q", rank, w, want)
		}
	}
	if w := outcomes[1].StateDump; !strings.Contains(w, "OnDump did not return") || !strings.Contains(w, "runBlockedDump") {
		t.Errorf("the stacks of rank 1 are not shown: %q", w)
	}
}

func TestKillDoesNotFailGroupAndReleasesBarriers(t *testing.T) {
	var r eventLog
	g := start(t.Context(), t, roleSpecs("neighbour", "neighbour", "neighbour"), testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	r.waitFor(t, 0, launch.Marked, "sent")
	for { // until both wait for rank 0
		dump := g.Dump(t.Context())
		if strings.Contains(dump[1], "at barrier 1") && strings.Contains(dump[2], "at barrier 1") {
			break
		}
	}
	must.Do(t, g.Kill(0))
	outcomes := must.Get(wait(t, g))(t)
	wantStates(t, outcomes, launch.Killed, launch.Finished, launch.Finished)
	if err := g.Kill(0); err == nil {
		t.Error("Kill of an ended rank returns no error")
	}
	wantErrorContaining(t, g.Freeze(3), "there are 3 ranks")
}

func TestSendCommandReturnsReply(t *testing.T) {
	var r eventLog
	g := start(t.Context(), t, roleSpecs("commands", "sleep"), testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	r.waitFor(t, 0, launch.Marked, "ready")
	r.waitFor(t, 1, launch.Joined, "")
	must.Do(t, g.SendCommand(t.Context(), 0, "hello"))
	r.waitFor(t, 0, launch.Marked, "hello")
	wantErrorContaining(t, g.SendCommand(t.Context(), 0, "break"), `command "break" to rank 0 (hosta)`, "nothing to break")
	wantErrorContaining(t, g.SendCommand(t.Context(), 1, "break"), "accepts no commands")
	wantErrorContaining(t, g.SendCommand(t.Context(), 0, strings.Repeat("x", 1<<20)), "the limit is")
	wantErrorContaining(t, g.SendCommand(t.Context(), 9, "x"), "there are 2 ranks")
	must.Do(t, g.Kill(1))
	must.Do(t, g.SendCommand(t.Context(), 0, "finish"))
	outcomes, err := wait(t, g)
	if err != nil {
		t.Error(err)
	}
	wantStates(t, outcomes, launch.Finished, launch.Killed)
	wantErrorContaining(t, g.SendCommand(t.Context(), 0, "again"), "has ended")
}

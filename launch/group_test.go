package launch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/launch"
)

func exchangers(n int) []launch.Spec {
	specs := make([]launch.Spec, n)
	for i := range specs {
		specs[i] = spec(n-1-i, "exchange") // in any order
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

func TestRanksExchangeMessagesAndMeetAtBarriers(t *testing.T) {
	for _, n := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var r record
			began := time.Now()
			outcomes, err := run(t, exchangers(n), quick(func(o *launch.Options) { o.OnEvent = r.note }))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d ranks in %v", n, time.Since(began).Round(time.Millisecond))
			checkExchange(t, outcomes)
			for i := range n {
				for _, k := range []launch.EventKind{launch.Started, launch.Joined, launch.Marked, launch.Sampled, launch.Ended} {
					if got := len(r.of(i, k)); got != 1 {
						t.Errorf("rank %d: %d events %v, want 1", i, got, k)
					}
				}
			}
			if s := string(r.of(0, launch.Sampled)[0].Sample); s != `{"rounds":3}` {
				t.Errorf("sample %s", s)
			}
			if last := r.events[len(r.events)-1]; last.Kind != launch.Ended || last.Outcome.State != launch.Finished {
				t.Errorf("last event %v", last.Kind)
			}
		})
	}
}

func TestTenGroupsAtOnceDoNotMeet(t *testing.T) {
	noLeaks(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			g, err := launch.Start(t.Context(), exchangers(3), quick())
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

func TestRankThatEndsBadlyEndsItsGroup(t *testing.T) {
	tests := []struct {
		role   string
		state  launch.State
		code   int
		signal string
		says   string
	}{
		{"panic", launch.Crashed, 2, "", "panic: the roof is on fire"},
		{"abort", launch.Crashed, -1, "SIGABRT", "ended by SIGABRT"},
		{"segv", launch.Crashed, -1, "SIGSEGV", "ended by SIGSEGV"},
		{"exit", launch.Exited, 3, "", "exited with 3"},
		{"silent0", launch.Exited, 0, "", "without a word"},
		{"failing", launch.Failed, 1, "", "cannot find the fabric"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			outcomes, err := run(t, cast("sleep", tt.role, "order"), quick())
			want(t, outcomes, launch.Stopped, tt.state, launch.Stopped)
			wantError(t, err, "rank 1 (hostb) "+string(tt.state), tt.says)
			if o := outcomes[1]; o.ExitCode != tt.code || o.Signal != tt.signal {
				t.Errorf("exit code %d and signal %q, want %d and %q", o.ExitCode, o.Signal, tt.code, tt.signal)
			}
			if o := outcomes[0]; o.Signal != "SIGTERM" {
				t.Errorf("the others ended by %q, want SIGTERM", o.Signal)
			}
		})
	}
}

func TestOthersSayWhatTheyWereAtWhenTheGroupEnds(t *testing.T) {
	var r record
	g := start(t.Context(), t, cast("order", "locked", "sleep"), quick(func(o *launch.Options) { o.OnEvent = r.note }))
	r.await(t, 0, launch.Marked, "ready")
	r.await(t, 1, launch.Marked, "ready")
	r.await(t, 2, launch.Joined, "")
	g.Stop(fmt.Errorf("seen enough"))
	outcomes, err := wait(t, g)
	wantError(t, err, "seen enough")
	want(t, outcomes, launch.Stopped, launch.Stopped, launch.Stopped)
	for rank, says := range []string{"counts sheep", "waits for a message from rank 0, for ", "playSleep"} {
		if rank == 2 {
			says = "goroutine " // nobody described it, so its stacks do
		}
		if w := outcomes[rank].StateDump; !strings.Contains(w, says) {
			t.Errorf("rank %d was at %q, want %q", rank, w, says)
		}
	}
	if w := outcomes[1].StateDump; !strings.Contains(w, "did not describe itself") || !strings.Contains(w, "playLocked") {
		t.Errorf("the stacks of rank 1 are not shown: %q", w)
	}
}

func TestKilledRankIsNoFailureAndIsMissed(t *testing.T) {
	var r record
	g := start(t.Context(), t, cast("neighbour", "neighbour", "neighbour"), quick(func(o *launch.Options) { o.OnEvent = r.note }))
	r.await(t, 0, launch.Marked, "sent")
	for { // they wait for it, and must go on when it dies
		dump := g.Dump(t.Context())
		if strings.Contains(dump[1], "at barrier 1") && strings.Contains(dump[2], "at barrier 1") {
			break
		}
	}
	if err := g.Kill(0); err != nil {
		t.Fatal(err)
	}
	outcomes, err := wait(t, g)
	if err != nil {
		t.Fatal(err)
	}
	want(t, outcomes, launch.Killed, launch.Finished, launch.Finished)
	if err := g.Kill(0); err == nil {
		t.Error("a rank that has ended can be killed")
	}
	wantError(t, g.Freeze(3), "there are 3 ranks")
}

func TestOrdersAreCarriedOutAndAnswered(t *testing.T) {
	var r record
	g := start(t.Context(), t, cast("order", "sleep"), quick(func(o *launch.Options) { o.OnEvent = r.note }))
	r.await(t, 0, launch.Marked, "ready")
	r.await(t, 1, launch.Joined, "")
	if err := g.SendCommand(t.Context(), 0, "hello"); err != nil {
		t.Error(err)
	}
	r.await(t, 0, launch.Marked, "hello")
	wantError(t, g.SendCommand(t.Context(), 0, "break"), `order "break" to rank 0 (hosta)`, "nothing to break")
	wantError(t, g.SendCommand(t.Context(), 1, "break"), "takes no orders")
	wantError(t, g.SendCommand(t.Context(), 0, strings.Repeat("x", 1<<20)), "the limit is")
	wantError(t, g.SendCommand(t.Context(), 9, "x"), "there are 2 ranks")
	if err := g.Kill(1); err != nil {
		t.Error(err)
	}
	if err := g.SendCommand(t.Context(), 0, "finish"); err != nil {
		t.Error(err)
	}
	outcomes, err := wait(t, g)
	if err != nil {
		t.Error(err)
	}
	want(t, outcomes, launch.Finished, launch.Killed)
	wantError(t, g.SendCommand(t.Context(), 0, "again"), "has ended")
}

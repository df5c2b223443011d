package nslab

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
)

func TestMessageLimitAppliesToEachMessage(t *testing.T) {
	var text strings.Builder
	out := json.NewEncoder(&text)
	for i := range 1000 {
		must.Do(t, out.Encode(labMessage{State: []lab.RankState{{Rank: i}}}))
	}
	must.Do(t, out.Encode(labMessage{Result: &report.Result{Name: "x"}}))
	const limit = 4 << 10
	states := 0
	opts := &lab.Options{OnState: func([]lab.RankState) { states++ }}
	r, err := readMessages(strings.NewReader(text.String()), limit, opts)
	if err != nil || r == nil || states != 1000 || text.Len() < 10*limit {
		t.Errorf("%d of 1000 states, result %v: %v", states, r, err)
	}
	long := fmt.Sprintf(`{"result":{"name":%q}}`, strings.Repeat("x", 2*limit))
	if _, err := readMessages(strings.NewReader(long), limit, opts); err == nil || !strings.Contains(err.Error(), "more than 4096 bytes") {
		t.Errorf("a long message: %v", err)
	}
}

func TestComputeUsesLittleCPU(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		must.Do(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, before := time.Now(), used()
	const rounds, each = 50, 4 * time.Millisecond
	for range rounds {
		clock{}.Compute(each)
	}
	if took, busy := time.Since(began), used()-before; took < rounds*each || busy > rounds*each/4 {
		t.Errorf("took %v and %v of CPU time", took, busy)
	}
	began = time.Now()
	if clock.Compute(clock{}, 50*time.Microsecond); time.Since(began) < 50*time.Microsecond {
		t.Errorf("took %v", time.Since(began))
	}
}

func TestRankWithoutThreadsOrMemoryIsBroken(t *testing.T) {
	for text, want := range map[string]string{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable": "ulimit -u",
		"runtime: failed to create new OS thread (have 5 already; errno=11)":   "ulimit -u",
		"fatal error: newosproc":                                                  "ulimit -u",
		"fatal error: runtime: out of memory":                                     "too little memory",
		"fatal error: runtime: cannot allocate memory":                            "too little memory",
		"panic: runtime error: invalid memory address or nil pointer dereference": "",
	} {
		err := resourceError(&launch.Outcome{Rank: 2, Host: "host2", State: launch.Crashed, Error: text})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "rank 2 on host2: "+text)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := resourceError(&launch.Outcome{State: launch.Failed, Error: "fatal error: newosproc"}); err != nil {
		t.Errorf("a rank that failed without a crash: %v", err)
	}
}

func TestExitReasonHasFatalLine(t *testing.T) {
	registers := "\ngoroutine 1 [running]:\nmain.main()\ncs     0x33\nfs     0x0\ngs     0x0\n"
	for text, want := range map[string]string{
		"runtime: program exceeds 10-thread limit\nfatal error: thread exhaustion" + registers: "exited with 2: runtime: program exceeds 10-thread limit",
		"noise\nfatal error: newosproc\n" + registers:                                          "exited with 2: fatal error: newosproc",
		"SIGABRT: abort\nPC=0x1" + registers:                                                   "exited with 2: SIGABRT: abort",
		"a\nb\nc\nd":                                                                           "exited with 2: b; c; d",
		"":                                                                                     "exited with 2",
	} {
		o := &launch.Outcome{State: launch.Exited, Error: "exited with 2", Stderr: launch.Output{Tail: text}}
		if got := exitReason(o); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	var output daemon.HeadTail
	fmt.Fprint(&output, "fatal error: newosproc\n"+strings.Repeat(registers, 1000))
	if got := describeOutput(output.String()); !strings.HasPrefix(got, ": fatal error: newosproc: too few threads") || len(got) > 10<<10 {
		t.Errorf("%.100q, %d bytes", got, len(got))
	}
}

// TestMain also runs the lab and rank processes of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case LabCommand:
			exit(LabMain())
		case RankCommand:
			exit(RankMain())
		case testbedCommand:
			exit(runTestbedBody())
		}
	}
	// A run needs half a CPU. With more parallel runs, ranks would be late.
	testutil.SetParallel(4)
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

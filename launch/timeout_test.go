package launch_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

// Timeouts that are long enough for a busy machine; the tests run in parallel. A rank without
// answers is hung after less than afterHang.
const hangTimeout, joinTimeout, afterHang = 2 * time.Second, 4 * time.Second, hangTimeout * 5 / 4

func TestTimeouts(t *testing.T) {
	runParallel(t, map[string]func(*testing.T){
		"FrozenRankIsNotHung":                  frozenRankIsNotHung,
		"StoppedRankIsHungAndDumpsGoroutines":  stoppedRankIsHungAndDumpsGoroutines,
		"StoppedLauncherFailsNoRank":           stoppedLauncherFailsNoRank,
		"RankFailsIfItDoesNotJoin":             rankFailsIfItDoesNotJoin,
		"RankIsHungIfItDoesNotExitAfterClose":  rankIsHungIfItDoesNotExitAfterClose,
		"SlowOnEventBlocksRanksWithoutFailure": slowOnEventBlocksRanksWithoutFailure,
		"JoinOptionalAllowsAnyProgram":         joinOptionalAllowsAnyProgram,
		"KeepGoingLetsOtherRanksFinish":        keepGoingLetsOtherRanksFinish,
		"RankThatDoesNotReadIsHung":            rankThatDoesNotReadIsHung,
		"RankWithoutHeartbeatIsHung":           rankWithoutHeartbeatIsHung,
		"BusyRankIsNotHung":                    busyRankIsNotHung,
		"ProtocolViolationFailsRank":           protocolViolationFailsRank,
		"StopCollectsStateDumps":               stopCollectsStateDumps,
		"HostIsLostIfItDoesNotJoin":            hostIsLostIfItDoesNotJoin,
		"HostIsLostIfItDoesNotStop":            hostIsLostIfItDoesNotStop,
		"RanksOfAllHostsEndWithKilledLauncher": ranksOfAllHostsEndWithLauncher(syscall.SIGKILL),
		"RanksOfAllHostsEndWithSilentLauncher": ranksOfAllHostsEndWithLauncher(syscall.SIGSTOP),
		"CancelKillsRanksAndTheirChildren":     cancelKillsRanksAndTheirChildren,
	})
}

func frozenRankIsNotHung(t *testing.T) {
	var r eventLog
	g := start(t.Context(), t, roleSpecs("commands"), testOptions(func(o *launch.Options) { o.OnEvent, o.HangTimeout = r.add, hangTimeout }))
	r.waitFor(t, 0, launch.Marked, "ready")
	must.Do(t, g.Freeze(0))
	time.Sleep(afterHang)
	if dump := g.Dump(t.Context())[0]; runtime.GOOS == "linux" && (!strings.Contains(dump, "frozen") || !strings.Contains(dump, "stopped")) {
		t.Errorf("dump of a frozen rank: %q", dump)
	}
	must.Do(t, g.Thaw(0))
	time.Sleep(hangTimeout / 2)
	if dump := g.Dump(t.Context())[0]; dump != "rank is idle" {
		t.Errorf("dump of a thawed rank: %q", dump)
	}
	must.Do(t, g.SendCommand(t.Context(), 0, "finish"))
	outcomes, err := wait(t, g)
	if err != nil {
		t.Error(err)
	}
	wantStates(t, outcomes, launch.Finished)
}

func stoppedRankIsHungAndDumpsGoroutines(t *testing.T) {
	var r eventLog
	outcomes, err := run(t, roleSpecs("sleep", "stopself"), testOptions(func(o *launch.Options) { o.OnEvent, o.HangTimeout = r.add, hangTimeout }))
	wantStates(t, outcomes, launch.Stopped, launch.Hung)
	wantErrorContaining(t, err, "rank 1 (hostb) hung", "did not answer heartbeats for")
	if len(r.events(1, launch.Silent)) != 1 {
		t.Error("no Silent event")
	}
	w := outcomes[1].StateDump
	if !strings.Contains(w, "on SIGQUIT it printed") || !strings.Contains(w, "goroutine 1") {
		t.Errorf("no goroutines in %q", w)
	}
	if runtime.GOOS == "linux" && !strings.Contains(w, "State T (stopped)") {
		t.Errorf("no process state in %q", w)
	}
}

// A launcher that was stopped for longer than the timeout must not fail its ranks.
func stoppedLauncherFailsNoRank(t *testing.T) {
	checkNoLeaks(t)
	launcher := exec.Command(os.Args[0])
	launcher.Env = append(os.Environ(), roleEnv+"=stoppedlauncher", noRaceSleep)
	launcher.Stderr = os.Stderr
	out := must.Get(launcher.StdoutPipe())(t)
	must.Do(t, launcher.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "joined"; {
	}
	_ = launcher.Process.Signal(syscall.SIGSTOP)
	time.Sleep(afterHang)
	_ = launcher.Process.Signal(syscall.SIGCONT)
	must.Do(t, launcher.Wait())
}

func rankFailsIfItDoesNotJoin(t *testing.T) {
	outcomes, err := run(t, roleSpecs("nojoin", "sleep"), testOptions(func(o *launch.Options) { o.JoinTimeout = joinTimeout }))
	wantStates(t, outcomes, launch.Failed, launch.Stopped)
	wantErrorContaining(t, err, "rank 0", "did not join within 4s")
	if !strings.Contains(outcomes[0].StateDump, "goroutine 1") {
		t.Errorf("no goroutines in %q", outcomes[0].StateDump)
	}
}

func rankIsHungIfItDoesNotExitAfterClose(t *testing.T) {
	outcomes, err := run(t, roleSpecs("noexit"), testOptions(func(o *launch.Options) { o.HangTimeout = hangTimeout }))
	wantStates(t, outcomes, launch.Hung)
	wantErrorContaining(t, err, "did not exit for")
}

func slowOnEventBlocksRanksWithoutFailure(t *testing.T) {
	marks := 0
	outcomes, err := run(t, roleSpecs("marks", "marks"), testOptions(func(o *launch.Options) {
		o.HangTimeout = hangTimeout
		o.OnEvent = func(e launch.Event) {
			if e.Kind != launch.Marked {
				return
			}
			if marks++; marks == 2 {
				time.Sleep(afterHang)
			}
		}
	}))
	if marks != 4000 {
		t.Errorf("%d Marked events, want 4000", marks)
	}
	if err != nil {
		t.Error(err)
	}
	wantStates(t, outcomes, launch.Finished, launch.Finished)
}

func joinOptionalAllowsAnyProgram(t *testing.T) {
	shell := func(rank int, script string) launch.Spec {
		return launch.Spec{Rank: rank, Host: "h" + itoa(rank), Cmd: launch.Command{Path: "/bin/sh", Args: []string{"-c", script}, Dir: "/"}}
	}
	var r eventLog
	outcomes, err := run(t, []launch.Spec{
		shell(0, `echo "$FABRICTEST_RANK/$FABRICTEST_SIZE $FABRICTEST_HOST $FABRICTEST_CONTROL $PWD"`),
		shell(1, `exec 3>&-; sleep 0.3; echo done >&2; printf tail`),
		shell(2, `exit 9`),
		shell(3, `kill -USR1 $$`),
	}, testOptions(func(o *launch.Options) {
		o.Join, o.KeepGoing, o.OnEvent, o.HangTimeout = launch.JoinOptional, true, r.add, 100*time.Millisecond
	}))
	wantStates(t, outcomes, launch.Finished, launch.Finished, launch.Exited, launch.Crashed)
	wantErrorContaining(t, err, "rank ")
	if got := outcomes[0].Stdout.Tail; got != "0/4 h0 3 /\n" {
		t.Errorf("environment of a rank: %q", got)
	}
	if o := outcomes[1]; o.Stderr.Tail != "done\n" || o.Stdout.Tail != "tail" || o.Joined {
		t.Errorf("rank 1: %+v", o)
	}
	if e := r.events(1, launch.Printed); len(e) != 2 {
		t.Errorf("lines of rank 1: %v", e)
	}
	if o := outcomes[3]; o.Signal != "SIGUSR1" {
		t.Errorf("rank 3 ended by %q", o.Signal)
	}
}

func keepGoingLetsOtherRanksFinish(t *testing.T) {
	outcomes, err := run(t, roleSpecs("exit", "echo", "stopself"), testOptions(func(o *launch.Options) {
		o.KeepGoing, o.HangTimeout = true, hangTimeout
	}))
	wantStates(t, outcomes, launch.Exited, launch.Finished, launch.Hung)
	wantErrorContaining(t, err, "rank 0", "exited with 3")
}

// Senders to the rank block no longer than the timeout. Heartbeats are off, to exclude
// them as the cause.
func rankThatDoesNotReadIsHung(t *testing.T) {
	outcomes, err := run(t, roleSpecs("sender", "unresponsive"), testOptions(func(o *launch.Options) {
		o.Heartbeat, o.HangTimeout = -1, hangTimeout
	}))
	wantStates(t, outcomes, launch.Stopped, launch.Hung)
	wantErrorContaining(t, err, "rank 1", "did not read its control channel for 2s")
}

func rankWithoutHeartbeatIsHung(t *testing.T) {
	outcomes, err := run(t, roleSpecs("sleep", "unresponsive"), testOptions(func(o *launch.Options) { o.HangTimeout = hangTimeout }))
	wantStates(t, outcomes, launch.Stopped, launch.Hung)
	wantErrorContaining(t, err, "rank 1", "did not answer heartbeats for")
}

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

	"github.com/fabrictest/fabrictest/launch"
)

// patience is what these tests have with ranks: enough that none is blamed
// because the machine is busy, and they wait side by side. To join takes a process
// that has to be started first.
const patience, joinPatience = 2 * time.Second, 5 * time.Second

func TestPatience(t *testing.T) {
	sideBySide(t, map[string]func(*testing.T){
		"FrozenRankIsExcusedUntilThawed":                 frozenRankIsExcusedUntilThawed,
		"RankThatStandsStillIsHungAndShowsItsGoroutines": rankThatStandsStillIsHungAndShowsItsGoroutines,
		"LauncherThatSleptBlamesNobody":                  launcherThatSleptBlamesNobody,
		"RankMustJoinInTime":                             rankMustJoinInTime,
		"RankMustExitWhenItIsDone":                       rankMustExitWhenItIsDone,
		"SlowListenerDelaysRanksAndBlamesNobody":         slowListenerDelaysRanksAndBlamesNobody,
		"AnyProgramCanBeARankIfItNeedNotJoin":            anyProgramCanBeARankIfItNeedNotJoin,
		"OthersKeepGoingIfTheyMay":                       othersKeepGoingIfTheyMay,
		"RankThatDoesNotReadIsCutOff":                    rankThatDoesNotReadIsCutOff,
		"RankThatDoesNotAnswerHeartbeatsIsHung":          rankThatDoesNotAnswerHeartbeatsIsHung,
		"BusyRankIsNotHungAndEndsByTimeout":              busyRankIsNotHungAndEndsByTimeout,
		"RankThatBreaksARuleHasFailed":                   rankThatBreaksARuleHasFailed,
	})
}

func frozenRankIsExcusedUntilThawed(t *testing.T) {
	var r record
	g := start(t.Context(), t, cast("order"), quick(func(o *launch.Options) { o.OnEvent, o.HangTimeout = r.note, patience }))
	r.await(t, 0, launch.Marked, "ready")
	if err := g.Freeze(0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * patience)
	if dump := g.Dump(t.Context())[0]; runtime.GOOS == "linux" && (!strings.Contains(dump, "frozen") || !strings.Contains(dump, "stopped")) {
		t.Errorf("dump of a frozen rank: %q", dump)
	}
	if err := g.Thaw(0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(patience / 2)
	if dump := g.Dump(t.Context())[0]; dump != "counts sheep" {
		t.Errorf("dump of a thawed rank: %q", dump)
	}
	if err := g.SendCommand(t.Context(), 0, "finish"); err != nil {
		t.Fatal(err)
	}
	outcomes, err := wait(t, g)
	if err != nil {
		t.Error(err)
	}
	want(t, outcomes, launch.Finished)
}

func rankThatStandsStillIsHungAndShowsItsGoroutines(t *testing.T) {
	var r record
	outcomes, err := run(t, cast("sleep", "stopself"), quick(func(o *launch.Options) { o.OnEvent, o.HangTimeout = r.note, patience }))
	want(t, outcomes, launch.Stopped, launch.Hung)
	wantError(t, err, "rank 1 (hostb) hung", "gave no sign of life for")
	if len(r.of(1, launch.Silent)) != 1 {
		t.Error("nobody was told that it is silent")
	}
	w := outcomes[1].StateDump
	if !strings.Contains(w, "on SIGQUIT it printed") || !strings.Contains(w, "goroutine 1") {
		t.Errorf("no goroutines in %q", w)
	}
	if runtime.GOOS == "linux" && !strings.Contains(w, "State T (stopped)") {
		t.Errorf("no view of the kernel's in %q", w)
	}
}

// launcherThatSleptBlamesNobody: it has heard of no rank because it did not
// listen.
func launcherThatSleptBlamesNobody(t *testing.T) {
	noLeaks(t)
	launcher := exec.Command(os.Args[0])
	launcher.Env = append(os.Environ(), roleEnv+"=nap", noRaceSleep)
	launcher.Stderr = os.Stderr
	out, err := launcher.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "joined"; {
	}
	_ = launcher.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2 * patience)
	_ = launcher.Process.Signal(syscall.SIGCONT)
	if err := launcher.Wait(); err != nil {
		t.Error(err)
	}
}

func rankMustJoinInTime(t *testing.T) {
	outcomes, err := run(t, cast("lurk", "sleep"), quick(func(o *launch.Options) { o.JoinTimeout = joinPatience }))
	want(t, outcomes, launch.Failed, launch.Stopped)
	wantError(t, err, "rank 0", "did not join within 5s")
	if !strings.Contains(outcomes[0].StateDump, "goroutine 1") {
		t.Errorf("what it did instead is not shown: %q", outcomes[0].StateDump)
	}
}

func rankMustExitWhenItIsDone(t *testing.T) {
	outcomes, err := run(t, cast("linger"), quick(func(o *launch.Options) { o.HangTimeout = patience }))
	want(t, outcomes, launch.Hung)
	wantError(t, err, "did not exit for")
}

func slowListenerDelaysRanksAndBlamesNobody(t *testing.T) {
	heard := 0
	outcomes, err := run(t, cast("chatter", "chatter"), quick(func(o *launch.Options) {
		o.HangTimeout = patience
		o.OnEvent = func(e launch.Event) {
			if e.Kind != launch.Marked {
				return
			}
			if heard++; heard == 2 {
				time.Sleep(2 * patience)
			}
		}
	}))
	if heard != 4000 {
		t.Errorf("%d marks were told, want 4000", heard)
	}
	if err != nil {
		t.Error(err)
	}
	want(t, outcomes, launch.Finished, launch.Finished)
}

func anyProgramCanBeARankIfItNeedNotJoin(t *testing.T) {
	shell := func(rank int, script string) launch.Spec {
		return launch.Spec{Rank: rank, Host: "h" + itoa(rank), Cmd: launch.Command{Path: "/bin/sh", Args: []string{"-c", script}, Dir: "/"}}
	}
	var r record
	outcomes, err := run(t, []launch.Spec{
		shell(0, `echo "$FABRICTEST_RANK/$FABRICTEST_SIZE $FABRICTEST_HOST $FABRICTEST_CONTROL $PWD"`),
		shell(1, `exec 3>&-; sleep 0.3; echo done >&2; printf tail`),
		shell(2, `exit 9`),
		shell(3, `kill -USR1 $$`),
	}, quick(func(o *launch.Options) {
		o.Join, o.KeepGoing, o.OnEvent, o.HangTimeout = launch.JoinOptional, true, r.note, 100*time.Millisecond
	}))
	want(t, outcomes, launch.Finished, launch.Finished, launch.Exited, launch.Crashed)
	wantError(t, err, "rank ")
	if got := outcomes[0].Stdout.Tail; got != "0/4 h0 3 /\n" {
		t.Errorf("environment of a rank: %q", got)
	}
	if o := outcomes[1]; o.Stderr.Tail != "done\n" || o.Stdout.Tail != "tail" || o.Joined {
		t.Errorf("rank 1: %+v", o)
	}
	if e := r.of(1, launch.Printed); len(e) != 2 {
		t.Errorf("lines of rank 1: %v", e)
	}
	if o := outcomes[3]; o.Signal != "SIGUSR1" {
		t.Errorf("rank 3 ended by %q", o.Signal)
	}
}

func othersKeepGoingIfTheyMay(t *testing.T) {
	outcomes, err := run(t, cast("exit", "echo", "stopself"), quick(func(o *launch.Options) {
		o.KeepGoing, o.HangTimeout = true, patience
	}))
	want(t, outcomes, launch.Exited, launch.Finished, launch.Hung)
	wantError(t, err, "rank 0", "exited with 3")
}

// rankThatDoesNotReadIsCutOff, and those who send to it wait no longer than
// that; heart-beats are off, so that nothing else can be the reason.
func rankThatDoesNotReadIsCutOff(t *testing.T) {
	outcomes, err := run(t, cast("talk", "deaf"), quick(func(o *launch.Options) {
		o.Heartbeat, o.HangTimeout = -1, patience
	}))
	want(t, outcomes, launch.Stopped, launch.Hung)
	wantError(t, err, "rank 1", "did not read its control channel for 2s")
}

func rankThatDoesNotAnswerHeartbeatsIsHung(t *testing.T) {
	outcomes, err := run(t, cast("sleep", "deaf"), quick(func(o *launch.Options) { o.HangTimeout = patience }))
	want(t, outcomes, launch.Stopped, launch.Hung)
	wantError(t, err, "rank 1", "gave no sign of life for")
}

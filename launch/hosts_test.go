package launch_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/launch"
)

// runRemoteShell runs its arguments as the server of a remote shell does: in a session of its own, with
// none of its variables, and connected by pipes that it copies.
func runRemoteShell() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Env = []string{roleEnv + "=proxy", noRaceSleep}
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	check("pipe", err)
	out, err := cmd.StdoutPipe()
	check("pipe", err)
	check("start", cmd.Start())
	go func() {
		_, _ = io.Copy(in, os.Stdin)
		in.Close()
	}()
	_, _ = io.Copy(os.Stdout, out)
	_ = cmd.Wait()
	os.Exit(max(cmd.ProcessState.ExitCode(), 0))
}

// proxyJob is the job of runProxy.
type proxyJob struct {
	Roles     []string // of the ranks on its host
	Violation string   // what the proxy does instead of running ranks
	KeepGoing bool
}

// runProxy runs ranks with the roles of its job.
func runProxy() {
	p, err := launch.JoinProxy()
	check("join", err)
	var j proxyJob
	check("job", json.Unmarshal(p.Job(), &j))
	if j.Violation != "" {
		proxyViolations[j.Violation].do(p)
		time.Sleep(forever)
	}
	p.OnCommand(func(text string) error { return errors.New("no " + text) })
	first, _ := p.Ranks()
	var specs []launch.Spec
	for i, role := range j.Roles {
		s := roleSpec(first+i, role)
		s.Host, s.Job = p.Host(), fmt.Appendf(nil, "job %d", first+i)
		specs = append(specs, s)
	}
	check("run", p.Run(context.Background(), specs, testOptions(func(o *launch.Options) {
		o.KeepGoing, o.HangTimeout = j.KeepGoing, hangTimeout
	})))
}

// hostSpecs returns hosts with ranks of these roles, which are separated by spaces.
func hostSpecs(hosts ...string) (specs []launch.HostSpec) {
	for i, roles := range hosts {
		specs = append(specs, proxySpec(i, proxyJob{Roles: strings.Fields(roles)}))
	}
	return specs
}

func proxySpec(host int, j proxyJob) launch.HostSpec {
	job, err := json.Marshal(j)
	check("job", err)
	return launch.HostSpec{
		Host: "host" + string(rune('a'+host)), Ranks: max(len(j.Roles), 1), Job: job,
		Cmd: launch.Command{Path: os.Args[0], Args: []string{os.Args[0]}, Env: append(os.Environ(), roleEnv+"=remoteshell", noRaceSleep)},
	}
}

func startHosts(ctx context.Context, t *testing.T, specs []launch.HostSpec, o launch.Options) *launch.Hosts {
	t.Helper()
	checkNoLeaks(t)
	h := must.Get(launch.StartHosts(ctx, specs, o))(t)
	t.Cleanup(func() {
		h.Stop(errors.New("the test is over"))
		h.Wait()
	})
	return h
}

// waitHosts waits for hosts. It fails the test if they do not end.
func waitHosts(t *testing.T, h *launch.Hosts) (outcomes []launch.Outcome, lost []*launch.HostError) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		outcomes, lost = h.Wait()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the hosts have not ended")
	}
	for _, o := range outcomes {
		t.Logf("rank %d: %s, exit %d, signal %q: %s", o.Rank, o.State, o.ExitCode, o.Signal, o.Error)
	}
	return outcomes, lost
}

// startedPIDs returns the process IDs of ranks that have joined.
func startedPIDs(t *testing.T, r *eventLog, ranks ...int) (pids []int) {
	t.Helper()
	for _, rank := range ranks {
		r.waitFor(t, rank, launch.Joined, "")
		pids = append(pids, pidsIn(t, r.waitFor(t, rank, launch.Started, "process ").Text)...)
	}
	return pids
}

func TestRanksOfSeveralHostsExchangeMessagesAndBarriers(t *testing.T) {
	var r eventLog
	h := startHosts(t.Context(), t, hostSpecs("exchange exchange", "exchange", "exchange exchange exchange"), testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	outcomes, lost := waitHosts(t, h)
	if len(outcomes) != 6 || len(lost) > 0 {
		t.Fatalf("%d outcomes, lost %v", len(outcomes), lost)
	}
	checkExchange(t, outcomes)
	for i, host := range []string{"hosta", "hosta", "hostb", "hostc", "hostc", "hostc"} {
		for _, k := range []launch.EventKind{launch.Started, launch.Joined, launch.Marked, launch.Sampled, launch.Ended} {
			if got := r.events(i, k); len(got) != 1 || got[0].Host != host {
				t.Errorf("rank %d: events %v %+v, want one of %s", i, k, got, host)
			}
		}
	}
	if s := string(r.events(0, launch.Sampled)[0].Sample); s != `{"rounds":3}` {
		t.Errorf("sample %s", s)
	}
}

// The ranks of other hosts are informed of the end of a rank after its messages, and barriers do not wait for it.
func TestKilledRankReleasesRanksOfOtherHosts(t *testing.T) {
	var r eventLog
	specs := []launch.HostSpec{
		proxySpec(0, proxyJob{Roles: []string{"neighbour", "lastneighbour"}, KeepGoing: true}), // its proxy is the last to end
		proxySpec(1, proxyJob{Roles: []string{"neighbour"}, KeepGoing: true}),
	}
	h := startHosts(t.Context(), t, specs, testOptions(func(o *launch.Options) { o.OnEvent, o.KeepGoing = r.add, true }))
	r.waitFor(t, 0, launch.Marked, "sent")
	must.Do(t, syscall.Kill(startedPIDs(t, &r, 0)[0], syscall.SIGKILL))
	outcomes, lost := waitHosts(t, h)
	wantStates(t, outcomes, launch.Crashed, launch.Finished, launch.Finished)
	if len(lost) > 0 {
		t.Error(lost)
	}
}

func TestFailedRankStopsRanksOfOtherHosts(t *testing.T) {
	h := startHosts(t.Context(), t, hostSpecs("sleep", "sleep failing", "commands"), testOptions())
	outcomes, lost := waitHosts(t, h)
	wantStates(t, outcomes, launch.Stopped, launch.Stopped, launch.Failed, launch.Stopped)
	if outcomes[2].Error != "cannot find the fabric" || outcomes[3].StateDump == "" || len(lost) > 0 {
		t.Errorf("error %q, state %q, lost %v", outcomes[2].Error, outcomes[3].StateDump, lost)
	}
}

// A time limit makes ranks print their goroutines.
func TestCancelStopsRanksOfAllHosts(t *testing.T) {
	var r eventLog
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	h := startHosts(ctx, t, hostSpecs("commands", "spin"), testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
	r.waitFor(t, 0, launch.Marked, "ready")
	r.waitFor(t, 1, launch.Marked, "ready")
	wantErrorContaining(t, h.SendCommand(t.Context(), 1, "input"), "no input")
	cancel(context.DeadlineExceeded)
	outcomes, lost := waitHosts(t, h)
	wantStates(t, outcomes, launch.Stopped, launch.Stopped)
	if outcomes[0].StateDump != "rank is idle" || outcomes[1].StateDump != "computes" || len(lost) > 0 {
		t.Errorf("states %q and %q, lost %v", outcomes[0].StateDump, outcomes[1].StateDump, lost)
	}
	if _, err := launch.StartHosts(ctx, hostSpecs("sleep"), testOptions()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start after cancellation: %v", err)
	}
}

// A lost host stops the ranks of the other hosts, and its own ranks end.
func TestLostHostStopsRanksOfAllHosts(t *testing.T) {
	for _, victim := range []string{"remote shell", "proxy"} {
		t.Run(victim, func(t *testing.T) {
			var r eventLog
			specs := hostSpecs("sleep", "children")
			if victim == "remote shell" {
				specs[1].Cmd.Args = append([]string{"-c", `echo shell $PPID $$ >&2; exec "$@"`, "sh"}, specs[1].Cmd.Args...)
				specs[1].Cmd.Args = append([]string{"/bin/sh"}, specs[1].Cmd.Args...)
			}
			h := startHosts(t.Context(), t, specs, testOptions(func(o *launch.Options) { o.OnEvent = r.add }))
			pids := append(startedPIDs(t, &r, 0), pidsIn(t, r.waitFor(t, 1, launch.Marked, "children").Text)...)
			victimPID := parentOf(t, pids[1])
			if victim == "remote shell" {
				shell := pidsIn(t, r.waitFor(t, -1, launch.Printed, "shell").Text)
				victimPID, pids = shell[0], append(pids, shell[1])
			}
			must.Do(t, syscall.Kill(victimPID, syscall.SIGKILL))
			outcomes, lost := waitHosts(t, h)
			wantStates(t, outcomes, launch.Stopped, launch.Stopped)
			if len(lost) != 1 || lost[0].Host != "hostb" || !lost[0].Joined || outcomes[1].Error != "its host was lost" {
				t.Errorf("lost %v; rank 1: %s", lost, outcomes[1].Error)
			}
			waitKilled(t, pids...)
		})
	}
}

// parentOf returns the parent of a process.
func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	stat := string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	_, rest, _ := strings.Cut(stat[strings.LastIndex(stat, ")"):], " ")
	_, err := fmt.Sscan(rest[2:], &parent)
	must.Do(t, err)
	return parent
}

// runHostsLauncher launches ranks on two hosts, and prints their process IDs.
func runHostsLauncher() {
	h, err := launch.StartHosts(context.Background(), hostSpecs("sleep", "children"), launch.Options{
		Heartbeat: 50 * time.Millisecond, JoinTimeout: time.Minute, HangTimeout: hangTimeout,
		OnEvent: func(e launch.Event) {
			switch {
			case e.Kind == launch.Started && e.Rank == 0:
				fmt.Println(e.Text)
			case e.Kind == launch.Marked:
				fmt.Println(e.Text)
			}
		},
	})
	check("launch", err)
	_, lost := h.Wait()
	fatal("wait", errors.Join(errors.New("ended"), fmt.Errorf("%v", lost)))
}

// The ranks of all hosts end with their launcher, also one that is stopped and so sends nothing.
func ranksOfAllHostsEndWithLauncher(sig syscall.Signal) func(*testing.T) {
	return func(t *testing.T) {
		checkNoLeaks(t)
		launcher := exec.Command(os.Args[0])
		launcher.Env = append(os.Environ(), roleEnv+"=hostslauncher", noRaceSleep)
		launcher.Stderr = os.Stderr
		out := must.Get(launcher.StdoutPipe())(t)
		must.Do(t, launcher.Start())
		var pids []int
		lines := bufio.NewScanner(out)
		for range 2 {
			if !lines.Scan() {
				t.Fatalf("the launcher printed too little: %v", lines.Err())
			}
			pids = append(pids, pidsIn(t, lines.Text())...)
		}
		for _, rank := range []int{pids[0], pids[1]} {
			pids = append(pids, parentOf(t, rank)) // the proxy
		}
		must.Do(t, launcher.Process.Signal(sig))
		waitKilled(t, pids...)
		_ = launcher.Process.Kill()
		_ = launcher.Wait()
	}
}

// A remote shell that does not start the proxy.
func TestHostErrorDescribesRemoteShell(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
		text   string
		stderr string
	}{
		"refused":    {"echo Connection refused >&2; exit 255", 255, "exited with 255", "Connection refused\n"},
		"no program": {"exec /no/such/program", 127, "exited with 127", "not found"},
		"nothing":    {"exit 0", 0, "never joined", ""},
		"banner":     {`echo; echo "Welcome to hostb"; exec "$@"`, -1, `"Welcome to hostb" was printed before the program on host hostb began`, ""},
		"short":      {`printf hi; exec "$@"`, -1, `"hi\x00\x00`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			specs := hostSpecs("sleep", "sleep")
			specs[1].Cmd.Args = append([]string{"/bin/sh", "-c", c.script, "sh"}, specs[1].Cmd.Args...)
			outcomes, lost := waitHosts(t, startHosts(t.Context(), t, specs, testOptions()))
			wantStates(t, outcomes, launch.Stopped, launch.Stopped)
			if len(lost) != 1 || lost[0].Joined || lost[0].Host != "hostb" {
				t.Fatalf("lost %+v", lost)
			}
			wantErrorContaining(t, lost[0], "host hostb: ", c.text)
			if e := lost[0]; (c.code >= 0 && e.ExitCode != c.code) || !strings.Contains(e.Stderr, c.stderr) {
				t.Errorf("exit code %d, want %d; standard error %q, want %q", e.ExitCode, c.code, e.Stderr, c.stderr)
			}
		})
	}
}

func hostIsLostIfItDoesNotJoin(t *testing.T) {
	specs := hostSpecs("sleep", "sleep")
	specs[1].Cmd.Args = append([]string{"/bin/sh", "-c", "while read line; do :; done"}, specs[1].Cmd.Args...)
	h := startHosts(t.Context(), t, specs, testOptions(func(o *launch.Options) { o.JoinTimeout = joinTimeout }))
	outcomes, lost := waitHosts(t, h)
	wantStates(t, outcomes, launch.Stopped, launch.Stopped)
	if len(lost) != 1 || lost[0].Error() != "host hostb: did not join within 4s" {
		t.Errorf("lost %v", lost)
	}
}

// proxyViolations are protocol violations of a proxy with rank 1 of two.
var proxyViolations = map[string]struct {
	do   func(p *launch.Proxy)
	want string
}{
	"rank of another host": {func(p *launch.Proxy) { sendFrame(p, launch.EventKindFrame, 0, `{"kind":2,"rank":0,"text":"x"}`) }, "event marked of rank 0, which is not on host hostb"},
	"output of no rank":    {func(p *launch.Proxy) { sendFrame(p, control.Stdout, 1<<40, "x") }, "event printed of rank -1"},
	"long line":            {func(p *launch.Proxy) { sendFrame(p, control.Stderr, 1, strings.Repeat("x", 17<<10)) }, "the limit is 16384"},
	"unknown event":        {func(p *launch.Proxy) { sendFrame(p, launch.EventKindFrame, 0, `{"kind":99,"rank":1}`) }, "unexpected event: event 99"},
	"end of a rank":        {func(p *launch.Proxy) { sendFrame(p, launch.EventKindFrame, 0, `{"kind":8,"rank":1}`) }, "unexpected event: ended"},
	"no JSON":              {func(p *launch.Proxy) { sendFrame(p, launch.EventKindFrame, 0, `{`) }, "event: "},
	"stop":                 {func(p *launch.Proxy) { sendFrame(p, launch.StopFrame, 0, "") }, "unexpected frame: stop"},
	"no outcomes":          {func(p *launch.Proxy) { check("close", p.Close(nil)); os.Exit(0) }, "without the outcomes of its ranks"},
	"too few outcomes":     {func(p *launch.Proxy) { report(p, `[]`) }, "0 outcomes of 1 ranks"},
	"another rank":         {func(p *launch.Proxy) { report(p, `[{"Rank":0,"State":"finished"}]`) }, `state "finished" of rank 0`},
	"unknown state":        {func(p *launch.Proxy) { report(p, `[{"Rank":1,"State":"fine"}]`) }, `rank 1: state "fine"`},
	"unknown exit code":    {func(p *launch.Proxy) { report(p, `[{"Rank":1,"State":"exited","ExitCode":256}]`) }, "exit code 256"},
	"invalid outcomes":     {func(p *launch.Proxy) { report(p, `{}`) }, "its outcomes are invalid"},

	"stays": {func(p *launch.Proxy) { sendFrame(p, launch.EventKindFrame, 0, `{"kind":2,"rank":1,"text":"ready"}`) }, ""},

	// Violations that the other proxy notices.
	"short message":           {sendMessage(1, 0, 3), ""},
	"message of another rank": {sendMessage(0, 0, 8), ""},
	"message to another rank": {sendMessage(1, 1, 8), ""},
	"end of another rank":     {sendMessage(7, 1<<32-1, 8), ""},
}

func sendFrame(p *launch.Proxy, k control.Kind, num uint64, body string) {
	check("send", p.SendFrame(control.Frame{Kind: k, Num: num, Body: []byte(body)}))
}

func report(p *launch.Proxy, text string) {
	sendFrame(p, launch.Report, 0, text)
	check("close", p.Close(nil))
	os.Exit(0)
}

func TestProxyViolationsLoseHost(t *testing.T) {
	checkNoLeaks(t)
	for name, v := range proxyViolations {
		if v.want == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			specs := append(hostSpecs("sleep"), proxySpec(1, proxyJob{Violation: name}))
			outcomes, lost := waitHosts(t, startHosts(t.Context(), t, specs, testOptions()))
			wantStates(t, outcomes, launch.Stopped, launch.Stopped)
			if len(lost) != 1 {
				t.Fatalf("lost %v", lost)
			}
			wantErrorContaining(t, lost[0], "host hostb: ", v.want)
		})
	}
}

// A proxy rejects messages of another host that are not from ranks of that host to one of its own.
func TestProxyRejectsInvalidMessages(t *testing.T) {
	checkNoLeaks(t)
	for name, want := range map[string]string{
		"short message": "a message of 3 bytes from host 1", "message of another rank": "a message from rank 0 to rank 0 from host 1",
		"message to another rank": "a message from rank 1 to rank 1 from host 1", "end of another rank": "a message from rank 7 to rank 4294967295 from host 1",
	} {
		t.Run(name, func(t *testing.T) {
			specs := append(hostSpecs("sleep"), proxySpec(1, proxyJob{Violation: name}))
			outcomes, lost := waitHosts(t, startHosts(t.Context(), t, specs, testOptions(func(o *launch.Options) { o.KeepGoing = true })))
			wantStates(t, outcomes, launch.Stopped, launch.Stopped)
			i := slices.IndexFunc(lost, func(e *launch.HostError) bool { return e.Host == "hosta" })
			if i < 0 {
				t.Fatalf("lost %v", lost)
			}
			wantErrorContaining(t, lost[i], "host hosta: ", want)
		})
	}
}

// sendMessage sends a message to the proxy of the first host, and waits until that has ended.
func sendMessage(from, to uint32, header int) func(*launch.Proxy) {
	return func(p *launch.Proxy) {
		text := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, from), to)
		sendFrame(p, launch.Data, 0, string(text[:header]))
		p.WaitForEnd(0)
		check("close", p.Close(nil))
		os.Exit(0)
	}
}

func TestRankCannotSendFramesOfProxies(t *testing.T) {
	outcomes, err := run(t, []launch.Spec{roleSpec(0, "violation", "proxy's frame")}, testOptions())
	wantStates(t, outcomes, launch.Failed)
	wantErrorContaining(t, err, "unexpected frame: stdout")
}

func TestJoinProxyNeedsLauncher(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=proxy")
	out, err := cmd.CombinedOutput() // standard input is /dev/null
	if err == nil || !strings.Contains(string(out), "standard input: not started by a launcher: neither a pipe nor a socket") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestStartHostsRejectsInvalidArguments(t *testing.T) {
	checkNoLeaks(t)
	noRanks, noProgram := hostSpecs("sleep"), hostSpecs("sleep")
	noRanks[0].Ranks, noProgram[0].Cmd.Path = 0, "/no/such/program"
	for want, c := range map[string]struct {
		specs []launch.HostSpec
		opts  launch.Options
	}{
		"no ranks":            {nil, launch.Options{}},
		"host hosta: 0 ranks": {noRanks, launch.Options{}},
		"LogDir":              {hostSpecs("sleep"), launch.Options{LogDir: t.TempDir()}},
		"negative":            {hostSpecs("sleep"), launch.Options{TermGrace: -1}},
		"start host hosta: fork/exec /no/such/program": {noProgram, launch.Options{}},
	} {
		_, err := launch.StartHosts(t.Context(), c.specs, c.opts)
		wantErrorContaining(t, err, "launch: ", want)
	}
}

// A proxy that does not stop its ranks is stopped itself.
func hostIsLostIfItDoesNotStop(t *testing.T) {
	var r eventLog
	specs := append(hostSpecs("sleep"), proxySpec(1, proxyJob{Violation: "stays"}))
	h := startHosts(t.Context(), t, specs, testOptions(func(o *launch.Options) {
		o.OnEvent, o.DumpTimeout, o.TermGrace = r.add, time.Millisecond, time.Second
	}))
	r.waitFor(t, 1, launch.Marked, "ready")
	h.Stop(errors.New("stopped by the test"))
	outcomes, lost := waitHosts(t, h)
	wantStates(t, outcomes, launch.Stopped, launch.Stopped)
	if len(lost) != 1 || lost[0].Error() != "host hostb: did not stop its ranks in time" {
		t.Errorf("lost %v", lost)
	}
}

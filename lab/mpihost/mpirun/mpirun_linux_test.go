package mpirun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Ranks exchange data on both tiers, between hosts and within one, and with loss.
func TestRanksExchangeData(t *testing.T) {
	for _, provider := range nics.Names() {
		r := configOf("exchange", 4, 2)
		r.Provider, r.Rails, r.Seed = provider, 2, 5
		if result, err := InSimulation(t.Context(), r); err != nil || result.Code != 0 {
			t.Errorf("%s, sim: %+v, %v", provider, result, err)
		}
		needNamespaces(t)
		if result, err := InNamespaces(t.Context(), r); err != nil || result.Code != 0 {
			t.Errorf("%s, netns: %+v, %v", provider, result, err)
		}
		if provider != nics.Default {
			continue
		}
		r.LossPPM, r.Ranks, r.PerHost = 10_000, 3, 1
		if result, err := InNamespaces(t.Context(), r); err != nil || result.Code != 0 {
			t.Errorf("%s, netns, lossy: %+v, %v", provider, result, err)
		}
	}
}

// Cables in shared memory need no namespaces. They carry the packets of several ranks on a host, of
// several rails, and impaired ones; other ranks get an error if a rank is killed.
func TestRanksOnCablesInSharedMemory(t *testing.T) {
	for _, provider := range []string{nics.Default, "dgiwarp"} {
		r := configOf("exchange", 4, 2)
		r.Provider, r.Rails, r.Cable, r.Reports = provider, 2, scenarios.SharedMemory, true
		if result, err := InNamespaces(t.Context(), r); err != nil || result.Code != 0 || len(result.Reports) != 4 {
			t.Errorf("%s: %+v, %v", provider, result, err)
		}
		r.LossPPM = 10_000
		if result, err := InNamespaces(t.Context(), r); err != nil || result.Code != 0 {
			t.Errorf("%s, lossy: %+v, %v", provider, result, err)
		}
	}
	r := configOf("fails", 3, 1)
	r.Cable, r.KeepGoing = scenarios.SharedMemory, true
	if result, err := InNamespaces(t.Context(), r); err != nil || result.Code == 0 {
		t.Errorf("fails: %+v, %v", result, err)
	}
}

func TestRanksShareMemoryAndTime(t *testing.T) {
	needNamespaces(t)
	for _, program := range []string{"share", "times"} {
		if result, err := InNamespaces(t.Context(), configOf(program, 5, 3)); err != nil || result.Code != 0 {
			t.Errorf("%s: %+v, %v", program, result, err)
		}
	}
}

func TestReports(t *testing.T) {
	needNamespaces(t)
	for tier, run := range map[string]func(context.Context, Config) (Result, error){"sim": InSimulation, "netns": InNamespaces} {
		r := configOf("exchange", 3, 2)
		r.Reports, r.Options = true, json.RawMessage(`{"design":"any"}`)
		result, err := run(t.Context(), r)
		if err != nil || result.Code != 0 || len(result.Reports) != 3 {
			t.Fatalf("%s: %+v, %v", tier, result, err)
		}
		for i, text := range result.Reports {
			var got struct {
				Rank    int
				Options string
			}
			if err := json.Unmarshal(text, &got); err != nil || got.Rank != i || got.Options != `{"design":"any"}` {
				t.Errorf("%s: rank %d: %s, %v", tier, i, text, err)
			}
		}
	}
}

func TestExitStatusOfRuns(t *testing.T) {
	needNamespaces(t)
	for _, c := range []struct {
		args  string
		code  int
		wants []string
		never string
	}{
		{"netns hello 3 2 label", 0, []string{"0: rank 0 of 3 on host 0: fd00:fab::1\n", "1: rank 1 of 3 on host 0: fd00:fab::1:1\n", "2: rank 2 of 3 on host 1: fd00:fab::2\n"}, ""},
		{"netns bound 2 1 bind", 0, []string{"rank 0 has 1\n", "rank 1 has 1\n"}, ""},
		{"netns hello 1 1", 0, []string{"rank 0 of 1 on host 0"}, "0: rank"},
		{"sim hello 3 2", 0, []string{"rank 2 of 3 on host 1: fd00:fab::2\n"}, ""},
		{"netns fails 3 1", 1, []string{"fabrictest: rank 1 on host1 failed: test error\n"}, ""},
		{"netns fails 3 1 keep-going", 1, []string{"rank 1 on host1 failed: test error", "rank 0: peer is gone", "rank 2: peer is gone"}, ""},
		{"sim fails 3 1", 1, []string{"rank 1 on host1: test error", "rank 0: peer is gone", "rank 2: peer is gone"}, "fabrictest: "},
		{"netns abort 3 2", 7, []string{"fabrictest: rank 1 aborted all ranks with code 7: enough\n"}, "continued"},
		{"netns abort 3 2 keep-going", 7, []string{"aborted all ranks with code 7: enough"}, "continued"},
		{"sim abort 3 2", 7, []string{"rank 1 aborted all ranks with code 7: enough"}, "continued"},
		{"netns dies 2 1", 2, []string{"panic: a bug", "rank 1 on host1 crashed: panic: a bug"}, ""},
		{"sim dies 2 1", 1, []string{"program rank 1 on host1 panicked: a bug"}, ""},
		{"sim forever 2 1", 1, []string{"rank 0 on host0 waits for a message from rank 0"}, ""},
		{"netns forever 2 1 limit", 1, []string{"fabrictest: the limit of 1s is reached", "the state of rank 1 on host1 was:\n  waits for a message from rank 1"}, ""},
		{"netns nothing 2 1", 1, []string{" ended: it did not join the job"}, ""},
		{"sim nothing 2 1", 99, []string{"has ended: it did not join the job: it must call mpi.Main"}, ""},
		{"netns hello 0 1", 99, []string{"launcher: 0 ranks: at least one is needed"}, ""},
		{"sim hello 0 1", 99, []string{"launcher: 0 ranks: at least one is needed"}, ""},
	} {
		code, out := runLauncher(t, "", strings.Fields(c.args)...)
		if code != c.code || (c.never != "" && strings.Contains(out, c.never)) {
			t.Errorf("%s: code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out)
			}
		}
	}
}

func TestRankZeroReadsStdin(t *testing.T) {
	needNamespaces(t)
	for _, tier := range []string{"sim", "netns"} {
		if code, out := runLauncher(t, "some text", tier, "reads", "2", "1"); code != 0 || !strings.Contains(out, "read some text") {
			t.Errorf("%s: code %d\n%s", tier, code, out)
		}
	}
}

func TestProgramWithoutLauncherFails(t *testing.T) {
	cmd := exec.Command(os.Args[0], rankCommand, "hello")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run it with 'fabrictest mpirun -n 4 PROGRAM'") {
		t.Errorf("%v: %s", err, out)
	}
	cmd = exec.Command(os.Args[0], rankCommand, "hello")
	cmd.Env = append(os.Environ(), "FABRICTEST_MPI_WORLD={")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the job from 'fabrictest mpirun'") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestInterruptEndsAllRanks(t *testing.T) {
	needNamespaces(t)
	for tier, run := range map[string]func(context.Context, Config) (Result, error){"sim": InSimulation, "netns": InNamespaces} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := configOf("forever", 2, 1)
		if tier == "sim" {
			r.Args = []string{"/bin/sleep", "1000"} // a rank in virtual time would end at once
		}
		began, pipe, err := os.Pipe()
		must.Do(t, err)
		stdout := os.Stdout
		os.Stdout = pipe
		done := make(chan error, 1)
		go func() {
			_, err := run(ctx, r)
			done <- err
		}()
		if tier == "netns" {
			if line, err := bufio.NewReader(began).ReadString('\n'); err != nil || line != "started\n" {
				t.Errorf("%q, %v", line, err)
			}
			if len(rankProcesses(t, "forever")) == 0 {
				t.Error("found no process of a rank")
			}
		}
		stop := errors.New("stop")
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("%s: %v", tier, err)
		}
		os.Stdout = stdout
		began.Close()
		pipe.Close()
	}
	if running := rankProcesses(t, "forever"); len(running) > 0 {
		t.Errorf("processes still run: %v", running)
	}
}

// rankProcesses returns the process IDs of ranks of this test binary that run a program.
func rankProcesses(t *testing.T, program string) (found []string) {
	t.Helper()
	entries := must.Get(os.ReadDir("/proc"))(t)
	for _, e := range entries {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/cmdline", e.Name()))
		args := strings.Split(string(text), "\x00")
		if err == nil && slices.Contains(args, program) && slices.Contains(args, rankCommand) && args[0] == os.Args[0] {
			found = append(found, e.Name())
		}
	}
	return found
}

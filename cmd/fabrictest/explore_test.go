package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

func init() {
	rankPrograms["second-first"] = func(w *mpi.World) error {
		if w.Rank() > 0 {
			return w.Send([]byte{byte(w.Rank())}, 0, 0)
		}
		for i := range w.Size() - 1 {
			s, err := w.Recv(make([]byte, 1), mpi.AnySource, 0)
			if err != nil {
				return err
			}
			if i == 0 && s.Source == 2 {
				fmt.Println("rank 2 was first")
				return fmt.Errorf("the message of rank %d arrived first", s.Source)
			}
		}
		return nil
	}
}

func TestExploreWritesReplayFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "first.replay")
	args := []string{"explore", "-n", "3", "--seed", "5", "--out", file, os.Args[0], testRanks, "second-first"}
	code, stdout, stderr := call(t, args...)
	const failure = "the message of rank 2 arrived first"
	if code != exitFailed || !strings.Contains(stdout, "FAILED: rank 0") || !strings.Contains(stdout, failure) || strings.Contains(stdout, "rank 2 was first") {
		t.Fatalf("exit code %d:\n%s\n%s", code, stdout, stderr)
	}
	folder := t.TempDir()
	pcap, page := filepath.Join(folder, "first.pcapng"), filepath.Join(folder, "first.html")
	code, stdout, stderr = call(t, "replay", filepath.Dir(file), "--trace", "--pcap", pcap, "--html", page)
	for _, want := range []string{
		"  rank 2 was first\n", "==> choice ", ": event:", ", before a packet of ", "ACKNOWLEDGE", "==> FAILED: ", failure, "fails with the same message",
		"rank 0: Recv from any, tag 0, 1 byte  (explore_test.go:", "rank 2: Send to 0, tag 0, 1 byte  (explore_test.go:",
		"rank 0: Recv returns, with the message of rank 2\n", "rank 0 fails: " + failure,
	} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, no %q in:\n%s\n%s", code, want, stdout, stderr)
		}
	}
	if code, stdout, _ := call(t, "capture", "show", pcap); code != exitOK || !strings.Contains(stdout, "SEND_ONLY") {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
	if html := string(must.Get(os.ReadFile(page))(t)); !strings.Contains(html, `<g class="call message"`) || !strings.Contains(html, failure) {
		t.Errorf("the page has no call or no failure: %s", html)
	}
	text := string(must.Get(os.ReadFile(file))(t))
	for from, to := range map[string][2]string{
		"second-first": {"swap", "diverged"},
		"rank 2":       {"rank 7", "fails in another way"},
	} {
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, from, to[0])), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, stdout, _ := call(t, "replay", file); code != exitFailed || !strings.Contains(stdout, to[1]) {
			t.Errorf("%s: exit code %d:\n%s", from, code, stdout)
		}
	}
}

func init() {
	// Rank 0 writes data and a flag, and rank 1 prints the data when it sees the flag.
	rankPrograms["flag"] = func(w *mpi.World) error {
		win, err := w.WinAllocate(16)
		if err == nil {
			err = win.LockAll(0)
		}
		if err == nil && w.Rank() == 0 {
			err = win.Put([]byte{7}, 1, 0)
			err = errors.Join(err, win.Put([]byte{1}, 1, 8))
		}
		for range 5000 * w.Rank() { // polls
			if memory := win.Memory(); memory[8] == 1 {
				fmt.Printf("the data is %d\n", memory[0])
				break
			}
			w.Compute(200 * time.Nanosecond)
		}
		return errors.Join(err, win.UnlockAll(), win.Free())
	}
}

func TestExploreRobustComparesOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flag.replay")
	args := []string{"explore", "--robust", "--progress", "background", "--runs", "30", "--shrink", "100", "--out", file, os.Args[0], testRanks, "flag"}
	code, stdout, stderr := call(t, args...)
	for _, want := range []string{
		"NOT ROBUST", "Links in-order, placement strict: 30 runs with ", "output: the data is 0\n", "rank 0, Win.Put at ", "Repeat it with",
	} {
		if code != exitFailed || !strings.Contains(stdout, want) {
			t.Fatalf("exit code %d, no %q in:\n%s\n%s", code, want, stdout, stderr)
		}
	}
	if code, stdout, _ := call(t, "replay", file, "--trace"); code != exitOK || !strings.Contains(stdout, "fails with the same message") || !strings.Contains(stdout, " B to memory by ") {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
	code, stdout, _ = call(t, "explore", "--robust", "--runs", "5", "pingpong", "--iterations", "1", "--bytes", "8")
	if code != exitOK || !strings.Contains(stdout, "\nROBUST: ") {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
}

func TestExploreReportsWhatWasRun(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--runs 20 pingpong --iterations 1 --bytes 8", "No run failed. Not all runs were run."},
		{"--faults 1 --order sprayed --strategy exhaustive --runs 20 pingpong --iterations 1 --bytes 8", "runs left"},
		{"--strategy exhaustive --reorder 0s --depth 1 pingpong --iterations 1 --bytes 8", "all runs with up to 1 choices"},
	} {
		code, stdout, stderr := call(t, append([]string{"explore", "-n", "2", "--buffers", "few"}, strings.Fields(c.args)...)...)
		if code != exitOK || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit code %d:\n%s\n%s", c.args, code, stdout, stderr)
		}
	}
}

func TestExploreRefusesInvalidArguments(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "name a program or a workload",
		"--order random pingpong":   "give in-order or sprayed",
		"--strategy magic pingpong": "--strategy magic: give",
		"--faults -1 pingpong":      "--faults -1: give 0",
		"--buffers many pingpong":   "--buffers many",
		"no-such-workload":          "there is no program no-such-workload",
		"--provider softiwarp --faults 1 pingpong": "over TCP",
	} {
		code, stdout, stderr := call(t, append([]string{"explore"}, strings.Fields(args)...)...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q in:\n%s\n%s", args, code, want, stdout, stderr)
		}
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "bad.replay")
	for text, want := range map[string]string{
		"version: 7\nprogram: [a]\n": "version 7",
		"{":                          "is not a replay file",
		"version: 1\nprogram: []\n":  "is not a replay file",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := call(t, "replay", folder); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", text, code, stderr)
		}
	}
}

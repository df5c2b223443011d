package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

func TestRunWithManySeeds(t *testing.T) {
	code, out, stderr := call(t, "run", "clean-rc", "exact-drops", "--seeds", "3", "--seed", "7")
	// On a slow machine there is progress to report.
	stderr = regexp.MustCompile(`(?m)^\d of 6 runs, seed \d, 0 failed, about .* left\n`).ReplaceAllString(stderr, "")
	if code != exitOK || stderr != "" || !strings.HasPrefix(out, "6 runs of 2 scenarios with seeds 7 to 9 in ") || !strings.HasSuffix(out, ": 0 failed.\n") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
}

// Every seed that fails is named, with a command that fails for the same reason.
func TestRunWithManySeedsPrintsReplayCommands(t *testing.T) {
	code, out, _ := call(t, "run", "loss-5-percent", "--seeds", "2", "--defect", "AckCompletesRead", "--messages", "50")
	failed := regexp.MustCompile(`(?m)^FAILED  loss-5-percent with seed (\d+): (.*)$`).FindAllStringSubmatch(out, -1)
	if code != exitFailed || len(failed) == 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, f := range failed {
		seed, reason := f[1], f[2]
		replay := "run loss-5-percent --on sim --seed " + seed + " --messages 50 --defect AckCompletesRead"
		if !strings.Contains(out, cmdline.GoRun+" "+replay+"\n") {
			t.Errorf("seed %s has no command that repeats it:\n%s", seed, out)
		}
		code, again, _ := call(t, append(strings.Fields(replay), "--capture", "none", "--json")...)
		if code != exitFailed || !strings.Contains(again, strings.SplitN(reason, " ", 2)[0]) {
			t.Errorf("seed %s failed by %q, and the command says otherwise (exit code %d)", seed, reason, code)
		}
	}
}

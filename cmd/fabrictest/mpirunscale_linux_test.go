package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

var scale = flag.Bool("scale", false, "also run a thousand ranks, which takes ten seconds of processor time")

// A thousand ranks start in one process, pass a ring, a barrier and an all-to-all of 8
// bytes, and check what came; within a minute of processor time, whatever else the
// machine is busy with, and in 4 GB.
func TestAThousandRanks(t *testing.T) {
	if !*scale {
		t.Skip("only with -scale, as .ci/rotate has it")
	}
	t.Parallel() // to what is asleep; the time of the processor is its own
	const within, most = time.Minute, 4e9
	ctx, cancel := context.WithTimeout(t.Context(), 5*within)
	defer cancel()
	cmd := exec.CommandContext(ctx, testProgram(t), words("mpirun -n 1024 --on sim --stats smoke")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// The largest of all processes that it has waited for.
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%v, %d MB at most\n%s", took, peak/1e6, &out)
	if took > within || peak > most || peak < 100e6 {
		t.Errorf("a thousand ranks take %v and %d MB", took, peak/1e6)
	}
	// Of each rank: two looks at the token, twenty at the barrier, and what came from all.
	const checks = 1024 * (2 + 20 + 1024)
	for _, want := range []string{
		"smoke, class T, 1024 ranks: 1 iteration in ", fmt.Sprintf("; %d checks of ", checks), "time a hop", "time a barrier", "time an all-to-all", "1024 of 1024 ranks",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

// A terminal that is closed sends SIGHUP to all processes of its foreground group.
// A process started by nohup ignores SIGHUP, and so do its children: the handler here
// gives the children the default action.
func TestHangUpLeavesAReport(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	self := must.Get(os.Executable())(t)
	for name, c := range map[string]struct {
		args  []string
		begun string // the file that shows that it is under way
		left  []string
		netns bool
	}{
		"run in simulation": {[]string{"run", "pingpong", "--on", "sim", "--messages", "1000000"}, "scenarios/pingpong.yaml", []string{"result.json", "report.html", "junit.xml"}, false},
		"run in namespaces": {[]string{"run", "pingpong", "--on", "netns", "--messages", "1000000"}, "pingpong-netns/host1.pcapng", []string{"result.json", "report.html", "junit.xml"}, true},
		"conform":           {[]string{"conform", "rc", "--on", "sim", "--schedules", "100000", "--capture", "all"}, "captures", []string{"conformance.json", "report.html", "junit.xml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := netns.Available(); c.netns && err != nil {
				t.Skip(err)
			}
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "out")
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), self, append(c.args, "--out", dir)...)
			cmd.Args[0] = "fabrictest"
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			must.Do(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			for begun := false; !begun; {
				select {
				case err := <-ended:
					t.Fatalf("it ended before it was begun: %v\n%s", err, out.String())
				case <-time.After(10 * time.Millisecond):
					_, err := os.Stat(filepath.Join(dir, c.begun))
					begun = err == nil
				}
			}
			must.Do(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP))
			<-ended
			if code := cmd.ProcessState.ExitCode(); code != 129 {
				t.Errorf("exit code %d, want 129\n%s", code, out.String())
			}
			for _, name := range c.left {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

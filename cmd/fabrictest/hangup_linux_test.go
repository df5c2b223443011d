package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
)

// A terminal that is closed sends SIGHUP to all processes of its foreground group.
// A process started by nohup ignores SIGHUP, and so do its children: the handler here
// gives the children the default action.
func TestReportIsWrittenAfterSIGHUP(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	self := must.Get(os.Executable())(t)
	for name, c := range map[string]struct {
		args  []string
		begun string   // a file that exists once the run has begun
		files []string // that the report consists of
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
					t.Fatalf("it ended before %s existed: %v\n%s", c.begun, err, out.String())
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
			for _, name := range c.files {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

var thousandRanks = flag.Bool("scale", false, "also run a thousand ranks, which takes ten seconds of processor time")

// 1024 ranks in one process complete and check a ring, a barrier and an all-to-all of 8 bytes,
// within a minute of CPU time and 4 GB of memory.
func TestAThousandRanks(t *testing.T) {
	if !*thousandRanks {
		t.Skip("only with -scale, as in .ci/rotate")
	}
	t.Parallel() // it measures its own CPU time only
	const within, most = time.Minute, 4e9
	ctx, cancel := context.WithTimeout(t.Context(), 5*within)
	defer cancel()
	cmd := exec.CommandContext(ctx, testProgram(t), splitArgs("mpirun -n 1024 --on sim --stats smoke")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// The largest resident set of the processes that it has waited for.
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%v, %d MB at most\n%s", took, peak/1e6, &out)
	if took > within || peak > most || peak < 100e6 {
		t.Errorf("1024 ranks take %v and %d MB", took, peak/1e6)
	}
	// Each rank checks the token twice, the barrier 20 times, and one block of each rank.
	const checks = 1024 * (2 + 20 + 1024)
	wantIn(t, out.String(),
		"smoke, class T, 1024 ranks: 1 iteration in ", fmt.Sprintf("; %d checks of ", checks), "time a hop", "time a barrier", "time an all-to-all", "1024 of 1024 ranks",
	)
}

// certifiedFolder returns the folder of a certificate with one case, which passed.
func certifiedFolder(t *testing.T, change func(*conform.Run, *certificate.Subject)) string {
	t.Helper()
	dir := t.TempDir()
	run := &conform.Run{
		Version: conform.Version, Tool: report.ToolVersion(), Seed: 1, Tier: runner.WireTier,
		Documents: []conform.Document{{Key: "roce", Title: "RoCEv2", Sections: []conform.Section{{Title: "PSNs", Rows: []conform.Row{{ID: "roce/psn/1", Level: "MUST", Text: "One."}}}}}},
		Devices: []conform.Device{{Name: "rxe0", Title: "RoCEv2", Results: []conform.Result{
			{ID: "rc/psn/one", Suite: "roce", Title: "It works", Level: "MUST", Rows: []string{"roce/psn/1"}, Verdict: conform.Pass},
		}}},
	}
	subject := certificate.Subject{Device: "rxe0", Driver: "rdma_rxe", Kernel: "6.12"}
	if change != nil {
		change(run, &subject)
	}
	c, err := certificate.New(run, subject, certificate.Judge{Wire: "AF_PACKET on eth1"})
	if err == nil {
		err = c.WriteFolder(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A command that opens a named pipe to read waits for a writer forever. The test tries to open the
// pipe to write while the command runs, which succeeds once there is a reader.
func TestCommandsDoNotOpenNamedPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	replaced := func(folder, name string) string {
		file := filepath.Join(folder, name)
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		must.Do(t, os.Symlink(pipe, file))
		return folder
	}
	key, saved := filepath.Join(dir, "key"), filepath.Join(dir, "saved")
	for _, args := range [][]string{{"agent", "key", key}, {"run", "pingpong", "--on", "sim", "--out", saved}} {
		if code, _, stderr := call(t, args...); code != exitOK {
			t.Fatal(stderr)
		}
	}
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	signed := certifiedFolder(t, nil)
	must.Do(t, os.WriteFile(filepath.Join(signed, certificate.SignatureFile), []byte("none"), 0o600))
	device := []string{"certify", "--device", "rxe0", "--interface", "lo", "--out", filepath.Join(dir, "out"), "--agent", "127.0.0.1:1"}
	for name, args := range map[string][]string{
		"scenario":              {"run", pipe, "--on", "sim"},
		"listed scenario":       {"list", "scenarios", pipe},
		"fabric of a scenario":  {"lab", "exec", "--like", pipe, "--", "true"},
		"result":                {"replay", replaced(t.TempDir(), report.ResultFile)},
		"scenario of a run":     {"replay", replaced(filepath.Join(saved, "scenarios"), "pingpong.yaml") + "/..", "--all"},
		"key of an agent":       {"agent", "--listen", "127.0.0.1:0", "--key", pipe, "--emulate", "softiwarp", "--interface", "lo"},
		"key of a caller":       append(device, "--key", pipe),
		"key to sign with":      append(device, "--key", key, "--sign", pipe),
		"known deviations":      {"conform", "rc/psn", "--device", "softroce", "--deviations", pipe},
		"program of a guest":    {"certify", "--guest", "rxe", "--agent-program", pipe, "--out", filepath.Join(dir, "out")},
		"file for a guest":      {"lab", "kernel", "put", "1", pipe},
		"certificate":           {"certify", "verify", replaced(certifiedFolder(t, nil), certificate.File)},
		"page of a certificate": {"certify", "verify", replaced(certifiedFolder(t, nil), certificate.PageFile)},
		"manifest":              {"certify", "verify", replaced(certifiedFolder(t, nil), certificate.ManifestFile)},
		"signature":             {"certify", "verify", replaced(certifiedFolder(t, nil), certificate.SignatureFile)},
		"signature to check":    {"certify", "verify", replaced(certifiedFolder(t, nil), certificate.SignatureFile), "--signers", key},
		"signers":               {"certify", "verify", signed, "--signers", pipe},
		"compared certificate":  {"certify", "compare", replaced(certifiedFolder(t, nil), certificate.File)},
		"compared results":      {"certify", "compare", replaced(t.TempDir(), conform.ResultFile)},
		"capture":               {"capture", "show", pipe},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("ssh-keygen"); err != nil && strings.HasPrefix(name, "sign") {
				t.Skip("without ssh-keygen no signature is read")
			}
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			var out bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- execute(t.Context(), cli.GoRun, args, &out, &out) }()
			for {
				select {
				case code := <-ended:
					if code == exitOK || !strings.Contains(out.String(), "not a regular file") {
						t.Errorf("exit code %d: %s", code, out.String())
					}
					return
				case <-time.After(time.Millisecond):
				}
				if w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
					w.Close()
					t.Error("the command opened the pipe")
				}
			}
		})
	}
}

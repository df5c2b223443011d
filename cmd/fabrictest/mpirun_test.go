package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// testRanks makes the test binary run the rank program that the next argument names.
const testRanks = "test-ranks"

func init() {
	if len(os.Args) > 2 && os.Args[1] == testRanks {
		mpi.Main(rankPrograms[os.Args[2]])
	}
	if len(os.Args) > 1 && (os.Args[1] == mpirun.ProcessCommand || os.Args[1] == mpirun.ProxyCommand || os.Args[1] == mpirun.WorkloadCommand || os.Args[1] == mpirun.MemoryCommand) {
		main()
	}
}

var rankPrograms = map[string]func(*mpi.World) error{
	"swap": func(w *mpi.World) error {
		var got [1]byte
		other := w.Size() - 1 - w.Rank()
		s, err := w.Sendrecv([]byte{byte(w.Rank())}, other, 1, got[:], other, 1)
		if err == nil && (int(got[0]) != other || s.Source != other) {
			err = fmt.Errorf("received %d from %d", got[0], other)
		}
		fmt.Printf("rank %d of %d\n", w.Rank(), w.Size())
		return err
	},
	"fails": func(w *mpi.World) error {
		if w.Rank() == 1 {
			return errors.New("out of paper")
		}
		_, err := w.Recv(make([]byte, 1), 1, 1)
		if !errors.Is(err, mpi.ErrPeerLost) {
			return fmt.Errorf("rank 1 has failed: %v", err)
		}
		fmt.Printf("rank %d detected it\n", w.Rank())
		return nil
	},
	"abort": func(w *mpi.World) error {
		if w.Rank() == 1 {
			w.Abort(9, "enough")
		}
		_, err := w.Recv(make([]byte, 1), w.Rank(), 1)
		return err
	},
	"forever": func(w *mpi.World) error {
		fmt.Println("begun")
		_, err := w.Recv(make([]byte, 1), w.Rank(), 1)
		return err
	},
}

// writeRankProgram writes ./my-ranks, a rank program that the help mentions, to a new folder,
// which becomes the current one.
func writeRankProgram(t *testing.T, program string) {
	t.Helper()
	t.Chdir(t.TempDir())
	writeRankProgramTo(t, ".", program)
}

// writeRankProgramTo writes my-ranks to the folder dir.
func writeRankProgramTo(t *testing.T, dir, program string) {
	t.Helper()
	text := fmt.Sprintf("#!/bin/sh\nexec %s %s %s\n", must.Get(os.Executable())(t), testRanks, program)
	must.Do(t, os.WriteFile(filepath.Join(dir, "my-ranks"), []byte(text), 0o755))
}

// runWithTimeout runs the program as runProgram does, for at most a minute, because ranks may hang.
func runWithTimeout(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testProgram(t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func TestMPIRunHelpIsGolden(t *testing.T) {
	code, out, stderr := call(t, "mpirun", "--help")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	golden(t, "help-mpirun", out)
}

func TestMPIRunExamplesSucceed(t *testing.T) {
	noNamespaces := netns.Available()
	writeRankProgram(t, "swap")
	cmd, _, err := newRootCommand("fabrictest").Find([]string{"mpirun"})
	must.Do(t, err)
	lines := examplesOf(cmd)
	if len(lines) < 4 {
		t.Errorf("%d examples: %q", len(lines), lines)
	}
	for _, line := range lines {
		if noNamespaces != nil && !strings.Contains(line, "sim") || strings.Contains(line, "--hosts") { // there are no such hosts
			continue
		}
		if code, out := runWithTimeout(t, splitArgs(line)...); code != exitOK {
			t.Errorf("fabrictest %s: exit code %d\n%s", line, code, out)
		}
	}
}

func TestMPIRunExitCodeAndOutput(t *testing.T) {
	needNamespaces(t)
	self := must.Get(os.Executable())(t)
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--on netns -n 4 --per-host 2 -l swap", 0, []string{"0: rank 0 of 4\n", "3: rank 3 of 4\n"}},
		{"--on sim -n 4 swap", 0, []string{"rank 0 of 4\n", "rank 3 of 4\n"}},
		{"--on sim -n 4 ring", 0, []string{"ring, class T, 4 ranks: "}},
		{"--on netns -n 4 --stats ring", 0, []string{"ring, class T, 4 ranks: ", "4 of 4 ranks", "eager messages sent"}},
		{"--on netns -n 3 fails", 1, []string{"fabrictest: rank 1 on host1 failed: mpi: rank 1 of 3: out of paper\n"}},
		{"--on netns -n 3 --keep-going fails", 1, []string{"out of paper\n", "rank 0 detected it\n", "rank 2 detected it\n"}},
		{"--on sim -n 3 fails", 1, []string{"rank 1 on host1: mpi: rank 1 of 3: out of paper", "rank 0 detected it\n", "rank 2 detected it\n"}},
		{"--on netns -n 3 --keep-going abort", 9, []string{"rank 1 aborted all ranks with code 9: enough"}},
		{"--on sim -n 3 abort", 9, []string{"rank 1 aborted all ranks with code 9: enough"}},
		{"--on moon -n 2 --platform r805-ib-connectx-ddr ring", 2, []string{"--on moon: give sim or netns"}},
		{"--on sim -n 2 --limit 10s forever", 1, []string{"the limit of time is reached at 9"}},
	} {
		args := append([]string{"mpirun"}, splitArgs(c.args)...)
		if last := len(args) - 1; rankPrograms[args[last]] != nil {
			args = append(args[:last:last], self, testRanks, args[last])
		}
		code, out := runWithTimeout(t, args...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out)
			}
		}
	}
}

// --device needs libibverbs, and excludes the flags of emulated NICs.
func TestMPIRunDeviceFlag(t *testing.T) {
	for _, flag := range []string{"--on netns", "--provider softroce", "--platform r805-iwarp-ne020", "--cable shm", "--no-icrc", "--mtu 1500", "--loss 1%", "--rails 2"} {
		args := append([]string{"mpirun", "--device", "rxe0"}, append(splitArgs(flag), "ring")...)
		want := strings.Fields(flag)[0] + " is for emulated NICs: leave it out, or --device"
		if code, _, errs := call(t, args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, want %q: %s", flag, code, want, errs)
		}
	}
	want := "built without libibverbs; on Linux: apt install"
	if ibv.Linked {
		want = "no-such-device"
	}
	if code, _, errs := call(t, "mpirun", "--device", "no-such-device", "ring"); code == exitOK || !strings.Contains(errs, want) {
		t.Errorf("exit code %d, want %q: %s", code, want, errs)
	}
}

// Ranks on several hosts need their NICs, and have no flags of created fabrics.
func TestMPIRunHostsFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--hosts a,b":                                      "name the RDMA device of the hosts with --device, or a network interface for emulated NICs with --netdev",
		"--hosts a,b --device x --netdev eth0":             "give --device or --netdev, not both",
		"--hosts a --hostfile b --netdev eth0":             "give --hosts or --hostfile, not both",
		"--hosts a:0 --netdev eth0":                        `--hosts: "a:0": "0" ranks: give 1 to 4096`,
		"--hosts a:2,b:2 -n 9 --netdev eth0":               "--hosts: the hosts have 4 ranks, and not 9",
		"--hosts a,b --per-host 2 -n 9 --netdev eth0":      "--hosts: the hosts have 4 ranks, and not 9",
		"--hostfile /no/such/file --netdev eth0":           "--hostfile: stat /no/such/file: no such file or directory",
		"--hosts a --netdev eth0 --arrivals":               "--arrivals: the clocks of several hosts differ",
		"--hosts a --netdev eth0 --launcher=":              "--launcher is empty",
		"--hosts a --netdev eth0 --on netns":               "--on is for a fabric that is created: leave it out, or --netdev",
		"--hosts a --netdev eth0 --loss 1%":                "--loss is for a fabric that is created",
		"--hosts a --device mlx5_0 --provider softroce":    "--provider is for emulated NICs: leave it out, or --device",
		"--netdev eth0":                                    "--netdev is for ranks on several hosts: name them with --hosts",
		"--launcher rsh":                                   "--launcher is for ranks on several hosts",
		"--hosts a --netdev eth0 --provider no-such-thing": `no provider "no-such-thing"`,
	} {
		words := append([]string{"mpirun"}, append(strings.Split(args, " "), "ring")...)
		if code, _, errs := call(t, words...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, want %q: %s", args, code, want, errs)
		}
	}
}

// The workload runs on hosts, here the same machine, and fails because none of them has the interface.
func TestMPIRunStartsProxies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "launcher")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o755))
	code, out := runWithTimeout(t, "mpirun", "--hosts", "a:2,b", "--netdev", "no-such-interface", "--launcher", path, "ring")
	if code != exitFailed || !strings.Contains(out, "fabrictest: host ") || !strings.Contains(out, ": network interface no-such-interface: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// The published figures are those of MPI ping-pongs. Only the latency of RDMA writes and the rates of
// links and buses were used to fit the platforms.
func TestPlatformsPredictPingPongs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		platform, eager, bytes, figure, unit string
		published                            float64
	}{
		{"r805-ib-connectx-ddr", "9216", "8", "latency", "us", 1.5},
		{"r805-ib-connectx-ddr", "9216", "1048576", "bandwidth", "MB/s", 1600},
		{"r805-iwarp-ne020", "32768", "8", "latency", "us", 7},
		{"r805-iwarp-ne020", "32768", "1048576", "bandwidth", "MB/s", 1100},
	} {
		code, out := runWithTimeout(t, "mpirun", "-n", "2", "--platform", c.platform, "--eager", c.eager, "--protocol", "rput", "pingpong", "--bytes", c.bytes)
		_, value, _ := strings.Cut(out, c.figure+" "+c.bytes+" B ")
		value, _, ok := strings.Cut(value, " "+c.unit)
		got, err := strconv.ParseFloat(value, 64)
		if code != exitOK || !ok || err != nil || math.Abs(got/c.published-1) > 0.15 {
			t.Errorf("%s: %s of %s bytes is %v %s, published %v; exit code %d\n%s", c.platform, c.figure, c.bytes, got, c.unit, c.published, code, out)
		}
	}
}

// SIGINT ends the ranks, and the exit code is 128 and the number of the signal.
func TestMPIRunEndsRanksOnInterrupt(t *testing.T) {
	needNamespaces(t)
	program := testProgram(t)
	writeRankProgram(t, "forever")
	cmd := exec.Command(program, "mpirun", "--on", "netns", "-n", "2", "./my-ranks")
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d", code)
	}
}

func TestMPIRunOffersCompletions(t *testing.T) {
	for typed, want := range map[string]string{
		"--on s": "sim", "--provider soft": "softiwarp", "--design s": "srq", "--protocol r": "rput", "--progress b": "background", "r": "ring\t",
	} {
		_, out, _ := call(t, append([]string{"__complete", "mpirun"}, strings.Fields(typed)...)...)
		if !strings.Contains(out, want) {
			t.Errorf("mpirun %s<TAB>: no %s in\n%s", typed, want, out)
		}
	}
}

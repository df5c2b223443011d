package live

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/netns"
)

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"lab": true, "a": true, "My-lab_2.0": true, strings.Repeat("x", 63): true,
		"": false, "-x": false, ".x": false, "a/b": false, "a b": false, "a\x00b": false, "ä": false, strings.Repeat("x", 64): false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if good {
			continue
		}
		if err := Up(t.Context(), Config{Name: name, Scenario: star(2)}); err == nil || !strings.Contains(err.Error(), "invalid lab name") {
			t.Errorf("up %q: %v", name, err)
		}
		if _, err := Query(t.Context(), name); err == nil || !strings.Contains(err.Error(), "invalid lab name") {
			t.Errorf("query %q: %v", name, err)
		}
	}
}

func TestLabIsListedUntilItIsDown(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	if names, err := List(t.Context()); err != nil || !slices.Contains(names, name) {
		t.Errorf("%v, %v", names, err)
	}
	info := mustAnswer(t, name)
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", info.PID)); err != nil || cwd != "/" {
		t.Errorf("its working directory is %s, %v; want /", cwd, err)
	}
	if err := Up(t.Context(), Config{Name: name, Scenario: star(2)}); !errors.Is(err, ErrAlreadyUp) {
		t.Errorf("a second one: %v", err)
	}
	must.Do(t, Down(t.Context(), name))
	// Its parent, this process, may not have reaped it yet.
	if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", info.PID)); len(stat) > 0 && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("its process %d still runs: %s", info.PID, stat)
	}
	var gone *daemon.NotUpError
	if _, err := Query(t.Context(), name); !errors.As(err, &gone) || gone.CrashLog != "" {
		t.Errorf("afterwards: %v", err)
	}
	if left, _ := filepath.Glob(os.Getenv("XDG_CACHE_HOME") + "/fabrictest/labs/" + name + "*"); len(left) > 0 {
		t.Errorf("%v remain", left)
	}
}

// Down waits for the process after its sockets are closed. Here this process is the lab.
func TestDownWaitsForTheProcess(t *testing.T) {
	name := fmt.Sprintf("down-%d", os.Getpid())
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: labDaemons.Socket(name), Net: "unix"}))(t)
	served := make(chan error, 1)
	go func() {
		conn, err := listener.AcceptUnix()
		if err == nil {
			_, err = daemon.ReceiveFiles(conn)
			frames := control.New(conn, control.Config{})
			p := control.Protocol{Version: labDaemons.Version, MaxHello: 1000}
			err = errors.Join(err, frames.ReadHello(p, new(request)), daemon.SendFiles(conn), frames.Write(control.Frame{Kind: control.Reply}), conn.Close())
		}
		served <- errors.Join(err, listener.Close())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := Down(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("down: %v", err)
	}
	must.Do(t, <-served)
}

// Calls time out, and the error has the PID.
func TestStoppedLabIsReported(t *testing.T) {
	name := up(t, 2)
	pid := mustAnswer(t, name).PID
	stop := func(s syscall.Signal) {
		must.Do(t, syscall.Kill(pid, s))
	}
	stop(syscall.SIGSTOP)
	defer stop(syscall.SIGCONT)
	awaitStopped(t, pid)
	for what, do := range map[string]func(context.Context) error{
		"query": func(ctx context.Context) error { _, err := Query(ctx, name); return err },
		"down":  func(ctx context.Context) error { return Down(ctx, name) },
		"exec":  func(ctx context.Context) error { _, err := Exec(ctx, name, "host0", []string{"true"}); return err },
		"link":  func(ctx context.Context) error { return SetLink(ctx, name, "host0", false) },
	} {
		soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		within(t, labDaemons.ReplyTimeout/2, what, func() {
			var silent *NotRespondingError
			if err := do(soon); !errors.As(err, &silent) || silent.PID != pid || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
				t.Errorf("%s: %v", what, err)
			}
		})
		cancel()
		stopped, cancelNow := context.WithCancelCause(t.Context())
		why := errors.New("interrupted")
		time.AfterFunc(100*time.Millisecond, func() { cancelNow(why) })
		within(t, labDaemons.ReplyTimeout/2, what, func() {
			if err := do(stopped); !errors.Is(err, why) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	defer func(usual time.Duration) { labDaemons.ReplyTimeout = usual }(labDaemons.ReplyTimeout)
	labDaemons.ReplyTimeout = 500 * time.Millisecond
	within(t, 30*time.Second, "the reply timeout", func() {
		var silent *NotRespondingError
		if _, err := Query(t.Context(), name); !errors.As(err, &silent) {
			t.Error(err)
		}
	})
	if names, err := List(t.Context()); err != nil || !slices.Contains(names, name) {
		t.Errorf("the list has %v, %v", names, err)
	}
}

// awaitStopped waits until a process is stopped, since signals are asynchronous.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	await(t, "the lab is stopped", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(stat), ") T ")
	})
}

func TestSignalToStoppedLabTimesOut(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	pid := mustAnswer(t, name).PID
	cmd := role(t, roleExec, name, "host0", "sleep", "600")
	cmd.Env = append(cmd.Env, replyTimeoutVar+"=3s") // enough while the lab still runs
	output := filepath.Join(t.TempDir(), "output")   // not a pipe, which the program would keep open
	out := must.Get(os.Create(output))(t)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	must.Do(t, cmd.Start())
	await(t, "the program runs", func() bool { return mustAnswer(t, name).Programs == 1 })
	must.Do(t, syscall.Kill(pid, syscall.SIGSTOP))
	awaitStopped(t, pid)
	must.Do(t, cmd.Process.Signal(syscall.SIGINT))
	within(t, time.Minute, "the end", func() { _ = cmd.Wait() }) // the output has the error
	must.Do(t, syscall.Kill(pid, syscall.SIGCONT))
	if text, err := os.ReadFile(output); err != nil || !strings.Contains(string(text), "does not answer") {
		t.Errorf("output %q, %v", text, err)
	}
}

func TestKilledLabLeavesNoProcesses(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	pid := mustAnswer(t, name).PID
	token := "FABRICTEST_TOKEN=" + name
	cmd := role(t, roleExec, name, "host1", "sh", "-c", "setsid sleep 600 & exec sleep 600")
	cmd.Env = append(cmd.Env, token)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	await(t, "the program runs", func() bool { return mustAnswer(t, name).Programs == 1 })
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	_ = cmd.Wait() // the output has the error
	if want := "lab " + name + " went down\n"; out.String() != want {
		t.Errorf("the client printed %q, want %q", out.String(), want)
	}
	await(t, "its programs have ended", func() bool { return !runsWith(token) })
	// The kernel closes sockets one by one, and the client notices the first.
	await(t, "its socket is closed", func() bool {
		sockets, err := os.ReadFile("/proc/net/unix")
		return err == nil && !strings.Contains(string(sockets), labDaemons.Socket(name))
	})
	var gone *daemon.NotUpError
	if _, err := Query(t.Context(), name); !errors.As(err, &gone) || gone.CrashLog != "" {
		t.Errorf("%v", err)
	}
	if err := Up(t.Context(), Config{Name: name, Scenario: star(2), Direct: true}); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
}

func TestCrashLeavesLog(t *testing.T) {
	t.Parallel()
	name := up(t, 2)
	if err := syscall.Kill(mustAnswer(t, name).PID, syscall.SIGQUIT); err != nil { // a crash in Go
		t.Fatal(err)
	}
	var gone *daemon.NotUpError
	await(t, "the lab is down", func() bool {
		_, err := Query(t.Context(), name)
		return errors.As(err, &gone) && gone.CrashLog != ""
	})
	// The process may still be writing the log.
	await(t, "the trace has its goroutines", func() bool {
		text, err := os.ReadFile(gone.CrashLog)
		return err == nil && strings.Contains(string(text), "goroutine ")
	})
	if !strings.Contains(gone.Error(), gone.CrashLog) {
		t.Errorf("%v does not name %s", gone, gone.CrashLog)
	}
	await(t, "the name is free", func() bool { // once its process has ended
		return Up(t.Context(), Config{Name: name, Scenario: star(2), Direct: true}) == nil
	})
	must.Do(t, Down(t.Context(), name))
	if _, err := os.Stat(gone.CrashLog); err == nil {
		t.Error("the old trace is still there")
	}
}

func TestUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("live-cancelled-%d", os.Getpid())
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	if err := Up(ctx, Config{Name: name, Scenario: star(2)}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	var gone *daemon.NotUpError
	if _, err := Query(t.Context(), name); !errors.As(err, &gone) {
		t.Errorf("it is there all the same: %v", err)
	}
}

// Every NIC gets a kernel RDMA device, or Up fails with the reason.
func TestUpWithKernelRDMA(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	can := map[string]bool{}
	for _, c := range netns.Probe() {
		can[c.Name] = c.State == netns.Yes
	}
	for _, kind := range []string{"rxe", "siw"} {
		name := fmt.Sprintf("live-%s-%d", kind, os.Getpid())
		err := Up(t.Context(), Config{Name: name, Scenario: star(2), RDMA: kind})
		if can["kernel "+kind] {
			out, bad := role(t, roleExec, name, "host1", "ls", "/sys/class/infiniband").CombinedOutput()
			if err := errors.Join(err, bad, Down(t.Context(), name)); err != nil || !strings.Contains(string(out), name+"-host1-rdma0") {
				t.Errorf("%s: %v, the host has %s", kind, err, out)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "rdma link add "+name+"-host0-rdma0 type "+kind) {
			t.Errorf("%s: %v", kind, err)
		}
		var gone *daemon.NotUpError
		if _, err := Query(t.Context(), name); !errors.As(err, &gone) {
			t.Errorf("%s: it is there all the same: %v", kind, err)
		}
	}
}

func TestCaptureHasPackets(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("live-capture-%d", os.Getpid())
	file := filepath.Join(t.TempDir(), "lab.pcapng")
	must.Do(t, Up(t.Context(), Config{Name: name, Scenario: star(2), Capture: file}))
	self := must.Get(os.Executable())(t)
	to := fmt.Sprintf("%v:4791", mustAnswer(t, name).Topology.Hosts[1].NICs[0].Addr(true))
	in := func(host, part string) *exec.Cmd {
		return role(t, roleExec, name, host, "env", roleVariable+"="+part, self, to)
	}
	receiver := in("host1", roleReceive)
	output := must.Get(receiver.StdoutPipe())(t)
	receiver.Stderr = os.Stderr
	must.Do(t, receiver.Start())
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "listening" {
		t.Fatalf("the receiver printed %q", lines.Text())
	}
	if out, err := in("host0", roleSend).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := receiver.Wait(); err != nil { // the datagram has arrived
		t.Fatal(err)
	}
	must.Do(t, Down(t.Context(), name))
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(text, []byte("captured datagram")) {
		t.Errorf("%d bytes without the datagram, %v", len(text), err)
	}
}

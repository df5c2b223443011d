package netns_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// output is a buffer that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// unshared starts a shell command with StartUnshared.
func unshared(t *testing.T, script string, prepare func(*exec.Cmd)) (*exec.Cmd, *output) {
	t.Helper()
	needNamespaces(t)
	out := &output{}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = out, out
	if prepare != nil {
		prepare(cmd)
	}
	must.Do(t, netns.StartUnshared(cmd))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, out
}

func TestUnshareReturnsExitCode(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9, "kill -TERM $$": 128 + 15,
	} {
		cmd, out := unshared(t, script, nil)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q ended with %d, want %d; output %q", script, got, want, out)
		}
	}
	cmd := exec.Command("/nowhere/program")
	out := &bytes.Buffer{}
	cmd.Stderr = out
	must.Do(t, netns.StartUnshared(cmd))
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 127 || !strings.Contains(out.String(), "/nowhere/program") {
		t.Errorf("a missing program ended with %d and %q", cmd.ProcessState.ExitCode(), out)
	}
	if err := netns.StartUnshared(exec.Command("no-such-program-in-path")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that is not in the path: %v", err)
	}
}

func TestUnsharedProgramInheritsFiles(t *testing.T) {
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	cmd, out := unshared(t, `id -u; echo "pid $$ of $PPID, $FABRICTEST_ENCLOSURE"; readlink /proc/self/ns/net; pwd; cat; echo hello >&3; exec 3>&-; sleep 100`,
		func(cmd *exec.Cmd) {
			cmd.ExtraFiles = []*os.File{w}
			cmd.Stdin = strings.NewReader("from standard input\n")
			cmd.Dir = "/proc"
		})
	must.Do(t, w.Close())
	// EOF arrives when the program closes the pipe: no other process holds it.
	got := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		got <- string(b)
	}()
	select {
	case s := <-got:
		if s != "hello\n" {
			t.Errorf("the extra file got %q", s)
		}
	case <-time.After(testTimeout):
		t.Error("the extra file stays open")
	}
	cmd.Process.Kill()
	cmd.Wait()
	outer := must.Get(os.Readlink("/proc/self/ns/net"))(t)
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 5 || lines[0] != "0" || !strings.HasSuffix(lines[1], "of 1, 1") || lines[2] == outer || lines[3] != "/proc" || lines[4] != "from standard input" {
		t.Errorf("the program saw %q", lines)
	}
}

func TestUnshareForwardsSignals(t *testing.T) {
	cmd, out := unshared(t, `trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.01; done`, nil)
	eventually(t, "the program is ready", func() bool { return strings.Contains(out.String(), "ready") })
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(out.String(), "got it") {
		t.Errorf("after SIGTERM it ended with %d and printed %q", cmd.ProcessState.ExitCode(), out)
	}
}

// Orphans must not remain as zombies, and reaping them must not take the exit
// status of other children.
func TestUnshareReapsOrphans(t *testing.T) {
	_, out := unshared(t, `
		for i in 1 2 3 4 5; do (true & true &) ; done
		for i in $(seq 1000); do
			z=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l)
			[ $z = 0 ] && break
			sleep 0.02
		done
		(exit 5) & wait $!; echo "zombies $z, child $?"; sleep 100`, nil)
	eventually(t, "all zombies are reaped", func() bool { return strings.Contains(out.String(), "zombies 0, child 5") })
}

func TestStartRunsProcessInHostNamespace(t *testing.T) {
	f := build(t, pair(t, topology.Options{}), netns.Options{})
	h := f.Host("host1")
	out := &bytes.Buffer{}
	cmd := exec.Command("/bin/sh", "-c", "readlink /proc/self/ns/net; ls /sys/class/net; cat /proc/net/dev")
	cmd.Stdout = out
	must.Do(t, h.NS.Start(cmd))
	must.Do(t, cmd.Wait())
	var inside string
	must.Do(t, h.NS.Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}))
	if !strings.HasPrefix(out.String(), inside+"\n") || !strings.Contains(out.String(), "rdma0:") {
		t.Errorf("the process printed %s, want %s and rdma0", out, inside)
	}
	// A container may forbid the sysfs mount; then this is not tested.
	if sys := strings.Fields(out.String())[1:3]; !slices.Equal(sys, []string{"lo", "rdma0"}) {
		t.Logf("/sys/class/net is not the host's: %q", sys)
	}
	// The process survives the end of threads and dies with the namespace.
	cmd = exec.Command("sleep", "100")
	must.Do(t, h.NS.Start(cmd))
	for range 20 {
		must.Do(t, h.NS.Do(func() error { return nil }))
	}
	runtime.GC()
	must.Do(t, cmd.Process.Signal(syscall.Signal(0)))
	must.Do(t, f.Close())
	if cmd.Wait(); !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("after Close the process ended with %v, want a kill", cmd.ProcessState)
	}
	if err := h.NS.Start(exec.Command("true")); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a process was started in a closed namespace: %v", err)
	}
	must.Do(t, f.Close()) // again
}

// The main thread, which /proc/self refers to, stays in its namespace, and so
// do the threads of ordinary goroutines.
func TestProcessStaysInItsNamespace(t *testing.T) {
	f := build(t, star(t, 8, topology.Options{}), netns.Options{})
	for _, h := range f.Topology().Hosts {
		cmd := exec.Command("true")
		must.Do(t, f.Host(h.Name).NS.Start(cmd))
		must.Do(t, cmd.Wait())
		must.Do(t, f.Host(h.Name).NS.Do(func() error { return nil }))
		first := must.Get(os.Readlink("/proc/self/ns/net"))(t)
		if ordinary := must.Get(os.Readlink("/proc/thread-self/ns/net"))(t); first != ordinary {
			t.Fatalf("the first thread of the process is in %s, and others in %s", first, ordinary)
		}
	}
}

func TestAvailableReportsLimit(t *testing.T) {
	needNamespaces(t)
	needOwnProc(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=limited")
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	err := cmd.Run()
	if strings.Contains(out.String(), unix.EROFS.Error()) {
		t.Skipf("the limit cannot be set here: %s", out)
	}
	must.Do(t, err)
	want := "no network namespaces: the limit user.max_user_namespaces is 0 (start in new namespaces: "
	if !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), "sysctl -w user.max_user_namespaces=") {
		t.Errorf("without user namespaces, Available returned %q", out)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("the error has %d lines", n)
	}
}

func init() { roles["limited"] = limited }

// limited, as root of a user namespace, sets the limit to 0 and calls Available
// in an unprivileged child.
func limited() int {
	if os.Getenv(roleVariable+"_CHILD") != "" {
		fmt.Println(netns.Available())
		return 0
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		fmt.Println(err)
		return 1
	}
	runtime.LockOSThread()
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"_CHILD=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestProbeReportsFeaturesOfTheseTests(t *testing.T) {
	needNamespaces(t)
	found := map[string]netns.Capability{}
	for _, c := range netns.Probe() {
		if c.State == netns.No && (c.Reason == "" || c.Cure == "") || c.For == "" {
			t.Errorf("%+v: reason, purpose or remedy is missing", c)
		}
		found[c.Name] = c
	}
	for _, name := range []string{"user namespaces", "network namespaces", "PID namespaces", "veth", "bridge", "IPv6", "packet sockets", "tbf", "blackhole"} {
		if found[name].State != netns.Yes && !strings.Contains(found[name].Reason, "cannot be tried") {
			t.Errorf("%s: %+v, though other tests use it", name, found[name])
		}
	}
	f := build(t, pair(t, topology.Options{}), netns.Options{})
	if err := f.Netem("host0", netns.NetemSpec{LossPPM: 1}); (err == nil) != (found["netem"].State == netns.Yes) {
		t.Errorf("netem: %+v, but %v", found["netem"], err)
	}
	routers, err := netns.Build(tree(t, 1, 1, 1, topology.Options{}), netns.Options{})
	if (err == nil) != (found["routing"].State == netns.Yes) {
		t.Errorf("routing: %+v, but %v", found["routing"], err)
	}
	if err == nil {
		must.Do(t, routers.Close())
	}
	for _, name := range []string{"tun", "netem", "kernel rxe", "kernel siw", "receive buffers", "send buffers", "descriptors"} {
		if found[name].Name == "" {
			t.Errorf("the probe does not report %s", name)
		}
	}
}

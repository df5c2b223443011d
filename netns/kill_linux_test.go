package netns_test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// Whichever process of a lab is killed, nothing of it remains. From the outside
// in: a "parent" starts an unshared "lab" through its init process, the lab
// builds a fabric, and each host runs a "rank" that leaves an "orphan".

func init() {
	roles["parent"] = parentRole
	roles["lab"] = labRole
	roles["rank"] = rankRole
	roles["orphan"] = sleepRole
}

// as runs this binary in another role.
func as(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", role)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVariable)+":", err)
		return 1
	}
	return 0
}

func parentRole() int {
	cmd := as("lab")
	if err := netns.StartUnshared(cmd); err != nil {
		return exitCode(err)
	}
	return exitCode(cmd.Wait())
}

func labRole() int {
	top, err := topology.Star(3, topology.Options{})
	if err != nil {
		return exitCode(err)
	}
	f, err := netns.Build(top, netns.Options{UserCable: func(c topology.Cable) bool { return c.A.Node == "host1" }})
	if err != nil {
		return exitCode(err)
	}
	ended := make(chan string)
	for _, h := range top.Hosts {
		cmd := as("rank")
		if err := f.Host(h.Name).NS.Start(cmd); err != nil {
			return exitCode(err)
		}
		go func() { ended <- fmt.Sprint(h.Name, " ended: ", cmd.Wait()) }()
	}
	for what := range ended {
		fmt.Println(what)
	}
	return 0
}

func rankRole() int {
	// In a new session, so that only the namespace ties it to the lab.
	cmd := as("orphan")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return exitCode(err)
	}
	fmt.Println("ready")
	return sleepRole()
}

func sleepRole() int {
	time.Sleep(10 * time.Minute)
	return 0
}

func TestKilledProcessLeaksNothing(t *testing.T) {
	for _, c := range []struct {
		kill string
		want func(t *testing.T, l *lab) // after the kill; nil: nothing leaks
	}{
		{"first process", nil},
		{"parent", nil},
		{"lab", nil},
		{"rank", expectOneRankLess},
	} {
		t.Run(c.kill, func(t *testing.T) {
			needNamespaces(t)
			needOwnProc(t)
			before := machineState(t)
			l := startLab(t)
			inside := l.namespaces(t)
			// The lab, the core and three hosts have their own; the parent shares that of the test.
			if own, _ := os.Readlink("/proc/self/ns/net"); len(inside) != 6 || !inside[own] {
				t.Errorf("the lab uses the network namespaces %v, want 5 and that of the test, %s", inside, own)
			}
			must.Do(t, syscall.Kill(l.find(t, c.kill), syscall.SIGKILL))
			if c.want != nil {
				c.want(t, l)
				must.Do(t, syscall.Kill(l.find(t, "first process"), syscall.SIGKILL))
			}
			l.cmd.Wait()
			eventually(t, "the lab's processes have ended", func() bool { return len(l.processes(t)) == 0 })
			eventually(t, "the lab's interfaces and mounts are removed", func() bool {
				left := machineState(t)
				maps.DeleteFunc(left, func(line string, _ bool) bool { return before[line] })
				return len(left) == 0
			})
			if files, _ := os.ReadDir(l.tmp); len(files) != 0 {
				t.Errorf("files remain: %v", files)
			}
			for ns := range l.leakedNamespaces(t, inside) {
				t.Errorf("network namespace %s is still held", ns)
			}
		})
	}
}

// needOwnProc skips if /proc is not that of our PID namespace, where process
// IDs would not match.
func needOwnProc(t *testing.T) {
	t.Helper()
	if self := must.Get(os.Readlink("/proc/self"))(t); self != strconv.Itoa(os.Getpid()) {
		t.Skipf("/proc is another PID namespace's: it calls this process %s, which is %d", self, os.Getpid())
	}
}

// expectOneRankLess checks that the lab reports the end of the rank and that all others run.
func expectOneRankLess(t *testing.T, l *lab) {
	t.Helper()
	eventually(t, "the lab sees the rank's end", func() bool { return strings.Contains(l.out.String(), "ended: signal: killed") })
	count := map[string]int{}
	for _, p := range l.processes(t) {
		count[p.role]++
	}
	if want := "map[first process:1 lab:1 orphan:3 parent:1 rank:2]"; fmt.Sprint(count) != want {
		t.Errorf("running: %v, want %s", count, want)
	}
}

// lab is a running lab as seen from outside.
type lab struct {
	cmd   *exec.Cmd
	out   *output
	token string // in the environment of all of its processes
	tmp   string
}

func startLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{out: &output{}, token: fmt.Sprintf("FABRICTEST_TOKEN=%d-%d", os.Getpid(), time.Now().UnixNano()), tmp: t.TempDir()}
	l.cmd = as("parent")
	l.cmd.Env = append(l.cmd.Env, l.token, "TMPDIR="+l.tmp)
	l.cmd.Stdout, l.cmd.Stderr = l.out, l.out
	// Wait must not block on processes that hold the output open: they are
	// counted below.
	l.cmd.WaitDelay = time.Millisecond
	must.Do(t, l.cmd.Start())
	t.Cleanup(func() {
		for _, p := range l.processes(t) {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		l.cmd.Wait()
		if t.Failed() {
			t.Logf("output of the lab: %q", l.out)
		}
	})
	eventually(t, "three ranks are ready", func() bool { return strings.Count(l.out.String(), "ready") == 3 })
	eventually(t, "all processes are there", func() bool { return len(l.processes(t)) == 9 })
	return l
}

type process struct {
	pid  int
	role string
}

// processes returns the processes with the lab's token in their environment.
func (l *lab) processes(t *testing.T) []process {
	t.Helper()
	dirs := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	var found []process
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		if err != nil || !bytes.Contains(env, []byte(l.token)) {
			continue
		}
		args, _ := os.ReadFile(dir + "/cmdline")
		parts := strings.Split(string(args), "\x00")
		role := "first process"
		if parts[0] != "fabrictest-init" {
			role = parts[min(1, len(parts)-1)]
		}
		pid := must.Get(strconv.Atoi(filepath.Base(dir)))(t)
		found = append(found, process{pid, role})
	}
	return found
}

func (l *lab) find(t *testing.T, role string) int {
	t.Helper()
	for _, p := range l.processes(t) {
		if p.role == role {
			return p.pid
		}
	}
	t.Fatalf("no process has the role %s", role)
	return 0
}

// namespaces returns the network namespaces that the lab's processes are in or
// hold a descriptor of.
func (l *lab) namespaces(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, p := range l.processes(t) {
		for ns := range namespacesOf(fmt.Sprint("/proc/", p.pid)) {
			all[ns] = true
		}
	}
	return all
}

func namespacesOf(dir string) map[string]bool {
	held := map[string]bool{}
	links, _ := filepath.Glob(dir + "/fd/*")
	threads, _ := filepath.Glob(dir + "/task/*/ns/net")
	for _, link := range append(links, threads...) {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "net:[") {
			held[to] = true
		}
	}
	return held
}

// leakedNamespaces returns the namespaces, but for our own, that processes of the machine
// refer to until the timeout. The kernel gives the inode number of a free namespace
// to a new one, so each needs to be unused at one moment only.
func (l *lab) leakedNamespaces(t *testing.T, namespaces map[string]bool) map[string]bool {
	t.Helper()
	delete(namespaces, must.Get(os.Readlink("/proc/self/ns/net"))(t))
	for deadline := time.Now().Add(testTimeout); len(namespaces) > 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		held := map[string]bool{}
		for _, dir := range must.Get(filepath.Glob("/proc/[0-9]*"))(t) {
			maps.Copy(held, namespacesOf(dir))
		}
		maps.DeleteFunc(namespaces, func(ns string, _ bool) bool { return !held[ns] })
	}
	return namespaces
}

// machineState returns the interfaces and mounts that a lab could leave in the
// namespaces it was started from. Other programs may add and remove some meanwhile.
func machineState(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, i := range must.Get(net.Interfaces())(t) {
		all[i.Name] = true
	}
	for mount := range strings.Lines(string(must.Get(os.ReadFile("/proc/self/mountinfo"))(t))) {
		all[mount] = true
	}
	return all
}

//go:build e2e

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// process is a process that a spec has started, directly or not.
type process struct {
	pid  int
	role string // in a lab
	args []string
}

func (p process) String() string { return fmt.Sprintf("%d %s %q", p.pid, p.role, p.args) }

// The roles.
const (
	cli         = "cli"
	initProcess = "init process" // of unshared namespaces
	lab         = "lab"
	rank        = "rank"
	proxy       = "proxy" // starts the ranks of a host
	remoteShell = "remote shell"
	guard       = "guard"
	userProgram = "program" // of a user, in a host
)

func roleOf(args []string, ours bool) string {
	second := ""
	if len(args) > 1 {
		second = args[1]
	}
	switch {
	case !ours:
		return userProgram
	case args[0] == "fabrictest-init":
		return initProcess
	case args[0] == "fabrictest-guard":
		return guard
	case second == "lab-process", second == "live-process", second == "once-process", second == "mpi-process":
		return lab
	case second == "rank-process", second == "mpi-rank":
		return rank
	case second == "mpi-proxy":
		return proxy
	case second == "lab" && slices.Contains(args, "mpi-proxy"):
		return remoteShell
	}
	return cli
}

// processes returns all processes that run the sandbox's program, or have its token in their
// environment, whatever their parent.
func (s *sandbox) processes() (found []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		exe, _ := os.Readlink(dir + "/exe")
		ours := exe == s.program
		if !ours {
			env, err := os.ReadFile(dir + "/environ")
			if err != nil || !bytes.Contains(append(env, 0), []byte(s.token+"\x00")) {
				continue
			}
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			found = append(found, process{pid, roleOf(args, ours), args})
		}
	}
	return found
}

// withRole returns the processes with a role.
func (s *sandbox) withRole(role string) (found []process) {
	for _, p := range s.processes() {
		if p.role == role {
			found = append(found, p)
		}
	}
	return found
}

// recordNamespaces records the network namespaces that processes are in, or have open, for
// expectNoLeaks. It returns how many are recorded.
func (s *sandbox) recordNamespaces() int {
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, p := range s.processes() {
		for ns := range namespacesOf(fmt.Sprint("/proc/", p.pid)) {
			if ns != own {
				s.inodes[ns] = true
			}
		}
	}
	return len(s.inodes)
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

// heldNamespaces returns the recorded namespaces that any process is in or has open. The kernel
// reuses their numbers, so it is enough if there is none at one moment.
func (s *sandbox) heldNamespaces() (held []string) {
	if len(s.inodes) == 0 {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		for ns := range namespacesOf(dir) {
			if s.inodes[ns] {
				held = append(held, dir+" "+ns)
			}
		}
	}
	return held
}

// sockets returns the abstract sockets of the sandbox's labs.
func (s *sandbox) sockets() (names []string) {
	text, _ := os.ReadFile("/proc/net/unix")
	for _, l := range lines(string(text)) {
		if strings.Contains(l, "@fabrictest/") && strings.HasSuffix(l, s.labName()) {
			names = append(names, l)
		}
	}
	return names
}

func (s *sandbox) expectNoLeaks() {
	GinkgoHelper()
	Eventually(s.processes).Should(BeEmpty(), "processes remain")
	Eventually(s.heldNamespaces).Should(BeEmpty(), "network namespaces remain")
	Eventually(s.sockets).Should(BeEmpty(), "sockets remain")
	files, err := os.ReadDir(s.tmp)
	Expect(err).NotTo(HaveOccurred())
	Expect(files).To(BeEmpty(), "temporary files remain")
}

// killAll kills the processes of a failed spec.
func (s *sandbox) killAll() {
	for range 20 {
		found := s.processes()
		if len(found) == 0 {
			return
		}
		for _, p := range found {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// ticks returns the CPU time of a process, in clock ticks.
func (p process) ticks() int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// peakMiB returns the peak resident memory of a process.
func (p process) peakMiB() (n int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	for _, l := range lines(string(status)) {
		if _, err := fmt.Sscanf(l, "VmHWM: %d kB", &n); err == nil {
			return n >> 10
		}
	}
	return 0
}

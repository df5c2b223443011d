package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// process is one that a spec has to answer for.
type process struct {
	pid  int
	role string // what it is in a lab
	args []string
}

func (p process) String() string { return fmt.Sprintf("%d %s %q", p.pid, p.role, p.args) }

// The roles.
const (
	cli   = "cli"
	first = "first process" // of an enclosure
	lab   = "lab"
	rank  = "rank"
	guard = "guard"
	other = "program" // of a user, in a host
)

func roleOf(args []string, ours bool) string {
	second := ""
	if len(args) > 1 {
		second = args[1]
	}
	switch {
	case !ours:
		return other
	case args[0] == "fabrictest-enclosure":
		return first
	case args[0] == "fabrictest-guard":
		return guard
	case second == "lab-process", second == "live-process", second == "once-process", second == "mpi-process":
		return lab
	case second == "rank-process":
		return rank
	}
	return cli
}

// processes are all that run the stage's program, or that have its token in their
// environment: what they were started as does not matter, nor who their parent
// is by now.
func (s *stage) processes() (found []process) {
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

// with are the processes with a role.
func (s *stage) with(role string) (found []process) {
	for _, p := range s.processes() {
		if p.role == role {
			found = append(found, p)
		}
	}
	return found
}

// noteNamespaces remembers the network namespaces that the stage's processes are
// in, or hold, to see whether they go.
func (s *stage) noteNamespaces() int {
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, p := range s.processes() {
		for ns := range heldBy(fmt.Sprint("/proc/", p.pid)) {
			if ns != own {
				s.inodes[ns] = true
			}
		}
	}
	return len(s.inodes)
}

func heldBy(dir string) map[string]bool {
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

// stillHeld are those of the noted namespaces that any process of the machine is
// in or holds. The kernel gives their numbers out anew; so it is enough that all
// are free at one moment.
func (s *stage) stillHeld() (held []string) {
	if len(s.inodes) == 0 {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		for ns := range heldBy(dir) {
			if s.inodes[ns] {
				held = append(held, dir+" "+ns)
			}
		}
	}
	return held
}

// sockets are the abstract ones of the stage's labs.
func (s *stage) sockets() (names []string) {
	text, _ := os.ReadFile("/proc/net/unix")
	for _, l := range lines(string(text)) {
		if strings.Contains(l, "@fabrictest/") && strings.HasSuffix(l, s.labName()) {
			names = append(names, l)
		}
	}
	return names
}

func (s *stage) expectNothingRemains() {
	GinkgoHelper()
	Eventually(s.processes).Should(BeEmpty(), "processes remain")
	Eventually(s.stillHeld).Should(BeEmpty(), "network namespaces remain")
	Eventually(s.sockets).Should(BeEmpty(), "sockets remain")
	files, err := os.ReadDir(s.tmp)
	Expect(err).NotTo(HaveOccurred())
	Expect(files).To(BeEmpty(), "temporary files remain")
}

// killAll is for specs that failed: others have nothing left.
func (s *stage) killAll() {
	for range 20 {
		left := s.processes()
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// ticks is the processor time that a process has had.
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

// peakMiB is the most memory that a process has had so far.
func (p process) peakMiB() (n int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	for _, l := range lines(string(status)) {
		if _, err := fmt.Sscanf(l, "VmHWM: %d kB", &n); err == nil {
			return n >> 10
		}
	}
	return 0
}

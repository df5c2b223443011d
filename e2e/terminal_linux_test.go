//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// terminal is the pseudo-terminal of a program.
type terminal struct {
	master *os.File
	seen   buffer
	read   int // octets of seen that expect has consumed
}

// onTerminal starts a command on a new pseudo-terminal.
func (s *sandbox) onTerminal(cmd *exec.Cmd, rows, columns uint16) (*terminal, *running) {
	GinkgoHelper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		Skip("no pseudo-terminal: " + err.Error())
	}
	t := &terminal{master: os.NewFile(uintptr(fd), "ptmx")}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	Expect(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)).To(Succeed())
	t.resize(rows, columns)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	defer slave.Close()
	DeferCleanup(func() { t.master.Close() }) // some specs have closed it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return t, s.start(cmd)
}

func (t *terminal) resize(rows, columns uint16) {
	GinkgoHelper()
	raw, err := t.master.SyscallConn()
	Expect(err).NotTo(HaveOccurred())
	Expect(raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})).To(Succeed())
	Expect(err).NotTo(HaveOccurred())
}

func (t *terminal) keys(text string) {
	GinkgoHelper()
	_, err := t.master.WriteString(text)
	Expect(err).NotTo(HaveOccurred())
}

// expect reads until the program has printed a text.
func (t *terminal) expect(text string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	Expect(t.readUntil(ctx, text)).To(Succeed())
}

// readUntil reads until want, after the text of the previous call.
func (t *terminal) readUntil(ctx context.Context, want string) error {
	if err := readUntil(ctx, t.master, &t.seen, t.read, want); err != nil {
		return err
	}
	t.read += strings.Index(t.seen.String()[t.read:], want) + len(want)
	return nil
}

// rest returns all output of a program, at its end.
func (t *terminal) rest(r *running) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	_ = readUntil(ctx, t.master, &t.seen, 0, "\x00 that no program writes")
	r.wait()
	return t.seen.String()
}

var _ = Describe("a terminal", func() {
	var s *sandbox
	BeforeEach(func() { s = newSandbox() })
	run := []string{"run", "pingpong", "clean-rc", "--on", "sim", "--capture", "none"}

	It("shows colours and progress", func() {
		t, r := s.onTerminal(s.command(run...), 24, 100)
		text := t.rest(r)
		Expect(r.outcome.code).To(Equal(0), text)
		Expect(text).To(And(ContainSubstring("\x1b[32m"), ContainSubstring("of 2 done")))
		Expect(text).To(ContainSubstring("All 2 "))
	})

	It("has no colours with NO_COLOR, and nothing but lines with TERM=dumb", func() {
		s.env = []string{"NO_COLOR=1"}
		t, r := s.onTerminal(s.command(run...), 24, 100)
		Expect(t.rest(r)).To(And(Not(ContainSubstring("\x1b[3")), ContainSubstring("of 2 done")))
		s.env = []string{"TERM=dumb"}
		t, r = s.onTerminal(s.command(run...), 24, 100)
		Expect(t.rest(r)).To(And(Not(ContainSubstring("\x1b")), Not(ContainSubstring("of 2 done")), ContainSubstring("ok      pingpong")))
	})

	It("of 20 columns is wider than the progress line", func() {
		t, r := s.onTerminal(s.command(run...), 5, 20)
		text := t.rest(r)
		Expect(r.outcome.code).To(Equal(0), text)
		progress := 0
		for _, part := range strings.Split(text, "\r\x1b[K")[1:] {
			if shown, _, _ := strings.Cut(part, "\r"); strings.Contains(shown, " of 2") {
				progress++
				Expect(utf8.RuneCountInString(shown)).To(BeNumerically("<", 20), "%q", shown)
			}
		}
		Expect(progress).To(BeNumerically(">", 0), "%q", text)
	})

	It("replaced by a pipe whose reader closes ends the run, which leaks nothing", func() {
		tier := "netns"
		if errNoNamespaces != nil {
			tier = "sim"
		}
		read, write, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		cmd := s.command("run", "clean-*", "--on", tier, "--capture", "none", "--out", "out")
		cmd.Stdout = write
		r := s.start(cmd)
		write.Close()
		var seen buffer
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		Expect(readUntil(ctx, read, &seen, 0, "\n")).To(Succeed())
		read.Close() // as head -1 does
		o := r.wait()
		Expect(o.code).To(Equal(128+int(syscall.SIGPIPE)), o.String())
		Expect(o.stderr).To(BeEmpty())
		Expect(unfinishedFiles(s.path("work", "out"))).To(BeEmpty())
		s.expectNoLeaks()
	})

	It("replaced by a pipe without a reader ends the program by SIGPIPE", func() {
		read, write, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		read.Close()
		cmd := s.command("list", "scenarios")
		cmd.Stdout = write
		o := s.start(cmd).wait()
		write.Close()
		Expect(o.code).To(Equal(128 + int(syscall.SIGPIPE)))
		Expect(o.stderr).To(BeEmpty())
	})
})

var _ = Describe("a shell in a host", func() {
	var s *sandbox
	var t *terminal
	var r *running

	BeforeEach(func() {
		needNamespaces()
		if _, err := exec.LookPath("bash"); err != nil {
			Skip(err.Error())
		}
		s = newSandbox()
		Expect(s.run("lab", "up", "--lab", s.labName()).code).To(Equal(0))
		s.recordNamespaces()
		s.env = []string{"PS1=$ "}
		t, r = s.onTerminal(s.command("lab", "exec", "--lab", s.labName(), "host0", "--", "bash", "--norc", "--noprofile", "-i"), 33, 77)
		t.expect("$ ")
		DeferCleanup(func() { s.run("lab", "down", s.labName()) })
	})

	It("has the size of the terminal, also after a change", func() {
		t.keys("stty size; echo $((3*7))th\n")
		t.expect("33 77")
		t.expect("21th")
		t.resize(44, 99)
		Eventually(func() error {
			t.keys("stty size\n")
			ctx, cancel := context.WithTimeout(context.Background(), waitTimeout/300) // before SIGWINCH
			defer cancel()
			return t.readUntil(ctx, "44 99")
		}).Should(Succeed())
		t.keys("exit 0\n")
		Expect(r.wait().code).To(Equal(0))
	})

	It("passes Ctrl-C to its foreground program and continues", func() {
		t.keys("sleep 600\n")
		Eventually(func() int { return len(s.programs("sleep")) }).Should(Equal(1))
		t.keys("\x03")
		t.expect("^C")
		t.expect("$ ")
		t.keys("echo ended by $?, still in $FABRICTEST_HOST\n")
		t.expect("ended by 130, still in host0")
		Expect(s.programs("sleep")).To(BeEmpty())
		t.keys("exit 9\n")
		Expect(r.wait().code).To(Equal(9))
	})

	It("has job control", func() {
		t.keys("sleep 600\n")
		Eventually(func() int { return len(s.programs("sleep")) }).Should(Equal(1))
		t.keys("\x1a") // Ctrl-Z
		t.expect("Stopped")
		t.keys("bg; jobs; kill %1; wait; echo over $((5*5))\n")
		t.expect("Running")
		t.expect("over 25")
		t.keys("exit\n")
		Expect(r.wait().code).To(Equal(0))
	})

	It("ends when its terminal is closed", func() {
		t.keys("sleep 600 & echo pid $((1+1))\n")
		t.expect("pid 2")
		t.master.Close()
		r.wait()
		Eventually(func() []process { return s.withRole(userProgram) }).Should(BeEmpty())
	})
})

// programs returns the programs of a name that run in hosts.
func (s *sandbox) programs(name string) (found []process) {
	for _, p := range s.withRole(userProgram) {
		if p.args[0] == name {
			found = append(found, p)
		}
	}
	return found
}

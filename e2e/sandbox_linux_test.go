//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

// sandbox has the files and processes of one spec: a link to the program, a home directory and
// a directory for temporary files.
type sandbox struct {
	dir     string // contains the other paths
	program string
	home    string
	tmp     string
	token   string // in the environment of all processes
	user    *syscall.Credential
	env     []string        // more environment variables
	inodes  map[string]bool // of recorded network namespaces
}

// tokenVariable identifies the processes of a spec.
const tokenVariable = "FABRICTEST_E2E_TOKEN"

// newSandbox creates a sandbox, which expects no leaks when the spec ends.
func newSandbox() *sandbox { return newSandboxFor(nil) }

// newSandboxFor is newSandbox for another user; nil is the current one.
func newSandboxFor(user *syscall.Credential) *sandbox {
	GinkgoHelper()
	dir, err := os.MkdirTemp(suiteDir, "spec-")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	s := &sandbox{
		dir: dir, program: filepath.Join(dir, "bin", "fabrictest"), home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
		token: tokenVariable + "=" + filepath.Base(dir), user: user, inodes: map[string]bool{},
	}
	for _, d := range []string{filepath.Dir(s.program), s.home, s.tmp, s.path("work")} {
		Expect(os.Mkdir(d, 0o755)).To(Succeed())
		if user != nil {
			Expect(os.Chown(d, int(user.Uid), int(user.Gid))).To(Succeed())
		}
	}
	Expect(os.Link(built, s.program)).To(Succeed())
	DeferCleanup(func() {
		defer os.RemoveAll(dir)
		defer s.killAll()
		if !CurrentSpecReport().Failed() {
			s.expectNoLeaks()
		}
	})
	return s
}

func (s *sandbox) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// write creates a file in the working directory of programs, and returns its name.
func (s *sandbox) write(name, text string) string {
	GinkgoHelper()
	Expect(os.WriteFile(s.path("work", name), []byte(text), 0o644)).To(Succeed())
	return name
}

// labName returns a name that no other spec uses.
func (s *sandbox) labName() string { return filepath.Base(s.dir) }

// command returns fabrictest with arguments, not started.
func (s *sandbox) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.path("work")
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "TMPDIR=" + s.tmp, "TERM=xterm", s.token,
	}, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.user}
	return cmd
}

// run runs fabrictest to its end.
func (s *sandbox) run(args ...string) outcome {
	GinkgoHelper()
	return s.start(s.command(args...)).wait()
}

// outcome is the exit code and output of a program.
type outcome struct {
	code           int // 128 + number of the signal that ended it
	stdout, stderr string
	took           time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d after %v\n--- stdout\n%s\n--- stderr\n%s", o.code, o.took, o.stdout, o.stderr)
}

// running is a program that was started.
type running struct {
	*exec.Cmd
	began    time.Time
	out, err buffer
	done     chan struct{}
	outcome  outcome
}

// start starts a command and collects its output.
func (s *sandbox) start(cmd *exec.Cmd) *running {
	GinkgoHelper()
	r := &running{Cmd: cmd, began: time.Now(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &r.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.err
	}
	cmd.WaitDelay = 10 * time.Second // expectNoLeaks finds processes that keep the output open
	Expect(cmd.Start()).To(Succeed())
	go func() {
		defer close(r.done)
		_ = cmd.Wait()
		r.outcome = outcome{exitCode(cmd.ProcessState), r.out.String(), r.err.String(), time.Since(r.began)}
	}()
	return r
}

// wait waits for the end of the program, and fails the spec after a time limit.
func (r *running) wait() outcome {
	GinkgoHelper()
	select {
	case <-r.done:
	case <-time.After(3 * waitTimeout):
		_ = r.Process.Kill()
		<-r.done
		Fail(fmt.Sprintf("%v did not end: %v", r.Args, r.outcome))
	}
	return r.outcome
}

func (r *running) signal(sig syscall.Signal) {
	GinkgoHelper()
	Expect(r.Process.Signal(sig)).To(Succeed())
}

// interrupt sends SIGINT to the process group, as a terminal does on Ctrl-C.
func (r *running) interrupt() {
	GinkgoHelper()
	Expect(syscall.Kill(-r.Process.Pid, syscall.SIGINT)).To(Succeed())
}

func exitCode(p *os.ProcessState) int {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return p.ExitCode()
}

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// result reads the result.json of a run, and expects the other reports next to it.
func (s *sandbox) result(dir string) *report.Run {
	GinkgoHelper()
	run, err := report.ReadFile(filepath.Join(dir, "result.json"))
	Expect(err).NotTo(HaveOccurred())
	Expect(filepath.Join(dir, "report.html")).To(BeARegularFile())
	Expect(filepath.Join(dir, "junit.xml")).To(BeARegularFile())
	Expect(unfinishedFiles(dir)).To(BeEmpty())
	return run
}

// singleResult returns the result of a run of one scenario.
func singleResult(run *report.Run) *report.Result {
	GinkgoHelper()
	Expect(run.Scenarios).To(HaveLen(1))
	return &run.Scenarios[0]
}

// unfinishedFiles returns the temporary files in a folder, which were not renamed.
func unfinishedFiles(dir string) (found []string) {
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasSuffix(path, ".tmp") {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// lines returns the lines of a text that are not empty.
func lines(text string) (all []string) {
	for l := range strings.Lines(text) {
		if l = strings.TrimRight(l, "\r\n"); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// readUntil appends what it reads from f to seen, until seen[from:] contains want.
func readUntil(ctx context.Context, f *os.File, seen *buffer, from int, want string) error {
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String()[from:], want) {
		if ctx.Err() != nil {
			return fmt.Errorf("no %q in %q: %w", want, seen.String()[from:], ctx.Err())
		}
		_ = f.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := f.Read(buf)
		seen.Write(buf[:n])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("no %q in %q: %w", want, seen.String()[from:], err)
		}
	}
	return nil
}

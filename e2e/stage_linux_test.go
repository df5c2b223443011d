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

// stage is where one spec takes place: a program, a home and a place for temporary
// files that nothing else uses.
type stage struct {
	dir     string // everything else is in it
	program string
	home    string
	tmp     string
	token   string // in the environment of everything that is started
	who     *syscall.Credential
	env     []string // more of it
	inodes  map[string]bool
}

// tokenVariable is how the processes of a spec are known.
const tokenVariable = "FABRICTEST_E2E_TOKEN"

// newStage makes a stage, and sees to it that nothing stays when the spec ends.
func newStage() *stage { return newStageFor(nil) }

// newStageFor is newStage for another user; nil is ourselves.
func newStageFor(who *syscall.Credential) *stage {
	GinkgoHelper()
	dir, err := os.MkdirTemp(suiteDir, "spec-")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	s := &stage{
		dir: dir, program: filepath.Join(dir, "bin", "fabrictest"), home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
		token: tokenVariable + "=" + filepath.Base(dir), who: who, inodes: map[string]bool{},
	}
	for _, d := range []string{filepath.Dir(s.program), s.home, s.tmp, s.path("work")} {
		Expect(os.Mkdir(d, 0o755)).To(Succeed())
		if who != nil {
			Expect(os.Chown(d, int(who.Uid), int(who.Gid))).To(Succeed())
		}
	}
	Expect(os.Link(built, s.program)).To(Succeed())
	DeferCleanup(func() {
		defer os.RemoveAll(dir)
		defer s.killAll()
		if !CurrentSpecReport().Failed() {
			s.expectNothingRemains()
		}
	})
	return s
}

func (s *stage) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// write makes a file where programs are started, and returns its name there.
func (s *stage) write(name, text string) string {
	GinkgoHelper()
	Expect(os.WriteFile(s.path("work", name), []byte(text), 0o644)).To(Succeed())
	return name
}

// labName is one that no other spec uses.
func (s *stage) labName() string { return filepath.Base(s.dir) }

// command is fabrictest with arguments, not started.
func (s *stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.path("work")
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "TMPDIR=" + s.tmp, "TERM=xterm", s.token,
	}, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.who}
	return cmd
}

// run runs fabrictest to its end.
func (s *stage) run(args ...string) outcome {
	GinkgoHelper()
	return s.start(s.command(args...)).wait()
}

// outcome is how a program ended.
type outcome struct {
	code           int // 128 and the number of a signal
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

// start starts a command and collects what it says.
func (s *stage) start(cmd *exec.Cmd) *running {
	GinkgoHelper()
	r := &running{Cmd: cmd, began: time.Now(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &r.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.err
	}
	cmd.WaitDelay = 10 * time.Second // whoever still holds the output is found otherwise
	Expect(cmd.Start()).To(Succeed())
	go func() {
		defer close(r.done)
		_ = cmd.Wait()
		r.outcome = outcome{exitCode(cmd.ProcessState), r.out.String(), r.err.String(), time.Since(r.began)}
	}()
	return r
}

// wait waits for its end, but not for ever.
func (r *running) wait() outcome {
	GinkgoHelper()
	select {
	case <-r.done:
	case <-time.After(3 * patience):
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

// interrupt is what a terminal does on Ctrl-C: the whole foreground group hears of
// it.
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

// result reads the result.json of a run, which must be whole, and the files that
// go with it.
func (s *stage) result(dir string) *report.Run {
	GinkgoHelper()
	run, err := report.ReadFile(filepath.Join(dir, "result.json"))
	Expect(err).NotTo(HaveOccurred())
	Expect(filepath.Join(dir, "report.html")).To(BeARegularFile())
	Expect(filepath.Join(dir, "junit.xml")).To(BeARegularFile())
	Expect(halfFiles(dir)).To(BeEmpty())
	return run
}

// only is the one result of a run.
func only(run *report.Run) *report.Result {
	GinkgoHelper()
	Expect(run.Scenarios).To(HaveLen(1))
	return &run.Scenarios[0]
}

// halfFiles are those of a folder that were not finished.
func halfFiles(dir string) (half []string) {
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasSuffix(path, ".tmp") {
			half = append(half, path)
		}
		return nil
	})
	return half
}

// lines are those of a text that are not empty.
func lines(text string) (all []string) {
	for l := range strings.Lines(text) {
		if l = strings.TrimRight(l, "\r\n"); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// readUntil reads f until what was read, from a place on, contains want, or
// nothing more comes.
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

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/fuzz"
	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// fuzzModule is whose targets they are.
// maxListed is more than the files have that are read here.
const maxListed = 1 << 20

const fuzzModule = "github.com/fabrictest/fabrictest"

// fuzzTree is a source tree, with what it takes to fuzz it.
type fuzzTree struct {
	root    string
	targets []fuzz.Target
	goCmd   string
	cache   string   // where the go command keeps inputs
	dir     *fuzzDir // of test programs
	built   map[string]string
}

// findFuzzTree looks for the module in the current folder and those around it.
func findFuzzTree() (*fuzzTree, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if isFuzzModule(filepath.Join(at, "go.mod")) {
			text, err := regularfile.ReadFile(filepath.Join(at, filepath.FromSlash(fuzz.ListFile)), maxListed)
			if err != nil {
				return nil, fmt.Errorf("the source tree at %s has no list of fuzz targets: %w", at, err)
			}
			targets, err := fuzz.ParseList(string(text))
			if err == nil && len(targets) == 0 {
				err = fmt.Errorf("%s lists no target", filepath.Join(at, fuzz.ListFile))
			}
			return &fuzzTree{root: at, targets: targets, built: map[string]string{}}, err
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("fuzzing needs the source tree of fabrictest, and there is none in or around %s: run it in a clone of the repository", dir)
		}
	}
}

func isFuzzModule(file string) bool {
	b, err := regularfile.ReadFile(file, maxListed)
	return err == nil && regexp.MustCompile(`(?m)^module\s+`+regexp.QuoteMeta(fuzzModule)+`\s*$`).Match(b)
}

// findGo finds the go command, which instruments and builds.
func (f *fuzzTree) findGo(ctx context.Context) (err error) {
	if f.goCmd, err = exec.LookPath("go"); err != nil {
		return errors.New("fuzzing needs the go command, which is not on PATH: install Go from https://go.dev/dl")
	}
	out, err := f.goCommand(ctx, "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	f.cache = filepath.Join(strings.TrimSpace(string(out)), "fuzz")
	f.dir, err = newFuzzDir()
	return err
}

func (f *fuzzTree) clean() {
	if f.dir != nil {
		f.dir.close()
	}
}

func (f *fuzzTree) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.goCmd, args...)
	cmd.Dir = f.root
	return cmd
}

// build makes the test program of a package, once.
func (f *fuzzTree) build(ctx context.Context, pkg string) (program string, output []byte, err error) {
	if program, ok := f.built[pkg]; ok {
		return program, nil, nil
	}
	program = filepath.Join(f.dir.path, fmt.Sprintf("%d.test", len(f.built)))
	// Asking for any target has the code instrumented.
	output, err = f.goCommand(ctx, "test", "-c", "-fuzz=^Fuzz", "-o", program, pkg).CombinedOutput()
	if err != nil {
		return "", output, err
	}
	f.built[pkg] = program
	return program, nil, nil
}

// What became of a target.
const (
	fuzzPassed      = "passed"
	fuzzFailed      = "failed"      // an input fails, or a worker died
	fuzzBroken      = "broken"      // it could not be built or started
	fuzzAbsent      = "absent"      // this system has no such target
	fuzzInterrupted = "interrupted" // by Ctrl-C
)

// fuzzResult is what came of one target.
type fuzzResult struct {
	Package    string      `json:"package"`
	Name       string      `json:"name"`
	Verdict    string      `json:"verdict"`
	Seconds    float64     `json:"seconds"`
	Executions uint64      `json:"executions"`
	PerSecond  float64     `json:"per_second"`
	New        int         `json:"new_inputs"` // that reached new code
	Corpus     int         `json:"corpus"`     // inputs that are kept
	Failures   []fuzzInput `json:"failures,omitempty"`
	Output     string      `json:"output,omitempty"` // of what failed
}

func (r *fuzzResult) String() string { return fuzz.Target{Package: r.Package, Name: r.Name}.String() }

// fuzzInput is an input that fails.
type fuzzInput struct {
	File   string `json:"file,omitempty"` // in the source tree; none if it is a seed in the code
	Replay string `json:"replay"`
}

// attempts is how often a target is tried. Up to Go 1.26 the fuzzer sometimes takes
// the end of its own time for a failure (golang.org/issue/75804), which finds no
// input: that alone is tried again.
const attempts = 3

// fuzz runs a target, and tells progress how it is getting on.
func (f *fuzzTree) fuzz(ctx context.Context, t fuzz.Target, each time.Duration, progress func(*fuzzResult)) *fuzzResult {
	r := &fuzzResult{Package: t.Package, Name: t.Name, Verdict: fuzzPassed}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	progress(r)
	program, output, err := f.build(ctx, t.Package)
	if err != nil {
		r.Verdict, r.Output = fuzzBroken, string(output)+err.Error()
		if ctx.Err() != nil {
			r.Verdict, r.Output = fuzzInterrupted, ""
		}
		return r
	}
	for range attempts {
		log, err := f.run(ctx, program, t, each, r, progress)
		switch {
		case ctx.Err() != nil:
			r.Verdict = fuzzInterrupted
			return r
		case err == nil && strings.Contains(log, "no fuzz tests to fuzz"):
			r.Verdict = fuzzAbsent
			return r
		case err == nil:
			return r
		}
		r.Failures = f.failures(t, log)
		if len(r.Failures) == 0 && deadlineMistaken.MatchString(log) {
			continue
		}
		r.Verdict, r.Output = fuzzFailed, log
		return r
	}
	return r
}

// run runs the test program of a target and returns what it says.
func (f *fuzzTree) run(ctx context.Context, program string, t fuzz.Target, each time.Duration, r *fuzzResult, progress func(*fuzzResult)) (string, error) {
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+t.Name+"$", "-test.fuzztime="+each.String(),
		// The usual minute for each new input is more than most targets get.
		"-test.fuzzminimizetime=20x", "-test.fuzzcachedir="+filepath.Join(f.cache, fuzzModule, filepath.FromSlash(t.Package)))
	cmd.Dir = filepath.Join(f.root, filepath.FromSlash(t.Package)) // where its corpus is
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	cmd.Stderr = cmd.Stdout // where progress goes
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var said strings.Builder
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if r.parse(line) {
			progress(r)
		} else {
			said.WriteString(line)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	return said.String(), err
}

var (
	// fuzz: elapsed: 3s, execs: 552 (184/sec), new interesting: 3 (total: 251)
	fuzzLine         = regexp.MustCompile(`^fuzz: elapsed: \S+, execs: (\d+) \((\d+)/sec\)(?:, new interesting: (\d+) \(total: (\d+)\))?`)
	fuzzBusy         = regexp.MustCompile(`^fuzz: (elapsed: \S+, (gathering baseline coverage|minimizing)|minimizing )`)
	fuzzWritten      = regexp.MustCompile(`Failing input written to (\S+)`)
	fuzzSeed         = regexp.MustCompile(`failure while testing seed corpus entry: (\S+)`)
	deadlineMistaken = regexp.MustCompile(`(?m)^ *context deadline exceeded`)
)

// parse takes a line of the fuzzer's, if it is one of progress.
func (r *fuzzResult) parse(line string) bool {
	m := fuzzLine.FindStringSubmatch(line)
	if m == nil {
		return fuzzBusy.MatchString(line)
	}
	r.Executions, _ = strconv.ParseUint(m[1], 10, 64) // digits
	r.PerSecond, _ = strconv.ParseFloat(m[2], 64)
	if m[3] != "" {
		r.New, _ = strconv.Atoi(m[3])
		r.Corpus, _ = strconv.Atoi(m[4])
	}
	return true
}

// failures are the inputs that a target failed on.
func (f *fuzzTree) failures(t fuzz.Target, log string) (all []fuzzInput) {
	replay := func(entry string) string { return fmt.Sprintf("go test %s -run '^%s$'", t.Package, entry) }
	for _, m := range fuzzWritten.FindAllStringSubmatch(log, -1) {
		file := filepath.ToSlash(filepath.Join(t.Package, m[1]))
		all = append(all, fuzzInput{File: file, Replay: replay(t.Name + "/" + filepath.Base(m[1]))})
	}
	for _, m := range fuzzSeed.FindAllStringSubmatch(log, -1) {
		in := fuzzInput{Replay: replay(m[1])}
		if file := t.Package + "/testdata/fuzz/" + m[1]; exists(filepath.Join(f.root, file)) {
			in.File = strings.TrimPrefix(file, "./")
		}
		all = append(all, in)
	}
	return all
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

package fuzz

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

	"github.com/fabrictest/fabrictest/internal/cli"
)

// maxFileLen limits the size of go.mod and of the list of targets, in bytes.
const maxFileLen = 1 << 20

// Module is the module whose targets are run.
const Module = "github.com/fabrictest/fabrictest"

// Tree is a source tree whose targets can be run.
type Tree struct {
	Targets []Target // listed in the tree

	root  string
	goCmd string
	cache string            // the go command's folder of generated inputs
	dir   *tempDir          // of test programs
	built map[string]string // test program of each package that was built
}

// FindTree finds the module's source tree, in this folder or a parent, and reads its targets.
func FindTree() (*Tree, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if isModule(filepath.Join(at, "go.mod")) {
			text, err := cli.ReadFile(filepath.Join(at, filepath.FromSlash(ListFile)), maxFileLen)
			if err != nil {
				return nil, fmt.Errorf("the source tree at %s has no list of fuzz targets: %w", at, err)
			}
			targets, err := ParseList(string(text))
			if err == nil && len(targets) == 0 {
				err = fmt.Errorf("%s lists no target", filepath.Join(at, ListFile))
			}
			return &Tree{root: at, Targets: targets, built: map[string]string{}}, err
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("fuzzing needs the source tree of fabrictest, and there is none in or around %s: run it in a clone of the repository", dir)
		}
	}
}

// isModule reports whether a go.mod file declares Module.
func isModule(file string) bool {
	b, err := cli.ReadFile(file, maxFileLen)
	return err == nil && regexp.MustCompile(`(?m)^module\s+`+regexp.QuoteMeta(Module)+`\s*$`).Match(b)
}

// Prepare finds the go command and its cache of fuzz inputs, and makes a folder for test programs.
// Close removes the folder.
func (tree *Tree) Prepare(ctx context.Context) (err error) {
	if tree.goCmd, err = exec.LookPath("go"); err != nil {
		return errors.New("fuzzing needs the go command, which is not on PATH: install Go from https://go.dev/dl")
	}
	out, err := tree.goCommand(ctx, "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	tree.cache = filepath.Join(strings.TrimSpace(string(out)), "fuzz")
	tree.dir, err = newTempDir()
	return err
}

// Close removes the test programs.
func (tree *Tree) Close() {
	if tree.dir != nil {
		tree.dir.remove()
	}
}

// goCommand returns a go command that runs in the root of the tree.
func (tree *Tree) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tree.goCmd, args...)
	cmd.Dir = tree.root
	return cmd
}

// build builds the test program of a package, unless it did before, and returns its path.
// With an error it returns the output of the go command.
func (tree *Tree) build(ctx context.Context, pkg string) (program string, output []byte, err error) {
	if program, ok := tree.built[pkg]; ok {
		return program, nil, nil
	}
	program = filepath.Join(tree.dir.path, fmt.Sprintf("%d.test", len(tree.built)))
	// With -fuzz the go command instruments the code.
	output, err = tree.goCommand(ctx, "test", "-c", "-fuzz=^Fuzz", "-o", program, pkg).CombinedOutput()
	if err != nil {
		return "", output, err
	}
	tree.built[pkg] = program
	return program, nil, nil
}

// The verdicts of a target.
const (
	Passed      = "passed"
	Failed      = "failed"      // an input fails, or a worker process crashed
	Broken      = "broken"      // the test program could not be built or started
	Absent      = "absent"      // this system has no such target
	Interrupted = "interrupted" // by Ctrl-C
)

// Result is the outcome of one target.
type Result struct {
	Package    string  `json:"package"`
	Name       string  `json:"name"`
	Verdict    string  `json:"verdict"`
	Seconds    float64 `json:"seconds"`
	Executions uint64  `json:"executions"`
	PerSecond  float64 `json:"per_second"`
	New        int     `json:"new_inputs"` // that reached new code
	Corpus     int     `json:"corpus"`     // size of the corpus
	Failures   []Input `json:"failures,omitempty"`
	Output     string  `json:"output,omitempty"` // of the test program, if it failed
}

func (r *Result) String() string { return Target{Package: r.Package, Name: r.Name}.String() }

// Input is an input that fails.
type Input struct {
	File   string `json:"file,omitempty"` // in the source tree; empty for a seed in the code
	Replay string `json:"replay"`
}

// attempts is how often a target is run. Up to Go 1.26 the fuzzer sometimes reports the end of its
// own time as a failure without an input (golang.org/issue/75804). Only that failure is retried.
const attempts = 3

// Run fuzzes a target for fuzzTime and returns the result. It calls progress at the start, and
// whenever the fuzzer reports its counters. By a bug, the fuzzer may report its own deadline as a
// failure: Run then fuzzes again, and the target counts as passed if this happens in all attempts.
func (tree *Tree) Run(ctx context.Context, t Target, fuzzTime time.Duration, progress func(*Result)) *Result {
	r := &Result{Package: t.Package, Name: t.Name, Verdict: Passed}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	progress(r)
	program, output, err := tree.build(ctx, t.Package)
	if err != nil {
		r.Verdict, r.Output = Broken, string(output)+err.Error()
		if ctx.Err() != nil {
			r.Verdict, r.Output = Interrupted, ""
		}
		return r
	}
	for range attempts {
		log, err := tree.runProgram(ctx, program, t, fuzzTime, r, progress)
		switch {
		case ctx.Err() != nil:
			r.Verdict = Interrupted
			return r
		case err == nil && strings.Contains(log, "no fuzz tests to fuzz"):
			r.Verdict = Absent
			return r
		case err == nil:
			return r
		}
		r.Failures = tree.failures(t, log)
		if len(r.Failures) == 0 && deadlineAsFailure.MatchString(log) {
			continue
		}
		r.Verdict, r.Output = Failed, log
		return r
	}
	return r
}

// runProgram runs the test program of a target. It sets the counters of r, calls progress for
// each progress line of the fuzzer, and returns the other lines of the output.
func (tree *Tree) runProgram(ctx context.Context, program string, t Target, fuzzTime time.Duration, r *Result, progress func(*Result)) (string, error) {
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+t.Name+"$", "-test.fuzztime="+fuzzTime.String(),
		// By default the fuzzer minimizes a new input for a minute, longer than most targets run.
		"-test.fuzzminimizetime=20x", "-test.fuzzcachedir="+filepath.Join(tree.cache, Module, filepath.FromSlash(t.Package)))
	cmd.Dir = filepath.Join(tree.root, filepath.FromSlash(t.Package)) // the folder with the corpus
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	cmd.Stderr = cmd.Stdout // progress is printed to both
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var output strings.Builder
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if r.parseProgress(line) {
			progress(r)
		} else {
			output.WriteString(line)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	return output.String(), err
}

var (
	// fuzz: elapsed: 3s, execs: 552 (184/sec), new interesting: 3 (total: 251)
	progressLine            = regexp.MustCompile(`^fuzz: elapsed: \S+, execs: (\d+) \((\d+)/sec\)(?:, new interesting: (\d+) \(total: (\d+)\))?`)
	progressWithoutCounters = regexp.MustCompile(`^fuzz: (elapsed: \S+, (gathering baseline coverage|minimizing)|minimizing )`)
	inputWritten            = regexp.MustCompile(`Failing input written to (\S+)`)
	seedFailed              = regexp.MustCompile(`failure while testing seed corpus entry: (\S+)`)
	deadlineAsFailure       = regexp.MustCompile(`(?m)^ *context deadline exceeded`)
)

// parseProgress sets the counters of r if the line is a progress line of the fuzzer that has
// them. It reports whether the line is a progress line.
func (r *Result) parseProgress(line string) bool {
	m := progressLine.FindStringSubmatch(line)
	if m == nil {
		return progressWithoutCounters.MatchString(line)
	}
	r.Executions, _ = strconv.ParseUint(m[1], 10, 64) // digits
	r.PerSecond, _ = strconv.ParseFloat(m[2], 64)
	if m[3] != "" {
		r.New, _ = strconv.Atoi(m[3])
		r.Corpus, _ = strconv.Atoi(m[4])
	}
	return true
}

// failures returns the inputs on which a target failed, from the output of its test program:
// new inputs that the fuzzer wrote to files, and seeds.
func (tree *Tree) failures(t Target, log string) (all []Input) {
	replay := func(entry string) string { return fmt.Sprintf("go test %s -run '^%s$'", t.Package, entry) }
	for _, m := range inputWritten.FindAllStringSubmatch(log, -1) {
		file := filepath.ToSlash(filepath.Join(t.Package, m[1]))
		all = append(all, Input{File: file, Replay: replay(t.Name + "/" + filepath.Base(m[1]))})
	}
	for _, m := range seedFailed.FindAllStringSubmatch(log, -1) {
		in := Input{Replay: replay(m[1])}
		if file := t.Package + "/testdata/fuzz/" + m[1]; exists(filepath.Join(tree.root, file)) {
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

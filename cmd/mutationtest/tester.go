package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

// tester runs the Go tests of packages with mutants.
type tester struct {
	root string // of the module
	dir  string // temporary
	skip string // regular expression of tests that do not run

	programs map[string]*testProgram // by folder
}

// testProgram is the tests of a package, built with all mutants. limit is how long a run may take:
// a mutant that takes longer loops without end.
type testProgram struct {
	path  string
	limit time.Duration
}

// run runs the Go tests of the packages with each mutant that no case killed, and sets the results
// of mutants with which a test fails. It returns an error if the tests fail without a mutant.
func (t *tester) run(ctx context.Context, all []mutant.Mutant, results []result, workers int) error {
	var survivors []mutant.Mutant
	var indexes []int // of the survivors in all and results
	for i := range all {
		if results[i].KilledBy == "" {
			indexes, survivors = append(indexes, i), append(survivors, all[i])
		}
	}
	if err := t.build(ctx, survivors); err != nil {
		return err
	}
	return parallel(len(survivors), workers, "tested", func(next func() (int, bool)) error {
		for k, ok := next(); ok && ctx.Err() == nil; k, ok = next() {
			folder := path.Dir(survivors[k].Hunks[0].File)
			if _, err := t.test(ctx, folder, survivors[k].Name); err != nil {
				results[indexes[k]].KilledBy, results[indexes[k]].How = "tests", byTests
				if errors.Is(err, errHang) {
					fmt.Fprintf(os.Stderr, "%s: the tests hang\n", survivors[k].Name)
				}
			}
		}
		return ctx.Err()
	})
}

// build builds the test program of each package that mutants change, with all mutants. It runs the
// program once without a mutant, to check that it passes and to set its time limit.
func (t *tester) build(ctx context.Context, mutants []mutant.Mutant) error {
	overlay, err := mutant.Overlay(t.root, t.dir, mutants)
	if err != nil {
		return err
	}
	t.programs = map[string]*testProgram{}
	for folder := range byFolder(mutants) {
		p := &testProgram{path: filepath.Join(t.dir, fmt.Sprintf("%d.test", len(t.programs))), limit: 10 * time.Minute}
		t.programs[folder] = p
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", p.path, "./"+folder)
		cmd.Dir = t.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build tests with mutants: %w\n%s", err, out)
		}
		begun := time.Now()
		if out, err := t.test(ctx, folder, ""); err != nil {
			return fmt.Errorf("tests of %s without mutants: %w\n%s", folder, err, out)
		}
		p.limit = 20*time.Second + 3*time.Since(begun) // the machine may be busier later
	}
	return nil
}

// test runs the tests of a package with a mutant, or without if the name is empty. The error is
// errHang if they do not end.
func (t *tester) test(ctx context.Context, folder, name string) (output []byte, err error) {
	p := t.programs[folder]
	const grace = 10 * time.Second // a test program that loops may not notice its own timeout
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(p.limit+grace, func() { cancel(errHang) })
	defer timeout.Stop()
	cmd := exec.CommandContext(ctx, p.path, "-test.failfast", "-test.timeout="+p.limit.String(), "-test.skip="+t.skip)
	cmd.Dir = filepath.Join(t.root, filepath.FromSlash(folder))
	cmd.Env = append(os.Environ(), mutant.Variable+"="+name)
	cmd.WaitDelay = grace // for output of its child processes
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go watchHang(cmd.Process.Pid, ended, cancel)
	err = cmd.Wait()
	close(ended)
	if errors.Is(context.Cause(ctx), errHang) {
		err = errHang
	}
	return out.Bytes(), err
}

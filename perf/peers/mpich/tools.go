package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// installCommand installs MPICH on Debian and its derivatives.
const installCommand = "apt-get install -y --no-install-recommends mpich libmpich-dev gcc libc6-dev"

//go:embed c/ranks.c
var ranksInC []byte

// tools are the programs of MPICH.
type tools struct {
	Compiler string
	Launcher string
	Version  string
}

// findTools finds MPICH, by Debian's unambiguous names first.
func findTools() (t tools, err error) {
	if t.Compiler, err = firstOf("mpicc.mpich", "mpicc"); err != nil {
		return t, err
	}
	if t.Launcher, err = firstOf("mpiexec.mpich", "mpiexec.hydra", "mpiexec"); err != nil {
		return t, err
	}
	out, err := exec.Command(t.Launcher, "--version").CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "HYDRA") {
		return t, fmt.Errorf("%s is not the launcher of MPICH (hydra)", t.Launcher)
	}
	t.Version = "MPICH"
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "Version" {
			t.Version += " " + strings.TrimSpace(value)
		}
	}
	if !strings.Contains(text, "ch4:ucx") {
		t.Version += " (not built with ch4:ucx: its transports are unknown)"
	}
	return t, t.probe()
}

// probe checks that mpicc works: its headers or compiler may be missing.
func (t tools) probe() error {
	cmd := exec.Command(t.Compiler, "-x", "c", "-fsyntax-only", "-")
	cmd.Stdin = strings.NewReader("#include <mpi.h>\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("%s cannot compile an MPI program: %w: %s", t.Compiler, err, first)
	}
	return nil
}

func firstOf(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("MPICH is missing: no program %s found", strings.Join(names, " or "))
}

// compile compiles the ranks of MPICH into a directory.
func (t tools) compile(ctx context.Context, dir string) (program string, err error) {
	source, program := filepath.Join(dir, "ranks.c"), filepath.Join(dir, "ranks")
	if err := os.WriteFile(source, ranksInC, 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, t.Compiler, "-O2", "-o", program, source).CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s cannot compile the ranks: %w", t.Compiler, err), errors.New(string(out)))
	}
	return program, nil
}

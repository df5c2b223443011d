package mutate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoSources is returned by [Build] where a program with mutants cannot be built.
var ErrNoSources = errors.New("a build with mutants needs Go and a clone of the sources as the working directory")

// Build builds a main package of the module with mutants, as a program in a directory.
// The sources are those that the working directory is in.
func Build(ctx context.Context, dir, pkg string, mutants []Mutant) (program string, err error) {
	root, err := sources()
	if err != nil {
		return "", err
	}
	overlay, err := Overlay(root, dir, mutants)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build with mutants: %w\n%s", err, out)
	}
	return program, nil
}

// Possible returns nil if [Build] can build programs here.
func Possible() error {
	_, err := sources()
	return err
}

// sources returns the root of the module that the working directory is in.
func sources() (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", ErrNoSources
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+module+"\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", ErrNoSources
		}
		dir = up
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// goCommand runs the go command in dir, without a workspace, and returns its output.
func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// standardPackages lists the standard library.
func standardPackages(dir string) (map[string]bool, error) {
	out, err := goCommand(dir, "list", "std")
	if err != nil {
		return nil, err
	}
	std := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		std[name] = true
	}
	return std, nil
}

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir           string
	GoFiles                   []string // built on this system, without tests
	TestGoFiles, XTestGoFiles []string
	Export                    string // export data file
}

// goList runs go list with these arguments.
func goList(dir string, args ...string) (all []listed, err error) {
	const fields = "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Export"
	out, err := goCommand(dir, append([]string{"list", "-buildvcs=false", fields}, args...)...)
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// listBuilt compiles packages and their dependencies, and lists all of them by import path.
func listBuilt(dir string, packages []string) (map[string]listed, error) {
	all, err := goList(dir, append([]string{"-export", "-deps"}, packages...)...)
	byPath := map[string]listed{}
	for _, l := range all {
		byPath[l.ImportPath] = l
	}
	return byPath, err
}

// modulePath reads the module line of a go.mod file.
func modulePath(name string) (string, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(src)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.Trim(strings.TrimSpace(rest), `"`), nil
		}
	}
	return "", fmt.Errorf("%s: no module line", name)
}

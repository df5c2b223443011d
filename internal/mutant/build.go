package mutant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoSources is returned by [Build] where a program with mutants cannot be built.
var ErrNoSources = errors.New("a build with mutants needs Go and a clone of the sources as the working directory")

// Build builds the main package pkg of the module, such as cmd/fabrictest, with all mutants, and
// returns the path of the program in dir. The working directory must be in the module's sources.
func Build(ctx context.Context, dir, pkg string, mutants []Mutant) (program string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	overlay, err := Overlay(root, dir, mutants)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, filepath.Base(pkg))
	if out, err := goBuild(ctx, root, overlay, program, pkg); err != nil {
		return "", fmt.Errorf("go build with mutants: %w\n%s", err, out)
	}
	return program, nil
}

// allErrors makes the compiler report all errors of this module, not only the first ones of a
// package. It also makes the go command compile packages that it has in its cache without the flag.
const allErrors = "-gcflags=" + module + "/...=-e"

// goBuild runs 'go build' with an overlay file and more flags in the root of the module, and
// returns the compiler's output.
func goBuild(ctx context.Context, root, overlay, program, pkg string, flags ...string) (string, error) {
	args := slices.Concat([]string{"build", "-overlay", overlay, "-o", program}, flags, []string{"./" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// BuildValid is like [Build] for generated mutants, some of which may not compile. It omits those
// and returns the mutants that the program has.
func BuildValid(ctx context.Context, dir, pkg string, mutants []Mutant) (program string, valid []Mutant, err error) {
	root, err := Root()
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, filepath.Base(pkg))
	valid = slices.Clone(mutants)
	const attempts = 10 // the compiler reports some errors only after others are gone
	for range attempts {
		overlay, err := Overlay(root, dir, valid)
		if err != nil {
			return "", nil, err
		}
		out, err := goBuild(ctx, root, overlay, program, pkg, allErrors) // invalidMutants needs them
		if err == nil {
			return program, valid, nil
		}
		bad, badErr := invalidMutants(root, overlay, out)
		if badErr != nil || len(bad) == 0 {
			return "", nil, errors.Join(fmt.Errorf("go build with mutants: %w\n%s", err, out), badErr)
		}
		var compiling []Mutant
		for i := range valid {
			if number := i + 1; !bad[number] {
				compiling = append(compiling, valid[i])
			}
		}
		valid = compiling
	}
	return "", nil, fmt.Errorf("mutants did not compile in %d attempts", attempts)
}

var (
	compilerError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)
	variantHeader = regexp.MustCompile(`^func .*_mutant(\d+)\(`)
)

// invalidMutants returns the numbers of the mutants that do not compile. In the overlay, the
// variant of function NAME for mutant N is called NAME_mutantN; mutant N is invalid if the compiler
// reports an error in a variant of N. output is the compiler's output of a build with the overlay.
func invalidMutants(root, overlay, output string) (map[int]bool, error) {
	data, err := os.ReadFile(overlay)
	if err != nil {
		return nil, err
	}
	var files struct{ Replace map[string]string } // the replacements of the overlay
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, err
	}
	bad := map[int]bool{}
	lines := map[string][]string{}
	for _, m := range compilerError.FindAllStringSubmatch(output, -1) {
		file := m[1] // a source of the module, or its replacement
		if !filepath.IsAbs(file) {
			file = filepath.Join(root, file)
		}
		file = cmp.Or(files.Replace[file], file)
		if lines[file] == nil {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			lines[file] = strings.Split(string(text), "\n")
		}
		line, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, err
		}
		// The error is in the variant whose header is next above it.
		for i := min(line, len(lines[file])) - 1; i >= 0; i-- {
			if h := variantHeader.FindStringSubmatch(lines[file][i]); h != nil {
				number, err := strconv.Atoi(h[1])
				if err != nil {
					return nil, err
				}
				bad[number] = true
				break
			}
		}
	}
	return bad, nil
}

// CheckAvailable returns nil if [Build] can build programs here: Go is installed, and the working
// directory is in the module's sources. Otherwise it returns ErrNoSources.
func CheckAvailable() error {
	_, err := Root()
	return err
}

// Root returns the root of this module's sources. It returns ErrNoSources if the working directory
// is not in them, or if Go is not installed.
func Root() (string, error) {
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
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoSources
		}
		dir = parent
	}
}

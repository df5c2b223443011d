package mpihost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// The test of an example, in another module: it must not need internal packages.
func TestOtherModulesCanExplore(t *testing.T) {
	root := must.Get(filepath.Abs("../.."))(t)
	dir := t.TempDir()
	ours := string(must.Get(os.ReadFile(filepath.Join(root, "go.mod")))(t))
	module := "module example.com/user\n\n" + regexp.MustCompile(`(?m)^go .*$`).FindString(ours) + "\n\nrequire github.com/fabrictest/fabrictest v0.0.0\n\nreplace github.com/fabrictest/fabrictest => " + root + "\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600))
	for from, to := range map[string]string{
		"go.sum": "go.sum", "examples/wildcard/main.go": "main.go", "examples/wildcard/main_test.go": "main_test.go",
	} {
		text := must.Get(os.ReadFile(filepath.Join(root, from)))(t)
		must.Do(t, os.WriteFile(filepath.Join(dir, to), text, 0o600))
	}
	list := exec.Command("go", "list", "-mod=mod", "-deps", "-test", ".")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=")
	out, err := list.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "github.com/fabrictest/fabrictest/lab/mpihost\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

package main

import (
	"runtime"
	"strings"
	"testing"
)

// What is missing is named with the command that installs it.
func TestKernelLabNamesWhatIsMissing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("PATH", t.TempDir())
	for _, words := range []string{"lab kernel check", "lab kernel up", "lab kernel run -- true"} {
		code, _, stderr := call(t, strings.Fields(words)...)
		if code != exitFailed || !strings.Contains(stderr, "qemu-system-x86_64 is missing") || !strings.Contains(stderr, "apt-get install --no-install-recommends qemu-system-x86 ") {
			t.Errorf("%s: exit code %d, %q", words, code, stderr)
		}
	}
}

func TestKernelLabCommandsSayWhatTheyDo(t *testing.T) {
	cmd, _, err := newRootCommand("fabrictest").Find([]string{"lab", "kernel"})
	if err != nil || len(cmd.Commands()) < 10 {
		t.Fatalf("%d commands, %v", len(cmd.Commands()), err)
	}
	for _, c := range cmd.Commands() {
		if c.Short == "" || c.RunE == nil {
			t.Errorf("%s says nothing of itself, or does nothing", c.Name())
		}
	}
}

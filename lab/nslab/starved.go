package nslab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/launch"
)

// deathLine is the line in which a Go program says why it ends; goroutines and
// registers follow.
var deathLine = regexp.MustCompile(`(?m)^(fatal error|runtime(/cgo)?|panic): .*$`)

// What Go's runtime says when the system gives it no more.
var (
	noThreads = regexp.MustCompile(`pthread_create failed|failed to create new OS thread|newosproc`)
	noMemory  = regexp.MustCompile(`out of memory|cannot allocate memory|cannot allocate heap`)
)

// cure says what to do about a process that died of a limit of the machine's; empty
// if it died of something else.
func cure(words string) string {
	switch {
	case noThreads.MatchString(words):
		return "there are too few threads for so many hosts: raise the limit ('ulimit -u', or pids.max of the container), or run fewer hosts at once"
	case noMemory.MatchString(words):
		return "there is too little memory for so many hosts: raise the limit ('ulimit -v', or memory.max of the container), or run fewer hosts at once"
	}
	return ""
}

// starved is the error of a rank that the machine let down: what follows from it
// says nothing of the fabric.
func starved(o *launch.Outcome) error {
	if o.State != launch.Crashed && o.State != launch.Exited {
		return nil
	}
	if o.Signal == "SIGKILL" {
		return nil // memory is then one guess of the launcher's among others
	}
	if advice := cure(o.Error); advice != "" {
		return fmt.Errorf("rank %d on %s: %s: %s", o.Rank, o.Host, o.Error, advice)
	}
	return nil
}

// unstarted explains why a process could not be started.
func unstarted(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: %s", err, cure("newosproc"))
	}
	return err
}

// epitaph is why a process died, from what it wrote: one line, with the cure if
// there is one.
func epitaph(words string) string {
	line := deathLine.FindString(words)
	if advice := cure(line); advice != "" {
		line += ": " + advice
	}
	return strings.TrimSpace(line)
}

package nslab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/launch"
)

// crashLine matches the line with the cause of a crash of a Go program.
var crashLine = regexp.MustCompile(`(?m)^(fatal error|runtime(/cgo)?|panic): .*$`)

// Messages of the Go runtime when it cannot create threads or allocate memory.
var (
	noThreads = regexp.MustCompile(`pthread_create failed|failed to create new OS thread|newosproc`)
	noMemory  = regexp.MustCompile(`out of memory|cannot allocate memory|cannot allocate heap`)
)

// limitAdvice returns advice for a process that failed at a limit of threads or
// memory; empty for other failures.
func limitAdvice(output string) string {
	switch {
	case noThreads.MatchString(output):
		return "too few threads for all hosts: raise the limit ('ulimit -u', or pids.max of the container), or run fewer hosts at once"
	case noMemory.MatchString(output):
		return "too little memory for all hosts: raise the limit ('ulimit -v', or memory.max of the container), or run fewer hosts at once"
	}
	return ""
}

// resourceError returns an error if a rank failed for lack of threads or memory.
func resourceError(o *launch.Outcome) error {
	if o.State != launch.Crashed && o.State != launch.Exited {
		return nil
	}
	if o.Signal == "SIGKILL" {
		return nil // the OOM killer is only one possible cause
	}
	if advice := limitAdvice(o.Error); advice != "" {
		return fmt.Errorf("rank %d on %s: %s: %s", o.Rank, o.Host, o.Error, advice)
	}
	return nil
}

// startError adds advice to the error of a process that could not be started.
func startError(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: %s", err, limitAdvice("newosproc"))
	}
	return err
}

// crashReason returns the line with the cause of a crash from the output of a
// process, with advice if there is any.
func crashReason(output string) string {
	line := crashLine.FindString(output)
	if advice := limitAdvice(line); advice != "" {
		line += ": " + advice
	}
	return strings.TrimSpace(line)
}

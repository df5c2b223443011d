package sim

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// WaitingProgram describes a parked program: its wait reason and start time.
type WaitingProgram struct {
	Program string
	Reason  string
	Since   mono.Time
}

// waitingPrograms describes the programs that have not ended, and the events that they wait for.
func (w *World) waitingPrograms() []WaitingProgram {
	all := make([]WaitingProgram, 0, len(w.procs))
	for _, p := range w.procs {
		reason := "(not said)"
		if p.waitReason != nil {
			reason = p.waitReason.String()
		}
		all = append(all, WaitingProgram{Program: p.name, Reason: reason, Since: p.waitingSince})
	}
	return all
}

// waitingLines returns a colon and a line for each program; empty if there are none.
func waitingLines(all []WaitingProgram) (lines string) {
	for i, waiting := range all {
		if i == 0 {
			lines = ":"
		}
		lines += fmt.Sprintf("\n  %s waits for %s since %v", waiting.Program, waiting.Reason, waiting.Since)
	}
	return lines
}

// DeadlockError reports that no event is left while programs are parked.
type DeadlockError struct {
	Now     mono.Time
	Waiting []WaitingProgram // oldest program first
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("deadlock at %v: nothing is left to happen, and %d program(s) still wait%s",
		e.Now, len(e.Waiting), waitingLines(e.Waiting))
}

// LimitError reports that a run reached a limit of its Config.
type LimitError struct {
	Limit   string // "events" or "time"
	Now     mono.Time
	Events  uint64
	Waiting []WaitingProgram // oldest program first
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit of %s reached at %v after %d events (Config.MaxEvents, Config.MaxTime); %d program(s) had not ended%s",
		e.Limit, e.Now, e.Events, len(e.Waiting), waitingLines(e.Waiting))
}

// ProgramError is the error that a program returned.
type ProgramError struct {
	Program string
	Err     error
}

func (e *ProgramError) Error() string { return fmt.Sprintf("program %s: %v", e.Program, e.Err) }
func (e *ProgramError) Unwrap() error { return e.Err }

// PanicError is a panic of a program, with its stack.
type PanicError struct {
	Program string
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("program %s panicked: %v\n\n%s", e.Program, e.Value, e.Stack)
}

// Unwrap returns the panic value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ImpairError reports an invalid impairment of a port or trunk.
type ImpairError struct {
	Port      string // or trunk
	Direction string // "up" or "down"
	Err       error
}

func (e *ImpairError) Error() string {
	return fmt.Sprintf("port %s: impairment %s: %v", e.Port, e.Direction, e.Err)
}
func (e *ImpairError) Unwrap() error { return e.Err }

// problems lists the errors of a configuration.
type problems []error

// check adds an error unless ok.
func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

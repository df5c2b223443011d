package sim

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// WaitingProgram describes a parked program: its wait reason and start time.
type WaitingProgram struct {
	Program string
	Reason  string
	Since   mono.Time
}

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

func appendWaiting(b *strings.Builder, all []WaitingProgram) {
	for _, x := range all {
		fmt.Fprintf(b, "\n  %s waits for %s since %v", x.Program, x.Reason, x.Since)
	}
}

// DeadlockError reports that no event is left while programs are parked.
type DeadlockError struct {
	Now     mono.Time
	Waiting []WaitingProgram // oldest program first
}

func (e *DeadlockError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deadlock at %v: nothing is left to happen, and %d program(s) still wait:", e.Now, len(e.Waiting))
	appendWaiting(&b, e.Waiting)
	return b.String()
}

// LimitError reports that a run reached a limit of its Config.
type LimitError struct {
	Limit   string // "events" or "time"
	Now     mono.Time
	Events  uint64
	Waiting []WaitingProgram // oldest program first
}

func (e *LimitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "limit of %s reached at %v after %d events (Config.MaxEvents, Config.MaxTime); %d program(s) had not ended", e.Limit, e.Now, e.Events, len(e.Waiting))
	if len(e.Waiting) > 0 {
		b.WriteByte(':')
	}
	appendWaiting(&b, e.Waiting)
	return b.String()
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

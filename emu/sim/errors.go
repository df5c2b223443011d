package sim

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// WaitingProgram says what one program was waiting for, and since when.
type WaitingProgram struct {
	Program string
	Reason  string
	Since   mono.Time
}

func (w *World) waiting() []WaitingProgram {
	all := make([]WaitingProgram, 0, len(w.procs))
	for _, p := range w.procs {
		what := "(not said)"
		if p.what != nil {
			what = p.what.String()
		}
		all = append(all, WaitingProgram{Program: p.name, Reason: what, Since: p.since})
	}
	return all
}

func report(b *strings.Builder, all []WaitingProgram) {
	for _, x := range all {
		fmt.Fprintf(b, "\n  %s waits for %s since %v", x.Program, x.Reason, x.Since)
	}
}

// DeadlockError reports a world in which nothing is left to happen while
// programs still wait.
type DeadlockError struct {
	Now     mono.Time
	Waiting []WaitingProgram // oldest program first
}

func (e *DeadlockError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deadlock at %v: nothing is left to happen, and %d program(s) still wait:", e.Now, len(e.Waiting))
	report(&b, e.Waiting)
	return b.String()
}

// LimitError reports a run that reached a limit of its Config: most likely it
// would never have ended.
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
	report(&b, e.Waiting)
	return b.String()
}

// ProgramError is the error that a program returned.
type ProgramError struct {
	Program string
	Err     error
}

func (e *ProgramError) Error() string { return fmt.Sprintf("program %s: %v", e.Program, e.Err) }
func (e *ProgramError) Unwrap() error { return e.Err }

// PanicError is a panic in a program, with the stack it happened on.
type PanicError struct {
	Program string
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("program %s panicked: %v\n\n%s", e.Program, e.Value, e.Stack)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ImpairError says which impairment of which port makes no sense.
type ImpairError struct {
	Port      string // or the trunk
	Direction string // "up" or "down"
	Err       error
}

func (e *ImpairError) Error() string {
	return fmt.Sprintf("port %s: impairment %s: %v", e.Port, e.Direction, e.Err)
}
func (e *ImpairError) Unwrap() error { return e.Err }

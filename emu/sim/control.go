package sim

import (
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Calls of handlers and other programs that kill, pause and resume a program.

// Kill ends a program that is parked, in a blocking call. Its deferred calls run but cannot block;
// Kill returns a panic of theirs as an error. It has no effect on a program that has ended.
func (p *Proc) Kill() error {
	w := p.w
	switch {
	case w.current == p:
		panic(fmt.Sprintf("sim: program %q kills itself: let it return instead", p.name))
	case !slices.Contains(w.procs, p):
		return nil
	}
	w.procs = remove(w.procs, p)
	w.ready.remove(p)
	p.stopWaiting()
	p.timer.Stop()
	w.Tracef("kill %s", p.name)
	killer := w.current
	w.current, p.unwinding = p, true
	p.stop()
	w.ready.unregister(p)
	w.current = killer
	if p.panicked() {
		return p.err
	}
	return nil
}

// Pause stops the program until Resume, as SIGSTOP does. A wakeup in between
// takes effect at Resume. Time continues.
func (p *Proc) Pause() {
	if p.w.current == p {
		panic(fmt.Sprintf("sim: program %q pauses itself: park it (Wait, Sleep) instead", p.name))
	}
	p.paused = true
	if p.w.ready.remove(p) {
		p.wokenWhilePaused = true
	}
}

// Resume undoes Pause.
func (p *Proc) Resume() {
	p.paused = false
	if p.wokenWhilePaused {
		p.wokenWhilePaused = false
		p.wake()
	}
}

// wake makes p runnable.
func (p *Proc) wake() {
	if p.paused {
		p.wokenWhilePaused = true
		return
	}
	p.w.ready.add(p)
	p.readySince = p.w.now
}

// Chooser makes the world's choices. A model checker enumerates schedules by
// answering differently from run to run. The answer is in [0, n), and 0 is what
// happens in a world that reorders nothing and has no faults. kind is
//
//   - "run": which program runs next,
//   - "notify": which waiter wakes,
//   - "event": which event or program is next (Config.Reorder),
//   - "spray": which packet of a cable arrives next (LinkConfig.Spray),
//   - "fault": 1 loses a packet, 2 duplicates it, 3 lets the next packet of the
//     cable overtake it (Config.Faults).
type Chooser interface {
	Choose(kind string, n int) int
}

// Choose returns an index below n, which the Chooser picks; kind names the decision. Every choice
// of the world, such as which program runs next, is made here. The Chooser is not called if n is 1.
func (w *World) Choose(kind string, n int) int {
	if n == 1 {
		return 0
	}
	if n < 1 {
		panic(fmt.Sprintf("sim: Choose(%q, %d): nothing to choose from", kind, n))
	}
	i := w.chooser.Choose(kind, n)
	if i < 0 || i >= n {
		panic(fmt.Sprintf("sim: Chooser answered %d to Choose(%q, %d)", i, kind, n))
	}
	if w.Tracing() {
		w.Tracef("choose %s %d %d", kind, n, i)
	}
	return i
}

type randomChooser struct{ rng *rand.Rand }

func (s randomChooser) Choose(_ string, n int) int { return randBelow(s.rng, n) }

// randBelow returns a number in [0, n). It avoids the methods of rand.Rand
// whose results differ on 32-bit machines.
func randBelow[N int | time.Duration](rng *rand.Rand, n N) N {
	hi, _ := bits.Mul64(rng.Uint64(), uint64(n))
	return N(hi)
}

// Rand returns the random number generator of that name, whose numbers depend only on the world's
// seed and the name. Later calls return the same generator in its current state.
func (w *World) Rand(name string) *rand.Rand {
	if r, ok := w.rands[name]; ok {
		return r
	}
	r := impair.NewRand(w.cfg.Seed, name)
	w.rands[name] = r
	return r
}

// trace writes one line of text per step: the time in nanoseconds, the place
// and the action. It costs one comparison when no writer is set.
type trace struct {
	out io.Writer
	buf []byte
	err error // of the first failed write; nothing is written after it
}

// Tracing reports whether a trace is written, so that callers can skip formatting.
func (w *World) Tracing() bool { return w.trace.out != nil }

// Tracef adds a line to the trace, after the time.
func (w *World) Tracef(format string, args ...any) {
	if w.trace.out == nil || w.trace.err != nil {
		return
	}
	b := append(strconv.AppendInt(w.trace.buf[:0], int64(w.now), 10), ' ')
	w.trace.buf = append(fmt.Appendf(b, format, args...), '\n')
	_, w.trace.err = w.trace.out.Write(w.trace.buf)
}

// traceRun adds to the trace that p runs next.
func (w *World) traceRun(p *Proc) {
	if w.Tracing() {
		w.Tracef("run %s", p.name)
	}
}

// WrongGoroutineError is the panic value of a call into the world from a
// goroutine that a program started. Only the program's own goroutine may call.
type WrongGoroutineError struct {
	Call      string // called function
	CallSite  string // file:line of the call
	StartSite string // file:line of the go statement
}

// Error names the call, where it was called, where its goroutine was started, and the remedies.
func (e *WrongGoroutineError) Error() string {
	return fmt.Sprintf("%s, called at %s, belongs to a simulated world, but its caller is a goroutine started at %s: "+
		"a simulated world runs one program at a time, in its own goroutine. "+
		"Call it from the program itself (without go), start another program for it (sim.World.Go, or one more rank), "+
		"or run in network namespaces (--on netns), where goroutines are allowed", e.Call, e.CallSite, e.StartSite)
}

// checkGoroutine panics unless the caller is the goroutine of Run or of the running program.
func (w *World) checkGoroutine() {
	owner := w.goroutine
	if w.current != nil {
		owner = w.current.goroutine
	}
	if w.running && owner != process.Goroutine() {
		panic(newWrongGoroutineError(string(debug.Stack())))
	}
}

// newWrongGoroutineError finds the call and the go statement in a stack trace.
func newWrongGoroutineError(stack string) *WrongGoroutineError {
	e := &WrongGoroutineError{Call: "a call", CallSite: "an unknown place", StartSite: "an unknown place"}
	frames, created, ok := strings.Cut(stack, "\ncreated by ")
	if !ok {
		return e
	}
	if _, place, ok := strings.Cut(created, "\n"); ok {
		e.StartSite = fileLineOf(place)
	}
	// Each frame has two lines, function and file, and the outermost frame is last. Go inwards to
	// the first call of a function of this module: line n-4 names it, line n-1 is the call site.
	lines := strings.Split(frames, "\n")
	for n := len(lines); n >= 4; n -= 2 {
		e.CallSite, e.Call = fileLineOf(lines[n-1]), functionOf(lines[n-4])
		if isModuleFunction(lines[n-4]) {
			break
		}
	}
	return e
}

// isModuleFunction reports whether a stack line names a function of this module
// outside of tests and examples.
func isModuleFunction(line string) bool {
	const module = "github.com/fabrictest/fabrictest/"
	name, ok := strings.CutPrefix(line, module)
	pkg, _, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ".")
	return ok && !strings.HasSuffix(pkg, "_test") && !strings.HasPrefix(name, "examples/")
}

// fileLineOf returns the file and line number from the first line of a part of a stack trace: of
// "\t/src/main.go:12 +0x1b" the part before the offset.
func fileLineOf(stack string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(stack), "\n")
	fileLine, _, _ := strings.Cut(line, " +0x")
	return fileLine
}

// functionOf returns the function of a stack line, without path and arguments.
func functionOf(line string) string {
	if i := strings.LastIndexByte(line, '('); i > 0 {
		line = line[:i]
	}
	return line[strings.LastIndexByte(line, '/')+1:]
}

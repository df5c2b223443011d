package sim

import (
	"fmt"
	"io"
	"strconv"
)

// trace writes one line of text per step: the time in nanoseconds, the place
// and the action. It costs one comparison when no writer is set.
type trace struct {
	out io.Writer
	buf []byte
	err error
}

// Tracing reports whether a trace is written, so that callers can skip
// formatting.
func (w *World) Tracing() bool { return w.trace.out != nil }

// Tracef adds a line to the trace, after the time.
func (w *World) Tracef(format string, args ...any) {
	if w.trace.out == nil {
		return
	}
	w.traceLine(fmt.Appendf(w.traceStart(), format, args...))
}

// TraceErr returns the first write error of the trace. Nothing is written after
// it.
func (w *World) TraceErr() error { return w.trace.err }

func (w *World) traceStart() []byte {
	return append(strconv.AppendInt(w.trace.buf[:0], int64(w.now), 10), ' ')
}

func (w *World) traceLine(b []byte) {
	w.trace.buf = append(b, '\n')
	if w.trace.err == nil {
		_, w.trace.err = w.trace.out.Write(w.trace.buf)
	}
}

func (w *World) traceRun(p *Proc) {
	if w.trace.out != nil {
		w.traceLine(append(append(w.traceStart(), "run "...), p.name...))
	}
}

func (w *World) traceChoice(kind string, n, i int) {
	if w.trace.out != nil {
		b := append(append(w.traceStart(), "choose "...), kind...)
		b = append(strconv.AppendInt(append(b, ' '), int64(n), 10), ' ')
		w.traceLine(strconv.AppendInt(b, int64(i), 10))
	}
}

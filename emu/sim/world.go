package sim

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Default limits of a Config. They are far beyond any sensible run and turn a
// run that never ends into an error.
const (
	DefaultMaxEvents uint64    = 4_000_000_000
	DefaultMaxTime   mono.Time = mono.Time(1000 * time.Hour)
)

// stopInterval is the number of events between two calls of Config.Stop.
const stopInterval = 1 << 14

// Config configures a World.
type Config struct {
	// Seed determines every choice and every random stream.
	Seed uint64
	// MaxEvents and MaxTime abort a run with a LimitError; 0 means the
	// defaults.
	MaxEvents uint64
	MaxTime   mono.Time
	// Chooser makes the choices; nil means randomly, from the seed.
	Chooser Chooser
	// Stop, if not nil, is polled during the run. An error that it returns ends
	// the world. It lets a caller interrupt the run and does not affect the
	// simulation.
	Stop func() error
	// Trace, if not nil, receives one line of text for every step.
	Trace io.Writer
}

// Handler handles an event. It must not block, and it runs outside of any
// program: Current is nil.
type Handler interface {
	HandleEvent(now mono.Time, arg uint64)
}

// HandlerFunc is a function that implements Handler.
type HandlerFunc func(now mono.Time, arg uint64)

// HandleEvent calls f.
func (f HandlerFunc) HandleEvent(now mono.Time, arg uint64) { f(now, arg) }

type funcHandler func()

func (f funcHandler) HandleEvent(mono.Time, uint64) { f() }

// World holds virtual time, the event queue and the programs.
type World struct {
	cfg     Config
	now     mono.Time
	horizon mono.Time // end of the current Run
	queue   queue
	events  uint64

	procs   []*Proc // programs that have not ended, oldest first
	ready   []*Proc // runnable programs, in the order they became runnable
	current *Proc
	running bool
	// goroutine is the one that called Run; see checkGoroutine.
	goroutine uintptr
	ended     bool
	err       error

	chooser  Chooser
	rands    map[string]*rand.Rand
	netNames map[string]bool // names in use
	lastTag  uint32          // Tag of the last packet shown to a Tap
	trace    trace

	noSleepShortcut bool // set by a test: Sleep always parks
}

// New returns a world at time 0 without events or programs.
func New(cfg Config) *World {
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = DefaultMaxEvents
	}
	if cfg.MaxTime == 0 {
		cfg.MaxTime = DefaultMaxTime
	}
	w := &World{cfg: cfg, chooser: cfg.Chooser, rands: make(map[string]*rand.Rand), netNames: make(map[string]bool)}
	w.trace.out = cfg.Trace
	if w.chooser == nil {
		w.chooser = randomChooser{w.Rand("world/choose")}
	}
	return w
}

// Now returns the virtual time.
func (w *World) Now() mono.Time { return w.now }

// Seed returns Config.Seed.
func (w *World) Seed() uint64 { return w.cfg.Seed }

// Events returns the number of events and program steps that have run.
func (w *World) Events() uint64 { return w.events }

// At runs h with arg at time t. A time in the past means now, after the events
// already due now; mono.Never means not at all.
func (w *World) At(t mono.Time, h Handler, arg uint64) {
	if t == mono.Never || w.ended { // a program that is unwinding may still schedule
		return
	}
	w.queue.push(max(t, w.now), h, arg)
}

// After runs h with arg after d.
func (w *World) After(d time.Duration, h Handler, arg uint64) { w.At(w.now.Add(d), h, arg) }

// AtFunc runs f at time t; see At.
func (w *World) AtFunc(t mono.Time, f func()) { w.At(t, funcHandler(f), 0) }

// AfterFunc runs f after d.
func (w *World) AfterFunc(d time.Duration, f func()) { w.At(w.now.Add(d), funcHandler(f), 0) }

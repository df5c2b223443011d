package sim

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Limits that hold where a Config names none. They are far beyond any sensible
// run and exist so that a run which never ends becomes an error.
const (
	DefaultMaxEvents uint64    = 4_000_000_000
	DefaultMaxTime   mono.Time = mono.Time(1000 * time.Hour)
)

// stopEvery is how many events pass between two calls of Config.Stop.
const stopEvery = 1 << 14

// Config is what a world's run follows from.
type Config struct {
	// Seed decides every choice and every stream of Rand.
	Seed uint64
	// MaxEvents and MaxTime end a run that would not end by itself, with a
	// LimitError; 0 means the defaults.
	MaxEvents uint64
	MaxTime   mono.Time
	// Chooser makes the choices; nil means at random, from the seed.
	Chooser Chooser
	// Stop, if not nil, is asked now and then whether the run is to be given up;
	// the world ends with the error that it returns. It is how whoever runs a
	// world may be interrupted, and no part of what happens in it.
	Stop func() error
	// Trace, if not nil, gets a line of text for everything that happens.
	Trace io.Writer
}

// Handler is what an event runs. It must not block, and it runs outside of any
// program: Current is nil.
type Handler interface {
	HandleEvent(now mono.Time, arg uint64)
}

// HandlerFunc lets a function be a Handler.
type HandlerFunc func(now mono.Time, arg uint64)

// HandleEvent calls f.
func (f HandlerFunc) HandleEvent(now mono.Time, arg uint64) { f(now, arg) }

type plainFunc func()

func (f plainFunc) HandleEvent(mono.Time, uint64) { f() }

// World holds virtual time, what is to happen in it, and the programs.
type World struct {
	cfg     Config
	now     mono.Time
	horizon mono.Time // how far the run under way may go
	queue   queue
	events  uint64

	procs   []*Proc // that have not ended, oldest first
	ready   []*Proc // that can run now, in the order they became so
	current *Proc
	running bool
	// goroutine is the one that called Run; see mustOwn.
	goroutine uintptr
	ended     bool
	err       error

	choices Chooser
	streams map[string]*rand.Rand
	nets    map[string]bool // names taken
	tagged  uint32          // packets that taps have seen leave
	trace   trace

	slowSleep bool // set by a test to compare the short cut in Sleep with the long way
}

// New returns a world at time 0 in which nothing happens yet.
func New(cfg Config) *World {
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = DefaultMaxEvents
	}
	if cfg.MaxTime == 0 {
		cfg.MaxTime = DefaultMaxTime
	}
	w := &World{cfg: cfg, choices: cfg.Chooser, streams: make(map[string]*rand.Rand), nets: make(map[string]bool)}
	w.trace.out = cfg.Trace
	if w.choices == nil {
		w.choices = seeded{w.Rand("world/choose")}
	}
	return w
}

// Now returns the world's time.
func (w *World) Now() mono.Time { return w.now }

// Seed returns the seed that everything in this world follows from.
func (w *World) Seed() uint64 { return w.cfg.Seed }

// Events returns how many events and program steps have run: a measure of work.
func (w *World) Events() uint64 { return w.events }

// At runs h with arg at time t. A time that has passed means now, after what is
// due now already; at Never it does not run at all.
func (w *World) At(t mono.Time, h Handler, arg uint64) {
	if t == mono.Never || w.ended { // a program being unwound may still schedule
		return
	}
	w.queue.push(max(t, w.now), h, arg)
}

// After runs h with arg when d has passed.
func (w *World) After(d time.Duration, h Handler, arg uint64) { w.At(w.now.Add(d), h, arg) }

// AtFunc runs f at time t, as At does.
func (w *World) AtFunc(t mono.Time, f func()) { w.At(t, plainFunc(f), 0) }

// AfterFunc runs f when d has passed.
func (w *World) AfterFunc(d time.Duration, f func()) { w.At(w.now.Add(d), plainFunc(f), 0) }

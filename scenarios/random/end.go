// Package random exchanges random verbs traffic between two ends and checks all of it.
// Both ends compute the requests of both sides from a Workload. Therefore each can compare
// every received byte, every completion and the final memory with a model that is
// independent of the device.
//
// Reliable services (RC, XRC, RD) must deliver everything exactly once and in order,
// complete requests in order, and leave the memory that the requests in order produce.
// Unreliable services (UC, UD) may lose messages, and reorder or duplicate them if the
// network does, but must deliver them intact.
//
// Package workload uses it for the workload "random", and tests of the emulated NICs use it
// directly. It imports the standard library, traffic and verbs only, opens no device and reads no
// clock: it blocks in completion channels, in the Exchange and in verbs.Proc. Therefore the
// same programs run in a simulated world and in real time. An End belongs to the goroutine
// or program that calls Run; after that, Result and Status report how far it came.
package random

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// End is one side of a workload on a device.
type End struct {
	env  Env
	proc verbs.Proc
	w    *Workload
	side Side

	endObjects
	conns []*conn
	byQPN map[verbs.QPN]*conn
	words sharedWords
	// posters are the receive rings, and then the senders of all connections.
	posters []poster

	peer           endInfo
	phase          string
	peerDone       *report
	countersBefore []verbs.Counter
	endTimes
}

// endObjects are the objects that the connections of an end share.
type endObjects struct {
	gid verbs.GID
	traffic.Queues
	rings      []*recvRing    // by the number in their work request IDs
	shared     *recvRing      // of the SRQ; nil if no connection uses it
	cmListener verbs.Listener // nil without the connection manager
}

type endTimes struct {
	startedAt, endedAt           time.Duration
	lastProgress, lastCompletion time.Duration
}

// NewEnd returns one of the two ends of workload w. It starts nothing.
func NewEnd(env Env, w *Workload, side Side) (*End, error) {
	if err := w.Validate(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	return &End{env: env, w: w, side: side, byQPN: map[verbs.QPN]*conn{}, phase: "not started"}, nil
}

// Run connects, exchanges and checks the traffic, and closes everything. It returns a
// *Violation if the service broke a guarantee, and other errors if a verb failed; resources
// then stay open until the device is closed. Call it once, on the process p.
func (e *End) Run(p verbs.Proc) (*Result, error) {
	e.proc = p
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"opening", e.open},
		{"connecting", e.connect},
		{"exchanging traffic", e.traffic},
		{"checking memory", e.verify},
		{"closing", e.close},
	} {
		e.phase = step.name
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("side %v, %s: %w", e.side, step.name, err)
		}
	}
	e.phase = "done"
	return e.Result(), nil
}

// Status describes in one line how far this side of the test is, and what its connections wait for.
func (e *End) Status() string {
	parts := []string{fmt.Sprintf("side %v %s", e.side, e.phase)}
	for _, c := range e.conns {
		if s := c.status(); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "; ")
}

func (e *End) trace(format string, args ...any) {
	if e.env.Trace != nil {
		e.env.Trace("%v "+format, append([]any{e.side}, args...)...)
	}
}

// open creates the verbs objects of all connections, before the exchange with the other end: CQs,
// memory with the shared words, receive rings and queue pairs.
func (e *End) open() (err error) {
	e.countersBefore = e.env.Device.Counters()
	entry, err := e.env.Device.QueryGID(1, int(e.env.GIDIndex))
	if err != nil {
		return err
	}
	e.gid = entry.GID
	cqDepth := 16 // spare entries; the loop adds one for every possible completion
	for i := range e.w.Conns {
		c := &e.w.Conns[i]
		cqDepth += c.SendDepth + 1 + (1+c.XRCQueues)*c.RecvDepth + c.Windows
	}
	if e.Queues, err = traffic.OpenQueues(e.env.Device, e.w.CQs, cqDepth); err != nil {
		return err
	}
	if err := e.words.open(e); err != nil {
		return err
	}
	if err := e.openSharedRing(); err != nil {
		return err
	}
	for i := range e.w.Conns {
		c, err := e.openConn(i)
		if err != nil {
			return fmt.Errorf("connection %d (%v): %w", i, e.w.Conns[i].Service, err)
		}
		e.conns = append(e.conns, c)
	}
	for _, r := range e.rings { // first: receives are posted before requests
		e.posters = append(e.posters, r)
	}
	for _, c := range e.conns {
		e.posters = append(e.posters, &c.outgoing)
	}
	return nil
}

// openSharedRing creates the shared receive queue and the ring of receive buffers for it, if any
// connection uses them. They have room for the receives of all these connections.
func (e *End) openSharedRing() error {
	var cfg ringConfig
	for i := range e.w.Conns {
		if c := &e.w.Conns[i]; c.SharedReceives {
			if cfg.depth == 0 {
				cfg.pace = c.RecvPacing // that of the first connection
			}
			cfg.depth += c.RecvDepth
			cfg.maxLen, cfg.maxPieces = max(cfg.maxLen, c.MaxBytes+verbs.GRHLen), max(cfg.maxPieces, c.MaxSGE)
		}
	}
	if cfg.depth == 0 {
		return nil
	}
	srq, err := e.env.Device.CreateSRQ(verbs.SRQInit{PD: e.PD, MaxWR: cfg.depth, MaxSGE: cfg.maxPieces})
	if err != nil {
		return err
	}
	cfg.srq = srq
	e.shared, err = e.newRing(srq, cfg)
	return err
}

// close closes all resources, users before what they use: a resource in use would not close.
func (e *End) close() error {
	err := traffic.Close(e.cmListener)
	for _, c := range e.conns {
		err = errors.Join(err, c.close())
	}
	for _, r := range e.rings {
		err = errors.Join(err, r.close())
	}
	return errors.Join(err, e.words.mr.Close(), e.Queues.Close())
}

// Side is one of the two ends of a workload.
type Side int

// The two sides.
const (
	A Side = 0
	B Side = 1
)

// Peer is the other side.
func (s Side) Peer() Side { return 1 - s }

// String is the letter of the side.
func (s Side) String() string { return string(rune('A' + s)) }

// Env is the environment of an end.
type Env struct {
	Device verbs.Context
	Peer   traffic.Exchange
	// GIDIndex is the source GID in the GID table of the device.
	GIDIndex uint8
	// StallTimeout is how long an end may make no progress before it fails with a
	// *traffic.StallError. 0: no limit, for worlds that detect deadlocks.
	StallTimeout time.Duration
	// Concurrent means that the device accesses memory while the program runs, as in real
	// time. Bytes that a later request may be writing are then checked only at the end.
	Concurrent bool
	// DetectPeerEnd makes the end poll the Exchange while it waits, to notice when the peer
	// has ended: Run returns the error of Recv. It hides deadlocks from a simulated world.
	DetectPeerEnd bool
	// OnStep, if not nil, is called between steps of Run. It may call Result and Status.
	OnStep func()
	// Trace, if not nil, is called for every request posted and completed.
	Trace func(format string, args ...any)
}

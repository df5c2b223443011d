package perf

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Latency sends one message at a time. SENDs and WRITEs go back and forth, and the result is half a
// round trip; READs and atomics have the time until they complete.
type Latency struct {
	Op    verbs.WROpcode // OpSend, OpRDMAWrite, OpRDMARead, OpAtomicFetchAdd or OpAtomicCmpAndSwp
	Bytes int            // of a message; 0 means 8
	Load                 // of which QPs, Depth and the like do not apply; Iterations 0 means 10000
	// Batch is the number of messages that are timed together, to hide the cost of reading the
	// clock; 0 means 1. Each sample is their mean.
	Batch int
	// WaitForSend makes each side wait for the send completion before it receives,
	// as programs with a single buffer do.
	WaitForSend bool
}

const (
	pingRecvs = 64
	pingSends = 64
	// pingSignal is the number of messages per signaled completion.
	pingSignal = 16
)

// wordBytes is the length of atomics, and of the word at the end of a WRITE that is polled.
const wordBytes = 8

// check returns an error if the service cannot carry the messages.
func (l *Latency) check(s Service) error {
	switch l.Op {
	case verbs.OpSend:
		return nil
	case verbs.OpRDMAWrite:
		if l.Bytes < wordBytes || l.Events || l.WaitForSend {
			return fmt.Errorf("latency of WRITEs of %d bytes: programs poll the last 8 bytes of a message: give 8 bytes or more, without events", l.Bytes)
		}
	case verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp:
		if l.Bytes != wordBytes {
			return fmt.Errorf("latency of atomics of %d bytes: they have 8", l.Bytes)
		}
	}
	return s.checkOp(l.Op)
}

// Run runs one side. The client returns the time of each message.
func (l Latency) Run(ctx context.Context, s *Side) (*traffic.Histogram, error) {
	l.Bytes, l.Iterations, l.Batch = cmp.Or(l.Bytes, wordBytes), cmp.Or(l.Iterations, 10_000), cmp.Or(l.Batch, 1)
	if err := l.check(s.Service); err != nil {
		return nil, err
	}
	half := (l.Bytes + wordBytes - 1) / wordBytes * wordBytes // the received messages follow the sent ones
	c, err := s.connect(ctx, connConfig{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 2 * half, message: l.Bytes, inline: l.Inline, op: l.Op})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	side := newLatencySide(l, c, half)
	if err := side.postRecvs(pingRecvs); err != nil {
		return nil, err
	}
	if err := s.barrier(ctx); err != nil { // both have receives posted
		return nil, err
	}
	if s.Role == Client || !isOneSided(l.Op) {
		err = side.run(ctx)
	}
	if err == nil {
		err = s.barrier(ctx) // close only when both are done
	}
	return side.times, wrap(err, "latency of %v, %d bytes, %v", l.Op, l.Bytes, s.Role)
}

// isOneSided reports whether only the completion tells that an operation is done.
func isOneSided(op verbs.WROpcode) bool { return op != verbs.OpSend && op != verbs.OpRDMAWrite }

// latencySide is the state of one side.
type latencySide struct {
	Latency
	*conn
	recv []verbs.RecvWR
	send []verbs.SendWR
	wcs  []verbs.WC
	sent []byte // the message that is sent, and the one that is received
	got  []byte

	posted, completed int // sends
	consumed          int // receives not yet reposted
	written           int // messages that the other side has written
	times             *traffic.Histogram
}

// newLatencySide returns the state of one side. Received messages have an offset in the buffer at
// which the last word of a message is aligned if that of the sent one, at its end, is.
func newLatencySide(l Latency, c *conn, offset int) *latencySide {
	skip := -l.Bytes & (wordBytes - 1) // before a sent message, so that its end is aligned
	p := &latencySide{
		Latency: l, conn: c, wcs: make([]verbs.WC, pingRecvs), times: new(traffic.Histogram),
		sent: c.buf[skip:][:l.Bytes], got: c.buf[offset+skip:][:l.Bytes],
		recv: slices.Repeat([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(c.mr, offset, c.grhBytes+l.Bytes)}}}, pingRecvs),
		send: []verbs.SendWR{{Opcode: l.Op, Atomic: verbs.Atomic{CompareAdd: 1, Swap: 1}}},
	}
	c.setMessage(&p.send[0], skip, l.Bytes, l.Inline)
	c.setDestination(p.send, 0)
	p.send[0].Remote = verbs.Remote{Addr: c.remote.Addr + uint64(offset+skip), RKey: c.remote.RKey}
	return p
}

// lastWord returns the last 8 bytes of a message. The device writes them last, and atomically.
func lastWord(message []byte) *uint64 {
	return (*uint64)(unsafe.Pointer(&message[len(message)-wordBytes]))
}

// tryWritten reports whether the other side has written its next message.
func (p *latencySide) tryWritten() (written bool, err error) {
	if err = p.pollSends(); err != nil || atomic.LoadUint64(lastWord(p.got)) != uint64(p.written+1) {
		return false, err
	}
	p.written++
	return true, nil
}

// pollSends polls once for completed sends.
func (p *latencySide) pollSends() error {
	n, err := pollSuccess(p.sends, p.wcs)
	if p.WaitForSend || isOneSided(p.Op) {
		p.completed += n
	} else {
		p.completed += n * pingSignal // only one of pingSignal sends is signaled
	}
	return err
}

// run sends p.Iterations messages, in samples of p.Batch, after a warm-up. The client adds the time
// of each to p.times.
func (p *latencySide) run(ctx context.Context) error {
	const warmup = 200 // messages, unless p.Warmup says otherwise
	samples, tripMessages := max(1, p.Iterations/p.Batch), 2
	if isOneSided(p.Op) {
		tripMessages = 1
	}
	for i := -((cmp.Or(p.Warmup, warmup) + p.Batch - 1) / p.Batch); i < samples; i++ {
		start := p.side.now()
		for range p.Batch {
			if err := p.trip(); err != nil {
				return err
			}
		}
		if p.side.Role == Client && i >= 0 {
			p.times.Add((p.side.now() - start) / time.Duration(p.Batch*tripMessages))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// trip sends a message and waits for the answer; a server waits for a message and answers it. A
// one-sided operation has no answer: trip waits for its completion.
func (p *latencySide) trip() error {
	first, then := p.sendOne, p.recvOne
	switch {
	case isOneSided(p.Op):
		then = func() error { return p.waitSends(p.posted) }
	case p.side.Role == Server:
		first, then = then, first
	}
	if err := first(); err != nil {
		return err
	}
	if err := then(); err != nil {
		return err
	}
	if p.consumed < pingRecvs/4 {
		return nil
	}
	n := p.consumed // receives are reposted in batches
	p.consumed = 0
	return p.postRecvs(n)
}

// postRecvs posts n receives, all into the same buffer. It posts none unless the operation is Send,
// because the others consume no receives.
func (p *latencySide) postRecvs(n int) error {
	if p.Op != verbs.OpSend {
		return nil
	}
	return p.postRecv(0, p.recv[:n])
}

// sendOne posts a message. Every pingSignal-th is signaled; before it, sendOne waits until so
// many earlier sends have completed that the next pingSignal sends fit into the send queue. With
// WaitForSend, each send is signaled, and sendOne waits for its completion.
func (p *latencySide) sendOne() error {
	p.posted++
	p.send[0].Flags &^= verbs.SendSignaled
	if p.Op == verbs.OpRDMAWrite {
		*lastWord(p.sent) = uint64(p.posted)
	}
	signal := p.posted%pingSignal == 0 && !isOneSided(p.Op)
	if signal || p.WaitForSend || isOneSided(p.Op) {
		p.send[0].Flags |= verbs.SendSignaled
		if signal {
			if err := p.waitSends(p.posted - pingSends + pingSignal); err != nil {
				return err
			}
		}
	}
	if _, err := p.qps[0].PostSend(p.send); err != nil {
		return err
	}
	if p.WaitForSend {
		return p.waitSends(p.posted)
	}
	return nil
}

// waitSends polls until the number of completed sends is at least sends. It sleeps if Events is set
// and the operation is one-sided.
func (p *latencySide) waitSends(sends int) error {
	return p.waitUntil("completion of a send", p.sends, p.Events && isOneSided(p.Op), func() (bool, error) {
		if p.completed < sends {
			if err := p.pollSends(); err != nil {
				return false, err
			}
		}
		return p.completed >= sends, nil
	})
}

// recvOne waits for a message: if Events is set, for a completion event, else by polling.
func (p *latencySide) recvOne() error { return p.waitUntil("message", p.recvs, p.Events, p.tryRecv) }

// waitUntil calls try until it returns true. With sleep, it waits for events of cq in between. It
// fails if nothing happens for long; what names the event that it waits for.
func (c *conn) waitUntil(what string, cq verbs.CQ, sleep bool, try func() (bool, error)) error {
	timer := c.side.timer()
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		if !sleep {
			if timer.expired() {
				return fmt.Errorf("no %s within %v", what, timer.limit)
			}
			continue
		}
		const solicitedOnly = false
		if err := cq.ReqNotify(solicitedOnly); err != nil {
			return err
		}
		// A completion may have arrived before ReqNotify.
		if done, err := try(); done || err != nil {
			return err
		}
		if _, err := c.Channel.Wait(timer.limit); err != nil {
			return wrap(err, "wait for a %s", what)
		}
	}
}

// tryRecv polls once, and reports whether a message has arrived.
func (p *latencySide) tryRecv() (received bool, err error) {
	if p.Op == verbs.OpRDMAWrite {
		return p.tryWritten()
	}
	n, err := pollSuccess(p.recvs, p.wcs[:1])
	p.consumed += n
	return n > 0, err
}

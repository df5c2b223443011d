package perf

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// PingPong sends a message back and forth.
type PingPong struct {
	Bytes  int // of a message; 0 means 8
	Rounds int // 0 means 10000
	// Blocking makes both sides sleep until a completion event; otherwise both
	// poll.
	Blocking bool
	// WaitForSend makes each side wait for the send completion before it receives,
	// as programs with a single buffer do.
	WaitForSend bool
	// Write sends by RDMA WRITE, and polls the memory to which the other side writes. Bytes must be
	// a multiple of 8; Blocking and WaitForSend do not apply.
	Write bool
}

// tripsPerSample is the number of round trips that are timed together, to hide the
// cost of reading the clock.
const tripsPerSample = 50

const (
	pingRecvs = 64
	pingSends = 64
	// pingSignal is the number of messages per signaled completion.
	pingSignal = 16
)

// Run runs one side. The client returns the median half round trip in µs.
func (p PingPong) Run(ctx context.Context, s *Side) (halfMicros float64, err error) {
	p.Bytes, p.Rounds = cmp.Or(p.Bytes, 8), cmp.Or(p.Rounds, 10_000)
	if p.Write && (p.Bytes%8 != 0 || p.Blocking || p.WaitForSend || s.Service == ServiceUD) {
		return 0, fmt.Errorf("ping-pong by WRITE of %d bytes: want a multiple of 8 on connections, neither blocking nor confirmed", p.Bytes)
	}
	c, err := s.connect(ctx, connConfig{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 2 * p.Bytes})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	side := &pingPongSide{
		PingPong: p, conn: c, wcs: make([]verbs.WC, pingRecvs),
		recv: slices.Repeat([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(c.mr, p.Bytes, c.grhBytes+p.Bytes)}}}, pingRecvs),
		send: []verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(c.mr, 0, p.Bytes)}}},
	}
	c.setDestination(side.send, 0)
	if p.Write {
		side.send[0].Opcode, side.send[0].Remote = verbs.OpRDMAWrite, verbs.Remote{Addr: c.remote.Addr + uint64(p.Bytes), RKey: c.remote.RKey}
	}
	if err := side.postRecvs(pingRecvs); err != nil {
		return 0, err
	}
	if err := s.barrier(ctx); err != nil { // both have receives posted
		return 0, err
	}
	times, err := side.run(ctx, s.Role)
	if err == nil {
		err = s.barrier(ctx) // close only when both are done
	}
	if err != nil {
		return 0, fmt.Errorf("ping-pong, %v: %w", s.Role, err)
	}
	if len(times) == 0 { // the server measures nothing
		return 0, nil
	}
	slices.Sort(times)
	median := times[len(times)/2]
	return float64(median.Nanoseconds()) / 1e3 / tripsPerSample / 2, nil
}

// pingPongSide is the state of one side.
type pingPongSide struct {
	PingPong
	*conn
	recv []verbs.RecvWR
	send []verbs.SendWR
	wcs  []verbs.WC

	posted, completed int // sends
	consumed          int // receives not yet reposted
	written           int // messages that the other side has written
}

// lastWord returns the last 8 bytes of the message that starts at off. The device writes them last,
// and atomically.
func (p *pingPongSide) lastWord(off int) *uint64 {
	return (*uint64)(unsafe.Pointer(&p.buf[off+p.Bytes-8]))
}

// tryWritten reports whether the other side has written its next message.
func (p *pingPongSide) tryWritten() (written bool, err error) {
	if err = p.pollSends(); err != nil || atomic.LoadUint64(p.lastWord(p.Bytes)) != uint64(p.written+1) {
		return false, err
	}
	p.written++
	return true, nil
}

// pollSends polls once for completed sends. Only one of pingSignal is signaled.
func (p *pingPongSide) pollSends() error {
	n, err := pollSuccess(p.sends, p.wcs)
	p.completed += n * pingSignal
	return err
}

// run makes p.Rounds round trips, in samples of tripsPerSample, after a warm-up. The client
// returns how long each sample took, the server nil.
func (p *pingPongSide) run(ctx context.Context, role Role) (times []time.Duration, err error) {
	const warmup = 4 // samples that are not returned
	for range warmup + max(1, p.Rounds/tripsPerSample) {
		start := p.side.now()
		for range tripsPerSample {
			first, then := p.sendOne, p.recvOne
			if role == Server {
				first, then = then, first
			}
			if err = first(); err == nil {
				err = then()
			}
			if err == nil && p.consumed >= pingRecvs/4 { // repost receives in batches
				err = p.postRecvs(p.consumed)
				p.consumed = 0
			}
			if err != nil {
				return nil, err
			}
		}
		if role == Client {
			times = append(times, p.side.now()-start)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return times[min(len(times), warmup):], nil
}

// postRecvs posts n receives, all into the same buffer.
func (p *pingPongSide) postRecvs(n int) error {
	_, err := p.qps[0].PostRecv(p.recv[:n])
	return err
}

// sendOne posts a send. Every pingSignal-th send is signaled; before it, sendOne waits until so
// many earlier sends have completed that the next pingSignal sends fit into the send queue. With
// WaitForSend, each send is signaled, and sendOne waits for its completion.
func (p *pingPongSide) sendOne() error {
	p.posted++
	p.send[0].Flags = 0
	if p.Write {
		*p.lastWord(0) = uint64(p.posted)
	}
	if signal := p.posted%pingSignal == 0; signal || p.WaitForSend {
		p.send[0].Flags = verbs.SendSignaled
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

// waitSends polls until the number of completed sends is at least sends.
func (p *pingPongSide) waitSends(sends int) error {
	var timer spinTimer
	for p.completed < sends {
		n, err := pollSuccess(p.sends, p.wcs)
		if err != nil {
			return err
		}
		if p.WaitForSend {
			p.completed += n
		} else {
			p.completed += n * pingSignal // only one of pingSignal sends is signaled
		}
		if n == 0 && timer.expired() {
			return fmt.Errorf("no completion of a send within %v", waitTimeout)
		}
	}
	return nil
}

// recvOne waits for a message: if p.Blocking, for a completion event, else by polling.
func (p *pingPongSide) recvOne() error {
	var timer spinTimer
	for {
		if got, err := p.tryRecv(); got || err != nil {
			return err
		}
		if !p.Blocking {
			if timer.expired() {
				return fmt.Errorf("no message within %v", waitTimeout)
			}
			continue
		}
		const solicitedOnly = false
		if err := p.recvs.ReqNotify(solicitedOnly); err != nil {
			return err
		}
		// A message may have arrived before ReqNotify.
		if got, err := p.tryRecv(); got || err != nil {
			return err
		}
		if _, err := p.Channel.Wait(waitTimeout); err != nil {
			return err
		}
	}
}

// tryRecv polls once, and reports whether a message has arrived.
func (p *pingPongSide) tryRecv() (received bool, err error) {
	if p.Write {
		return p.tryWritten()
	}
	n, err := pollSuccess(p.recvs, p.wcs[:1])
	p.consumed += n
	return n > 0, err
}

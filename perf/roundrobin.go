package perf

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// RoundRobin has a ping-pong on several queue pairs at once: in each round the client sends a
// message on every queue pair, and then waits for the answers. The server answers each message at
// once. The result is half of the time of a round, divided by the number of queue pairs.
type RoundRobin struct {
	Op    verbs.WROpcode // OpSend or OpRDMAWrite
	Bytes int            // of a message, a multiple of 8
	QPs   int            // 0 means 1
	// Rounds is the number of rounds that are measured; 0 means 4, at most 64.
	Rounds int
}

const (
	// warmupRounds are not measured: they fill the caches of NICs.
	warmupRounds = 2
	maxRounds    = 64
)

// Run runs one side. The client returns the result of each round.
func (r RoundRobin) Run(ctx context.Context, s *Side) (*traffic.Histogram, error) {
	r.QPs, r.Rounds = max(r.QPs, 1), cmp.Or(r.Rounds, 4)
	if r.Op != verbs.OpSend && r.Op != verbs.OpRDMAWrite || r.Bytes < 1 || r.Bytes%wordBytes != 0 || r.Rounds > maxRounds {
		return nil, fmt.Errorf("%d rounds of %v with %d bytes: want SENDs or WRITEs of a multiple of 8 bytes, and at most %d rounds", r.Rounds, r.Op, r.Bytes, maxRounds)
	}
	if err := s.Service.checkOp(r.Op); err != nil {
		return nil, err
	}
	depth := warmupRounds + r.Rounds // of the queues: nothing needs to complete
	c, err := s.connect(ctx, connConfig{qps: r.QPs, sends: depth, recvs: depth, memory: 2 * r.QPs * r.Bytes, message: r.Bytes, op: r.Op})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := &roundRobinSide{RoundRobin: r, conn: c, times: new(traffic.Histogram)}
	if err := p.postReceives(depth); err != nil {
		return nil, err
	}
	if err := s.barrier(ctx); err != nil { // both have receives posted
		return nil, err
	}
	if err = p.run(); err == nil {
		err = s.barrier(ctx) // close only when both are done
	}
	return p.times, wrap(err, "%v on %d queue pairs, %d bytes, %v", r.Op, r.QPs, r.Bytes, s.Role)
}

// roundRobinSide is the state of one side. Its memory has the messages that it sends, by queue pair,
// followed by those that it receives.
type roundRobinSide struct {
	RoundRobin
	*conn
	round uint64 // the number of the round, and the last word of its messages
	times *traffic.Histogram
}

// message returns message i of the memory.
func (p *roundRobinSide) message(i int) []byte { return p.buf[i*p.Bytes:][:p.Bytes] }

// postReceives posts n receives on each queue pair, all into the same buffer.
func (p *roundRobinSide) postReceives(n int) error {
	if p.Op != verbs.OpSend {
		return nil
	}
	for qp := range p.qps {
		wr := verbs.RecvWR{WRID: uint64(qp), SGL: []verbs.SGE{verbs.SGEOf(p.mr, p.QPs*p.Bytes, p.grhBytes+p.Bytes)}}
		if err := p.postRecv(qp, slices.Repeat([]verbs.RecvWR{wr}, n)); err != nil {
			return err
		}
	}
	return nil
}

// run runs all rounds. For each round after the warm-up, the client adds half of its time, divided
// by the number of queue pairs, to p.times.
func (p *roundRobinSide) run() error {
	round := p.roundOfServer
	if p.side.Role == Client {
		round = p.roundOfClient
	}
	for i := range warmupRounds + p.Rounds {
		p.round++
		start := p.side.now()
		if err := round(); err != nil {
			return err
		}
		if p.side.Role == Client && i >= warmupRounds {
			p.times.Add((p.side.now() - start) / time.Duration(2*p.QPs))
		}
	}
	return nil
}

// roundOfClient sends a message on each queue pair, and waits for the answers.
func (p *roundRobinSide) roundOfClient() error {
	for qp := range p.qps {
		if err := p.send(qp); err != nil {
			return err
		}
	}
	for qp := range p.qps {
		if _, err := p.receive(qp); err != nil {
			return err
		}
	}
	return nil
}

// roundOfServer answers a message on each queue pair.
func (p *roundRobinSide) roundOfServer() error {
	for qp := range p.qps {
		from, err := p.receive(qp)
		if err == nil {
			err = p.send(from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send posts the message of this round on a queue pair.
func (p *roundRobinSide) send(qp int) error {
	wrs := []verbs.SendWR{{Opcode: p.Op}}
	const inline = 0
	p.setMessage(&wrs[0], qp*p.Bytes, p.Bytes, inline)
	p.setDestination(wrs, qp)
	if p.Op == verbs.OpRDMAWrite {
		wrs[0].Remote = verbs.Remote{Addr: p.remote.Addr + uint64((p.QPs+qp)*p.Bytes), RKey: p.remote.RKey}
		*lastWord(p.message(qp)) = p.round
	}
	_, err := p.qps[qp].PostSend(wrs)
	return err
}

// receive waits for a message of this round: a WRITE on queue pair qp, or a SEND on any queue pair.
// It returns the number of the queue pair on which the message arrived.
func (p *roundRobinSide) receive(qp int) (from int, err error) {
	wcs := make([]verbs.WC, 1)
	const sleep = false
	err = p.waitUntil("message", p.recvs, sleep, func() (bool, error) {
		if p.Op == verbs.OpRDMAWrite {
			n, err := pollSuccess(p.sends, wcs) // lets the device progress; no WRITE is signaled
			return n == 0 && atomic.LoadUint64(lastWord(p.message(p.QPs+qp))) == p.round, err
		}
		n, err := pollSuccess(p.recvs, wcs)
		return n > 0, err
	})
	if p.Op == verbs.OpSend {
		qp = int(wcs[0].WRID)
	}
	return qp, err
}

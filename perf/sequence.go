package perf

import (
	"context"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Sequence sends a few messages in turn, and then as many at once, for a simulation that counts what
// happens. A SEND is answered by a SEND; other messages end with their completion.
type Sequence struct {
	Op       verbs.WROpcode // OpSend, OpRDMAWrite, OpRDMARead or OpAtomicFetchAdd
	Bytes    int
	Messages int // of each part
	// Mark is called by the client at the start of each part, and at the end.
	Mark func(SequencePart)
}

// SequencePart is a part of a Sequence.
type SequencePart int

// The parts of a Sequence.
const (
	InTurn     SequencePart = iota // messages in turn
	LastInTurn                     // the last of them
	AtOnce                         // messages at once
	Ended
)

// sequenceSide is the state of one side.
type sequenceSide struct {
	Sequence
	*conn
	wrs  []verbs.SendWR // equal ones
	recv []verbs.RecvWR
	wcs  []verbs.WC
	sent int // messages that have not completed
}

// Run connects one side and runs it: the client sends the messages, and the server answers those of
// a send.
func (q Sequence) Run(ctx context.Context, s *Side) error {
	cfg := connConfig{qps: 1, sends: q.Messages + 1, recvs: q.Messages + 1, memory: 2 * max(q.Bytes, 8), message: q.Bytes, op: q.Op}
	c, err := s.connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	into := verbs.SGEOf(c.mr, cfg.memory/2, c.grhBytes+q.Bytes)
	side := &sequenceSide{Sequence: q, conn: c, wcs: make([]verbs.WC, q.Messages), recv: []verbs.RecvWR{{SGL: []verbs.SGE{into}}}}
	wr := []verbs.SendWR{{Opcode: q.Op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(c.mr, 0, q.Bytes)}}}
	if q.Op == verbs.OpSend {
		c.setDestination(wr, 0)
	} else {
		wr[0].Remote = verbs.Remote{Addr: c.remote.Addr + uint64(cfg.memory/2), RKey: c.remote.RKey}
	}
	side.wrs = slices.Repeat(wr, q.Messages)
	for range cfg.recvs {
		if err := side.postRecv(); err != nil {
			return err
		}
	}
	if err := s.barrier(ctx); err != nil { // both have receives posted
		return err
	}
	if s.Role == Client {
		err = side.client()
	} else if q.Op == verbs.OpSend {
		err = side.server()
	}
	if err != nil {
		return fmt.Errorf("sequence, %v: %w", s.Role, err)
	}
	return s.barrier(ctx) // close only when both are done
}

// client sends messages in turn, each after the answer to the one before, then as many at once, and
// marks the parts.
func (q *sequenceSide) client() error {
	q.Mark(InTurn)
	for i := range q.Messages {
		if i == q.Messages-1 {
			q.Mark(LastInTurn)
		}
		if err := q.send(1); err != nil {
			return err
		}
		if err := q.awaitAnswer(); err != nil {
			return err
		}
	}
	q.Mark(AtOnce)
	if err := q.send(q.Messages); err != nil {
		return err
	}
	if err := q.awaitAnswer(); err != nil {
		return err
	}
	if q.side.Service == ServiceIWARP && q.Op != verbs.OpSend { // completion is not arrival: a READ follows the messages
		q.wrs[0].Opcode, q.wrs[0].SGL[0].Length = verbs.OpRDMARead, 1
		if err := q.send(1); err != nil {
			return err
		}
		if err := q.awaitSends(); err != nil {
			return err
		}
	}
	q.Mark(Ended)
	return nil
}

// server answers each message of the first part, and all those of the second with one.
func (q *sequenceSide) server() error {
	for range q.Messages {
		if err := q.awaitRecvs(1); err != nil {
			return err
		}
		if err := q.send(1); err != nil {
			return err
		}
	}
	if err := q.awaitRecvs(q.Messages); err != nil {
		return err
	}
	if err := q.send(1); err != nil {
		return err
	}
	return q.awaitSends()
}

// send posts n messages.
func (q *sequenceSide) send(n int) error {
	q.sent += n
	_, err := q.qps[0].PostSend(q.wrs[:n])
	return err
}

// awaitAnswer waits for the answer to a SEND, or for the completion of other messages.
func (q *sequenceSide) awaitAnswer() error {
	if q.Op == verbs.OpSend {
		if err := q.awaitRecvs(1); err != nil {
			return err
		}
	}
	return q.awaitSends()
}

// awaitSends polls until all sent messages have completed.
func (q *sequenceSide) awaitSends() error {
	for q.sent > 0 {
		n, err := pollSuccess(q.sends, q.wcs)
		if err != nil {
			return err
		}
		q.sent -= n
	}
	return nil
}

// awaitRecvs polls until n messages have arrived, and posts as many receives.
func (q *sequenceSide) awaitRecvs(n int) error {
	for n > 0 {
		got, err := pollSuccess(q.recvs, q.wcs[:min(n, len(q.wcs))])
		if err != nil {
			return err
		}
		for range got {
			if err := q.postRecv(); err != nil {
				return err
			}
		}
		n -= got
	}
	return nil
}

// postRecv posts a receive.
func (q *sequenceSide) postRecv() error {
	_, err := q.qps[0].PostRecv(q.recv)
	return err
}

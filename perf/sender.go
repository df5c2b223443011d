package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// sender keeps queue pairs full of messages.
type sender struct {
	*conn
	wrs    []verbs.SendWR // a burst: the most that is posted at a time
	least  int            // and the least
	every  int            // so many messages share a completion
	free   []int          // places in the send queue, by queue pair
	turns  []int          // messages posted, by queue pair
	bytes  int            // of a message
	slots  int            // in memory, that messages are taken from in turn
	purse  *purse         // nil: nobody need know of receives
	told   int            // after so many messages a receiver tells
	wcs    []verbs.WC
	posted int
	open   int
	over   bool
}

// load says what a sender sends.
type load struct {
	op     verbs.WROpcode
	bytes  int
	depth  int // messages under way, a queue pair
	burst  int // posted at a time, at most
	least  int // and at least
	every  int // so many messages share a completion; least and burst are multiples
	slots  int // in memory
	window int // receives of each queue pair of the other side, if op needs any
}

func newSender(c *conn, l load) (*sender, error) {
	s := &sender{
		conn: c, wrs: make([]verbs.SendWR, l.burst), least: l.least, every: l.every, bytes: l.bytes, slots: l.slots,
		free: make([]int, len(c.qps)), turns: make([]int, len(c.qps)), told: quarter(l.window), wcs: make([]verbs.WC, 64),
	}
	for i := range s.wrs {
		s.wrs[i] = verbs.SendWR{Opcode: l.op, SGL: make([]verbs.SGE, 1), Remote: c.remote}
		if (i+1)%l.every == 0 {
			s.wrs[i].Flags = verbs.SendSignaled
		}
	}
	for i := range s.free {
		s.free[i] = l.depth
	}
	if l.window == 0 {
		return s, nil
	}
	var err error
	s.purse, err = newPurse(c, l.window)
	return s, err
}

// aim says where messages of a queue pair go, where it does not know itself.
func (c *conn) aim(wrs []verbs.SendWR, qp int) {
	if c.peers == nil {
		return
	}
	for i := range wrs {
		wrs[i].UD = c.peers[qp]
	}
}

// post posts as much as there is room for.
func (s *sender) post(qp int) error {
	for !s.over {
		n := min(s.free[qp], len(s.wrs))
		if s.purse != nil {
			n = min(n, s.purse.room(qp))
		}
		if n -= n % s.every; n < s.least {
			break
		}
		burst := s.wrs[:n]
		for i := range burst {
			at := (s.turns[qp] + i) % s.slots * s.bytes
			burst[i].WRID = uint64(qp)
			burst[i].SGL[0] = verbs.SGEOf(s.mr, at, s.bytes)
			burst[i].Remote.Addr = s.remote.Addr + uint64(at)
		}
		s.aim(burst, qp)
		if _, err := s.qps[qp].PostSend(burst); err != nil {
			return err
		}
		s.free[qp] -= n
		s.turns[qp] += n
		s.posted += n
		s.open += n
		if s.purse != nil {
			s.purse.sent[qp] += uint32(n)
		}
	}
	return nil
}

func (s *sender) postAll() error {
	for qp := range s.qps {
		if err := s.post(qp); err != nil {
			return err
		}
	}
	return nil
}

// reap takes completions and credits, and posts what there is room for then.
func (s *sender) reap() (completed int, moved bool, err error) {
	n, err := s.sends.Poll(s.wcs)
	if err == nil {
		err = succeeded(s.wcs[:n])
	}
	if err != nil {
		return 0, false, err
	}
	for k := range n {
		s.free[s.wcs[k].WRID] += s.every
		s.open -= s.every
	}
	// Not before all are counted, or each would be followed by a post of its own.
	for k := range n {
		if err := s.post(int(s.wcs[k].WRID)); err != nil {
			return 0, false, err
		}
	}
	if s.purse == nil {
		return n * s.every, n > 0, nil
	}
	credits, err := s.purse.take()
	if err == nil && credits > 0 {
		err = s.postAll()
	}
	return n * s.every, n > 0 || credits > 0, err
}

// run sends for d, and at least so many messages. It returns when all of them
// have arrived or are lost, with how long that took.
func (s *sender) run(ctx context.Context, d time.Duration, least int) (messages int, took time.Duration, err error) {
	start := time.Now()
	s.over = false
	if err := s.postAll(); err != nil {
		return 0, 0, err
	}
	var late overdue
	for !s.over || s.open > 0 {
		n, moved, err := s.reap()
		if err != nil {
			return 0, 0, err
		}
		if messages += n; !moved {
			if err := s.stuck(ctx, &late); err != nil {
				return 0, 0, err
			}
			continue
		}
		late.reset()
		s.over = s.over || messages >= least && time.Since(start) >= d || ctx.Err() != nil
	}
	if err := s.arrive(ctx); err != nil {
		return 0, 0, err
	}
	return messages, time.Since(start), nil
}

// lull is how long nothing may come back before datagrams are taken for lost.
const lull = 10 * time.Millisecond

// stuck looks what to do when nothing moves.
func (s *sender) stuck(ctx context.Context, late *overdue) error {
	switch waited := late.waited(); {
	case s.side.Service == Datagrams && s.open == 0 && waited > lull:
		late.reset()
		s.purse.giveUp()
		return s.postAll()
	case waited > patience:
		return fmt.Errorf("%d of %d messages did not complete within %v", s.open, s.posted, patience)
	}
	return ctx.Err()
}

// arrive returns when the other side has all that was sent, as far as that can
// be known.
func (s *sender) arrive(ctx context.Context) error {
	switch s.side.Service {
	case Streamed:
		return s.fence()
	case Datagrams:
		var late overdue
		for !s.purse.settled(s.told) && late.waited() < lull {
			if n, err := s.purse.take(); err != nil {
				return err
			} else if n > 0 {
				late.reset()
			}
		}
		s.purse.giveUp()
		return ctx.Err()
	default:
		return nil
	}
}

// fence reads a byte from the other side on each queue pair. The answer comes
// behind all that was sent before.
func (s *sender) fence() error {
	read := []verbs.SendWR{{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 0, 1)}, Remote: s.remote}}
	for _, q := range s.qps {
		if _, err := q.PostSend(read); err != nil {
			return err
		}
	}
	var late overdue
	for left := len(s.qps); left > 0; {
		n, err := s.sends.Poll(s.wcs)
		if err == nil {
			err = succeeded(s.wcs[:n])
		}
		if err != nil {
			return err
		}
		if left -= n; n == 0 && late.yet() {
			return fmt.Errorf("no answer to a READ behind the last message within %v", patience)
		}
	}
	return nil
}

// measure warms up, sends for d, and tells the other side how many messages that
// were. It returns how many of those sent for d arrived, and how long they took.
func (s *sender) measure(ctx context.Context, d, warmup time.Duration) (messages float64, took time.Duration, err error) {
	const least = 8 // messages, to warm up
	before, _, err := s.run(ctx, warmup, least)
	if err != nil {
		return 0, 0, err
	}
	n, took, err := s.run(ctx, d, 1)
	if err != nil {
		return 0, 0, err
	}
	if _, err := swap(ctx, s.side, tally{Messages: uint64(before + n)}); err != nil {
		return 0, 0, err
	}
	got, err := swap(ctx, s.side, tally{})
	if err != nil {
		return 0, 0, err
	}
	if s.side.Service != Datagrams {
		return float64(n), took, nil
	}
	return float64(n) * float64(got.Messages) / float64(before+n), took, nil
}

package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// sender keeps the send queues full.
type sender struct {
	*conn
	sendLoad
	wrs         []verbs.SendWR // the largest burst
	free        []int          // send queue slots, by queue pair
	posts       []int          // messages posted, by queue pair
	credits     *creditTracker // nil if the service needs no credits
	creditEvery int            // messages per credit of the receiver
	wcs         []verbs.WC
	posted      int  // messages, in total
	inFlight    int  // posted messages that have not completed
	stopping    bool // post no more
}

// sendLoad is the configuration of a sender.
type sendLoad struct {
	op          verbs.WROpcode
	bytes       int
	depth       int // messages in flight per queue pair
	burst       int // maximum messages per post
	minBurst    int // minimum messages per post
	signalEvery int // messages per signaled completion; burst and minBurst are multiples
	slots       int // message buffers in memory, used in turn
	window      int // receives per queue pair of the other side, if op needs receives
}

// newSender returns a sender over the queue pairs of c. If messages need receives (l.window is not
// 0) and the service needs credits, the sender tracks the receives of the other side.
func newSender(c *conn, l sendLoad) (*sender, error) {
	s := &sender{
		conn: c, sendLoad: l, wrs: make([]verbs.SendWR, l.burst),
		free: make([]int, len(c.qps)), posts: make([]int, len(c.qps)), creditEvery: repostCount(l.window), wcs: make([]verbs.WC, pollBatch),
	}
	for i := range s.wrs {
		s.wrs[i] = verbs.SendWR{Opcode: l.op, SGL: make([]verbs.SGE, 1), Remote: c.remote}
		if (i+1)%l.signalEvery == 0 {
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
	s.credits, err = newCreditTracker(c, l.window)
	return s, err
}

// setDestination sets the UD destination of work requests on a queue pair. It does nothing
// if the service is connected.
func (c *conn) setDestination(wrs []verbs.SendWR, qp int) {
	if c.peers == nil {
		return
	}
	for i := range wrs {
		wrs[i].UD = c.peers[qp]
	}
}

// post posts as many messages as the send queue and the credits of a queue pair allow, in bursts of
// at least minBurst messages. A burst has a multiple of signalEvery messages: its last is signaled.
func (s *sender) post(qp int) error {
	for !s.stopping {
		n := min(s.free[qp], len(s.wrs))
		if s.credits != nil {
			n = min(n, s.credits.available(qp))
		}
		n -= n % s.signalEvery
		if n < s.minBurst {
			break
		}
		burst := s.wrs[:n]
		for i := range burst {
			at := (s.posts[qp] + i) % s.slots * s.bytes
			burst[i].WRID = uint64(qp)
			burst[i].SGL[0] = verbs.SGEOf(s.mr, at, s.bytes)
			burst[i].Remote.Addr = s.remote.Addr + uint64(at)
		}
		s.setDestination(burst, qp)
		if _, err := s.qps[qp].PostSend(burst); err != nil {
			return err
		}
		s.free[qp] -= n
		s.posts[qp] += n
		s.posted += n
		s.inFlight += n
		if s.credits != nil {
			s.credits.sent[qp] += uint32(n)
		}
	}
	return nil
}

// postAll calls post for every queue pair.
func (s *sender) postAll() error {
	for qp := range s.qps {
		if err := s.post(qp); err != nil {
			return err
		}
	}
	return nil
}

// poll processes completions and credits, and posts messages into the free slots. It returns
// the number of completed messages, and whether any completion or credit arrived.
func (s *sender) poll() (completed int, progress bool, err error) {
	n, err := pollSuccess(s.sends, s.wcs)
	if err != nil {
		return 0, false, err
	}
	for k := range n {
		s.free[s.wcs[k].WRID] += s.signalEvery
		s.inFlight -= s.signalEvery
	}
	// Post only after counting all completions: the bursts are larger.
	for k := range n {
		if err := s.post(int(s.wcs[k].WRID)); err != nil {
			return 0, false, err
		}
	}
	if s.credits == nil {
		return n * s.signalEvery, n > 0, nil
	}
	credits, err := s.credits.poll()
	if err == nil && credits > 0 {
		err = s.postAll()
	}
	return n * s.signalEvery, n > 0 || credits > 0, err
}

// run sends for d, and at least minMessages messages. It returns the number of sent messages, once
// all have arrived or are lost, and the time that this took.
func (s *sender) run(ctx context.Context, d time.Duration, minMessages int) (messages int, took time.Duration, err error) {
	start := s.side.now()
	s.stopping = false
	if err := s.postAll(); err != nil {
		return 0, 0, err
	}
	var timer spinTimer
	for !s.stopping || s.inFlight > 0 {
		n, progress, err := s.poll()
		if err != nil {
			return 0, 0, err
		}
		messages += n
		if !progress {
			if err := s.onIdle(ctx, &timer); err != nil {
				return 0, 0, err
			}
			continue
		}
		timer.reset()
		s.stopping = s.stopping || messages >= minMessages && s.side.now()-start >= d || ctx.Err() != nil
	}
	if err := s.waitArrival(ctx); err != nil {
		return 0, 0, err
	}
	return messages, s.side.now() - start, nil
}

// lossTimeout is how long nothing may arrive before datagrams are assumed lost.
const lossTimeout = 10 * time.Millisecond

// onIdle handles a poll without progress; timer runs since the last progress. If all datagrams have
// completed, but credits are missing after lossTimeout, onIdle counts datagrams as lost and sends
// more. After waitTimeout it returns an error.
func (s *sender) onIdle(ctx context.Context, timer *spinTimer) error {
	switch waited := timer.waited(); {
	case s.side.Service == ServiceUD && s.inFlight == 0 && waited > lossTimeout:
		timer.reset()
		s.credits.assumeLost()
		return s.postAll()
	case waited > waitTimeout:
		return fmt.Errorf("%d of %d messages did not complete within %v", s.inFlight, s.posted, waitTimeout)
	}
	return ctx.Err()
}

// waitArrival waits until the other side has received all messages. An RC completion means
// that already; over iWARP, a READ follows the messages. For UD, it waits for the last
// credits, and gives up the missing messages as lost after lossTimeout.
func (s *sender) waitArrival(ctx context.Context) error {
	switch s.side.Service {
	case ServiceIWARP:
		return s.fence()
	case ServiceUD:
		var timer spinTimer
		for s.credits.isCreditDue(s.creditEvery) && timer.waited() < lossTimeout {
			if n, err := s.credits.poll(); err != nil {
				return err
			} else if n > 0 {
				timer.reset()
			}
		}
		s.credits.assumeLost()
		return ctx.Err()
	default:
		return nil
	}
}

// fence reads a byte on each queue pair. The response arrives after all earlier
// messages are delivered.
func (s *sender) fence() error {
	read := []verbs.SendWR{{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 0, 1)}, Remote: s.remote}}
	for _, q := range s.qps {
		if _, err := q.PostSend(read); err != nil {
			return err
		}
	}
	var timer spinTimer
	for left := len(s.qps); left > 0; {
		n, err := pollSuccess(s.sends, s.wcs)
		if err != nil {
			return err
		}
		if left -= n; n == 0 && timer.expired() {
			return fmt.Errorf("no response to a READ after the last message within %v", waitTimeout)
		}
	}
	return nil
}

// measure warms up, sends for d, and exchanges message counts with the other side. It returns
// how many messages arrived, and in what time. For UD, the number is that of the messages sent,
// multiplied by the share of all messages that arrived.
func (s *sender) measure(ctx context.Context, d, warmup time.Duration) (messages float64, took time.Duration, err error) {
	const minWarmupMessages, minMessages = 8, 1
	warmupMessages, _, err := s.run(ctx, warmup, minWarmupMessages)
	if err != nil {
		return 0, 0, err
	}
	n, took, err := s.run(ctx, d, minMessages)
	if err != nil {
		return 0, 0, err
	}
	if _, err := swap(ctx, s.side, uint64(warmupMessages+n)); err != nil {
		return 0, 0, err
	}
	got, err := swap(ctx, s.side, uint64(0)) // the other side ignores the 0
	if err != nil {
		return 0, 0, err
	}
	if s.side.Service != ServiceUD {
		return float64(n), took, nil
	}
	return float64(n) * float64(got) / float64(warmupMessages+n), took, nil
}

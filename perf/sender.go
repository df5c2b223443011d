package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// sender keeps the send queues full.
type sender struct {
	*conn
	sendLoad
	wrs         []verbs.SendWR // the largest burst
	queues      []sendQueue    // by queue pair
	credits     *creditTracker // nil if the service needs no credits
	inbound     *receiver      // of the messages of the other side; nil if it sends none
	received    uint64         // messages of the other side
	creditEvery int            // messages per credit of the receiver
	wcs         []verbs.WC
	posted      int  // messages, in total
	inFlight    int  // posted messages that have not completed
	stopping    bool // post no more
	peak        peakRate
}

// sendQueue counts the messages of a queue pair.
type sendQueue struct {
	free       int // slots
	posts      int // messages posted
	left       int // messages to post
	unsignaled int // messages since the last one that is signaled
}

// sendLoad is the configuration of a sender.
type sendLoad struct {
	op          verbs.WROpcode
	bytes       int
	depth       int  // messages in flight per queue pair
	burst       int  // maximum messages per post
	minBurst    int  // minimum messages per post
	signalEvery int  // messages per signaled completion: at most depth
	slots       int  // message buffers in memory, used in turn
	window      int  // receives per queue pair of the other side, if op needs receives
	inline      int  // bytes of the longest message whose data is in the work request
	events      bool // sleep while there are no completions
}

// newSender returns a sender over the queue pairs of c. If messages need receives (l.window is not
// 0) and the service needs credits, the sender tracks the receives of the other side.
func newSender(c *conn, l sendLoad) (*sender, error) {
	s := &sender{
		conn: c, sendLoad: l, wrs: make([]verbs.SendWR, l.burst), queues: make([]sendQueue, len(c.qps)),
		creditEvery: repostCount(l.window), wcs: make([]verbs.WC, pollBatch),
	}
	for i := range s.wrs {
		s.wrs[i] = verbs.SendWR{Opcode: l.op, SGL: make([]verbs.SGE, 0, 1), Remote: c.remote, Atomic: verbs.Atomic{CompareAdd: 1, Swap: 1}}
	}
	for i := range s.queues {
		s.queues[i] = sendQueue{free: l.depth, left: unlimited}
	}
	if l.window == 0 {
		return s, nil
	}
	var err error
	s.credits, err = newCreditTracker(c, l.window)
	return s, err
}

// setDestination sets the destination of work requests on a queue pair: that of datagrams, and the
// SRQ of XRC.
func (c *conn) setDestination(wrs []verbs.SendWR, qp int) {
	for i := range wrs {
		if c.peers != nil {
			wrs[i].UD = c.peers[qp]
		}
		if c.peerSRQs != nil {
			wrs[i].XRC.SRQN = c.peerSRQs[qp]
		}
	}
}

// burstSize returns how many messages can be posted on a queue pair now; 0 if that is less than the
// smallest burst. Without a limit on messages the last of a burst is signaled, because the sender
// may stop after it.
func (s *sender) burstSize(qp int) int {
	q := &s.queues[qp]
	n := min(q.free, len(s.wrs), q.left)
	if s.credits != nil {
		n = min(n, s.credits.available(qp))
	}
	if q.left == unlimited {
		n -= n % s.signalEvery
	}
	if n < min(s.minBurst, q.left) {
		return 0
	}
	return n
}

// post posts as many messages as the send queue and the credits of a queue pair allow, in bursts of
// at least minBurst messages.
func (s *sender) post(qp int) error {
	q := &s.queues[qp]
	for !s.stopping {
		n := s.burstSize(qp)
		if n == 0 {
			break
		}
		burst := s.wrs[:n]
		for i := range burst {
			s.fill(&burst[i], qp, q.left == i+1)
		}
		s.setDestination(burst, qp)
		s.peak.post(s.posted, s.side)
		if _, err := s.qps[qp].PostSend(burst); err != nil {
			return err
		}
		q.free -= n
		if q.left != unlimited {
			q.left -= n
		}
		s.posted += n
		s.inFlight += n
		if s.credits != nil {
			s.credits.sent[qp] += uint32(n)
		}
	}
	return nil
}

// fill sets the work request of the next message of a queue pair. Every signalEvery-th is signaled,
// and the last. The ID has the queue pair and the number of messages that the completion stands for.
func (s *sender) fill(wr *verbs.SendWR, qp int, last bool) {
	q := &s.queues[qp]
	at := q.posts % s.slots * s.bytes
	q.posts++
	q.unsignaled++
	wr.Flags, wr.WRID = 0, uint64(q.unsignaled)<<32|uint64(qp)
	s.setMessage(wr, at, s.bytes, s.inline)
	wr.Remote.Addr = s.remote.Addr + uint64(at)
	if last || q.unsignaled == s.signalEvery {
		wr.Flags |= verbs.SendSignaled
		q.unsignaled = 0
	}
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

// poll processes completions, credits, and messages of the other side, and posts messages into the
// free slots. It returns the number of completed messages, and whether anything arrived.
func (s *sender) poll() (completed int, progress bool, err error) {
	n, err := pollSuccess(s.sends, s.wcs)
	if err != nil {
		return 0, false, err
	}
	for k := range n {
		count := int(s.wcs[k].WRID >> 32)
		s.queues[uint32(s.wcs[k].WRID)].free += count
		completed += count
	}
	if s.inFlight -= completed; completed > 0 {
		s.peak.complete(s.posted-s.inFlight, s.side)
	}
	// Post only after counting all completions: the bursts are larger.
	for k := range n {
		if err := s.post(int(uint32(s.wcs[k].WRID))); err != nil {
			return 0, false, err
		}
	}
	arrived := 0
	switch {
	case s.inbound != nil:
		arrived, err = s.inbound.poll()
		s.received += uint64(arrived)
	case s.credits != nil:
		if arrived, err = s.credits.poll(); err == nil && arrived > 0 {
			err = s.postAll()
		}
	}
	return completed, n > 0 || arrived > 0, err
}

// unlimited is the number of messages to post in a run that has a duration.
const unlimited = math.MaxInt

// extent is how long a sender sends: a number of messages on each queue pair or, if that is
// unlimited, a duration and at least some messages.
type extent struct {
	messages    int
	duration    time.Duration
	minMessages int
}

// run sends, and returns the number of sent messages, once all have arrived or are lost, and the
// time that this took.
func (s *sender) run(ctx context.Context, e extent) (messages int, took time.Duration, err error) {
	start := s.side.now()
	s.stopping = false
	for i := range s.queues {
		s.queues[i].left = e.messages
	}
	s.peak.reset()
	if err := s.postAll(); err != nil {
		return 0, 0, err
	}
	timer := s.side.timer()
	for s.inFlight > 0 || (!s.stopping && s.canPost()) { // canPost looks at all queue pairs: only if none is in flight
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
		s.stopping = s.stopping || ctx.Err() != nil ||
			e.messages == unlimited && messages >= e.minMessages && s.side.now()-start >= e.duration
	}
	if err := s.waitArrival(ctx); err != nil {
		return 0, 0, err
	}
	return messages, s.side.now() - start, nil
}

// canPost reports whether a queue pair has messages left to post.
func (s *sender) canPost() bool {
	return slices.ContainsFunc(s.queues, func(q sendQueue) bool { return q.left > 0 })
}

// lossTimeout is how long nothing may arrive before datagrams are assumed lost.
const lossTimeout = 10 * time.Millisecond

// onIdle handles a poll without progress; timer runs since the last progress. If all datagrams have
// completed, but credits are missing after lossTimeout, onIdle counts datagrams as lost and sends
// more. After the timer's limit it returns an error. Before, it sleeps until an event if the
// program uses events.
func (s *sender) onIdle(ctx context.Context, timer *spinTimer) error {
	switch waited := timer.waited(); {
	case s.side.Service.isLossy() && s.inFlight == 0 && waited > lossTimeout:
		timer.reset()
		s.credits.assumeLost()
		return s.postAll()
	case waited > timer.limit:
		return fmt.Errorf("%d of %d messages did not complete within %v", s.inFlight, s.posted, timer.limit)
	case s.events:
		return s.sleep()
	}
	return ctx.Err()
}

// sleep waits for an event of the completion queues. Without one it returns after lossTimeout, so
// that the caller can look at the clock.
func (c *conn) sleep() error {
	for _, cq := range c.CQs {
		const solicitedOnly = false
		if err := cq.ReqNotify(solicitedOnly); err != nil {
			return err
		}
	}
	if _, err := c.Channel.Wait(lossTimeout); !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	return nil
}

// waitArrival waits until the other side has received all messages. An RC completion means
// that already; over iWARP, a READ follows the messages. For lossy services, it waits for the last
// credits, and gives up the missing messages as lost after lossTimeout.
func (s *sender) waitArrival(ctx context.Context) error {
	switch {
	case s.side.Service == ServiceIWARP:
		return s.fence()
	case s.side.Service.isLossy():
		timer := s.side.timer()
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
	timer := s.side.timer()
	for left := len(s.qps); left > 0; {
		n, err := pollSuccess(s.sends, s.wcs)
		if err != nil {
			return err
		}
		if left -= n; n == 0 && timer.expired() {
			return fmt.Errorf("no response to a READ after the last message within %v", timer.limit)
		}
	}
	return nil
}

// measure warms up, sends, and exchanges message counts with the other side. It returns how many
// messages arrived, in what time, and the peak rate. For lossy services, the number is that of the
// messages sent, multiplied by the share of all messages that arrived.
func (s *sender) measure(ctx context.Context, warmup, measured extent) (*Transfer, error) {
	warmupMessages, _, err := s.run(ctx, warmup)
	if err != nil {
		return nil, err
	}
	n, took, err := s.run(ctx, measured)
	if err != nil {
		return nil, err
	}
	t := &Transfer{Messages: float64(n), Took: took, PeakPerS: s.peak.rate()}
	sent := uint64(warmupMessages + n)
	if s.inbound != nil {
		_, err = s.inbound.drain(ctx, sent, s.received)
	} else {
		_, err = swap(ctx, s.side, sent)
	}
	if err != nil {
		return nil, err
	}
	got, err := swap(ctx, s.side, uint64(0)) // the other side ignores the 0
	if err == nil && s.side.Service.isLossy() {
		t.Messages *= float64(got) / float64(sent)
	}
	return t, err
}

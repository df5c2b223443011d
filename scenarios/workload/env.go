package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// env is what every program of a rank needs: configuration, time, and the log of events.
type env struct {
	rank   *Rank
	cfg    Config
	proc   verbs.Proc
	traits traffic.TransportTraits
	log    *eventLog
	live   liveState

	now          time.Duration // of the current step
	lastProgress time.Duration
	nextTimer    time.Duration // 0: none
}

// Intervals at which a rank polls control messages, and waits for completions.
const (
	simTick  = 100 * time.Microsecond
	realTick = time.Millisecond
	maxTicks = 32 // longest wait
)

// Time for packets in flight to arrive.
const (
	simGrace  = 5 * time.Millisecond
	realGrace = 100 * time.Millisecond
)

// host is the name of the rank's host.
func (e *env) host() string { return hostOf(e.rank.Rank) }

// tick is the interval at which a rank polls control messages.
func (e *env) tick() time.Duration { return e.byClock(simTick, realTick) }

// grace is the time for packets in flight to arrive.
func (e *env) grace() time.Duration { return e.byClock(simGrace, realGrace) }

// byClock returns the first duration in a simulation, and the second in real time, where devices
// access memory while the program runs (Concurrent).
func (e *env) byClock(simulated, realTime time.Duration) time.Duration {
	if e.rank.Concurrent {
		return realTime
	}
	return simulated
}

// due reports whether a time has come. If not, it arms the rank's timer, which makes all
// connections run. It keeps the earliest time only: connections with a later one call due again.
func (e *env) due(at time.Duration) bool {
	if e.now >= at {
		return true
	}
	if e.nextTimer == 0 || at < e.nextTimer {
		e.nextTimer = at
	}
	return false
}

// noteProgress notes that something happened now.
func (e *env) noteProgress() {
	e.now = e.proc.Now()
	e.lastProgress = e.now
}

// pollBackoff is the length of a wait that no event ends. It grows with the idle time.
func (e *env) pollBackoff() time.Duration { return (e.now - e.lastProgress) / 8 }

// think computes for the configured time.
func (e *env) think() {
	e.proc.Compute(e.cfg.Think)
	e.now = e.proc.Now()
}

// pair returns the partner of this rank in a workload of pairs, and the NIC of this rank that
// it uses. Ranks 2i and 2i+1 are partners; the last of an odd number of ranks has none (-1).
func (e *env) pair() (peer int, nic *NIC) {
	r := e.rank
	if peer = r.Rank ^ 1; peer >= e.cfg.Ranks || r.Rank >= e.cfg.Ranks {
		peer = -1
	}
	return peer, &r.NICs[r.Rank/2%len(r.NICs)]
}

// Status returns the status published before the last wait.
func (e *env) Status() string { return e.live.status() }

// Break moves the rank's queue pairs to the error state.
func (e *env) Break() error { return e.live.breakAll() }

// layout describes the memory of a connection, the same at both ends. Private memory holds
// the receives, the messages to send or to read into, and the results of atomics. Public
// memory, which the peer accesses, holds messages that are written or read, between guards.
type layout struct {
	window     int // messages that the receiver has room for
	depth      int // outstanding messages of a side
	stride     int // bytes between messages
	receives   int // receives
	recvLen    int // bytes of a receive
	messagesAt int // offset of the messages in private memory
	resultsAt  int // offset of the results of atomics
}

const (
	guardLen = 64
	slotsAt  = guardLen

	// noticeReceives are receives beyond those for messages.
	noticeReceives = 8
)

// slot is the offset of message seq in public memory.
func (l *layout) slot(seq int) int { return slotsAt + seq%l.window*l.stride }

// stagingSlot is the offset of message seq in private memory.
func (l *layout) stagingSlot(seq int) int { return l.messagesAt + seq%l.depth*l.stride }

// planLayout sizes queues and memory such that the rank with the most connections keeps within
// messageBudget: depth messages in the send queue, window messages at the receiver. Private memory
// has receives, then messages, then results of atomics. All ranks compute the same sizes.
func (n *node) planLayout() (l layout) {
	const messageBudget = 32 << 20 // bytes for the messages of one rank
	load := make(map[int]int)
	busiest := 1
	for _, e := range n.edges {
		for _, r := range e.ends {
			load[r]++
			busiest = max(busiest, load[r])
		}
	}
	l.stride = (n.cfg.Bytes + 63) &^ 63             // a multiple of cache lines
	fit := max(2, messageBudget/(busiest*l.stride)) // messages per connection
	l.depth = max(1, min(n.cfg.Depth, fit))
	// Twice the depth, so that the sender continues while the receiver frees slots.
	l.window = min(2*max(n.cfg.Depth, 1), fit)
	if n.recvSlots > 0 { // the kind of workload limits it
		l.window = n.recvSlots
	}
	l.receives = l.window + noticeReceives // a notice is a message without data, with a count as immediate data
	if n.cfg.Op == OpSend {
		l.recvLen = l.stride
	}
	if datagram(n.cfg.service()) {
		l.recvLen += guardLen // at least the GRH
	}
	l.messagesAt = l.receives * l.recvLen
	if s := n.cfg.service(); s == ServiceSRQ || s == ServiceRD {
		l.messagesAt = 0 // receives are in memory of the rail
	}
	l.resultsAt = l.messagesAt + l.depth*l.stride
	return l
}

package workload

// layout describes the memory of a connection, the same at both ends. Private memory holds
// the receives, the messages to send or to read into, and the results of atomics. Public
// memory, which the peer accesses, holds messages that are written or read, between guards.
type layout struct {
	window   int // messages that the receiver has room for
	depth    int // outstanding messages of a side
	stride   int // bytes between messages
	receives int // receives
	recvLen  int // bytes of a receive
	staging  int // offset of the messages in private memory
	results  int // offset of the results of atomics
}

const (
	guardLen = 64
	slotsAt  = guardLen

	// noticeReceives are receives beyond those for messages.
	noticeReceives = 8
)

func (l *layout) privateLen() int { return l.results + maxAdds*wordLen }

func (l *layout) publicLen(op string) int {
	if op == OpSend {
		return slotsAt
	}
	return slotsAt + l.window*l.stride + guardLen
}

// slot is the offset of message seq in public memory.
func (l *layout) slot(seq int) int { return slotsAt + seq%l.window*l.stride }

// stagingSlot is the offset of message seq in private memory.
func (l *layout) stagingSlot(seq int) int { return l.staging + seq%l.depth*l.stride }

// messageBudget limits the memory for messages at one rank.
const messageBudget = 32 << 20

// plan sizes queues and memory such that the busiest rank keeps within its budget. All
// ranks compute the same sizes.
func (n *node) plan() (l layout) {
	load := make(map[int]int)
	busiest := 1
	for _, e := range n.edges {
		for _, r := range e.ends {
			load[r]++
			busiest = max(busiest, load[r])
		}
	}
	l.stride = (n.cfg.Bytes + 63) &^ 63
	fit := max(2, messageBudget/(busiest*l.stride))
	l.depth = max(1, min(n.cfg.Depth, fit))
	l.window = min(2*max(n.cfg.Depth, 1), fit)
	if n.recvSlots > 0 {
		l.window = n.recvSlots
	}
	l.receives = l.window + noticeReceives
	if n.cfg.Op == OpSend {
		l.recvLen = l.stride
	}
	if datagram(n.cfg.service()) {
		l.recvLen += guardLen // at least the GRH
	}
	l.staging = l.receives * l.recvLen
	if s := n.cfg.service(); s == ServiceSRQ || s == ServiceRD {
		l.staging = 0
	}
	l.results = l.staging + l.depth*l.stride
	return l
}

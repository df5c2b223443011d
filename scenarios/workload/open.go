package workload

import (
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

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

const peerAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// prepare creates what a connection keeps for all epochs.
func (c *conn) prepare() error {
	c.peerEpoch, c.peerReady = -1, -1
	c.mem = &memory{buf: make([]byte, c.layout.privateLen())}
	c.public = &memory{buf: make([]byte, c.layout.publicLen(c.n.cfg.Op))}
	c.fillGuard(c.public.buf)
	c.sq.open(c, c.layout.depth)
	switch c.n.cfg.service() {
	case ServiceSRQ:
		c.recv = c.railOf(0).shared
	case ServiceRD:
		c.endpoint = c.railOf(0).endpoints[c.endpointIndex()]
		c.recv = c.endpoint.recv
	case ServiceXRC:
		c.recv = c.n.newRing(c.mem, c.layout.receives, c.layout.recvLen, true)
		return c.openXRC(c.railOf(0))
	default:
		c.recv = c.n.newRing(c.mem, c.layout.receives, c.layout.recvLen, false)
		c.recv.owner = c
	}
	return nil
}

// openXRC creates the XRC domain and SRQ, which outlive queue pairs.
func (c *conn) openXRC(r *rail) (err error) {
	if err := c.mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if c.xrcd, err = r.dev.OpenXRCD(); err != nil {
		return err
	}
	c.srq, err = r.dev.CreateSRQ(verbs.SRQInit{
		PD: r.pd, Type: verbs.SRQXRC, MaxWR: c.layout.receives, MaxSGE: 1, XRCD: c.xrcd, CQ: r.cq,
	})
	if err != nil {
		return err
	}
	return c.recv.attach(c.srq)
}

// open creates the queue pair of an epoch with its receives, and sends the connInfo.
func (c *conn) open() error {
	r := c.railOf(c.epoch)
	c.rail = r
	if err := c.mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if err := c.public.register(r, verbs.AccessLocalWrite|peerAccess); err != nil {
		return err
	}
	c.sq.reset()
	if err := c.openQP(r); err != nil {
		return err
	}
	r.openQPs++
	k := &connInfo{
		Rail: r.num, GID: r.gid, QPN: c.qp.QPN(), PSN: c.psn(c.side), Slots: c.layout.window,
		Memory: c.public.mr.Addr(), RKey: c.public.mr.RKey(),
	}
	if c.target != nil {
		k.XRC, k.SRQN = c.target.QPN(), c.srq.Number()
	}
	if c.in != nil {
		k.Next = c.in.next
	}
	if r.word != nil {
		k.Word, k.WordKey = r.word.mr.Addr(), r.word.mr.RKey()
	}
	if err := c.listenCM(k); err != nil {
		return err
	}
	return c.sendNote(note{Kind: noteConnInfo, Card: k})
}

// openQP creates a queue pair in the state INIT, or uses that of the endpoint.
func (c *conn) openQP(r *rail) error {
	if c.endpoint != nil {
		c.qp = c.endpoint.qp
		return nil
	}
	if err := c.createQP(r); err != nil {
		return err
	}
	r.byQPN[c.receiver().QPN()] = c
	if err := c.toInit(); err != nil || c.recv.Shared() {
		return err
	}
	return c.recv.attach(c.qp)
}

func (c *conn) createQP(r *rail) (err error) {
	in := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: len(c.sq.entries), MaxRecvWR: c.layout.receives, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	switch c.n.cfg.service() {
	case ServiceSRQ:
		in.SRQ = r.srq
		c.recv = r.shared
	case ServiceUC:
		in.Type = verbs.QPTypeUC
	case ServiceUD:
		in.Type = verbs.QPTypeUD
	case ServiceXRC:
		in.Type, in.RecvCQ = verbs.QPTypeXRCSend, nil
		if c.target, err = r.dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: c.xrcd}); err != nil {
			return err
		}
	}
	c.qp, err = r.dev.CreateQP(in)
	return err
}

// psn is the initial PSN of an end, shortly before the wrap.
func (c *conn) psn(end int) uint32 {
	return 1<<24 - 1 - uint32(traffic.Derive(c.n.rank.Seed, c.edge.id, c.epoch, end)%200)
}

func (c *conn) qkey(end int) uint32 {
	return uint32(traffic.Derive(c.n.rank.Seed, c.edge.id, end) >> 33) // below 2^31: an unprivileged Q_Key
}

func (c *conn) toInit() error {
	for _, qp := range []verbs.QP{c.qp, c.target} {
		if qp == nil {
			continue
		}
		if err := traffic.ToInit(qp, verbs.QPAttr{Port: 1, Access: peerAccess, QKey: c.qkey(c.side)}); err != nil {
			return err
		}
	}
	return nil
}

// connect connects the queue pair to that of the peer. It reports false if the connection
// manager still needs the peer.
func (c *conn) connect() (bool, error) {
	if c.n.cfg.CM {
		ok, err := c.connectCM()
		if err != nil || !ok {
			return ok, err
		}
	} else if err := c.connectQPs(); err != nil {
		return false, err
	}
	c.n.addQPs(c.qp, c.target)
	c.resume()
	return true, nil
}

func (c *conn) connectQPs() (err error) {
	if c.endpoint != nil {
		return c.endpoint.addConn(c)
	}
	if c.target != nil {
		if err := traffic.ToRTS(c.target, c.attr(c.peerInfo.QPN)); err != nil {
			return err
		}
	}
	if err := traffic.ToRTS(c.qp, c.attr(c.peerInfo.receiver())); err != nil || c.qp.Type() != verbs.QPTypeUD {
		return err
	}
	c.ah, err = c.rail.pd.CreateAH(c.address())
	return err
}

func (c *conn) address() verbs.AHAttr { return traffic.Address(1, c.rail.gidIndex, c.peerInfo.GID) }

// attr returns the attributes of a queue pair whose peer has this number.
func (c *conn) attr(peer verbs.QPN) verbs.QPAttr {
	cfg := &c.n.cfg
	timeout, rnr := cfg.timing(c.n.rank.Concurrent)
	return verbs.QPAttr{
		AH: c.address(), PathMTU: c.rail.mtu, DestQPN: peer, RQPSN: c.peerInfo.PSN, SQPSN: c.psn(c.side),
		MaxDestRdAtomic: c.rail.maxReads, MaxRdAtomic: c.rail.maxReads,
		MinRNRTimer: rnr, Timeout: timeout, RetryCnt: uint8(*cfg.Retries), RNRRetry: uint8(*cfg.RNRRetries),
	}
}

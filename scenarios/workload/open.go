package workload

import (
	"github.com/fabrictest/fabrictest/verbs"
)

// layout is where things are in a connection's memory, the same at both ends.
//
// Private memory holds the receives, then the messages to be sent or read into,
// then the results of atomics. Public memory, which the peer works on, holds
// the messages that are written to it or read from it, with guards around them
// that nobody may touch.
type layout struct {
	window  int // messages that the receiving side has room for
	depth   int // messages that a side has outstanding
	stride  int // bytes from one message to the next
	recvs   int // receives
	room    int // bytes of one
	staging int // offset of the messages in private memory
	results int // offset of the atomics' results
}

const (
	guardLen = 64
	slotsAt  = guardLen

	// noticeRecvs are receives beyond those for messages.
	noticeRecvs = 8
)

func (l *layout) privateLen() int { return l.results + maxAdds*wordLen }

func (l *layout) publicLen(op string) int {
	if op == OpSend {
		return slotsAt
	}
	return slotsAt + l.window*l.stride + guardLen
}

// slot is where message seq lies in the public memory of either end.
func (l *layout) slot(seq int) int { return slotsAt + seq%l.window*l.stride }

// staged is where message seq lies in this end's private memory.
func (l *layout) staged(seq int) int { return l.staging + seq%l.depth*l.stride }

const peerAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// prepare makes what a connection keeps for all its epochs.
func (c *conn) prepare() error {
	c.peerEpoch, c.peerReady = -1, -1
	c.mem = &memory{buf: make([]byte, c.layout.privateLen())}
	c.public = &memory{buf: make([]byte, c.layout.publicLen(c.n.cfg.Op))}
	c.poison(c.public.buf)
	c.sq.open(c, c.layout.depth)
	switch c.n.cfg.service() {
	case ServiceSRQ:
		c.recv = c.railOf(0).shared
	case ServiceRD:
		c.via = c.railOf(0).ends[c.twin()]
		c.recv = c.via.recv
	case ServiceXRC:
		c.recv = c.n.newRing(c.mem, c.layout.recvs, c.layout.room)
		c.recv.shared = true
		return c.openXRC(c.railOf(0))
	default:
		c.recv = c.n.newRing(c.mem, c.layout.recvs, c.layout.room)
		c.recv.owner = c
	}
	return nil
}

// openXRC makes the domain and the receive queue that outlive queue pairs.
func (c *conn) openXRC(r *rail) (err error) {
	if err := c.mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if c.xrcd, err = r.dev.OpenXRCD(); err != nil {
		return err
	}
	c.srq, err = r.dev.CreateSRQ(verbs.SRQInit{
		PD: r.pd, Type: verbs.SRQXRC, MaxWR: c.layout.recvs, MaxSGE: 1, XRCD: c.xrcd, CQ: r.cq,
	})
	if err != nil {
		return err
	}
	return c.recv.attach(r, c.srq)
}

// open makes the queue pair of an epoch, with its receives, and tells the peer.
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
	r.open++
	k := &card{
		Rail: r.num, GID: r.gid, QPN: c.qp.QPN(), PSN: c.psn(c.me), Slots: c.layout.window,
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
	if err := c.listen(k); err != nil {
		return err
	}
	return c.tell(note{Kind: noteCard, Card: k})
}

// openQP makes the queue pair ready for all that needs no peer, or takes the one that
// there is.
func (c *conn) openQP(r *rail) error {
	if c.via != nil {
		c.qp = c.via.qp
		return nil
	}
	if err := c.createQP(r); err != nil {
		return err
	}
	r.byQPN[c.receiver().QPN()] = c
	if err := c.toInit(); err != nil || c.recv.shared {
		return err
	}
	return c.recv.attach(r, c.qp)
}

func (c *conn) createQP(r *rail) (err error) {
	in := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: len(c.sq.entries), MaxRecvWR: c.layout.recvs, MaxSendSGE: 1, MaxRecvSGE: 1},
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

// psn is where an end's sequence numbers begin: shortly before they wrap.
func (c *conn) psn(end int) uint32 {
	return 1<<24 - 1 - uint32(derive(c.n.rank.Seed, c.edge.id, c.epoch, end)%200)
}

func (c *conn) qkey(end int) uint32 {
	return uint32(derive(c.n.rank.Seed, c.edge.id, end) >> 33) // below 2^31: no privilege asked for
}

func (c *conn) toInit() error {
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: peerAccess, QKey: c.qkey(c.me)}
	for _, qp := range []verbs.QP{c.qp, c.target} {
		if qp == nil {
			continue
		}
		mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		if qp.Type() == verbs.QPTypeUD {
			mask |= verbs.QPAttrQKey
		} else {
			mask |= verbs.QPAttrAccessFlags
		}
		if err := qp.Modify(attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// join connects the queue pair to that of the peer's card. It reports whether
// that is done: the connection manager may need the peer's help.
func (c *conn) join() (bool, error) {
	if c.n.cfg.CM {
		ok, err := c.joinByCM()
		if err != nil || !ok {
			return ok, err
		}
	} else if err := c.connect(); err != nil {
		return false, err
	}
	c.n.noteQPs(c.qp, c.target)
	c.resume()
	return true, nil
}

func (c *conn) connect() error {
	if c.via != nil {
		return c.via.join(c)
	}
	if c.qp.Type() == verbs.QPTypeUD {
		return c.readyDatagrams()
	}
	if c.target != nil {
		if err := c.ready(c.target, c.peerCard.QPN); err != nil {
			return err
		}
	}
	return c.ready(c.qp, c.peerCard.receiver())
}

func (c *conn) address() verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: c.peerCard.GID, SGIDIndex: c.rail.index, HopLimit: 64}}
}

// ready takes one queue pair to RTS. Each type has its own attributes.
func (c *conn) ready(qp verbs.QP, peer verbs.QPN) error {
	cfg := &c.n.cfg
	sends, receives := qp.Type() != verbs.QPTypeXRCRecv, qp.Type() != verbs.QPTypeXRCSend
	timeout, rnr := cfg.timing(c.n.rank.Concurrent)
	attr := verbs.QPAttr{
		State: verbs.QPStateRTR, AH: c.address(), PathMTU: c.rail.mtu, DestQPN: peer, RQPSN: c.peerCard.PSN,
		MaxDestRdAtomic: c.rail.reads, MinRNRTimer: rnr,
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	dependable := reliable(cfg.service())
	if dependable && receives {
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: c.psn(c.me), MaxRdAtomic: c.rail.reads,
		Timeout: timeout, RetryCnt: uint8(*cfg.Retries), RNRRetry: uint8(*cfg.RNRRetries),
	}
	mask = verbs.QPAttrState | verbs.QPAttrSQPSN
	if dependable {
		mask |= verbs.QPAttrTimeout
		if sends {
			mask |= verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry
		}
	}
	return qp.Modify(attr, mask)
}

// readyDatagrams readies a UD queue pair and makes the address to send to.
func (c *conn) readyDatagrams() (err error) {
	if err := c.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState); err != nil {
		return err
	}
	attr := verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: c.psn(c.me)}
	if err := c.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN); err != nil {
		return err
	}
	c.ah, err = c.rail.pd.CreateAH(c.address())
	return err
}

package workload

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

const peerAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// link is a rank's end of an edge at the level of verbs: memory, receives, and the queue pair
// of the current incarnation.
type link struct {
	*env
	kind *kind
	connID
	incarnation int
	layout

	rail     *rail
	endpoint *endpoint // rd: shared queue pair
	sq       *traffic.SendQueue
	recv     *recvRing // of the connection, or shared
	mem      *memory   // local access only: receives, and messages to send or to read into
	public   *memory   // that the peer accesses
	verbsObjects
	peerInfo *connInfo
	schedule func() // steps the connection soon
}

// connID identifies a connection.
type connID struct {
	index int // in work request IDs
	edge  edge
	side  int // 0 or 1: index in edge.ends
	peer  *peer
}

// verbsObjects are the objects of an incarnation, and those of XRC, which outlive incarnations.
type verbsObjects struct {
	traffic.QPs
	cmConn verbs.Conn // of the connection manager
	xrcd   verbs.XRCD
	srq    verbs.SRQ // XRC only
}

// spareRequests is the room in a send queue besides messages. Messages and reads leave
// noticeRoom of it to notices and atomics.
const (
	spareRequests = 8
	noticeRoom    = spareRequests / 2
)

// Work request IDs of requests have connection, incarnation and number.
const (
	connShift        = 48
	incarnationShift = 32
	incarnationMask  = 1<<(connShift-incarnationShift) - 1
)

// violation records a violation of the connection's service.
func (l *link) violation(kind traffic.ViolationKind, format string, args ...any) {
	l.log.violation(kind, "%s with %s on rail %d: %s", l.host(), hostOf(l.peer.rank), l.rail.num, fmt.Sprintf(format, args...))
}

// flush posts the batch of requests.
func (l *link) flush() error {
	if l.sq.Batched() > 0 {
		l.log.requestPosted(l.now)
	}
	return l.sq.Flush()
}

// flushIfFull posts the batch if it takes no more requests.
func (l *link) flushIfFull() error {
	if l.sq.Full() {
		return l.flush()
	}
	return nil
}

// numbersMessages reports whether immediate data holds the number of a message, which is too short
// to contain it. If immediate data is sent alone, messages are numbered by their order instead.
func (l *link) numbersMessages() bool { return l.cfg.Bytes < traffic.StampLen && !l.traits.SeparateImm }

// prepare creates what a connection keeps for all its incarnations, each of which has a new queue
// pair; first is its first rail. num is the number of its ring of receives, which a connection with
// shared receives does not have.
func (l *link) prepare(first *rail, num int) error {
	l.rail = first
	l.mem = &memory{buf: make([]byte, l.resultsAt+maxAdds*wordLen)}
	publicLen := slotsAt // without slots, as for sends, only the guard before them
	if l.cfg.Op != OpSend {
		publicLen += l.window*l.stride + guardLen
	}
	l.public = &memory{buf: make([]byte, publicLen)}
	l.fillGuard(l.public.buf)
	l.sq = traffic.NewSendQueue(l.depth + spareRequests)
	switch service := l.cfg.service(); service {
	case ServiceSRQ:
		l.recv = first.shared
	case ServiceRD:
		l.recv = l.endpoint.recv
	default:
		l.recv = newRing(l.env, traffic.NewRecvRing(num, l.receives, service == ServiceXRC), l.mem, l.recvLen)
		if service == ServiceXRC {
			return l.openXRC(first)
		}
		l.recv.owner = l.index
	}
	return nil
}

// openXRC creates the XRC domain and SRQ, which outlive queue pairs.
func (l *link) openXRC(r *rail) (err error) {
	if err := l.mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if l.xrcd, err = r.dev.OpenXRCD(); err != nil {
		return err
	}
	l.srq, err = r.dev.CreateSRQ(verbs.SRQInit{
		PD: r.PD, Type: verbs.SRQXRC, MaxWR: l.receives, MaxSGE: 1, XRCD: l.xrcd, CQ: r.CQs[0],
	})
	if err != nil {
		return err
	}
	return l.recv.attach(l.srq)
}

// open creates the queue pair of the link's current incarnation (attempt to connect) on a rail,
// with its receives, and returns what the peer needs to connect.
func (l *link) open(r *rail) (*connInfo, error) {
	l.rail = r
	if err := l.mem.register(r, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if err := l.public.register(r, verbs.AccessLocalWrite|peerAccess); err != nil {
		return nil, err
	}
	if err := l.openQP(r); err != nil {
		return nil, err
	}
	r.openQPs++
	// The upper half of work request IDs has the connection and the incarnation.
	l.sq.Attach(l.QP, uint32(l.index)<<(connShift-incarnationShift)|uint32(l.incarnation&incarnationMask))
	info := &connInfo{
		Rail: r.num, GID: r.gid, QPNumbers: l.Numbers(), PSN: l.psn(l.side), Slots: l.window,
		Memory: l.public.mr.Addr(), RKey: l.public.mr.RKey(),
	}
	if l.srq != nil {
		info.SRQN = l.srq.Number()
	}
	if r.word != nil { // the target of atomics
		info.Word, info.WordKey = r.word.mr.Addr(), r.word.mr.RKey()
	}
	if !l.cfg.CM || l.isActiveSide() {
		return info, nil
	}
	var err error
	info.Port, err = r.listen()
	return info, err
}

// openQP creates a queue pair in the state INIT and posts its receives, unless they are shared.
// Connections of rd (reliable datagrams) use the queue pair of their endpoint.
func (l *link) openQP(r *rail) error {
	if l.endpoint != nil {
		l.QP = l.endpoint.qp
		return nil
	}
	if err := l.createQP(r); err != nil {
		return err
	}
	r.byQPN[l.Receiver().QPN()] = l.index
	err := l.ToInit(verbs.QPAttr{Port: 1, Access: peerAccess, QKey: l.qkey(l.side)})
	if err != nil || l.recv.Shared {
		return err
	}
	return l.recv.attach(l.QP)
}

// createQP creates the queue pairs of the service on a rail, which may differ from the last one.
func (l *link) createQP(r *rail) (err error) {
	in := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.PD, SendCQ: r.CQs[0], RecvCQ: r.CQs[0],
		Caps: verbs.QPCaps{MaxSendWR: l.sq.Depth(), MaxRecvWR: l.receives, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	switch l.cfg.service() {
	case ServiceSRQ:
		in.SRQ = r.srq
		l.recv = r.shared
	case ServiceUC:
		in.Type = verbs.QPTypeUC
	case ServiceUD:
		in.Type = verbs.QPTypeUD
	case ServiceXRC:
		in.Type = verbs.QPTypeXRCSend
	}
	l.QPs, err = traffic.CreateQPs(r.dev, in, l.xrcd)
	return err
}

// psn is the initial PSN of an end, shortly before the wrap.
func (l *link) psn(end int) uint32 {
	return 1<<24 - 1 - uint32(traffic.Derive(l.rank.Seed, l.edge.id, l.incarnation, end)%200)
}

// qkey is the Q_Key of the queue pair at an end, 0 or 1, of the connection.
func (l *link) qkey(end int) uint32 {
	return uint32(traffic.Derive(l.rank.Seed, l.edge.id, end) >> 33) // below 2^31: an unprivileged Q_Key
}

// connect connects the queue pair to that of the peer. It reports false if the peer's request to
// the connection manager has not arrived yet.
func (l *link) connect() (ok bool, err error) {
	if l.cfg.CM {
		ok, err = l.connectCM()
	} else {
		ok, err = true, l.connectQPs()
	}
	if err != nil || !ok {
		return false, err
	}
	var to verbs.UD
	if l.AH != nil {
		to = verbs.UD{AH: l.AH, QPN: l.peerInfo.QPN, QKey: l.qkey(1 - l.side)}
	}
	if l.endpoint != nil {
		to.QKey = l.endpointQKey(l.peer.rank)
	}
	l.sq.SetDestination(to, l.peerInfo.SRQN)
	l.live.add(l.QP, l.Target) // so that Break can move them to the error state
	return true, nil
}

// connectQPs connects the queue pairs without the connection manager. The queue pair of an endpoint
// is shared, and already in RTS: connectQPs only records that datagrams of the peer belong to this
// connection. UD queue pairs also get an address handle.
func (l *link) connectQPs() (err error) {
	if l.endpoint != nil {
		from := source{l.peerInfo.GID, l.peerInfo.QPN}
		if other, ok := l.endpoint.bySource[from]; ok && other != l.index {
			return fmt.Errorf("queue pair %#x of %v is the peer of two connections", from.qpn, from.gid)
		}
		l.endpoint.bySource[from] = l.index
	} else {
		err = l.ToRTS(l.peerInfo.QPNumbers, l.attr())
	}
	if err == nil && l.QP.Type() == verbs.QPTypeUD {
		l.AH, err = l.rail.PD.CreateAH(l.address())
	}
	return err
}

func (l *link) address() verbs.AHAttr { return traffic.Address(1, l.rail.gidIndex, l.peerInfo.GID) }

// attr returns the attributes of the queue pairs, except the peer's QP number.
func (l *link) attr() verbs.QPAttr {
	cfg := &l.cfg
	timeout, rnr := cfg.timing(l.rank.Concurrent)
	return verbs.QPAttr{
		AH: l.address(), PathMTU: l.rail.mtu, RQPSN: l.peerInfo.PSN, SQPSN: l.psn(l.side),
		MaxDestRdAtomic: l.rail.maxReads, MaxRdAtomic: l.rail.maxReads,
		MinRNRTimer: rnr, Timeout: timeout, RetryCnt: uint8(*cfg.Retries), RNRRetry: uint8(*cfg.RNRRetries),
	}
}

// closeQP disconnects and destroys the queue pair. One that connections share (rd) stays.
func (l *link) closeQP() error {
	if l.QP == nil {
		return nil
	}
	var err error
	if l.cmConn != nil {
		err = l.cmConn.Disconnect()
		l.cmConn = nil
	}
	l.live.remove(l.QP, l.Target)
	l.rail.openQPs--
	err = errors.Join(err, traffic.Close(l.AH))
	if l.endpoint == nil { // else other connections use the queue pair
		delete(l.rail.byQPN, l.Receiver().QPN())
		err = errors.Join(err, traffic.Close(l.Target, l.QP))
	}
	l.QPs = traffic.QPs{}
	return err
}

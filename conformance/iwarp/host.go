package iwarp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// host is the device with its application, and the peer's TCP, before a connection is made.
type host struct {
	*rig.Rig
	// syncConn is a connection on which the peer only sends RDMA Reads; see syncUnlessVirtual.
	syncConn *conn
	// large is the region of largeMemory.
	large *rig.Memory
	// accepts are the handshakes in which the device is passive.
	accepts []*handshake
}

// onHost makes the body of a case from a function that opens its connections.
func onHost(body func(*host)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		h := &host{Rig: r}
		defer h.finishAccepts()
		body(h)
	})
}

// require ends the case as not applicable, for this reason, unless ok is set.
func require(ok bool, reason string) {
	if !ok {
		rig.NotApplicable(reason)
	}
}

// abortOn ends the case as broken if a step of the bench returned an error.
func abortOn(step string, err error) {
	if err != nil {
		rig.Abort(fmt.Errorf("%s: %w", step, err))
	}
}

// setup describes a connection. The zero value is a connection to a listening device, enhanced (RFC
// 6581), in the peer-to-peer model, with CRCs and without markers.
type setup struct {
	// active makes the device connect; else it listens.
	active bool
	// reuse is a connection that has ended, of which the queue pair and the memory are used; nil
	// for new ones.
	reuse *conn
	// frame changes the peer's start-up frame: its Request, or its Reply to an active device.
	frame func(startupFrame) startupFrame
	// connParams are the parameters of the application; an IRD and ORD of 16 if nil.
	connParams *verbs.ConnParam
	// connectTimeout is the timeout of an active device's connect; appTimeout if zero.
	connectTimeout time.Duration
	// respond handles the connection request, instead of accepting it. It runs in another
	// goroutine, and must not call methods of the rig.
	respond func(verbs.ConnRequest, verbs.QP) (verbs.Conn, error)

	caps verbs.QPCaps
	// receives is how many receives are posted, with IDs from 1 on and recvLen bytes each (64 if
	// zero), one after the other in localMem.
	receives, recvLen int
	// memLen is the length of targetMem and localMem; 16 KiB if zero.
	memLen int
	// access are the rights of the peer on targetMem and on the queue pair; all if zero.
	access verbs.Access
	srq    verbs.SRQ
	// signalAll makes every request complete.
	signalAll bool
	// prepare is called before the queue pair is connected.
	prepare func(*conn)
}

const (
	allAccess  = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	memLen     = 16 << 10
	defaultOrd = 16
)

// defaultParam are the default connection parameters of the application.
var defaultParam = *depthParam(defaultOrd, defaultOrd)

// depthParam returns connection parameters with the application's IRD and ORD.
func depthParam(ird, ord uint8) *verbs.ConnParam {
	return &verbs.ConnParam{ResponderResources: ird, InitiatorDepth: ord}
}

// newConn creates the queue pair and the memory of a connection, or takes those of s.reuse. It posts
// the receives that s asks for, with IDs from 1 on, and calls s.prepare.
func (h *host) newConn(s *setup) *conn {
	c := &conn{stream: stream{host: h}}
	access, n := cmp.Or(s.access, allAccess), cmp.Or(s.memLen, memLen)
	if s.caps == (verbs.QPCaps{}) {
		s.caps = verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2}
	}
	if old := s.reuse; old != nil {
		c.targetMem, c.localMem, c.qp = old.targetMem, old.localMem, old.qp
		if state := h.QueryQP(c.qp).State; state != verbs.QPStateReset && state != verbs.QPStateInit {
			h.ToState(c.qp, verbs.QPStateReset)
		}
	} else {
		c.targetMem, c.localMem = h.Memory(n, access|verbs.AccessLocalWrite), h.Memory(n, verbs.AccessLocalWrite)
		c.qp = h.CreateQP(verbs.QPInit{
			Type: verbs.QPTypeRC, PD: h.PD, SendCQ: h.CQ, RecvCQ: h.CQ, SRQ: s.srq, Caps: s.caps, SignalAll: s.signalAll,
		})
	}
	h.ToInit(c.qp, access&^verbs.AccessLocalWrite, 0) // RC has no Q_Key
	const defaultRecvLen = 64
	c.recvLen = cmp.Or(s.recvLen, defaultRecvLen)
	for i := range s.receives {
		c.PostRecv(c.qp, uint64(i+1), c.localMem.SGE(i*c.recvLen, c.recvLen))
	}
	if s.prepare != nil {
		s.prepare(c)
	}
	return c
}

// listen makes the device listen on a port that it chooses.
func (h *host) listen() verbs.Listener {
	const backlog = 16
	l, err := h.CM().Listen(netip.AddrPortFrom(h.Local[0], 0), verbs.PortSpaceTCP, backlog)
	h.Must("a listener", err)
	h.Note("the device listens at %v", l.Addr())
	return l
}

// dialTimeout is longer than three retransmissions of a SYN (7 s): a busy machine loses some.
const dialTimeout = 10 * time.Second

// dial connects the peer to the listening device.
func (h *host) dial(l verbs.Listener) conformance.Stream {
	s, err := h.Streams.Dial(l.Addr(), max(dialTimeout, h.ResponseTimeout()))
	h.checkStream("a TCP connection to the listening device", err)
	return s
}

// checkStream fails the case if err says that the device refused a TCP connection, or did not
// answer. Other errors are not the device's, but those of the test setup, and abort the case.
func (h *host) checkStream(want string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, conformance.ErrReset), errors.Is(err, verbs.ErrTimeout):
		h.Fail(want, "%v", err)
	default:
		rig.Abort(err)
	}
}

// appTimeout is the timeout of the application's calls: longer than that of any case.
const appTimeout = 10 * time.Minute

// dialAndSend connects the peer to the listening device and sends octets.
func (h *host) dialAndSend(l verbs.Listener, octets []byte) *conn {
	c := &conn{stream: stream{host: h, tcp: h.dial(l)}}
	c.write(octets)
	return c
}

// expectNoConnRequest fails the case if the application has got a connection request. Callers wait
// for the end of the stream first.
func (h *host) expectNoConnRequest(l verbs.Listener) {
	_, err := l.GetRequest(shortWait)
	h.Check(err != nil, "no connection request", "one")
	h.Check(errors.Is(err, verbs.ErrTimeout), "a listener that still works", "%v", err)
}

// shortWait is enough for everything that waits for no timer.
const shortWait = 10 * time.Millisecond

// syncUnlessVirtual returns how long the caller must wait until the device has processed all
// earlier frames. In virtual time it returns its argument. In real time it waits itself, until two
// Reads on another connection are answered, and returns 0. The second Read shows that another
// thread of the device has sent its frames.
func (h *host) syncUnlessVirtual(quiet time.Duration) time.Duration {
	if h.Virtual {
		return quiet
	}
	if h.syncConn == nil {
		h.syncConn = h.connect(setup{})
	}
	h.syncConn.syncByRead()
	h.syncConn.syncByRead()
	return 0
}

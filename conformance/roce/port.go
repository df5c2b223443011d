package roce

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Port is an application on the device, with a scripted RoCEv2 peer at the other end of
// the link, for one case. It checks every packet of the device; see [PacketChecker]. It has no
// connection; see [Conn].
type Port struct {
	*rig.Rig
	// Peer and deviceAddr are the default addresses of packets.
	Peer, deviceAddr netip.Addr
	// Checker checks every packet that the device sends.
	Checker *PacketChecker
	// skipped are received packets that NextPacket returns next: those skipped while waiting for
	// others, or given to unread.
	skipped  []Arrival
	syncConn *syncConn
	conns    uint32 // number of connections made by Connect
}

// OnPort makes the body of a case from a function that uses a port.
func OnPort(body func(*Port)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newPort(r)) })
}

func newPort(r *rig.Rig) *Port {
	p := &Port{Rig: r, Peer: r.Peers[0], deviceAddr: r.Local[0]}
	p.Checker = &PacketChecker{PKey: p.pkey(0), PKeys: make(map[uint32]uint16)}
	return p
}

// Arrival is a packet received from the device.
type Arrival struct {
	ib.Packet
	// At is the time of reception.
	At time.Duration
}

// SendPacket sends a packet and returns the time just before. Unset addresses are those of peer and
// device; an unset MigReq is 1, except in a CNP.
func (p *Port) SendPacket(pkt ib.Packet) (at time.Duration) {
	defaults := ib.Packet{}.Via(p.Peer, p.deviceAddr)
	if pkt.Opcode() != ib.OpCNP { // a CNP has MigReq 0
		defaults = defaults.MigReq()
	}
	p.Checker.PacketSent(pkt)
	raw := pkt.Or(defaults).Build()
	at = p.Now()
	if err := p.Wire.Send(raw); err != nil {
		rig.Abort(fmt.Errorf("send %v: %w", pkt, err))
	}
	return at
}

// NextPacket returns the next packet from the device, first those that NextMatching has skipped;
// false after the timeout.
func (p *Port) NextPacket(timeout time.Duration) (Arrival, bool) {
	if len(p.skipped) > 0 {
		a := p.skipped[0]
		p.skipped = p.skipped[1:]
		return a, true
	}
	return p.recvWire(timeout)
}

// recvWire returns the next RoCEv2 packet of the wire, after PacketChecker.Check; false on timeout.
func (p *Port) recvWire(timeout time.Duration) (Arrival, bool) {
	for deadline := p.Now() + timeout; ; {
		f, err := p.Wire.Recv(max(0, deadline-p.Now()))
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return Arrival{}, false
		case err != nil:
			rig.Abort(err)
		}
		pkt, err := ib.Parse(f.Packet)
		if p.UDPSockets {
			pkt = pkt.AsFromSocket() // without the fields that a socket does not report
		}
		switch {
		case errors.Is(err, ib.ErrNotRoCE):
		case err != nil:
			p.Fail("a packet of RoCEv2", "%v (%v)", pkt, err)
		default:
			p.Checker.Check(p.Rig, pkt)
			return Arrival{pkt, f.At}, true
		}
	}
}

// NextMatching returns the next matching packet; false after the timeout. It keeps the packets
// that it skips for later calls.
func (p *Port) NextMatching(matches func(*Arrival) bool, timeout time.Duration) (Arrival, bool) {
	for i := range p.skipped {
		if a := p.skipped[i]; matches(&a) {
			p.skipped = slices.Delete(p.skipped, i, i+1)
			return a, true
		}
	}
	for deadline := p.Now() + timeout; ; {
		a, ok := p.recvWire(max(0, deadline-p.Now()))
		if !ok || matches(&a) {
			return a, ok
		}
		p.skipped = append(p.skipped, a)
	}
}

// unread makes NextPacket return a packet again, before others.
func (p *Port) unread(a Arrival) { p.skipped = slices.Insert(p.skipped, 0, a) }

// expectAnyPacket returns the next packet, whatever it is. If none arrives, the case fails with
// want in its message.
func (p *Port) expectAnyPacket(want string) Arrival {
	a, ok := p.NextPacket(p.ResponseTimeout())
	p.Check(ok, want, "nothing in %v", p.ResponseTimeout())
	return a
}

// expectAfter returns the next packet for which skip is false, and discards the packets before it.
// If there is none, the case fails with want in its message.
func (p *Port) expectAfter(skip func(*Arrival) bool, want string) Arrival {
	a := p.expectAnyPacket(want)
	for skip(&a) {
		a = p.expectAnyPacket(want)
	}
	return a
}

// expectPacket fails the case unless the next packet matches want. It returns the packet.
func (p *Port) expectPacket(want ib.Packet) Arrival {
	got := p.expectAnyPacket(want.String())
	p.checkPacket(want, got)
	return got
}

// checkPacket fails the case unless a packet matches want. The case ends as unsupported
// if want has fields that the bench cannot see.
func (p *Port) checkPacket(want ib.Packet, got Arrival) {
	if unseen := want.UnseenFields(got.Packet); len(unseen) > 0 {
		rig.BenchCannot("sockets do not show %s", strings.Join(unseen, ", "))
	}
	if d := want.Diff(got.Packet); d != nil {
		p.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// nextPackets returns the next n packets, or fails the case.
func (p *Port) nextPackets(n int) []Arrival {
	return p.awaitMatching(n, func(*Arrival) bool { return true })
}

// awaitMatching returns the next n matching packets, or fails the case.
func (p *Port) awaitMatching(n int, matches func(*Arrival) bool) (all []Arrival) {
	for len(all) < n {
		a, ok := p.NextMatching(matches, p.ResponseTimeout())
		p.Check(ok, fmt.Sprintf("%d packets", n), "%d", len(all))
		all = append(all, a)
	}
	return all
}

// byClock returns inVirtual if the bench runs in virtual time, else inReal.
func byClock[T any](p *Port, inVirtual, inReal T) T {
	if p.Virtual {
		return inVirtual
	}
	return inReal
}

const (
	// silencePeriod is how long the device must be silent where no timer runs.
	silencePeriod = time.Second
	// shortWait is long enough, in virtual time, for responses that no timer delays.
	shortWait = 100 * time.Microsecond
	// sentSoFar makes [Port.Drain] return only packets that arrive until [Port.Sync] returns.
	sentSoFar = 0
)

// expectNothing fails the case if the device sends a packet or has completed a request or receive.
func (p *Port) expectNothing() {
	p.expectSilence(silencePeriod)
	p.ExpectNoCompletion()
}

// expectSilence fails the case if the device sends a packet before it answers a request
// on another connection, or within quiet after that; see [Port.NextAfterSync].
func (p *Port) expectSilence(quiet time.Duration) {
	pkt, sent := p.NextAfterSync(quiet)
	p.Check(!sent, "nothing is sent", "%v", pkt)
}

// syncConn is a connection for zero-length WRITEs. The ACK of a WRITE shows that the
// device has processed all earlier packets.
type syncConn struct {
	qp  verbs.QP
	psn ib.PSN
	mem *rig.Memory // some NICs check the R_Key of a zero-length WRITE
}

// The peer's QPN and first PSN on a syncConn, distinct from those of other connections.
const (
	syncQPN = 0xca4a51
	syncPSN = 0x400000
)

// newSyncConn makes a connection in RTR, on which only the peer sends requests.
func newSyncConn(p *Port) *syncConn {
	c := &syncConn{psn: syncPSN, mem: p.Memory(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)}
	cq := p.CreateCQ(verbs.CQInit{Depth: 16})
	c.qp = p.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: p.PD, SendCQ: cq, RecvCQ: cq, Caps: minQPCaps})
	p.ToInit(c.qp, verbs.AccessRemoteWrite, 0)
	a := p.peerAttr(p.Peers[0])
	a.DestQPN, a.RQPSN = syncQPN, syncPSN
	p.ToRTR(c.qp, a)
	return c
}

// Sync waits until the device has processed all packets sent before, shown by an ACK on
// another connection. Other packets received meanwhile are kept.
func (p *Port) Sync() {
	if p.syncConn == nil {
		p.syncConn = newSyncConn(p)
	}
	c := p.syncConn
	write := ib.WriteOnly(c.psn, ib.At(c.mem.Addr(), c.mem.RKey(), 0), nil).AckReq()
	p.SendPacket(write.To(uint32(c.qp.QPN())).Via(p.Peers[0], p.Local[0]))
	_, ok := p.NextMatching(func(a *Arrival) bool { return a.DestQP() == syncQPN && a.PSN() == c.psn }, p.ResponseTimeout())
	c.psn = c.psn.Add(1)
	p.Check(ok, "a device that answers its other connections", "nothing in %v", p.ResponseTimeout())
}

// expectNoCompletion calls Sync, and fails the case if a request or receive has completed.
func (p *Port) expectNoCompletion() {
	p.Sync()
	p.ExpectNoCompletion()
}

// reorderLimit is how late, in real time, a packet may arrive after the ACK of Sync although an
// earlier request caused it: hardware schedules queue pairs independently.
const reorderLimit = 20 * time.Millisecond

// NextAfterSync calls Sync and returns the first packet that the device has sent until then, or
// sends within quiet; false if there is none. quiet must be shorter than the timers that run on the
// device, and is at most reorderLimit in real time.
func (p *Port) NextAfterSync(quiet time.Duration) (Arrival, bool) {
	p.Sync()
	return p.NextPacket(byClock(p, quiet, min(quiet, reorderLimit)))
}

// Drain returns all packets that the device has sent until [Port.Sync] returns, and after that
// until none arrives for the time quiet, which is at most reorderLimit in real time.
func (p *Port) Drain(quiet time.Duration) (all []Arrival) {
	for a, ok := p.NextAfterSync(quiet); ok; a, ok = p.NextPacket(byClock(p, quiet, min(quiet, reorderLimit))) {
		all = append(all, a)
	}
	return all
}

// PacketChecker checks the ICRC and the transport headers of every packet from a device. Other
// cases are about network headers and recommendations.
type PacketChecker struct {
	// PKey is the expected P_Key, the first of the port, for packets to QPNs that PKeys does not
	// have.
	PKey  uint16
	PKeys map[uint32]uint16
	// AnyPKey allows all P_Keys: the case checks them itself.
	AnyPKey bool
	// markSent is set once the peer has sent a packet with CE or FECN.
	markSent bool
}

// PacketSent notes a packet that was sent to the device. Once one had a CE mark or FECN, Check
// allows FECN and BECN in the device's packets.
func (w *PacketChecker) PacketSent(p ib.Packet) {
	marked := p.IP.TClass != nil && *p.IP.TClass&3 == 3 /* CE */ || p.BTH.FECN != nil && *p.BTH.FECN
	w.markSent = w.markSent || marked
}

// Check fails the case if a packet of the device has [ib.Packet.Faults] or a wrong P_Key, or has
// FECN or BECN although the peer has marked no packet.
func (w *PacketChecker) Check(r *rig.Rig, p ib.Packet) {
	for _, f := range p.Faults() {
		r.Fail(f.Rule, "%v: %s", p, f.Found)
	}
	if p.Opcode() == ib.OpCNP {
		return // a CNP has the P_Key of the marked packet, and BECN
	}
	if !w.AnyPKey && p.DestQP() != ib.GSIQPN { // QP 1 responds with the P_Key of the request
		pkey := cmp.Or(w.PKeys[p.DestQP()], w.PKey)
		r.Check(*p.BTH.PKey == pkey, fmt.Sprintf("the P_Key of the queue pair, %#04x", pkey), "%v with P_Key %#04x", p, *p.BTH.PKey)
	}
	if !w.markSent {
		r.Check(!*p.BTH.FECN && !*p.BTH.BECN, "no FECN or BECN where no packet was marked", "%v with FECN %v, BECN %v", p, *p.BTH.FECN, *p.BTH.BECN)
	}
}

// RequireICRCFields ends a case about ICRCs as unsupported on a bench with UDP sockets over IPv4,
// which does not see all fields that the ICRC covers. [PacketChecker.Check] then accepts an ICRC
// that is correct for any value of the hidden fields.
func (p *Port) RequireICRCFields() {
	if p.UDPSockets && p.Local[0].Is4() {
		rig.BenchCannot("sockets do not show the identification and the flags of IPv4, which the ICRC covers")
	}
}

// expectDropped sends a packet and fails the case if the device answers, completes a request or
// changes memory. Use [Conn.expectAccepted] to check that the expected PSN is unchanged.
func (c *Conn) expectDropped(pkt ib.Packet) {
	c.Send(pkt)
	got, answered := c.NextAfterSync(silencePeriod)
	c.Check(!answered, fmt.Sprintf("%v is dropped", pkt), "the response %v", got)
	wc, completed := c.PollCompletion(0)
	c.Check(!completed, fmt.Sprintf("%v is dropped", pkt), "%s", rig.Describe(&wc))
	c.ExpectUntouched(c.TargetMem, c.LocalMem)
}

// expectAccepted sends the peer's n-th message, a SEND of one packet, and fails the case unless the
// device acknowledges it and completes receive n+1. So the device's expected PSN must be the n-th.
func (c *Conn) expectAccepted(n int, modify ...func(ib.Packet) ib.Packet) {
	pkt := c.peerSend(n, 16)
	for _, f := range modify {
		pkt = f(pkt)
	}
	c.exchange(pkt, c.deviceAck(n, uint32(n+1)))
	c.ExpectRecv(uint64(n+1), 16)
	c.ExpectBytes(c.LocalMem, n*64, Data(16)) // receives have 64 bytes each
	c.LocalMem.Snapshot()
}

// acceptsAfter makes the body of a case from steps on an RC connection with four receives. After
// them the device must accept a SEND with the first PSN.
func acceptsAfter(steps func(*Conn)) func(*conformance.Bench) error {
	return onRC(func(c *Conn) {
		steps(c)
		c.expectAccepted(0)
	})
}

// annexA17 cites a section of IBTA Annex A17 (RoCEv2). rows are the IDs of the requirements that
// the case covers, which are rows of the ledger, without the prefix "roce/".
func annexA17(section string, rows ...string) conformance.Cite {
	return cite("Annex A17", section, rows)
}

// ibta cites a section of the IBTA base specification, "" if it is not public, and ledger rows.
func ibta(section string, rows ...string) conformance.Cite {
	return cite(conformance.IBTA, section, rows)
}

// cite returns a citation of a document, with rows of its ledger, ../ledger/roce.yaml.
func cite(doc, section string, rows []string) conformance.Cite {
	c := conformance.Cite{Doc: doc, Section: section}
	for _, row := range rows {
		c.Rows = append(c.Rows, "roce/"+row)
	}
	return c
}

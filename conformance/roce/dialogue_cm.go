package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// cmDialogue compares the communication manager of the device with [model.CMConn] on several
// connections.
type cmDialogue struct {
	port     *Port
	mix      map[string]int // weights of the operations
	listener verbs.Listener
	links    []*cmLink
	pending  []*cmLink // whose REQ the application has not taken, in the order of arrival
	baseID   uint32    // communication IDs and QPNs of the peer are derived from it
	guid     uint64    // GUID of the device
	maxMTU   verbs.MTU // active MTU of the device's port
	gids     []verbs.GIDEntry
	waited   bool // timeWait has waited
}

// cmLink is a connection of a dialogue.
type cmLink struct {
	model.CMConn
	cmApp
	peer    netip.Addr
	srcPort uint16        // TCP port of the active side
	seen    bool          // the device has processed the REQ
	tid     uint64        // transaction ID of the REQ
	dreqTID uint64        // transaction ID of the device's DREQ
	req     ib.REQ        // of the peer or, on an active connection, of the device
	out     []byte        // the MAD that the device retransmits; nil if none
	timer   model.CMTimer // of the retransmissions
	endedAt time.Duration // when time wait began
	sent    [2]int        // number of SENDs of the peer and of the device
}

// cmApp is the application's side of a connection.
type cmApp struct {
	conn    *Conn             // the queue pair; nil before Accept
	request verbs.ConnRequest // nil before the application takes it
	param   verbs.ConnParam
	setup   *cmCall    // Accept or Connect
	closing *cmCall    // Disconnect
	result  verbs.Conn // the result of setup
}

// cmCall is a call of a verb that blocks.
type cmCall struct {
	name string
	task conformance.Task
	done atomic.Bool // the verb has returned
}

// cmWant is an expected message of the device. The device need not send an optional one.
type cmWant struct {
	msg      ib.Message
	tid      *uint64 // nil for any
	to       netip.Addr
	optional bool
	got      func(ib.MAD, ib.Message, Arrival) // called with the message; may be nil
}

// cmStep is a step of a dialogue: an operation on a connection.
type cmStep struct {
	op    string
	conn  int    // modulo the number of connections
	ids   int    // index in cmIDVariants
	fault int    // index in cmFaults
	twice bool   // the peer sends the message twice in a row
	seed  uint64 // of the random fields
}

// String describes the step, for the record of a dialogue.
func (s cmStep) String() string {
	text := fmt.Sprintf("%s on connection %d%s%s", s.op, s.conn, cmIDVariants[s.ids], cmFaults[s.fault].name)
	if s.twice {
		text += ", twice"
	}
	return text
}

// cmIDVariants describe the communication IDs of a message, by cmStep.ids.
var cmIDVariants = []string{"", ", with an unknown local ID", ", with an unknown remote ID", ", with the remote ID of another connection"}

// cmFault is a change of a message. The device must ignore the changed message, unless the change
// is harmless.
type cmFault struct {
	name     string
	harmless bool
	header   ib.MAD
	change   func(ib.Packet, ib.Attr) ib.Packet
}

var cmFaults = []cmFault{
	{name: "", harmless: true},
	{
		name: ", with reserved fields set", harmless: true, change: cmSetReserved,
		header: ib.MAD{ClassSpecific: new(uint16(0x1234)), Resv: new(uint16(0xffff)), Modifier: new(uint32(0xabcdef01))},
	},
	{name: ", with MAD base version 2", header: ib.MAD{BaseVersion: new(uint8(2))}},
	{name: ", with class version 1", header: ib.MAD{ClassVersion: new(uint8(1))}},
	{name: ", with another management class", header: ib.MAD{Class: new(uint8(0x30))}},
	{name: ", with method GetResp", header: ib.MAD{Method: new(uint8(0x81))}},
	{name: ", with an unknown attribute", header: ib.MAD{Attr: new(ib.Attr(0x2f))}},
	{name: ", cut to 252 bytes", change: func(p ib.Packet, _ ib.Attr) ib.Packet { return p.WithPayload(p.Payload[:252]) }},
	{name: ", with another Q_Key", change: func(p ib.Packet, _ ib.Attr) ib.Packet { return p.WithDETH(udQKey, ib.GSIQPN) }},
	{name: ", with a wrong ICRC", change: func(p ib.Packet, _ ib.Attr) ib.Packet { return p.BadICRC() }},
}

// cmReserved are the reserved bits of each message, by their byte offset in the MAD.
var cmReserved = map[ib.Attr]map[int]byte{
	ib.AttrREQ:  {28: 0xff, 31: 0xff, 48: 0xff, 51: 0xff, 115: 0x0f, 118: 0x07, 119: 0x07},
	ib.AttrMRA:  {32: 0x3f, 33: 0x07},
	attrREJ:     {32: 0x3f, 33: 0x01},
	ib.AttrREP:  {39: 0xff, 43: 0xff, 47: 0xff, 51: 0x0f},
	attrDREQ:    {35: 0xff},
	attrSIDRREQ: {30: 0xff, 31: 0xff},
	attrSIDRREP: {30: 0xff, 31: 0xff, 35: 0xff},
}

var (
	attrREJ, attrRTU   = ib.AttrOf(ib.REJ{}), ib.AttrOf(ib.RTU{})
	attrDREQ, attrDREP = ib.AttrOf(ib.DREQ{}), ib.AttrOf(ib.DREP{})
	attrLAP, attrAPR   = ib.AttrOf(ib.LAP{}), ib.AttrOf(ib.APR{})
	attrSIDRREQ        = ib.AttrOf(ib.SIDRREQ{})
	attrSIDRREP        = ib.AttrOf(ib.SIDRREP{})
)

// cmSetReserved sets the reserved bits of a message.
func cmSetReserved(p ib.Packet, attr ib.Attr) ib.Packet {
	b := slices.Clone(p.Payload)
	for at, bits := range cmReserved[attr] {
		b[at] |= bits
	}
	return p.WithPayload(b)
}

// openCMDialogue returns a function that starts a dialogue with a listener on the device. mix has
// the weights of the operations.
func openCMDialogue(mix map[string]int) func(*rig.Rig) rig.DialogueSession[cmStep] {
	return func(r *rig.Rig) rig.DialogueSession[cmStep] {
		if r.CallTime > maxCMCallTime {
			rig.BenchCannot("verb calls take %v: messages of the CM may be retransmitted between two steps", r.CallTime)
		}
		p := newPort(r)
		s := &cmDialogue{port: p, mix: mix, baseID: r.Rand.Uint32(), guid: r.QueryDevice().NodeGUID}
		s.maxMTU, s.gids = p.QueryPort().ActiveMTU, p.gidTable()
		p.useConnectSource(s.gids)
		s.listener = p.cmListen(verbs.PortSpaceTCP)
		p.Sync()
		return s
	}
}

// useConnectSource makes the address from which the device connects to the peer its address. If the
// GID table has several addresses of the family, it finds out by an attempt, which the peer rejects.
func (p *Port) useConnectSource(gids []verbs.GIDEntry) {
	candidates := 0
	for _, e := range gids {
		if a := e.GID.Addr(); e.Type == verbs.GIDTypeRoCEv2 && a.Is4() == p.Peer.Is4() && !a.IsLinkLocalUnicast() {
			candidates++
		}
	}
	if candidates > 1 {
		k := p.cmConnect(1, p.ResponseTimeout())
		k.send(ib.REJ{About: new(model.CMAboutREQ), Reason: new(ib.RejConsumer)})
		p.MustFail("Connect that the peer rejects", k.task.Wait(p.ResponseTimeout()), verbs.ErrRejected)
		k.conn.free()
	}
}

// maxCMCallTime limits how long a verb call may take: longer ones let the CM's timers expire
// between two steps.
const maxCMCallTime = 10 * time.Millisecond

// maxLinks is the largest number of connections of a dialogue that are not idle or in time wait.
const maxLinks = 3

// Draw chooses an operation by its weight in the mix, and one of the newest connections on which
// the operation makes sense. The mix also has the percentages of messages with wrong IDs and
// faults.
func (s *cmDialogue) Draw(r *rand.Rand) cmStep {
	type choice struct {
		op   string
		conn int
	}
	var choices []choice
	add := func(op string, conn, weight int) {
		for range weight {
			choices = append(choices, choice{op, conn})
		}
	}
	for _, op := range cmOps {
		weight := s.mix[op.name]
		if op.when == nil { // for no existing connection
			if op.always || s.live() < maxLinks {
				add(op.name, len(s.links), weight)
			}
			continue
		}
		for i := max(0, len(s.links)-2*maxLinks); i < len(s.links); i++ {
			add(op.name, i, weight*op.when(s.links[i]))
		}
	}
	if len(choices) == 0 { // the mix has no operation for the present states
		choices = append(choices, choice{"take", 0})
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return a.conn - b.conn })
	picked := choices[r.IntN(len(choices))]
	step := cmStep{op: picked.op, conn: picked.conn, seed: r.Uint64()}
	op := opNamed(step.op)
	if op.ids && r.IntN(100) < s.mix["other IDs"] {
		step.ids = r.IntN(len(cmIDVariants))
	}
	if op.mad && r.IntN(100) < s.mix["faults"] {
		step.fault = r.IntN(len(cmFaults))
	}
	step.twice = op.mad && r.IntN(8) == 0
	return step
}

// live returns the number of connections that are not idle or in time wait.
func (s *cmDialogue) live() (n int) {
	for _, c := range s.links {
		if c.State != model.CMIdle && c.State != model.CMTimeWait {
			n++
		}
	}
	return n
}

// cmOp is an operation of a dialogue.
type cmOp struct {
	name string
	// when is a factor of the operation's weight: 0 if it makes no sense on the connection. It is
	// nil for operations on no existing connection.
	when     func(*cmLink) int
	always   bool // the operation makes no new connection, although when is nil
	mad, ids bool // the peer sends a message, which may have a fault; its IDs may be wrong
	play     func(s *cmDialogue, c *cmLink, step cmStep, r *rand.Rand)
}

// in returns a function for cmOp.when: usual in these states of the connection, rare in the others.
func in(usual, rare int, states ...model.CMState) func(*cmLink) int {
	return func(c *cmLink) int {
		if slices.Contains(states, c.State) {
			return usual
		}
		return rare
	}
}

var cmOps = []cmOp{
	{name: "new REQ", mad: true, play: (*cmDialogue).newREQ},
	{name: "refused REQ", always: true, mad: true, play: (*cmDialogue).refusedREQ},
	{name: "connect", play: (*cmDialogue).startConnect},
	{name: "take", always: true, play: (*cmDialogue).take},
	{name: "accept", when: undecided, play: (*cmDialogue).accept},
	{name: "reject", when: undecided, play: (*cmDialogue).reject},
	{name: "disconnect", when: in(1, 0, model.CMEstablished), play: (*cmDialogue).disconnect},
	{name: "message", when: in(1, 0, model.CMEstablished), play: (*cmDialogue).message},
	{name: "first message", when: in(1, 0, model.CMReplied), play: (*cmDialogue).message},
	{name: "wait", when: in(1, 0, model.CMReplied, model.CMRequesting, model.CMDisconnecting), play: (*cmDialogue).await},
	{name: "give up", when: in(1, 0, model.CMReplied, model.CMRequesting, model.CMDisconnecting), play: (*cmDialogue).awaitAll},
	{name: "time wait", always: true, play: (*cmDialogue).timeWait},
	{name: "stale REQ", mad: true, when: in(1, 0, model.CMEstablished), play: (*cmDialogue).staleREQ},
	{name: "stale REP", mad: true, when: in(1, 0, model.CMRequesting), play: (*cmDialogue).staleREP},
	{name: "cancel", mad: true, when: in(1, 0, model.CMRequested), play: (*cmDialogue).cancel},
	{name: "REQ", mad: true, when: func(c *cmLink) int { return byRole(c, 0, requestable(c)) }, play: sends(ib.AttrREQ)},
	{name: "REP", mad: true, ids: true, when: func(c *cmLink) int { return byRole(c, in(9, 3, model.CMRequesting)(c), 1) }, play: sends(ib.AttrREP)},
	{name: "RTU", mad: true, ids: true, when: in(9, 1, model.CMReplied), play: sends(attrRTU)},
	{name: "REJ", mad: true, ids: true, when: in(3, 1, model.CMRequested, model.CMReplied, model.CMRequesting, model.CMEstablished, model.CMDisconnecting), play: sends(attrREJ)},
	{name: "MRA", mad: true, ids: true, when: in(4, 1, model.CMReplied, model.CMRequesting), play: sends(ib.AttrMRA)},
	{name: "DREQ", mad: true, ids: true, when: in(3, 1, model.CMReplied, model.CMEstablished, model.CMDisconnecting), play: sends(attrDREQ)},
	{name: "DREP", mad: true, ids: true, when: in(9, 1, model.CMDisconnecting), play: sends(attrDREP)},
	{name: "LAP", mad: true, ids: true, when: in(1, 1), play: sends(attrLAP)},
	{name: "APR", mad: true, ids: true, when: in(1, 1), play: sends(attrAPR)},
}

// requestable is the weight of a duplicate REQ. It is 0 if the application has rejected the REQ or
// the peer has withdrawn it: the device may then treat the duplicate as a new REQ or not.
func requestable(c *cmLink) int {
	if c.State == model.CMIdle && c.seen || c.Cancelled {
		return 0
	}
	return 3
}

// byRole returns active if the device is the active side of the connection, else passive.
func byRole(c *cmLink, active, passive int) int {
	if c.Active {
		return active
	}
	return passive
}

// undecided is the weight of Accept and Reject: 0 unless the application has taken the REQ and not
// answered it.
func undecided(c *cmLink) int {
	if c.State == model.CMRequested && c.request != nil {
		return 1
	}
	return 0
}

// opNamed returns the operation with this name.
func opNamed(name string) cmOp {
	return cmOps[slices.IndexFunc(cmOps, func(op cmOp) bool { return op.name == name })]
}

// Play performs a step, and compares the device with the model.
func (s *cmDialogue) Play(step cmStep) {
	op := opNamed(step.op)
	var c *cmLink
	if op.when != nil {
		if len(s.links) == 0 {
			return // the step that made its connection was removed
		}
		if c = s.links[step.conn%len(s.links)]; op.when(c) == 0 {
			return // steps that led to the state for this one were removed
		}
	}
	op.play(s, c, step, rand.New(rand.NewPCG(step.seed, 1)))
	s.settle()
	for _, c := range s.links {
		s.resolveEnd(c)
		s.checkTimer(c)
		s.checkApplication(c)
		s.expire(c)
	}
}

// newLink adds a connection on which the peer has another communication ID, QPN and port than on
// the others.
func (s *cmDialogue) newLink(active bool) *cmLink {
	n := uint32(len(s.links))
	c := &cmLink{peer: s.port.Peer, srcPort: uint16(cmSourcePort + n)}
	// The factors make IDs and QPNs that differ in high and low bits.
	c.Active, c.PeerID, c.PeerQPN = active, s.baseID+n*0x01000193, (s.baseID>>3+n*7)&0x7fffff|0x100
	c.PeerGUID = 0x02005efffe000001
	s.links = append(s.links, c)
	return c
}

// drawTimeout returns the code of a random response timeout of the peer, of 67 ms or more.
func (s *cmDialogue) drawTimeout(r *rand.Rand) uint8 {
	return s.port.LongTimeout(uint8(14 + r.IntN(3)))
}

// Most private data of an application in each message of the CM. In a REQ and a SIDR_REQ, 36 bytes
// are for the address header of the IP CM service.
const (
	cmREQPrivate   = 92 - 36
	cmREPPrivate   = 196
	cmRTUPrivate   = 224 // also of a DREP
	cmREJPrivate   = 148
	cmDREQPrivate  = 220
	sidrREQPrivate = 216 - 36
	sidrREPPrivate = 136
)

// cmPrivate returns random private data of 0, 1, n/2, n-1 or n bytes.
func cmPrivate(r *rand.Rand, n int) []byte {
	b := make([]byte, []int{0, 1, n / 2, n - 1, n}[r.IntN(5)])
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// newREQ has the peer request a connection.
func (s *cmDialogue) newREQ(_ *cmLink, step cmStep, r *rand.Rand) {
	if s.live() >= maxLinks {
		return
	}
	c := s.newLink(false)
	c.tid = r.Uint64()
	if len(s.port.Peers) > 1 && r.IntN(4) == 0 {
		c.peer, c.PeerGUID = s.port.PeerAddr(1), c.PeerGUID+1
		if n := len(s.links); n > 1 && r.IntN(2) == 0 && s.links[n-2].peer == s.port.Peer {
			c.PeerID = s.links[n-2].PeerID // another host may choose the same ID
		}
	}
	c.req = s.drawREQ(c, r)
	s.request(c, step)
}

// request sends the REQ of a connection that the device does not know. The device may answer with
// an MRA.
func (s *cmDialogue) request(c *cmLink, step cmStep) {
	n := s.transmit(c, c.tid, c.req, step)
	if !cmFaults[step.fault].harmless {
		return
	}
	c.State, c.seen = model.CMRequested, true
	s.pending = append(s.pending, c)
	s.settle(slices.Repeat([]cmWant{s.wantFor(c, c.tid, ib.MRA{RemoteCommID: &c.PeerID, About: new(model.CMAboutREQ)}, true)}, n)...)
}

// wantFor returns the expectation of response m on connection c. If an MRA arrives before the
// application has answered the REQ, it is passed to the model.
func (s *cmDialogue) wantFor(c *cmLink, tid uint64, m ib.Message, optional bool) cmWant {
	return cmWant{msg: m, tid: &tid, to: c.peer, optional: optional, got: func(_ ib.MAD, m ib.Message, _ Arrival) {
		if mra, ok := m.(ib.MRA); ok && c.State == model.CMRequested {
			c.MRASent(mra)
		}
	}}
}

// drawREQ returns a valid REQ with random values. The timeouts of the peer are long enough for a
// case to react; those of the device are 1.1 s to 8.6 s.
func (s *cmDialogue) drawREQ(c *cmLink, r *rand.Rand) ib.REQ {
	req := s.port.cmRequest(cmPort, c.PeerID)
	req.LocalGID, req.QPN, req.LocalCAGUID = c.peer, &c.PeerQPN, &c.PeerGUID
	small := func(n int) *uint8 { return new(uint8(r.IntN(n))) }
	req.StartingPSN = new(ib.PSN([]uint32{0, 0xffffff, 0x7fffff, r.Uint32() & 0xffffff}[r.IntN(4)]))
	depth := func() *uint8 { return new([]uint8{0, 1, 2, 4, 255}[r.IntN(5)]) }
	req.RespResources, req.InitiatorDepth = depth(), depth()
	req.RetryCount, req.RNRRetryCount, req.PathMTU = small(8), small(8), new(uint8(1+r.IntN(int(s.maxMTU))))
	req.LocalTimeout, req.RemoteTimeout = new(s.drawTimeout(r)), new(uint8(18+r.IntN(4)))
	req.AckTimeout, req.MaxCMRetries = new(s.port.LongTimeout([]uint8{14, 15, 16, 17, 19}[r.IntN(5)])), small(5)
	req.FlowControl, req.SRQ, req.SubnetLocal = new(r.IntN(2) == 0), new(r.IntN(2) == 0), new(r.IntN(2) == 0)
	lid := func() *uint16 { return new([]uint16{0, 0xffff, uint16(r.Uint32())}[r.IntN(3)]) }
	req.LocalLID, req.RemoteLID = lid(), lid()
	req.FlowLabel, req.PacketRate, req.SL, req.HopLimit = new(r.Uint32()&0xfffff), small(64), small(16), new(uint8(1+r.IntN(255)))
	req.PKey = new(s.port.Checker.PKey &^ uint16(r.IntN(2)<<15)) // the peer may be a limited member
	req.Private = append(ib.AddrHeader{SrcPort: c.srcPort, Src: c.peer, Dst: s.port.deviceAddr}.Append(nil), cmPrivate(r, cmREQPrivate)...)
	return req
}

// transmit sends a message of the peer with the fault of the step, and returns how often: twice if
// the step says so. It also expects the responses to a fault in the class version.
func (s *cmDialogue) transmit(c *cmLink, tid uint64, m ib.Message, step cmStep) (n int) {
	f := cmFaults[step.fault]
	f.header.TID = &tid
	pkt := ib.CMWith(f.header, m)
	if f.change != nil {
		pkt = f.change(pkt, ib.AttrOf(m))
	}
	n = 1
	if step.twice {
		n = 2
	}
	for range n {
		s.port.SendPacket(pkt.From(c.peer))
	}
	if f.header.ClassVersion != nil {
		s.settle(slices.Repeat(cmVersionAnswers(c, tid, m), n)...)
	}
	return n
}

// cmVersionAnswers returns the optional responses to a message of another class version: a REJ to a
// REQ, and a SIDR_REP to a SIDR_REQ. IBTA specifies them, but Linux does not send them.
func cmVersionAnswers(c *cmLink, tid uint64, m ib.Message) []cmWant {
	const invalidClassVersion, versionNotSupported = 31, 5
	var answer ib.Message
	switch m := m.(type) {
	case ib.REQ:
		rej := model.CMReject(m.LocalCommID, model.CMAboutREQ, invalidClassVersion)
		rej.LocalCommID = new(uint32(0))
		answer = rej
	case ib.SIDRREQ:
		answer = ib.SIDRREP{RequestID: m.RequestID, Status: new(uint8(versionNotSupported))}
	default:
		return nil
	}
	return []cmWant{{msg: answer, tid: &tid, to: c.peer, optional: true}}
}

// sends returns an operation in which the peer sends a message of this type. The device must send
// the responses of the model.
func sends(attr ib.Attr) func(*cmDialogue, *cmLink, cmStep, *rand.Rand) {
	return func(s *cmDialogue, c *cmLink, step cmStep, r *rand.Rand) {
		if attr == ib.AttrREQ && !c.seen {
			s.request(c, step)
			return
		}
		m, tid := s.peerMessage(c, attr, r)
		target := c // the connection that the IDs of the message name
		if step.ids > 0 && attr != ib.AttrREQ {
			m, target = s.withOtherIDs(c, m, step.ids, r)
		}
		n := s.transmit(c, tid, m, step)
		if !cmFaults[step.fault].harmless {
			return
		}
		var wants []cmWant
		for i := range n {
			reply := target.Receive(m)
			if mra, ok := m.(ib.MRA); ok && target.prolongs(mra) {
				target.timer.Prolong(s.port.Now(), ib.AckTimeout(*mra.ServiceTimeout))
			}
			// When the second of two REPs arrives, the device may still process the first: then it
			// may also send an MRA, or nothing.
			mayBeBusy := i > 0 && attr == ib.AttrREP
			if reply.Must != nil {
				wants = append(wants, s.wantFor(target, tid, reply.Must, mayBeBusy))
			}
			if mayBeBusy {
				reply.May = append(reply.May, ib.MRA{RemoteCommID: &target.PeerID, LocalCommID: &target.DeviceID, About: new(model.CMAboutREP)})
			}
			for _, may := range reply.May {
				wants = append(wants, s.wantFor(target, tid, may, true))
			}
		}
		s.settle(wants...)
	}
}

// prolongs reports whether an MRA prolongs the timeout of the message that the device retransmits.
func (c *cmLink) prolongs(m ib.MRA) bool {
	if *m.RemoteCommID != c.DeviceID {
		return false
	}
	return c.State == model.CMRequesting && *m.About == model.CMAboutREQ ||
		c.State == model.CMReplied && *m.About == model.CMAboutREP && *m.LocalCommID == c.PeerID
}

// withOtherIDs returns m with the IDs of a variant (an index in cmIDVariants), and the connection
// that the remote ID names: c if there is no other connection.
func (s *cmDialogue) withOtherIDs(c *cmLink, m ib.Message, variant int, r *rand.Rand) (ib.Message, *cmLink) {
	local, remote, target := c.PeerID, c.DeviceID, c
	switch variant {
	case 1:
		local = s.baseID + r.Uint32()%0xffff
	case 2:
		remote = r.Uint32()
	case 3:
		for _, other := range s.links {
			if other != c && other.peer == c.peer && other.DeviceID != 0 && other.State != model.CMRequesting {
				remote, target = other.DeviceID, other
			}
		}
	}
	if changed, ok := ib.WithCommIDs(m, local, remote); ok {
		return changed, target
	}
	return m, c
}

// peerMessage returns a message of the peer on a connection, with random values that are valid in
// most of them, and its transaction ID.
func (s *cmDialogue) peerMessage(c *cmLink, attr ib.Attr, r *rand.Rand) (ib.Message, uint64) {
	local, remote := &c.PeerID, &c.DeviceID
	switch attr {
	case ib.AttrREQ:
		req := c.req
		if r.IntN(3) == 0 { // changed contents
			req.StartingPSN, req.PathMTU, req.MaxCMRetries = new(ib.PSN(r.Uint32()&0xffffff)), new(uint8(2)), new(uint8(7))
		}
		if r.IntN(6) == 0 { // not a retransmission, but with a communication ID that is in use
			req.QPN = new(*req.QPN ^ 1<<r.IntN(23))
		}
		return req, c.tid
	case ib.AttrREP:
		return s.peerREP(c, r), c.tid
	case attrRTU:
		return ib.RTU{LocalCommID: local, RemoteCommID: remote, Private: cmPrivate(r, cmRTUPrivate)}, c.tid
	case attrREJ:
		return s.peerREJ(c, r), c.tid
	case ib.AttrMRA:
		about := map[model.CMState]uint8{model.CMReplied: model.CMAboutREP, model.CMEstablished: model.CMAboutREP}[c.State]
		if r.IntN(4) == 0 {
			about = uint8(r.IntN(3))
		}
		service := s.drawTimeout(r) + uint8(r.IntN(5))
		if c.State == model.CMRequesting { // near the response timeout in the REQ
			service = *c.req.RemoteTimeout - 2 + uint8(r.IntN(5))
		}
		return ib.MRA{LocalCommID: local, RemoteCommID: remote, About: &about, ServiceTimeout: &service}, c.tid
	case attrDREQ:
		qpn := c.DeviceQPN
		if r.IntN(5) == 0 {
			qpn ^= 1 << r.IntN(24)
		}
		return ib.DREQ{LocalCommID: local, RemoteCommID: remote, RemoteQPN: &qpn, Private: cmPrivate(r, cmDREQPrivate)}, r.Uint64()
	case attrDREP:
		return ib.DREP{LocalCommID: local, RemoteCommID: remote, Private: cmPrivate(r, cmRTUPrivate)}, c.dreqTID
	case attrLAP:
		return ib.LAP{LocalCommID: local, RemoteCommID: remote}, r.Uint64()
	}
	return ib.APR{LocalCommID: local, RemoteCommID: remote}, c.tid
}

// peerREP returns a REP with random values. Once the device has accepted a REP, most are duplicates
// of it, and the others have its QPN.
func (s *cmDialogue) peerREP(c *cmLink, r *rand.Rand) ib.REP {
	small := func(n int) *uint8 { return new(uint8(r.IntN(n))) }
	rep := ib.REP{
		LocalCommID: &c.PeerID, RemoteCommID: &c.DeviceID, QPN: &c.PeerQPN,
		StartingPSN:   new(ib.PSN([]uint32{0, 0xffffff, 0x7fffff, r.Uint32() & 0xffffff}[r.IntN(4)])),
		RespResources: small(5), InitiatorDepth: small(5), RNRRetryCount: small(8), LocalCAGUID: &c.PeerGUID,
		TargetAckDelay: new(uint8(r.IntN(16))), FlowControl: new(r.IntN(2) == 0), SRQ: new(r.IntN(2) == 0), Private: cmPrivate(r, cmREPPrivate),
	}
	if c.Reply != nil && r.IntN(3) > 0 {
		return *c.Reply
	}
	if c.Reply != nil { // a changed duplicate
		rep.QPN = c.Reply.QPN
	}
	if c.Active && c.State == model.CMRequesting {
		// The device may refuse more outstanding READs than it offered.
		rep.InitiatorDepth = new(min(*rep.InitiatorDepth, *c.req.RespResources))
		rep.RespResources = new(min(*rep.RespResources, *c.req.InitiatorDepth))
	}
	return rep
}

// peerREJ returns a REJ of the peer about the last message of the device, with a random reason.
func (s *cmDialogue) peerREJ(c *cmLink, r *rand.Rand) ib.REJ {
	reasons := []ib.Reason{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 20, 21, 22, 23, 26, 27, 28, 29, 30, 31, 32, 33, 35}
	rej := ib.REJ{
		LocalCommID: &c.PeerID, RemoteCommID: &c.DeviceID, Reason: new(reasons[r.IntN(len(reasons))]),
		About: new(model.CMAboutOther), Private: cmPrivate(r, cmREJPrivate),
	}
	switch c.State {
	case model.CMReplied:
		rej.About = new(model.CMAboutREP)
	case model.CMRequesting:
		rej.About = new(model.CMAboutREQ)
		rej.LocalCommID = new([]uint32{0, c.PeerID}[r.IntN(2)])
	case model.CMEstablished, model.CMDisconnecting: // perhaps late, and about an old copy of the REQ
		if rej.About = new(uint8(r.IntN(3))); *rej.About == model.CMAboutREQ {
			rej.LocalCommID = new([]uint32{0, c.PeerID}[r.IntN(2)])
		}
	}
	if *rej.Reason == model.CMRejectTimeout {
		rej.InfoLen, rej.Info = new(uint8(8)), binary.BigEndian.AppendUint64(nil, c.PeerGUID)
	}
	return rej
}

// settle waits for the messages in wants that are not optional, and fails the case if the device
// sends a message that is neither in wants nor a retransmission that is due.
func (s *cmDialogue) settle(wants ...cmWant) {
	open := make([]*cmWant, len(wants))
	for i := range wants {
		open[i] = &wants[i]
	}
	required := func() int { return slices.IndexFunc(open, func(w *cmWant) bool { return !w.optional }) }
	for i := required(); i >= 0; i = required() {
		a, ok := s.port.NextPacket(s.port.ResponseTimeout())
		s.port.Check(ok, fmt.Sprintf("a %v", ib.AttrOf(open[i].msg)), "nothing in %v", s.port.ResponseTimeout())
		s.receive(a, &open)
	}
	for _, a := range s.port.Drain(shortWait) {
		s.receive(a, &open)
	}
}

// receive fails the case unless a message of the device is one of the open wants, which it removes
// from the list, or a retransmission.
func (s *cmDialogue) receive(a Arrival, open *[]*cmWant) {
	mad, m, err := a.CM()
	s.port.Check(err == nil, "a message of the communication manager", "%v (%v)", a, err)
	s.checkHeaders(mad, m, a)
	for i, w := range *open {
		if ib.DiffCM(w.msg, m) == nil && (w.tid == nil || *w.tid == *mad.TID) && a.IP.Dst == w.to {
			*open = slices.Delete(slices.Clone(*open), i, i+1)
			if w.got != nil {
				w.got(mad, m, a)
			}
			return
		}
	}
	for _, c := range s.links {
		if c.out != nil && a.IP.Dst == c.peer && s.isRetransmission(c, a, m) {
			return
		}
	}
	s.failUnexpected(mad, m, a, *open)
}

// isRetransmission reports whether a packet is a retransmission on connection c, or the REJ after
// the last one. It fails the case if the retransmission is early, or the REJ has wrong fields.
func (s *cmDialogue) isRetransmission(c *cmLink, a Arrival, m ib.Message) bool {
	if rej, ok := m.(ib.REJ); ok {
		if *rej.Reason != model.CMRejectTimeout || *rej.LocalCommID != c.DeviceID || !c.timer.GivenUp(a.At) {
			return false
		}
		want := model.CMRejectGUID(&c.DeviceID, &c.PeerID, s.guid)
		if c.State == model.CMRequesting && *rej.RemoteCommID == 0 {
			want.RemoteCommID = nil // the device does not know the peer's ID
		}
		s.port.cmCheckFields(want, a, m)
		s.giveUp(c)
		return true
	}
	if !bytes.Equal(c.out, a.Payload) {
		return false
	}
	if err := c.timer.Retransmitted(a.At); err != nil {
		s.port.Fail(err.Error(), "%v", a)
	}
	return true
}

// failUnexpected fails the case, and shows how a message differs from the first of the open wants.
func (s *cmDialogue) failUnexpected(mad ib.MAD, m ib.Message, a Arrival, open []*cmWant) {
	if len(open) == 0 {
		s.port.Fail("nothing is sent", "%v", a)
	}
	w := open[0]
	d := ib.DiffCM(w.msg, m)
	if d == nil && w.tid != nil {
		packet.DiffValue(&d, "transaction ID", "%#x", w.tid, mad.TID)
	}
	packet.DiffAddr(&d, "IP destination", w.to, a.IP.Dst)
	s.port.Fail(fmt.Sprintf("a %v with %s", ib.AttrOf(w.msg), d.Want()), "%v with %s", a, d.Got())
}

// checkHeaders checks the header of a MAD, the addresses of its packet, and that reserved fields
// are 0.
func (s *cmDialogue) checkHeaders(mad ib.MAD, m ib.Message, a Arrival) {
	zero, zero32 := new(uint16(0)), new(uint32(0))
	want := ib.MAD{BaseVersion: new(uint8(1)), ClassVersion: new(uint8(2)), Status: zero, ClassSpecific: zero, Resv: zero, Modifier: zero32}
	var d packet.Differences
	packet.DiffFields(&d, "MAD ", want, mad)
	packet.DiffBytes(&d, "message with reserved fields 0", ib.CMWith(mad, m).Payload, a.Payload)
	s.port.Check(d == nil, "a MAD with "+d.Want(), "%v with %s", a, d.Got())
	s.port.checkPacket(ib.Packet{}.To(ib.GSIQPN).WithDETH(ib.GSIQKey, ib.GSIQPN).From(s.port.deviceAddr), a)
}

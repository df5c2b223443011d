package roce

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// rcConnect is a step that resets or replaces the queue pair, and connects it with these
// attributes.
type rcConnect struct {
	psn              ib.PSN
	mtu              verbs.MTU
	resources, timer uint8 // max_dest_rd_atomic and min_rnr_timer
	newQP, shared    bool  // shared: the queue pair has an SRQ
	onlyRTR          bool  // the queue pair stays in RTR
	tclass           uint8
}

// drawRCConnect returns a connection with random attributes. Most first PSNs are near 0, 2^23 or
// 2^24.
func drawRCConnect(s *rcResponder, random *rand.Rand) rcStep {
	psns := []ib.PSN{0, 1, 0x7ffffe, 0xfffff8, 0xfffffd, 0xffffff, ib.PSN(random.Uint32N(1 << 24))}
	mtus := []verbs.MTU{verbs.MTU256, verbs.MTU256, verbs.MTU256, verbs.MTU512}
	connect := rcConnect{
		psn: rig.Pick(random, psns...), mtu: rig.Pick(random, mtus...), resources: rig.Pick(random, []uint8{0, 1, 2, 3, 4, 4, 4, 5}...), timer: uint8(random.IntN(32)),
		newQP: random.IntN(2) == 0, shared: s.conn.Caps.Has(verbs.CapSRQ) && random.IntN(3) == 0, onlyRTR: random.IntN(5) == 0, tclass: rig.Pick(random, []uint8{0, 0, 0x68}...),
	}
	if s.service != ib.RC {
		connect.shared, connect.onlyRTR = false, false
	}
	return connect
}

// String describes how the queue pair is connected, for the record of a dialogue.
func (a rcConnect) String() string {
	how, state, queue := "the QP is reset and", "RTS", ""
	if a.newQP {
		how = "a new QP is"
	}
	if a.onlyRTR {
		state = "RTR"
	}
	if a.shared {
		queue = ", with an SRQ"
	}
	return fmt.Sprintf("%s moved to %s%s: rq_psn %#x, path MTU %v, max_dest_rd_atomic %d, min_rnr_timer %d, traffic class %#02x",
		how, state, queue, uint32(a.psn), a.mtu, a.resources, a.timer, a.tclass)
}

func (a rcConnect) play(s *rcResponder) { s.connect(a) }

// rcSize is a length: a number of path MTUs, and of bytes more, which may be negative.
type rcSize struct{ packets, more int }

func (z rcSize) bytes(mtu int) int { return max(0, z.packets*mtu+z.more) }

// String describes the size, for the record of a dialogue.
func (z rcSize) String() string {
	switch {
	case z.packets == 0:
		return fmt.Sprintf("%d bytes", z.more)
	case z.more == 0:
		return fmt.Sprintf("%d MTU", z.packets)
	}
	return fmt.Sprintf("%d MTU %+d bytes", z.packets, z.more)
}

// drawRCSize returns a random length, mostly of at most one packet.
func drawRCSize(random *rand.Rand) rcSize {
	small := []rcSize{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 8}, {0, 33}, {1, -1}, {1, 0}}
	large := []rcSize{{1, 1}, {1, 4}, {2, -1}, {2, 0}, {2, 1}, {3, 0}, {4, -3}, {rcMaxPacket, 0}}
	if random.IntN(3) > 0 {
		return rig.Pick(random, small...)
	}
	return rig.Pick(random, large...)
}

// rcPlace is a place in a region: an offset, or rcAtEnd.
type rcPlace int

const rcAtEnd rcPlace = -1

func drawRCPlace(random *rand.Rand) rcPlace {
	return rig.Pick(random, []rcPlace{0, rcAtEnd, rcPlace(random.IntN(4096)), rcPlace(random.IntN(4096))}...)
}

// String describes the place in a region, for the record of a dialogue.
func (p rcPlace) String() string {
	if p == rcAtEnd {
		return "at the end"
	}
	return fmt.Sprintf("at %d", int(p))
}

// in returns the offset of n bytes in a region of length size: at the end, or at the place reduced
// modulo the possible offsets.
func (p rcPlace) in(size, n int) int {
	switch free := size - n; {
	case free <= 0:
		return 0
	case p == rcAtEnd:
		return free
	default:
		return int(p) % (free + 1)
	}
}

// rcRequest is a step in which the peer sends a new request.
type rcRequest struct {
	op       ib.Opcode // an ONLY opcode, also for messages of several packets
	size     rcSize
	region   int // index among the regions that grant the operation
	at       rcPlace
	data     byte // first byte of the payload
	imm      uint32
	ackAll   bool // AckReq in every packet, else in the last
	noAck    bool // AckReq in no packet
	se       bool
	together bool // packets are sent without waiting for the device
	now      int  // number of packets that are sent in this step; all if 0
	variant  int  // index in rcVariants; none if larger
}

// drawRCRequest returns a random request that the service has and the device supports.
func drawRCRequest(s *rcResponder, random *rand.Rand) rcStep {
	ops := []ib.Opcode{
		ib.OpSendOnly, ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpWriteOnly, ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpReadRequest, ib.OpReadRequest,
	}
	if s.service == ib.UC {
		ops = ops[:6] // SENDs and WRITEs
	}
	if s.conn.Caps.Has(verbs.CapAtomics) && s.service != ib.UC {
		ops = append(ops, ib.OpCompareSwap, ib.OpFetchAdd)
	}
	if s.conn.Caps.Has(verbs.CapAtomicWrite) && s.service == ib.RC {
		ops = append(ops, ib.OpAtomicWrite)
	}
	if s.conn.Caps.Has(verbs.CapSendInv) && len(s.windows(verbs.MWType2)) > 0 {
		ops = append(ops, ib.OpSendOnlyInv, ib.OpSendOnlyInv)
	}
	q := rcRequest{
		op: rig.Pick(random, ops...), size: drawRCSize(random), region: random.IntN(8), at: drawRCPlace(random), data: byte(random.Uint32()), imm: random.Uint32(),
		ackAll: random.IntN(2) == 0, noAck: random.IntN(4) == 0, se: random.IntN(4) == 0, together: random.IntN(2) == 0, variant: random.IntN(3 * len(rcVariants)),
	}
	if random.IntN(3) == 0 {
		q.now = 1 + random.IntN(3)
	}
	return q
}

// drawRCRead returns a READ of several packets.
func drawRCRead(_ *rcResponder, random *rand.Rand) rcStep {
	return rcRequest{op: ib.OpReadRequest, size: rcSize{2 + random.IntN(rcMaxPacket-2), 1}, region: random.IntN(8), at: drawRCPlace(random), variant: len(rcVariants)}
}

// drawRCLong returns a SEND or WRITE of several packets, of which one or two are sent in this step.
func drawRCLong(s *rcResponder, random *rand.Rand) rcStep {
	q := drawRCRequest(s, random).(rcRequest)
	q.op = rig.Pick(random, []ib.Opcode{ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpWriteOnly, ib.OpWriteOnlyImm}...)
	q.size, q.now = rcSize{2 + random.IntN(rcMaxPacket-2), 1 - random.IntN(3)}, 1+random.IntN(2)
	return q
}

// drawRCAtomic returns a FETCH_ADD, whose response the device must keep for duplicates, or any
// request if the device has no atomics.
func drawRCAtomic(s *rcResponder, random *rand.Rand) rcStep {
	q := drawRCRequest(s, random).(rcRequest)
	if s.conn.Caps.Has(verbs.CapAtomics) {
		q.op = ib.OpFetchAdd
	}
	return q
}

// drawRCFlush returns a FLUSH of a random range.
func drawRCFlush(_ *rcResponder, random *rand.Rand) rcStep {
	return rcRequest{op: ib.OpFlush, size: drawRCSize(random), region: random.IntN(8), at: drawRCPlace(random), variant: len(rcVariants)}
}

// String describes the request that the scripted peer sends, for the record of a dialogue.
func (q rcRequest) String() string {
	text := fmt.Sprintf("%v of %v, data from %#02x", q.op, q.size, q.data)
	if info, _ := q.op.Info(); info.Kind != ib.KindSend {
		text += fmt.Sprintf(", region %d %v", q.region, q.at)
	}
	if q.now > 0 {
		text += fmt.Sprintf(", the first %d packets", q.now)
	}
	if q.variant < len(rcVariants) {
		text += ", " + rcVariants[q.variant].name
	}
	return text
}

// rcVariants are changes of header fields that must make no difference to the device.
var rcVariants = []struct {
	name   string
	change func(ib.Packet) ib.Packet
}{
	{"MigReq 0", func(p ib.Packet) ib.Packet { p.BTH.MigReq = new(false); return p }},
	{"reserved bits set", func(p ib.Packet) ib.Packet { return p.WithReserved(0x3f, 0x7f) }},
	{"P_Key 0x7fff", func(p ib.Packet) ib.Packet { return p.WithPKey(0x7fff) }},
	{"pad bytes set", func(p ib.Packet) ib.Packet { return p.WithPad([]byte{0xff, 0xfe, 0xfd}[:-len(p.Payload)&3]) }},
}

// play sends the request, unless a message is in progress. A UC responder drops that message.
func (q rcRequest) play(s *rcResponder) {
	if _, open := s.m.OpenKind(); open && s.service != ib.UC {
		return
	}
	packets := q.packets(s)
	now := len(packets)
	if q.now > 0 {
		now = min(now, q.now)
	}
	s.sendPart(packets, now, q.together)
}

// sendPart sends the first n packets of a message, and keeps in s.rest those that [rcContinue]
// sends.
func (s *rcResponder) sendPart(packets []ib.Packet, n int, together bool) {
	s.rest = packets[n:]
	s.send(together, packets[:n]...)
	if s.service == ib.UC {
		return
	}
	// The device may have refused the message, or answered a packet by an RNR NAK: then the peer
	// sends again from the expected PSN on.
	s.rest = nil
	if _, open := s.m.OpenKind(); open {
		s.rest = packets[max(0, slices.IndexFunc(packets, func(p ib.Packet) bool { return p.PSN() == s.m.ExpectedPSN() })):]
	}
}

// packets returns the packets of the request, from the expected PSN on.
func (q rcRequest) packets(s *rcResponder) []ib.Packet {
	n, psn := q.size.bytes(s.m.MTU), s.m.ExpectedPSN()
	info, _ := q.op.Info()
	var all []ib.Packet
	switch info.Kind {
	case ib.KindSend:
		all = ib.Send(psn, rig.Pattern(n, q.data), s.m.MTU)
	case ib.KindWrite:
		all = ib.Write(psn, q.reth(s, verbs.AccessRemoteWrite, n), rig.Pattern(n, q.data), s.m.MTU)
	default:
		all = []ib.Packet{q.single(s, psn, n)}
	}
	last := &all[len(all)-1]
	*last = q.finish(s, *last, len(all) > 1)
	for i, p := range all {
		if q.ackAll {
			p = p.AckReq()
		}
		if q.noAck {
			p = p.NoAckReq()
		}
		if q.variant < len(rcVariants) {
			p = rcVariants[q.variant].change(p)
		}
		all[i] = s.on(p, q.region)
	}
	return all
}

// finish adds SE, and immediate data or a key to invalidate, to the last packet of a message.
// several: the message has more than one packet.
func (q rcRequest) finish(s *rcResponder, p ib.Packet, several bool) ib.Packet {
	if q.se {
		p = p.SE()
	}
	op := q.op
	switch op {
	case ib.OpSendOnlyImm, ib.OpWriteOnlyImm:
		p = p.WithImm(q.imm)
		if several {
			op -= 2 // LAST with immediate data
		}
	case ib.OpSendOnlyInv:
		windows := s.windows(verbs.MWType2)
		if len(windows) == 0 {
			return p
		}
		p = p.WithIETH(windows[q.region%len(windows)].rkey)
		if several {
			op-- // LAST with invalidate
		}
	default:
		return p
	}
	return p.WithOpcode(op)
}

// single returns a request of one packet that is neither SEND nor WRITE.
func (q rcRequest) single(s *rcResponder, psn ib.PSN, n int) ib.Packet {
	switch q.op {
	case ib.OpReadRequest:
		return ib.ReadRequest(psn, q.reth(s, verbs.AccessRemoteRead, n))
	case ib.OpFlush:
		return ib.Flush(psn, ib.FlushGlobal, ib.FlushRange, q.reth(s, verbs.AccessFlushGlobal, max(1, n)))
	case ib.OpAtomicWrite:
		return ib.AtomicWrite(psn, q.word(s, verbs.AccessRemoteWrite), rig.Pattern(8, q.data))
	case ib.OpFetchAdd: // of both halves of the word
		return ib.FetchAdd(psn, q.word(s, verbs.AccessRemoteAtomic), uint64(q.imm)<<33|uint64(q.data))
	}
	at := q.word(s, verbs.AccessRemoteAtomic)
	compare := uint64(q.imm)
	if k := s.m.Keys[*at.RKey]; q.data%3 > 0 && k != nil { // in two of three, the comparison succeeds
		compare = hostWord(s.target.Bytes[k.Off+int(*at.VA-k.Addr):])
	}
	return ib.CompareSwap(psn, at, compare, uint64(q.imm)<<32|0x1234)
}

// granting returns the regions and windows of at least n bytes that grant a right.
func (s *rcResponder) granting(right verbs.Access, n int) (all []*rcRegion) {
	for _, g := range s.regions {
		if s.m.Keys[g.rkey] != nil && g.key.Access&right != 0 && g.key.Len >= n {
			all = append(all, g)
		}
	}
	return all
}

// reth returns a RETH for n bytes of a region that grants the right. Half of those for 0 bytes have
// an arbitrary address and an invalid key, which the device must not check.
func (q rcRequest) reth(s *rcResponder, right verbs.Access, n int) ib.RETH {
	all := s.granting(right, n)
	g := all[q.region%len(all)]
	if n == 0 && q.data%2 == 0 {
		return ib.At(uint64(q.imm), g.rkey^0x5500, 0)
	}
	return ib.At(g.key.Addr+uint64(q.at.in(g.key.Len, n)), g.rkey, n)
}

// word returns a RETH for an aligned word of a region that grants the right.
func (q rcRequest) word(s *rcResponder, right verbs.Access) ib.RETH {
	at := q.reth(s, right, 16)
	return ib.At((*at.VA+7)&^7, *at.RKey, 8)
}

// windows returns the bound windows of this type, without invalidated ones: some kernels crash if a
// window is invalidated twice.
func (s *rcResponder) windows(kind verbs.MWType) (all []*rcRegion) {
	for _, g := range s.regions[len(rcFixedRegions):] {
		if s.m.Keys[g.rkey] != nil && g.mw.Type() == kind {
			all = append(all, g)
		}
	}
	return all
}

// rcPipeline is a step that sends several requests without waiting for the device.
type rcPipeline []rcRequest

// drawRCPipeline returns two to five random requests.
func drawRCPipeline(s *rcResponder, random *rand.Rand) rcStep {
	var all rcPipeline
	for range 2 + random.IntN(4) {
		q := drawRCRequest(s, random).(rcRequest)
		q.now, q.together = 0, true
		all = append(all, q)
	}
	return all
}

func (l rcPipeline) String() string {
	return fmt.Sprintf("%d requests at once: %v", len(l), []rcRequest(l))
}

// play sends the requests. It stops before a request that may change memory which an earlier READ
// returns, and before a READ for which no responder resource is left.
func (l rcPipeline) play(s *rcResponder) {
	reads := 0
	for _, q := range l {
		info, _ := q.op.Info()
		if info.Kind != ib.KindSend && reads > 0 && (info.Kind != ib.KindReadRequest || reads == s.m.MaxDestRdAtomic) {
			return
		}
		if info.Kind != ib.KindSend && info.Kind != ib.KindWrite {
			reads++
		}
		q.play(s)
	}
}

// rcPipelinedFault is a step that sends a request which the device must refuse, directly after
// valid SENDs and WRITEs.
type rcPipelinedFault struct {
	before rcPipeline
	fault  rcInvalid
}

// drawRCPipelinedFault returns random SENDs and WRITEs, and a request to refuse. READs are left
// out: the device need not answer them once the queue pair has failed.
func drawRCPipelinedFault(s *rcResponder, random *rand.Rand) rcStep {
	before := slices.DeleteFunc(drawRCPipeline(s, random).(rcPipeline), func(q rcRequest) bool {
		info, _ := q.op.Info()
		return info.Kind != ib.KindSend && info.Kind != ib.KindWrite
	})
	return rcPipelinedFault{before, drawRCRefusal(s, random).(rcInvalid)}
}

func (f rcPipelinedFault) String() string { return fmt.Sprintf("%v, and then %v", f.before, f.fault) }

func (f rcPipelinedFault) play(s *rcResponder) {
	f.before.play(s)
	f.fault.play(s)
}

// rcContinue is a step that sends the next n packets of the message in progress.
type rcContinue struct {
	n        int
	together bool
}

func (k rcContinue) String() string {
	return fmt.Sprintf("the next %d packets of the message in progress", k.n)
}

// play sends the packets, unless the device expects another PSN.
func (k rcContinue) play(s *rcResponder) {
	if len(s.rest) == 0 || s.service != ib.UC && s.rest[0].PSN() != s.m.ExpectedPSN() {
		return
	}
	s.sendPart(s.rest, min(k.n, len(s.rest)), k.together)
}

// rcLoss is a step that leaves out this number of packets of the message in progress or, if there
// is none, sends a SEND after a gap of this number of PSNs.
type rcLoss int

func drawRCLoss(_ *rcResponder, random *rand.Rand) rcStep { return rcLoss(1 + random.IntN(2)) }

func (n rcLoss) String() string { return fmt.Sprintf("%d packets are lost", int(n)) }

// play loses the next n packets of the message in progress. If none is left to send, it sends a
// packet with a PSN that is n too large.
func (n rcLoss) play(s *rcResponder) {
	if lost := min(int(n), len(s.rest)); lost > 0 {
		s.rest = s.rest[lost:]
		return
	}
	s.send(false, s.on(s.packet(ib.OpSendOnly).WithPSN(s.m.ExpectedPSN().Add(int(n))), 0))
}

// rcMaxReceives is the size of receive queues.
const rcMaxReceives = 64

// rcReceive is a step that posts receives of equal size, with one or two SGEs.
type rcReceive struct {
	count int
	size  rcSize
	split int  // bytes of the first of two SGEs; 0 for one SGE
	queue int  // index of an SRQ of an XRC target
	bad   bool // the queue pair may not write the memory
}

// drawRCReceive returns one to four receives that fit the longest message.
func drawRCReceive(_ *rcResponder, random *rand.Rand) rcStep {
	r := rcReceive{count: 1 + random.IntN(4), size: rcSize{rcMaxPacket, 0}, queue: random.IntN(2)}
	if random.IntN(3) == 0 {
		r.split = 1 + random.IntN(300)
	}
	return r
}

// drawRCBadReceive returns a receive that may be too short, or that the device may not write.
func drawRCBadReceive(_ *rcResponder, random *rand.Rand) rcStep {
	if random.IntN(3) == 0 {
		return rcReceive{count: 1, size: rcSize{rcMaxPacket, 0}, bad: true}
	}
	return rcReceive{count: 1, size: drawRCSize(random), split: random.IntN(2) * 5}
}

// String describes the receives to post, for the record of a dialogue.
func (r rcReceive) String() string {
	text := fmt.Sprintf("post %d receives of %v", r.count, r.size)
	if r.split > 0 {
		text += fmt.Sprintf(", the first %d bytes apart", r.split)
	}
	if r.bad {
		text += ", with memory of another PD or without local write"
	}
	return text
}

// play posts the receives, as long as the queue has room, at changing places in LocalMem.
func (r rcReceive) play(s *rcResponder) {
	queue, number := s.receiveQueue(r.queue)
	for range r.count {
		if len(s.m.Receives[number]) >= rcMaxReceives-1 {
			return
		}
		s.ids++
		n := r.size.bytes(s.m.MTU)
		off := int(s.ids) * 1531 % (rcLocalLen - 2*n - 2*rcMargin)
		first := min(n, r.split)
		rest := off + first
		if first > 0 {
			rest += 5 // a gap between the SGEs
		}
		post := &model.RCReceive{ID: s.ids, Mem: s.local, BadKey: r.bad}
		var sgl []verbs.SGE
		for _, g := range []model.RCSegment{{Off: rcMargin + off, Len: first}, {Off: rcMargin + rest, Len: n - first}} {
			if g.Len > 0 {
				post.SGL, sgl = append(post.SGL, g), append(sgl, s.receiveSGE(g, r.bad))
			}
		}
		s.conn.PostRecv(queue, post.ID, sgl...)
		s.m.PostReceive(number, post)
	}
}

// receiveSGE returns a part of LocalMem or, if bad, memory that the queue pair may not write: of
// another PD, or of a region without local write.
func (s *rcResponder) receiveSGE(g model.RCSegment, bad bool) verbs.SGE {
	switch {
	case bad && s.ids%2 == 0:
		return verbs.SGEOf(s.foreign, 0, g.Len)
	case bad:
		return verbs.SGEOf(s.regions[2].mr, 0, g.Len) // without local write
	}
	return s.conn.LocalMem.SGE(g.Off, g.Len)
}

// rcStore is a step in which the application changes memory, so that READs return other data.
type rcStore struct {
	at   rcPlace
	data byte
}

func drawRCStore(_ *rcResponder, random *rand.Rand) rcStep {
	return rcStore{drawRCPlace(random), byte(random.Uint32())}
}

func (w rcStore) String() string { return fmt.Sprintf("the application stores 600 bytes %v", w.at) }

// play has the application write to the target memory, in the device's buffer and in the model. The
// verb calls around it copy the buffer from and to a device on another host.
func (w rcStore) play(s *rcResponder) {
	if _, open := s.m.OpenKind(); open {
		return // the device may write the bytes of the message in progress at any time
	}
	data := rig.Pattern(600, w.data)
	off := rcMargin + w.at.in(rcMemLen-2*rcMargin, len(data))
	s.conn.QueryPort()
	copy(s.conn.TargetMem.Buf[off:], data)
	s.conn.QueryPort()
	s.target.Set(off, data)
}

// rcDuplicate is a step that sends executed packets again.
type rcDuplicate struct {
	back, count int  // the first is the back-th last executed packet; count packets are sent
	tail        int  // number of responses that a duplicate READ skips
	ack         bool // AckReq
	odd         bool // other operands than the original
	together    bool // without waiting for the device
}

// drawRCDuplicate returns duplicates of up to four of the last eight packets.
func drawRCDuplicate(_ *rcResponder, random *rand.Rand) rcStep {
	d := rcDuplicate{back: 1 + random.IntN(8), count: 1 + random.IntN(4), ack: random.IntN(3) > 0, together: random.IntN(2) == 0}
	d.odd = random.IntN(5) == 0
	return d
}

// drawRCTail returns a duplicate of one of the last three packets, without the first responses if
// it is a READ.
func drawRCTail(_ *rcResponder, random *rand.Rand) rcStep {
	return rcDuplicate{back: 1 + random.IntN(3), count: 1, tail: 1 + random.IntN(rcMaxPacket), odd: random.IntN(8) == 0}
}

// String describes the duplicates, for the record of a dialogue.
func (d rcDuplicate) String() string {
	text := fmt.Sprintf("%d duplicates, from the %d. last packet on", d.count, d.back)
	if d.tail > 0 {
		text += fmt.Sprintf(", READs without their first %d responses", d.tail)
	}
	if d.odd {
		text += ", with other operands"
	}
	return text
}

// play sends duplicates of packets that the scripted peer has sent before.
func (d rcDuplicate) play(s *rcResponder) {
	from := max(0, len(s.log)-d.back)
	var again []ib.Packet
	for _, p := range s.log[from:min(len(s.log), from+d.count)] {
		again = append(again, d.again(s, p))
	}
	s.send(d.together, again...)
}

// again returns the duplicate of a packet. With odd, a READ is a byte longer, an atomic has another
// operand, and other requests have another payload.
func (d rcDuplicate) again(s *rcResponder, p ib.Packet) ib.Packet {
	p.BTH.AckReq = new(d.ack)
	switch op := p.Opcode(); {
	case op.Operation() == ib.OpReadRequest && *p.RETH.Len > 0:
		skip := min(d.tail, ib.Packets(int(*p.RETH.Len), s.m.MTU)-1)
		p = p.WithRETH(p.RETH.Skip(skip * s.m.MTU)).WithPSN(p.PSN().Add(skip))
		if d.odd {
			p = p.WithRETH(p.RETH.Sized(int(*p.RETH.Len) + 1))
		}
	case d.odd && p.AtomicETH != nil:
		h := *p.AtomicETH
		h.SwapAdd = new(*h.SwapAdd + 1)
		p.AtomicETH = &h
	case d.odd && len(p.Payload) > 0:
		p = p.WithPayload(rig.Pattern(len(p.Payload), p.Payload[0]+7))
	}
	return p
}

// rcEarly is a step that sends a request with a PSN ahead of the expected one or, if ahead is
// negative, far before it.
type rcEarly struct {
	ahead   int
	op      ib.Opcode
	between rcStep // if set, the request is sent again after this step
}

// drawRCEarly returns a request some PSNs ahead, or near half of all PSNs away.
func drawRCEarly(s *rcResponder, random *rand.Rand) rcStep {
	aheads := []int{1, 1, 2, 3, 7, 1 << 12, halfPSNs - 1, -halfPSNs, 1 - halfPSNs, -halfPSNs / 2}
	ops := []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpSendMiddle, ib.OpSendFirst, ib.OpWriteLast, ib.OpReadRequest, ib.OpSendOnlyImm, ib.OpWriteOnlyImm}
	e := rcEarly{ahead: rig.Pick(random, aheads...), op: rig.Pick(random, ops...)}
	if s.service != ib.UC && random.IntN(2) == 0 {
		e.between = drawRCDuplicate(s, random)
	}
	return e
}

// String describes the packet after a gap, for the record of a dialogue.
func (e rcEarly) String() string {
	text := fmt.Sprintf("%v %d PSNs after the expected one", e.op, e.ahead)
	if e.between != nil {
		text += fmt.Sprintf(", twice, and in between %v", e.between)
	}
	return text
}

// play sends a packet whose PSN is ahead of the expected one. If e.between is set, it plays that
// step, and then sends such a packet again.
func (e rcEarly) play(s *rcResponder) {
	s.send(false, s.on(s.packet(e.op).WithPSN(s.m.ExpectedPSN().Add(e.ahead)).AckReq(), e.ahead&1))
	if e.between != nil {
		e.between.play(s)
		rcEarly{ahead: e.ahead, op: e.op}.play(s)
	}
}

// packet returns a request packet with this opcode and the expected PSN: full if it is FIRST or
// MIDDLE, else of 16 bytes.
func (s *rcResponder) packet(op ib.Opcode) ib.Packet {
	info, _ := op.Info()
	p := ib.Op(op).WithPSN(s.m.ExpectedPSN()).AckReq()
	n := 16
	switch info.Payload {
	case ib.PayloadFull:
		n = s.m.MTU
		p = p.WithPayload(rig.Pattern(n, 0x31))
	case ib.PayloadSome, ib.PayloadAny:
		p = p.WithPayload(rig.Pattern(n, 0x32))
	}
	g := s.regions[0]
	switch {
	case info.Kind == ib.KindAtomic:
		at := rcRequest{}.word(s, verbs.AccessRemoteAtomic)
		p.AtomicETH = &ib.AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: new(uint64(1)), Compare: new(uint64(0))}
	case info.Has(ib.HdrRETH) && info.Position == ib.First:
		p = p.WithRETH(ib.At(g.key.Addr, g.rkey, 3*n))
	case info.Has(ib.HdrRETH):
		p = p.WithRETH(ib.At(g.key.Addr, g.rkey, n))
	}
	if info.Has(ib.HdrImmDt) {
		p = p.WithImm(0xa1b2c3d4)
	}
	return p
}

// rcDropped is a step that sends one of rcDroppedPackets.
type rcDropped struct{ which int }

// rcDroppedPackets are packets that the device must drop without a response.
var rcDroppedPackets = []struct {
	name   string
	packet func(*rcResponder) ib.Packet
}{
	{"a SEND with a wrong ICRC", func(s *rcResponder) ib.Packet { return s.packet(ib.OpSendOnly).BadICRC() }},
	{"a WRITE with a wrong ICRC", func(s *rcResponder) ib.Packet { return s.packet(ib.OpWriteOnly).BadICRC() }},
	{"a READ with a wrong ICRC", func(s *rcResponder) ib.Packet { return s.packet(ib.OpReadRequest).BadICRC() }},
	{"a WRITE after a gap with a wrong ICRC", func(s *rcResponder) ib.Packet {
		return s.packet(ib.OpWriteOnly).WithPSN(s.m.ExpectedPSN().Add(2)).BadICRC()
	}},
	{"a WRITE with transport version 1", func(s *rcResponder) ib.Packet { return s.packet(ib.OpWriteOnly).WithTVer(1) }},
	{"a SEND with a wrong P_Key", func(s *rcResponder) ib.Packet { return s.packet(ib.OpSendOnly).WithPKey(0x1234) }},
	{"a WRITE to a QP that does not exist", func(s *rcResponder) ib.Packet { return s.packet(ib.OpWriteOnly).To(uint32(s.conn.QP.QPN()) ^ 0x700000) }},
	{"a SEND of UC", func(s *rcResponder) ib.Packet { return s.packet(ib.OpSendOnly).On(ib.UC) }},
	{"a WRITE of UC", func(s *rcResponder) ib.Packet { return s.packet(ib.OpWriteOnly).On(ib.UC) }},
	{"a SEND without payload, with PadCnt 3", func(s *rcResponder) ib.Packet {
		return ib.SendOnly(s.m.ExpectedPSN(), nil).WithPadCnt(3).AckReq()
	}},
	{"an ACK, without an outstanding request", func(s *rcResponder) ib.Packet { return ib.Ack(firstDevicePSN-1, 7) }},
	{"a NAK, without an outstanding request", func(s *rcResponder) ib.Packet { return ib.Nak(firstDevicePSN, ib.NakRemoteAccess, 7) }},
	{"a READ response, without an outstanding request", func(s *rcResponder) ib.Packet {
		return ib.ReadResponseOnly(firstDevicePSN, 7, rig.Pattern(16, 1))
	}},
	{"a WRITE with a truncated RETH", func(s *rcResponder) ib.Packet { return s.packet(ib.OpWriteOnly).WithBody(make([]byte, 8)) }},
}

func drawRCDropped(_ *rcResponder, random *rand.Rand) rcStep {
	return rcDropped{random.IntN(len(rcDroppedPackets))}
}

func (d rcDropped) String() string { return rcDroppedPackets[d.which].name }

func (d rcDropped) play(s *rcResponder) { s.conn.Send(rcDroppedPackets[d.which].packet(s)) }

package model

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// UDPort is the model of the UD queue pairs of a port.
type UDPort struct {
	Addrs []netip.Addr // of the port
	QPs   []*UDQueuePair
	// Mem is the content of the memory that receives refer to, and Undefined the parts of it that
	// the device may have changed in any way.
	Mem       []byte
	Undefined []UDSpan
	// HeadersUnseen: the IP headers that the device receives are not known. The room for a GRH is
	// then undefined.
	HeadersUnseen bool
	// QKeyViolations and BadPKeys are the limits of the port's counts of datagrams with a wrong key.
	QKeyViolations, BadPKeys UDCount
}

// UDCount are the limits of a count.
type UDCount struct{ Min, Max uint32 }

// add adds an event, which the device may count or, if required is set, must count.
func (c *UDCount) add(required bool) {
	c.Max++
	if required {
		c.Min++
	}
}

// UDSpan is a part of a memory.
type UDSpan struct{ Off, Len int }

// UDQueuePair is the model of a UD queue pair. It receives from RTR on, except in ERR.
type UDQueuePair struct {
	QPN  verbs.QPN
	QKey uint32
	// PKey is the entry of the P_Key table at PKeyIndex.
	PKey      uint16
	PKeyIndex uint16
	State     verbs.QPState
	Receives  []UDReceive
	Groups    map[netip.Addr]bool
	// PSN is that of the next datagram. The device may have used up to PSNSlack more, for requests
	// that sent nothing.
	PSN      ib.PSN
	PSNSlack int
}

// UDReceive is a posted receive, with its parts of the memory.
type UDReceive struct {
	ID     uint64
	Pieces []UDSpan
}

// Len returns the length of the receive.
func (r UDReceive) Len() (n int) {
	for _, s := range r.Pieces {
		n += s.Len
	}
	return n
}

// Receive returns the completions of receives that an IP packet causes; none if the device must drop
// the packet. The completions of different queue pairs may come in any order.
func (p *UDPort) Receive(raw []byte) (all []verbs.WC) {
	pkt, err := ib.Parse(raw)
	if err != nil || pkt.CheckICRC() != nil || *pkt.BTH.TVer != 0 || pkt.DETH == nil || pkt.Opcode().Transport() != ib.UD {
		return nil
	}
	group := pkt.IP.Dst.IsMulticast()
	if group != (pkt.DestQP() == uint32(verbs.MulticastQPN)) || !group && !slices.Contains(p.Addrs, pkt.IP.Dst) {
		return nil
	}
	for _, q := range p.QPs {
		if (group && q.Groups[pkt.IP.Dst] || uint32(q.QPN) == pkt.DestQP()) && p.admits(q, pkt) {
			all = append(all, p.deliver(q, pkt)...)
		}
	}
	return all
}

// admits reports whether the state and the keys of a queue pair let it receive a datagram. It
// counts wrong keys. The device need not count those of a multicast datagram, or in another state.
func (p *UDPort) admits(q *UDQueuePair, pkt ib.Packet) bool {
	receives := slices.Contains([]verbs.QPState{verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateSQE}, q.State)
	counted := receives && !pkt.IP.Dst.IsMulticast()
	if !PKeysMatch(q.PKey, *pkt.BTH.PKey) {
		p.BadPKeys.add(counted)
		return false
	}
	if *pkt.DETH.QKey != q.QKey {
		p.QKeyViolations.add(counted)
		return false
	}
	return receives
}

// PKeysMatch reports whether two P_Keys are of one partition, with a full member among them.
func PKeysMatch(a, b uint16) bool {
	const membership = 0x8000
	return a&^membership == b&^membership && a&^membership != 0 && (a|b)&membership != 0
}

// deliver places a datagram in the first receive of the queue pair. A datagram that does not fit
// leaves the receive posted, and its memory undefined.
func (p *UDPort) deliver(q *UDQueuePair, pkt ib.Packet) []verbs.WC {
	if len(q.Receives) == 0 {
		return nil
	}
	r := q.Receives[0]
	if ib.GRHLen+len(pkt.Payload) > r.Len() {
		p.Undefined = append(p.Undefined, r.Pieces...)
		return nil
	}
	q.Receives = q.Receives[1:]
	p.place(r, pkt)
	wc := verbs.WC{
		WRID: r.ID, Opcode: verbs.WCOpRecv, ByteLen: uint32(ib.GRHLen + len(pkt.Payload)),
		QPN: q.QPN, SrcQP: verbs.QPN(*pkt.DETH.SrcQP), Flags: verbs.WCWithGRH,
	}
	if pkt.Imm != nil {
		wc.Flags |= verbs.WCWithImm
		wc.Imm = *pkt.Imm.Data
	}
	return []verbs.WC{wc}
}

// place writes the IP header and the payload to the memory of a receive. An IPv6 header fills the
// room for the GRH; the 20 bytes before an IPv4 header are undefined, and all of the room if the
// headers are not known (HeadersUnseen).
func (p *UDPort) place(r UDReceive, pkt ib.Packet) {
	const ipv4Header = 20
	area, undefined := pkt.Raw()[:ib.GRHLen], 0
	if !pkt.IP.Is6() {
		area, undefined = append(make([]byte, ib.GRHLen-ipv4Header), pkt.Raw()[:ipv4Header]...), ib.GRHLen-ipv4Header
	}
	if p.HeadersUnseen {
		undefined = ib.GRHLen
	}
	data := slices.Concat(area, pkt.Payload)
	at := 0
	for _, s := range r.Pieces {
		n := copy(p.Mem[s.Off:][:s.Len], data[at:])
		if k := min(n, undefined-at); k > 0 { // the first k bytes are undefined
			p.Undefined = append(p.Undefined, UDSpan{s.Off, k})
		}
		at += n
	}
}

// Flush returns the completions of the receives of a queue pair that goes to ERR.
func (q *UDQueuePair) Flush() (all []verbs.WC) {
	for _, r := range q.Receives {
		all = append(all, verbs.WC{WRID: r.ID, Status: verbs.WCWRFlushErr, QPN: q.QPN})
	}
	q.Receives, q.State = nil, verbs.QPStateErr
	return all
}

// UDRequest is a datagram that the application sends.
type UDRequest struct {
	WR      verbs.SendWR
	Payload []byte
	Source  netip.Addr // of the GID that the address handle chooses
	Path    verbs.AHAttr
}

// Send returns the packet of a request. It has the queue pair's next PSN, which Send advances.
func (q *UDQueuePair) Send(r UDRequest) ib.Packet {
	const privileged = 1 << 31 // a Q_Key with this bit selects that of the queue pair
	qkey := r.WR.UD.QKey
	if qkey&privileged != 0 {
		qkey = q.QKey
	}
	pkt := ib.Datagram(q.PSN, qkey, uint32(q.QPN), slices.Concat([]byte{}, r.Payload)).To(uint32(r.WR.UD.QPN)).Via(r.Source, r.Path.GRH.DGID.Addr())
	if r.WR.Opcode == verbs.OpSendImm {
		pkt = pkt.WithOpcode(ib.OpUDSendOnlyImm).WithImm(r.WR.Imm)
	}
	pkt.BTH.SE = new(r.WR.Flags&verbs.SendSolicited != 0)
	pkt.IP.HopLimit, pkt.UDP = new(r.Path.GRH.HopLimit), packet.UDP{DstPort: new(uint16(ib.Port))}
	q.PSN = q.PSN.Add(1)
	return pkt.NoAckReq().WithPKey(q.PKey)
}

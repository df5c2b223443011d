package carrier

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/verbs"
)

// modelFabric is the NICs of a machine and their network, as a model. It moves nothing by itself: each
// datagram, request and acknowledgement is a step.
type modelFabric struct {
	explore.Network // of datagrams
	nics            []*modelNIC
	breaks          int // connections that may still break
}

func newModelFabric(nics, faults, breaks int) *modelFabric {
	f := &modelFabric{Network: explore.Network{Faults: faults}, breaks: breaks}
	for number := range nics {
		f.nics = append(f.nics, &modelNIC{fabric: f, number: number, memory: make(map[uint32]verbs.MRInit)})
	}
	return f
}

// modelNIC is a NIC with RC and UD queue pairs, and shared receive queues.
type modelNIC struct {
	verbs.Context // of which methods that are not called are nil
	fabric        *modelFabric
	number        int
	dead          bool
	qps           []*modelQP // QPN n at n-1; nil if it was closed
	completions   []verbs.WC
	memory        map[uint32]verbs.MRInit // by key
	lastKey       uint32
	objects       int // not closed
}

// gid is the GID of the NIC, whose last byte is its number.
func (n *modelNIC) gid() verbs.GID { return verbs.GID{0: 0xfd, 15: byte(n.number)} }

func (*modelNIC) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: "model", Transport: verbs.TransportIB}
}

func (*modelNIC) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{
		Caps: verbs.CapRC | verbs.CapUD | verbs.CapSRQ | verbs.CapResizeCQ, MaxCQE: 1 << 20, MaxSRQWR: 1 << 10,
		MaxQPRdAtomic: 4, MaxQPInitAtomic: 4,
	}, nil
}

// modelMTU makes messages of a packet and a half headerless.
const modelMTU = verbs.MTU256

func (*modelNIC) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{State: verbs.PortActive, ActiveMTU: modelMTU}, nil
}

func (n *modelNIC) QueryGID(uint8, int) (verbs.GIDEntry, error) {
	return verbs.GIDEntry{GID: n.gid()}, nil
}

// modelObject is an object of a NIC that must be closed once.
type modelObject struct {
	nic    *modelNIC
	closed bool
}

func (n *modelNIC) object() modelObject {
	n.objects++
	return modelObject{nic: n}
}

func (o *modelObject) Close() error {
	if o.closed {
		return verbs.ErrClosed
	}
	o.closed = true
	o.nic.objects--
	return nil
}

type modelPD struct{ modelObject }

func (n *modelNIC) AllocPD() (verbs.PD, error) { return &modelPD{n.object()}, nil }

func (*modelPD) AllocMW(verbs.MWType) (verbs.MW, error) { return nil, verbs.ErrNotSupported }

type modelAH struct {
	modelObject
	attr verbs.AHAttr
}

func (p *modelPD) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	return &modelAH{p.nic.object(), a}, nil
}

func (a *modelAH) Attr() verbs.AHAttr { return a.attr }

type modelMR struct {
	modelObject
	init verbs.MRInit
	key  uint32
}

func (p *modelPD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	n := p.nic
	n.lastKey++
	n.memory[n.lastKey] = init
	return &modelMR{n.object(), init, n.lastKey}, nil
}

func (r *modelMR) LKey() verbs.LKey { return verbs.LKey(r.key) }
func (r *modelMR) RKey() verbs.RKey { return verbs.RKey(r.key) }
func (r *modelMR) Addr() uint64     { return r.init.Addr }
func (r *modelMR) Len() int         { return len(r.init.Buf) }

func (r *modelMR) Close() error {
	delete(r.nic.memory, r.key)
	return r.modelObject.Close()
}

// at returns registered memory.
func (n *modelNIC) at(key uint32, addr uint64, length int) []byte {
	r, ok := n.memory[key]
	if !ok || addr < r.Addr || addr-r.Addr+uint64(length) > uint64(len(r.Buf)) {
		panic(fmt.Sprintf("NIC %d: %d bytes at %#x are not registered with key %d", n.number, length, addr, key))
	}
	return r.Buf[addr-r.Addr:][:length]
}

type modelChannel struct{ modelObject }

func (n *modelNIC) CreateCompChannel() (verbs.CompChannel, error) {
	return &modelChannel{n.object()}, nil
}

func (*modelChannel) Wait(time.Duration) (verbs.CQ, error) { return nil, verbs.ErrTimeout }

type modelCQ struct {
	modelObject
	depth int
}

func (n *modelNIC) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	return &modelCQ{n.object(), init.Depth}, nil
}

func (q *modelCQ) Poll(into []verbs.WC) (int, error) {
	n := copy(into, q.nic.completions)
	q.nic.completions = slices.Delete(q.nic.completions, 0, n)
	return n, nil
}

func (*modelCQ) ReqNotify(bool) error     { return nil }
func (q *modelCQ) Depth() int             { return q.depth }
func (q *modelCQ) Resize(depth int) error { q.depth = depth; return nil }

// modelSRQ is a shared receive queue; queue pairs without one have a queue of their own.
type modelSRQ struct {
	verbs.SRQ
	modelObject
	posted []verbs.RecvWR
}

func (n *modelNIC) CreateSRQ(verbs.SRQInit) (verbs.SRQ, error) {
	return &modelSRQ{modelObject: n.object()}, nil
}

func (s *modelSRQ) Close() error { return s.modelObject.Close() }

func (s *modelSRQ) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		wr.SGL = slices.Clone(wr.SGL)
		s.posted = append(s.posted, wr)
	}
	return len(wrs), nil
}

// modelQP is a queue pair.
type modelQP struct {
	verbs.QP
	modelObject
	init     verbs.QPInit
	qpn      verbs.QPN
	state    verbs.QPState
	dest     int // number of the NIC
	destQPN  verbs.QPN
	broken   bool      // nothing reaches the other end
	receives *modelSRQ // its own, or shared
	requests []modelRequest
}

// modelRequest is a request that has not completed.
type modelRequest struct {
	verbs.SendWR
	executed bool // by the peer, whose acknowledgement is under way
}

func (n *modelNIC) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	q := &modelQP{modelObject: n.object(), init: init, qpn: verbs.QPN(len(n.qps) + 1), receives: new(modelSRQ)}
	if srq, ok := init.SRQ.(*modelSRQ); ok {
		q.receives = srq
	}
	n.qps = append(n.qps, q)
	return q, nil
}

func (q *modelQP) QPN() verbs.QPN { return q.qpn }

func (q *modelQP) Close() error {
	q.nic.qps[q.qpn-1] = nil
	return q.modelObject.Close()
}

func (q *modelQP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	if q.closed {
		return verbs.ErrClosed
	}
	q.state = attr.State
	if mask&verbs.QPAttrDestQPN != 0 {
		q.dest, q.destQPN = int(attr.AH.GRH.DGID[15]), attr.DestQPN
	}
	if q.state == verbs.QPStateErr {
		q.flush()
	}
	return nil
}

// flush completes all requests and, without SRQ, receives in the error state.
func (q *modelQP) flush() {
	for _, r := range q.requests {
		q.complete(verbs.WC{WRID: r.WRID, Status: verbs.WCWRFlushErr})
	}
	q.requests = nil
	if q.init.SRQ == nil {
		for _, wr := range q.receives.posted {
			q.complete(verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr, Opcode: verbs.WCOpRecv})
		}
		q.receives.posted = nil
	}
}

func (q *modelQP) complete(wc verbs.WC) {
	wc.QPN = q.qpn
	q.nic.completions = append(q.nic.completions, wc)
}

func (q *modelQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.receives.PostRecv(wrs)
	if q.state == verbs.QPStateErr {
		q.flush()
	}
	return n, err
}

func (q *modelQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i, wr := range wrs {
		switch {
		case q.state != verbs.QPStateRTS && q.state != verbs.QPStateErr:
			return i, verbs.ErrInvalid
		case len(q.requests) == q.init.Caps.MaxSendWR:
			panic("the send queue overflows")
		case q.init.Type == verbs.QPTypeUD:
			to := int(wr.UD.AH.Attr().GRH.DGID[15])
			q.nic.fabric.Send(q.nic.number, to, q.gather(&wr))
			q.complete(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCOpSend})
			continue
		}
		wr.SGL = slices.Clone(wr.SGL)
		q.requests = append(q.requests, modelRequest{SendWR: wr})
		if q.state == verbs.QPStateErr {
			q.flush()
		}
	}
	return len(wrs), nil
}

// gather returns the payload of a request, as it is in memory now.
func (q *modelQP) gather(wr *verbs.SendWR) (b []byte) {
	for _, s := range wr.SGL {
		b = append(b, q.nic.at(uint32(s.LKey), s.Addr, int(s.Length))...)
	}
	return b
}

// peer returns the queue pair at the other end; nil if it is gone.
func (q *modelQP) peer() *modelQP {
	nic := q.nic.fabric.nics[q.dest]
	if q.broken || nic.dead || int(q.destQPN) > len(nic.qps) || q.destQPN == 0 {
		return nil
	}
	p := nic.qps[q.destQPN-1]
	if p == nil || p.state == verbs.QPStateErr || p.state > verbs.QPStateInit && (p.dest != q.nic.number || p.destQPN != q.qpn) {
		return nil
	}
	return p
}

// nextRequest returns the request of a queue pair that the peer executes next; nil if there is none.
func (q *modelQP) nextRequest() *modelRequest {
	for i := range q.requests {
		if r := &q.requests[i]; !r.executed {
			return r
		}
	}
	return nil
}

// The kinds of the steps of connections. A is the NIC, B the QPN.
const (
	executeStep     = "execute"     // the peer executes the next request
	acknowledgeStep = "acknowledge" // the NIC completes the first request
	retryStep       = "retries-exceeded"
	loseAckStep     = "lose-acknowledgement"
	breakStep       = "break"
)

// enabled appends the steps of the connections.
func (f *modelFabric) enabled(into []explore.Step) []explore.Step {
	for number, nic := range f.nics {
		for _, q := range nic.qps {
			if q == nil || q.state != verbs.QPStateRTS {
				continue
			}
			add := func(kind string) {
				into = append(into, explore.Step{Kind: kind, A: int32(number), B: int32(q.qpn)})
			}
			peer, next := q.peer(), q.nextRequest()
			if f.breaks > 0 && peer != nil && q.init.Type == verbs.QPTypeRC && number < peer.nic.number {
				add(breakStep)
			}
			if len(q.requests) == 0 {
				continue
			}
			if next != nil && peer != nil && peer.state >= verbs.QPStateRTR && (!takesReceive(next) || len(peer.receives.posted) > 0) {
				add(executeStep)
			}
			switch executed := q.requests[0].executed; {
			case executed:
				add(acknowledgeStep)
				if peer == nil && (f.Faults > 0 || q.broken) {
					add(loseAckStep)
				}
			case peer == nil:
				add(retryStep)
			}
		}
	}
	return into
}

func takesReceive(r *modelRequest) bool {
	return r.Opcode == verbs.OpSend || r.Opcode == verbs.OpSendImm
}

// take takes a step of a connection.
func (f *modelFabric) take(s explore.Step) {
	q := f.nics[s.A].qps[s.B-1]
	switch s.Kind {
	case breakStep:
		f.breaks--
		q.peer().broken, q.broken = true, true
	case executeStep:
		q.execute(q.nextRequest())
	case acknowledgeStep:
		r := q.requests[0]
		q.requests = q.requests[1:]
		if r.Flags&verbs.SendSignaled != 0 {
			q.complete(verbs.WC{WRID: r.WRID})
		}
	case loseAckStep, retryStep:
		if s.Kind == loseAckStep && !q.broken {
			f.Faults--
		}
		q.complete(verbs.WC{WRID: q.requests[0].WRID, Status: verbs.WCRetryExcErr})
		q.requests = q.requests[1:]
		q.state = verbs.QPStateErr
		q.flush()
	}
}

// execute executes a request at the peer.
func (q *modelQP) execute(r *modelRequest) {
	p := q.peer()
	r.executed = true
	switch r.Opcode {
	case verbs.OpRDMAWrite:
		b := q.gather(&r.SendWR)
		copy(p.nic.at(uint32(r.Remote.RKey), r.Remote.Addr, len(b)), b)
	case verbs.OpRDMARead:
		to := r.SGL[0]
		copy(q.nic.at(uint32(to.LKey), to.Addr, int(to.Length)), p.nic.at(uint32(r.Remote.RKey), r.Remote.Addr, int(to.Length)))
	default:
		wc := verbs.WC{Opcode: verbs.WCOpRecv}
		if r.Opcode == verbs.OpSendImm {
			wc.Flags, wc.Imm = verbs.WCWithImm, r.Imm
		}
		p.receive(q.gather(&r.SendWR), wc)
	}
}

// receive puts a message into the next receive.
func (q *modelQP) receive(b []byte, wc verbs.WC) {
	wr := q.receives.posted[0]
	q.receives.posted = q.receives.posted[1:]
	copy(q.nic.at(uint32(wr.SGL[0].LKey), wr.SGL[0].Addr, int(wr.SGL[0].Length)), b)
	wc.WRID, wc.ByteLen = wr.WRID, uint32(len(b))
	q.complete(wc)
}

// arrived receives a datagram, which is lost if no receive is posted.
func (f *modelFabric) arrived(p *explore.Packet) {
	if nic := f.nics[p.To]; !nic.dead && len(nic.qps[0].receives.posted) > 0 {
		nic.qps[0].receive(append(make([]byte, verbs.GRHLen), p.Bytes...), verbs.WC{Opcode: verbs.WCOpRecv, Flags: verbs.WCWithGRH})
	}
}

// kill kills a NIC.
func (n *modelNIC) kill() { n.dead, n.qps, n.completions = true, nil, nil }

// endpoints encodes the endpoints of all ranks, as transport.ExchangeEndpoints sends them.
func (f *modelFabric) endpoints() (b []byte) {
	for _, n := range f.nics {
		gid := n.gid()
		b = append(b, gid[:]...)
		b = binary.LittleEndian.AppendUint32(b, 1) // the QPN of datagrams
		b = append(b, 0, 0, 0, 0, byte(modelMTU))  // no connection manager, no multicast
	}
	return b
}

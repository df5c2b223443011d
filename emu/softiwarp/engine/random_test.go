package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Two NICs do random work against a model that does it in the order of posting:
// every request completes once, in that order, and finds and leaves what the
// model says.

const (
	depthWR  = 16      // requests and receives at a time
	slotLen  = 4 << 10 // of a message
	areaLen  = 16 << 10
	atomics  = 8 // words
	messages = 300
)

// party is one side with what the model knows of it.
type party struct {
	*host
	rnd  *rand.Rand
	peer *party

	local, target, words, landing, inbox *nic.Region
	localMem, targetMem, wordMem         nic.Bytes
	landingMem, inboxMem                 nic.Bytes

	// What the peer's requests have made of this side's memory, by the model.
	target0 []byte
	words0  [atomics]uint64

	pending []expect // posted, in order
	posted  uint64
	recvs   uint64   // receives posted
	credit  int      // receives that nobody has spoken for
	coming  []expect // messages of the peer, in order
	got     uint64
	reads   bool // a read is out since the last fence
	local0  int  // where in local the next payload goes
}

// expect is what a completion has to show.
type expect struct {
	id   uint64
	op   verbs.WCOpcode
	data []byte // of a message or what a read finds
	slot int
	imm  uint32
	with bool // immediate data
	se   bool
}

func newParty(t testing.TB, rnd *rand.Rand, opts ...hostOption) *party {
	opts = append(opts, func(_ *Config, q *QPConfig) {
		q.Caps = verbs.QPCaps{MaxSendWR: depthWR, MaxRecvWR: depthWR, MaxSendSGE: 3, MaxRecvSGE: 2, MaxInline: 128}
	})
	p := &party{host: newHost(t, opts...), rnd: rnd}
	p.local, p.localMem = p.region(4*depthWR*slotLen, allAccess)
	p.target, p.targetMem = p.region(areaLen, allAccess)
	p.words, p.wordMem = p.region(8*atomics, allAccess)
	p.landing, p.landingMem = p.region(depthWR*slotLen, allAccess)
	p.inbox, p.inboxMem = p.region(depthWR*slotLen, allAccess)
	p.target0 = make([]byte, areaLen)
	return p
}

// receive posts a receive, in two pieces.
func (p *party) receive() {
	slot := int(p.recvs % depthWR)
	cut := p.rnd.IntN(slotLen)
	p.recv(p.recvs, sge(p.inbox, slot*slotLen, cut), sge(p.inbox, slot*slotLen+cut, slotLen-cut))
	p.recvs++
	p.credit++
}

// payload makes up n octets in memory of this side, in up to three pieces.
func (p *party) payload(n int) ([]byte, []verbs.SGE) {
	if p.local0+n > len(p.localMem) {
		p.local0 = 0
	}
	at := p.local0
	p.local0 += n
	data := p.localMem[at : at+n]
	for i := range data {
		data[i] = byte(p.rnd.Uint32())
	}
	var sgl []verbs.SGE
	for k := 0; k < 2 && n > 0; k++ {
		part := p.rnd.IntN(n + 1)
		sgl = append(sgl, sge(p.local, at, part))
		at, n = at+part, n-part
	}
	return bytes.Clone(data), append(sgl, sge(p.local, at, n))
}

// post posts one request, if there is room, and tells the model.
func (p *party) post() {
	if len(p.pending) == depthWR || p.posted == messages {
		return
	}
	wr := verbs.SendWR{WRID: p.posted}
	e := expect{id: p.posted, slot: int(p.posted % depthWR)}
	switch kind := p.rnd.IntN(8); {
	case kind < 2 && p.peer.credit > 0:
		p.postSend(&wr, &e)
	case kind == 2 && p.peer.credit > 0:
		p.postImmediate(&wr, &e)
	case kind < 5:
		p.postWrite(&wr, &e)
	case kind < 7:
		p.postRead(&wr, &e)
	default:
		p.postAtomic(&wr, &e)
	}
	if p.rnd.IntN(8) == 0 {
		wr.Flags |= verbs.SendFence
	}
	if wr.Flags&verbs.SendFence != 0 {
		p.reads = wr.Opcode == verbs.OpRDMARead
	}
	p.send(wr)
	p.pending = append(p.pending, e)
	p.posted++
}

func (p *party) postSend(wr *verbs.SendWR, e *expect) {
	p.peer.credit--
	m := expect{op: verbs.WCOpRecv, se: p.rnd.IntN(2) == 0}
	wr.Opcode, e.op = verbs.OpSend, verbs.WCOpSend
	if m.se {
		wr.Flags |= verbs.SendSolicited
	}
	if p.rnd.IntN(3) == 0 {
		m.data = make([]byte, p.rnd.IntN(129))
		for i := range m.data {
			m.data[i] = byte(p.rnd.Uint32())
		}
		wr.Flags |= verbs.SendInline
		wr.Inline = bytes.Clone(m.data)
	} else {
		m.data, wr.SGL = p.payload(p.rnd.IntN(slotLen + 1))
	}
	p.peer.coming = append(p.peer.coming, m)
}

func (p *party) postImmediate(wr *verbs.SendWR, e *expect) {
	p.peer.credit--
	wr.Imm = p.rnd.Uint32()
	m := expect{op: verbs.WCOpRecvRDMAWithImm, imm: wr.Imm, with: true}
	p.postWrite(wr, e)
	wr.Opcode = verbs.OpRDMAWriteImm
	n := 0
	for _, s := range wr.SGL {
		n += int(s.Length)
	}
	m.slot = n
	p.peer.coming = append(p.peer.coming, m)
}

func (p *party) postWrite(wr *verbs.SendWR, e *expect) {
	n := p.rnd.IntN(slotLen)
	at := p.rnd.IntN(areaLen - n)
	var data []byte
	data, wr.SGL = p.payload(n)
	copy(p.peer.target0[at:], data)
	wr.Opcode, e.op = verbs.OpRDMAWrite, verbs.WCOpRDMAWrite
	wr.Remote = verbs.Remote{Addr: p.peer.target.Addr + uint64(at), RKey: verbs.RKey(p.peer.target.Key)}
	if p.reads {
		wr.Flags |= verbs.SendFence // a read that is out may find either
	}
}

func (p *party) postRead(wr *verbs.SendWR, e *expect) {
	n := p.rnd.IntN(slotLen + 1)
	at := p.rnd.IntN(areaLen - n)
	cut := p.rnd.IntN(n + 1)
	e.op, e.data = verbs.WCOpRDMARead, bytes.Clone(p.peer.target0[at:at+n])
	wr.Opcode = verbs.OpRDMARead
	wr.SGL = []verbs.SGE{sge(p.landing, e.slot*slotLen, cut), sge(p.landing, e.slot*slotLen+cut, n-cut)}
	wr.Remote = verbs.Remote{Addr: p.peer.target.Addr + uint64(at), RKey: verbs.RKey(p.peer.target.Key)}
	p.reads = true
}

func (p *party) postAtomic(wr *verbs.SendWR, e *expect) {
	i := p.rnd.IntN(atomics)
	old := p.peer.words0[i]
	e.data = binary.LittleEndian.AppendUint64(nil, old)
	wr.SGL = []verbs.SGE{sge(p.landing, e.slot*slotLen, 8)}
	wr.Remote = verbs.Remote{Addr: p.peer.words.Addr + uint64(8*i), RKey: verbs.RKey(p.peer.words.Key)}
	if p.rnd.IntN(2) == 0 {
		wr.Opcode, e.op = verbs.OpAtomicFetchAdd, verbs.WCOpFetchAdd
		wr.Atomic.CompareAdd = p.rnd.Uint64()
		p.peer.words0[i] += wr.Atomic.CompareAdd
		return
	}
	wr.Opcode, e.op = verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap
	wr.Atomic.CompareAdd, wr.Atomic.Swap = old, p.rnd.Uint64()
	if p.rnd.IntN(3) == 0 {
		wr.Atomic.CompareAdd++
		return
	}
	p.peer.words0[i] = wr.Atomic.Swap
}

// reap holds completions against the model.
func (p *party) reap() error {
	var wc [4]verbs.WC
	n, _ := p.sendCQ.Poll(wc[:])
	for _, c := range wc[:n] {
		if len(p.pending) == 0 {
			return fmt.Errorf("a completion of nothing: %+v", c)
		}
		e := p.pending[0]
		p.pending = p.pending[1:]
		if c.WRID != e.id || c.Status != verbs.WCSuccess || c.Opcode != e.op {
			return fmt.Errorf("completion %+v, want %d %v", c, e.id, e.op)
		}
		if e.data != nil {
			if got := p.landingMem[e.slot*slotLen:][:len(e.data)]; !bytes.Equal(got, e.data) || int(c.ByteLen) != len(e.data) {
				return fmt.Errorf("%v %d of %d octets found other octets than the model", e.op, e.id, len(e.data))
			}
		}
	}
	n, _ = p.recvCQ.Poll(wc[:])
	for _, c := range wc[:n] {
		if len(p.coming) == 0 {
			return fmt.Errorf("a message from nowhere: %+v", c)
		}
		e := p.coming[0]
		p.coming = p.coming[1:]
		slot := int(p.got % depthWR)
		if c.WRID != p.got || c.Status != verbs.WCSuccess || c.Opcode != e.op {
			return fmt.Errorf("received %+v, want %d", c, p.got)
		}
		p.got++
		if e.with {
			if c.Imm != e.imm || c.Flags != verbs.WCWithImm || int(c.ByteLen) != e.slot {
				return fmt.Errorf("received %+v, want immediate data %#x behind %d octets", c, e.imm, e.slot)
			}
			continue
		}
		if got := p.inboxMem[slot*slotLen:][:len(e.data)]; int(c.ByteLen) != len(e.data) || !bytes.Equal(got, e.data) {
			return fmt.Errorf("message %d of %d octets, or others, want %d", c.WRID, c.ByteLen, len(e.data))
		}
	}
	return nil
}

func (p *party) negotiatedDepth() bool {
	return p.posted == messages && len(p.pending) == 0 && len(p.coming) == 0
}

func (p *party) finalMemory() error {
	if !bytes.Equal(p.targetMem, p.target0) {
		return fmt.Errorf("written memory differs from the model's")
	}
	for i, v := range p.words0 {
		if got := binary.LittleEndian.Uint64(p.wordMem[8*i:]); got != v {
			return fmt.Errorf("word %d is %#x, want %#x", i, got, v)
		}
	}
	return nil
}

func runRandom(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	options := func(c *Config, _ *QPConfig) {
		c.MPA.NoCRC = seed%3 == 0
		c.MPA.Markers = seed%2 == 0
		c.MPA.PeerToPeer = seed%5 < 2
		c.MPA.QueueOctets = 1 + rnd.IntN(20000)
		c.MPA.Align = seed%7 == 0
	}
	a, b := newParty(t, rnd, options), newParty(t, rnd, options)
	a.peer, b.peer = b, a
	depths := ConnParam{IRD: uint16(1 + rnd.IntN(5)), ORD: uint16(1 + rnd.IntN(5))}
	p := connectWith(t, a.host, b.host, depths, ConnParam{IRD: uint16(1 + rnd.IntN(5)), ORD: uint16(1 + rnd.IntN(5))})
	p.pipe.rnd, p.pipe.most = rnd, 1+rnd.IntN(20000)
	sides := [2]*party{a, b}
	for step := 0; !a.negotiatedDepth() || !b.negotiatedDepth(); step++ {
		if step > 1_000_000 {
			t.Fatalf("seed %d: stuck at %d and %d of %d", seed, a.posted, b.posted, messages)
		}
		i := rnd.IntN(2)
		side := sides[i]
		if seed%4 == 1 && rnd.IntN(20) == 0 {
			side.qp.stream.SendEmptyWrite() // it must make no difference, wherever it falls
		}
		switch rnd.IntN(6) {
		case 0:
			side.post()
		case 1:
			if side.recvs-side.got < depthWR {
				side.receive()
			}
		case 2, 3:
			p.write(i)
		case 4:
			p.read(i)
		case 5:
			if err := side.reap(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		if a.nic.layer.Count.SilentEnds+b.nic.layer.Count.SilentEnds > 0 || p.ca.Err() != nil || p.cb.Err() != nil {
			t.Fatalf("seed %d: %v, %v", seed, p.ca.Err(), p.cb.Err())
		}
	}
	p.run() // a write completes when TCP has it, not when it is there
	for _, side := range sides {
		if err := side.finalMemory(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	p.ca.Disconnect(p.now)
	p.run()
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.Err() != nil || p.cb.Err() != nil {
		t.Fatalf("seed %d: %v %v, %v %v", seed, p.ca.State(), p.ca.Err(), p.cb.State(), p.cb.Err())
	}
}

func TestRandomWorkAgreesWithTheModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		runRandom(t, seed)
	}
}

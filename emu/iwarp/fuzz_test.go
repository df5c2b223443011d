package iwarp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// script is the fuzzer's input, consumed octet by octet.
type script []byte

func (c *script) next() byte {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return b
}

func (c *script) take(n int) []byte {
	n = min(n, len(*c))
	b := (*c)[:n]
	*c = (*c)[n:]
	return b
}

func (c *script) u64() uint64 {
	var b [8]byte
	copy(b[:], c.take(8))
	return binary.BigEndian.Uint64(b[:])
}

const (
	secretByte = 0xee
	idleByte   = 0xdd
)

// fuzzRig is a stream with memory around its own that must not change.
type fuzzRig struct {
	*side
	open   *nic.Region // all rights
	closed []nic.Bytes // memory without the right to write
	secret [8]byte     // content of memory without the right to read
	posted int
	words  [6]uint32 // keys
	addrs  [6]uint64
}

func newFuzzRig(t testing.TB) *fuzzRig {
	f := &fuzzRig{side: newSide(t, Options{IRD: 3, ORD: 3}, Policy{})}
	var mem nic.Bytes
	f.open, mem = f.region(512, allAccess)
	for i := range mem {
		mem[i] = byte(i)
	}
	write, wmem := f.region(512, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	local, lmem := f.region(512, verbs.AccessLocalWrite)
	foreign, fmem := f.regionOf(f.other, 512, allAccess)
	for _, m := range []nic.Bytes{wmem, lmem, fmem} {
		for i := range m {
			m[i] = secretByte
		}
	}
	f.closed = []nic.Bytes{lmem, fmem}
	w := boundWindow(f.side)
	for i := range f.secret {
		f.secret[i] = secretByte
	}
	f.words = [6]uint32{f.open.Key, write.Key, local.Key, foreign.Key, w.Key, 0}
	f.addrs = [6]uint64{f.open.Addr, write.Addr, local.Addr, foreign.Addr, f.open.Addr + 500, ^uint64(0) - 3}
	for i := range uint64(4) {
		f.recv(i, sge(f.open, int(i)*16, 16))
	}
	return f
}

// segment builds a segment from the script, mostly almost valid.
func (f *fuzzRig) segment(c *script) []byte {
	variant := c.next()
	if variant == 0xff {
		// Only our memory has secretByte.
		return bytes.ReplaceAll(c.take(int(c.next())), []byte{secretByte}, []byte{0})
	}
	var g wire.Segment
	op := wire.Opcode(c.next() & 15)
	g.Control = wire.NewControl(op, variant&1 == 0)
	if variant&2 != 0 {
		g.Control.Tagged = !g.Control.Tagged
	}
	if variant&4 != 0 {
		g.Control.DDPVersion = c.next() & 3
	}
	if variant&8 != 0 {
		g.Control.RDMAPVersion = c.next() & 3
	}
	pick := func() (uint32, uint64) {
		k, a := c.next(), c.next()
		return f.words[int(k)%len(f.words)], f.addrs[int(a)%len(f.addrs)] + uint64(c.next())*4
	}
	stag, addr := pick()
	g.Tagged = wire.Tagged{STag: wire.STag(stag), TO: addr}
	info, _ := op.Info()
	g.Untagged = wire.Untagged{QN: info.Queue, MSN: f.stream.recvMSN[info.Queue&3], Invalidate: wire.STag(f.words[4])}
	if op == wire.OpSend || op == wire.OpSendInv || op == wire.OpSendSE || op == wire.OpSendSEInv {
		g.Untagged.MO = f.stream.recvLen
	}
	if variant&16 != 0 {
		g.Untagged.MSN, g.Untagged.MO, g.Untagged.QN = wire.MSN(c.next()), uint32(c.next()), wire.QN(c.next()&7)
	}
	g.ReadRequest = wire.ReadRequest{SinkSTag: 7, SinkTO: 8, Size: uint32(c.next()) * 3, SrcSTag: wire.STag(stag), SrcTO: addr}
	g.AtomicRequest = wire.AtomicRequest{Op: wire.AtomicOp(c.next() & 3), STag: wire.STag(stag), TO: addr, AddSwap: uint64(c.next())}
	g.AtomicResponse.RequestID = uint32(c.next())
	if r := f.stream.oldestOutstanding; r != nil && variant&32 == 0 {
		st, to := sink(r)
		if op == wire.OpReadResponse {
			g.Tagged = wire.Tagged{STag: st, TO: to + uint64(r.received)}
		}
		g.AtomicResponse.RequestID = uint32(r.msn)
	}
	if op == wire.OpTerminate {
		g.Terminate.Error = wire.TermError{Layer: wire.Layer(c.next() & 15), Type: c.next() & 15, Code: c.next()}
	}
	g.Payload = bytes.Repeat([]byte{idleByte}, int(c.next())&63)
	if info.Class&wire.HasPayload == 0 && variant&64 == 0 {
		g.Payload = nil
	}
	return g.Append(nil)
}

// post posts a request from the script.
func (f *fuzzRig) post(c *script) {
	if !f.stream.Live() {
		return
	}
	ops := []verbs.WROpcode{
		verbs.OpSend, verbs.OpSendInv, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead,
		verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpLocalInv,
	}
	op := ops[int(c.next())%len(ops)]
	n := int(c.next())
	if op == verbs.OpAtomicFetchAdd || op == verbs.OpAtomicCmpAndSwp {
		n = 8
	}
	lkey := verbs.LKey(f.open.Key)
	if c.next() == 0xff {
		lkey++
	}
	sgl := []verbs.SGE{{Addr: f.open.Addr, Length: uint32(n), LKey: lkey}}
	if op == verbs.OpSendImm {
		sgl = nil
	}
	f.side.post(uint64(f.posted), op, sgl, to(f.words[int(c.next())%6], c.u64()), flags(verbs.SendFlags(c.next()&5)))
	f.posted++
}

// check verifies the invariants of the stream.
func (f *fuzzRig) check() {
	for _, m := range f.closed {
		for i := range m {
			if m[i] != secretByte {
				f.t.Fatalf("memory without the right to write was changed at %d", i)
			}
		}
	}
	if int32(f.stream.segmentsOutput-f.stream.segmentsAccepted) < 0 {
		f.t.Fatal("more segments were accepted than output")
	}
	if f.stream.reads != nil && f.stream.reads.Len() > 3 {
		f.t.Fatal("more reads than the IRD")
	}
	if len(f.sends) > f.posted || len(f.retired) != len(f.sends) {
		f.t.Fatalf("%d of %d requests completed, %d retired", len(f.sends), f.posted, len(f.retired))
	}
	if f.stream.Live() == (len(f.ended) > 0) {
		f.t.Fatalf("live %v, ended %+v", f.stream.Live(), f.ended)
	}
	if !f.stream.Live() && (len(f.sends) != f.posted || f.stream.recv != nil) {
		f.t.Fatalf("ended with %d of %d requests completed", len(f.sends), f.posted)
	}
}

func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0, 3, 0, 0, 0, 0, 0, 0, 8})
	f.Add([]byte{0, 0, 0, 0, 0, 4, 0, 0, 0, 16, 0, 0, 1, 0, 0, 0, 20, 2, 2, 2, 3})
	f.Add([]byte{1, 5, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0, 0, 8})
	f.Add([]byte{1, 6, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0})
	for _, g := range everyMessageSeeds() {
		f.Add(append([]byte{0, 0xff, byte(len(g))}, g...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newFuzzRig(t)
		c := script(data)
		outputs := 0
		for len(c) > 0 {
			switch c.next() & 7 {
			case 0, 4, 5, 6:
				r.stream.Input(r.segment(&c))
			case 1:
				r.post(&c)
			case 2, 7:
				live := r.stream.Live()
				b := r.out(wire.MinMULPDU + int(c.next()))
				if bytes.Contains(b, r.secret[:]) {
					t.Fatalf("memory without the right to read is sent: %x", b)
				}
				if b != nil && !live {
					if outputs++; outputs > 1 || b[1]&15 != byte(wire.OpTerminate) {
						t.Fatalf("an ended stream sends %x", b)
					}
				}
			case 3:
				if n := int(r.stream.segmentsOutput - r.stream.segmentsAccepted); n > 0 {
					r.stream.Accepted(1 + int(c.next())%n)
				}
			}
			r.check()
		}
		r.stream.Fail(wire.TermMPAClosed, false)
		r.check()
		if len(r.ended) != 1 {
			t.Fatalf("ended %+v", r.ended)
		}
	})
}

// everyMessageSeeds returns one segment of each kind.
func everyMessageSeeds() (seeds [][]byte) {
	for op := wire.OpWrite; op <= wire.OpAtomicResponse; op++ {
		var g wire.Segment
		if info, _ := op.Info(); info.Tagged {
			g = tagged(op, 0x100, 0x560000000000, []byte("payload"), true)
		} else {
			g = untagged(op, 1, 0, nil, true)
		}
		seeds = append(seeds, g.Append(nil))
	}
	return seeds
}

package engine

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestUDWritePlacesData(t *testing.T) {
	w, a, b := pair(t, false)
	w.latePercent = 50
	want := bytes.Clone(a.fill(0, 100_000, 3))
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 100_000), Remote: verbs.Remote{Addr: b.h.mr.Addr + b.base + 17, RKey: verbs.RKey(b.h.mr.Key)}})
	w.run(time.Millisecond)
	a.expectSuccess(1)
	b.expectCompletions(0)
	if !bytes.Equal(b.bytes(17, 100_000), want) {
		t.Error("the data differs")
	}
}

func TestUDWriteChecksMemory(t *testing.T) {
	for _, tc := range []struct {
		name   string
		remote func(b *testQP) verbs.Remote
		want   ddp.TermError
	}{
		{"an unknown key", func(b *testQP) verbs.Remote { return verbs.Remote{Addr: b.h.mr.Addr, RKey: 99} }, ddp.TermTaggedSTag},
		{"before the start", func(b *testQP) verbs.Remote { return verbs.Remote{Addr: b.h.mr.Addr - 1, RKey: verbs.RKey(b.h.mr.Key)} }, ddp.TermTaggedBounds},
		{"beyond the end", func(b *testQP) verbs.Remote {
			return verbs.Remote{Addr: b.h.mr.Addr + 1<<20 - 9, RKey: verbs.RKey(b.h.mr.Key)}
		}, ddp.TermTaggedBounds},
		{"address wraps around", func(b *testQP) verbs.Remote { return verbs.Remote{Addr: 1<<64 - 5, RKey: verbs.RKey(b.h.mr.Key)} }, ddp.TermTaggedWrap},
		{"another protection domain", func(b *testQP) verbs.Remote {
			pd, _ := b.h.nic.AllocPD()
			mr, _ := b.h.nic.RegMR(pd, b.h.mr.Mem, 0x1000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			return verbs.Remote{Addr: 0x1000, RKey: verbs.RKey(mr.Key)}
		}, ddp.TermTaggedStream},
		{"no remote write access", func(b *testQP) verbs.Remote {
			mr, _ := b.h.nic.RegMR(b.h.pd, b.h.mr.Mem, 0x1000, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			return verbs.Remote{Addr: 0x1000, RKey: verbs.RKey(mr.Key)}
		}, ddp.TermProtAccess},
	} {
		w, a, b := pair(t, false)
		a.fill(0, 10, 1)
		before := bytes.Clone(b.h.mem)
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 10), Remote: tc.remote(b)})
		w.run(time.Millisecond)
		if r, ok := a.LastError(); !ok || r.Error != tc.want {
			t.Errorf("%s: reported %v, want %v", tc.name, r.Error, tc.want)
		}
		if !bytes.Equal(before, b.h.mem) {
			t.Errorf("%s: memory has changed", tc.name)
		}
	}
	// The key and address of an empty Write are not checked.
	w, a, b := pair(t, false)
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, Remote: verbs.Remote{Addr: 1, RKey: 99}})
	w.run(time.Millisecond)
	if _, ok := a.LastError(); ok {
		t.Error("an empty Write is an error")
	}
}

func writeRecord(a, b *testQP, n int, imm uint32) verbs.SendWR {
	return verbs.SendWR{
		Opcode: verbs.OpRDMAWriteImm, SGL: a.sge(0, n), Imm: imm,
		Remote: verbs.Remote{Addr: b.h.mr.Addr + b.base, RKey: verbs.RKey(b.h.mr.Key)},
	}
}

func TestWriteRecordReportsCompleteWrite(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 50_000} {
		w, a, b := pair(t, false)
		w.latePercent = 50
		b.recv(5, 0, 1000)
		want := bytes.Clone(a.fill(0, n, 3))
		a.post(b, writeRecord(a, b, n, 0xfeed))
		w.run(time.Millisecond)
		wc := b.expectSuccess(1)[0]
		r, ok := ParseRecord(b.bytes(recvAt, int(wc.ByteLen))[verbs.GRHLen:])
		if !ok || wc.WRID != 5 || wc.Opcode != verbs.WCOpRecvRDMAWithImm || wc.Imm != 0xfeed || r.Length != uint32(n) || r.STag != b.h.mr.Key || r.TO != b.h.mr.Addr+b.base {
			t.Errorf("%d bytes: %+v, record %+v", n, wc, r)
		}
		if n > 0 && (len(r.Ranges) != 1 || r.Ranges[0] != Range{0, uint32(n)}) || !bytes.Equal(b.bytes(0, n), want) {
			t.Errorf("%d bytes: ranges %v", n, r.Ranges)
		}
	}
}

func TestWriteRecordReportsReceivedRanges(t *testing.T) {
	w, a, b := pair(t, false)
	const payload = testMTU - 28 - wire.UDOverhead - taggedHeader - wire.WriteRecordLen
	i := 0
	w.intercept = func(*link.Datagram, *wire.Packet) bool { i++; return i == 2 || i == 3 || i == 6 }
	b.recv(5, 0, 1000)
	want := bytes.Clone(a.fill(0, 6*payload, 3))
	a.post(b, writeRecord(a, b, 6*payload, 1))
	w.run(9 * time.Millisecond)
	b.expectCompletions(0)
	w.run(2 * time.Millisecond)
	wc := b.expectSuccess(1)[0]
	r, _ := ParseRecord(b.bytes(recvAt, int(wc.ByteLen))[verbs.GRHLen:])
	if len(r.Ranges) != 2 || r.Ranges[0] != (Range{0, payload}) || r.Ranges[1] != (Range{3 * payload, 2 * payload}) {
		t.Fatalf("ranges %v", r.Ranges)
	}
	for _, g := range r.Ranges {
		if !bytes.Equal(b.bytes(int(g.Offset), int(g.Length)), want[g.Offset:g.Offset+g.Length]) {
			t.Errorf("the data of range %v differs", g)
		}
	}
	if !bytes.Equal(b.bytes(payload, payload), make([]byte, payload)) {
		t.Error("memory of a lost segment was written")
	}
	// A receive that has no room for all ranges gets those that fit.
	i = 0
	b.recv(6, 0, verbs.GRHLen+recordHead+recordRange+5)
	a.post(b, writeRecord(a, b, 6*payload, 1))
	w.run(20 * time.Millisecond)
	wc = b.expectSuccess(1)[0]
	if r, ok := ParseRecord(b.bytes(recvAt, int(wc.ByteLen))[verbs.GRHLen:]); !ok || len(r.Ranges) != 1 {
		t.Errorf("%+v: %v", wc, r.Ranges)
	}
}

func TestWriteRecordWithoutReceivePlacesData(t *testing.T) {
	w, a, b := pair(t, false)
	want := bytes.Clone(a.fill(0, 100, 3))
	a.post(b, writeRecord(a, b, 100, 1))
	w.run(20 * time.Millisecond)
	b.recv(1, 0, 100)
	w.run(20 * time.Millisecond)
	b.expectCompletions(0)
	if !bytes.Equal(b.bytes(0, 100), want) || b.h.nic.Count.DropNoReceive != 1 {
		t.Error("not placed, or not counted")
	}
}

func TestWriteRecordDropsContradictorySegments(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 1000)
	i := 0
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if i++; i == 2 {
			modifyULPDU(d, k, func(u []byte) { binary.BigEndian.PutUint32(u[taggedHeader+8:], 70_000) }) // the length
		}
		return false
	}
	a.fill(0, 4000, 3)
	a.post(b, writeRecord(a, b, 4000, 1))
	w.run(20 * time.Millisecond)
	wc := b.expectSuccess(1)[0]
	if r, _ := ParseRecord(b.bytes(recvAt, int(wc.ByteLen))[verbs.GRHLen:]); len(r.Ranges) != 2 || b.h.nic.Count.DropSegment != 1 {
		t.Errorf("ranges %v, %d dropped", r.Ranges, b.h.nic.Count.DropSegment)
	}
	// A segment beyond the end of its message is an error.
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Dst.Addr() == b.h.addr {
			modifyULPDU(d, k, func(u []byte) { binary.BigEndian.PutUint32(u[taggedHeader+8:], 10) })
		}
		return false
	}
	a.post(b, writeRecord(a, b, 100, 1))
	w.run(20 * time.Millisecond)
	if r, ok := a.LastError(); !ok || r.Error != ddp.TermOpUnspecified {
		t.Errorf("reported %+v", r)
	}
}

func TestWriteRecordsAreBounded(t *testing.T) {
	w := newNetwork(t)
	a, b := w.host().newQP(false), w.host(func(c *Config) { c.Records = 3 }).newQP(false)
	w.intercept = func(_ *link.Datagram, k *wire.Packet) bool { return k.ULPDU[0]&lastFlag != 0 }
	for range 8 {
		b.recv(1, 0, 1000)
		a.post(b, writeRecord(a, b, 2000, 1))
	}
	w.run(5 * time.Millisecond)
	if n := b.h.nic; len(n.records.open) != 3 || n.Count.DropRecord != 5 {
		t.Errorf("%d open, %d dropped", len(n.records.open), n.Count.DropRecord)
	}
	w.run(20 * time.Millisecond)
	b.expectSuccess(3)

	// A record reports at most maxRanges ranges.
	w, a, b = pair(t, false)
	i := 0
	w.intercept = func(*link.Datagram, *wire.Packet) bool { i++; return i%2 == 0 }
	const payload, pieces = testMTU - 28 - wire.UDOverhead - taggedHeader - wire.WriteRecordLen, 2*maxRanges + 1
	a.fill(0, pieces*payload, 1)
	b.recv(1, 0, 1000)
	wr := writeRecord(a, b, pieces*payload, 1)
	wr.Remote.Addr += 1 << 19
	a.post(b, wr)
	w.run(20 * time.Millisecond)
	wc := b.expectSuccess(1)[0]
	rec, _ := ParseRecord(b.bytes(recvAt, int(wc.ByteLen))[verbs.GRHLen:])
	if len(rec.Ranges) != maxRanges || b.h.nic.Count.DropRecord != 1 || !bytes.Equal(b.bytes(1<<19+(pieces-1)*payload, payload), make([]byte, payload)) {
		t.Errorf("%d ranges, %d segments dropped", len(rec.Ranges), b.h.nic.Count.DropRecord)
	}

	var r ranges
	for i := range uint32(maxRanges) {
		if !r.add(span{4 * i, 4*i + 1}) {
			t.Fatalf("range %d was refused", i)
		}
	}
	if r.fits(span{1000, 1001}) || r.add(span{1000, 1001}) || !r.fits(span{1, 2}) || !r.add(span{1, 4}) || len(r.spans) != maxRanges-1 {
		t.Errorf("%d ranges: the bound does not hold, or joining does not free a range", len(r.spans))
	}
}

func TestRangesMatchSet(t *testing.T) {
	w := newNetwork(t)
	for range 200 {
		var r ranges
		var set [200]bool
		for range 30 {
			from := uint32(w.rng.IntN(200))
			s := span{from, min(200, from+uint32(w.rng.IntN(30)))}
			r.add(s)
			for i := s.from; i < s.to; i++ {
				set[i] = true
			}
			var again [200]bool
			for i, s := range r.spans {
				if s.from >= s.to || i > 0 && s.from <= r.spans[i-1].to {
					t.Fatalf("spans %v", r.spans)
				}
				for j := s.from; j < s.to; j++ {
					again[j] = true
				}
			}
			if set != again {
				t.Fatalf("spans %v", r.spans)
			}
		}
	}
}

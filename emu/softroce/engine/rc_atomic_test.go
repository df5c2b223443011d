package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

func (p *peer) setWord(off int, v uint64) { binary.LittleEndian.PutUint64(p.target(off, 8), v) }

// rc/atm/1, rc/atm/2: COMPARE_SWAP stores only if equal, FETCH_ADD adds modulo
// 2^64; both return the original value.
func TestRCAtomicsReturnOriginalValue(t *testing.T) {
	const big = 0x1122334455667788
	for _, tc := range []struct {
		op               wire.Operation
		before           uint64
		swapAdd, compare uint64
		after            uint64
	}{
		{wire.OpCompareSwap, big, 7, big, 7},
		{wire.OpCompareSwap, big, 7, big + 1, big},
		{wire.OpCompareSwap, 0, math.MaxUint64, 0, math.MaxUint64},
		{wire.OpFetchAdd, big, 5, 99, big + 5},
		{wire.OpFetchAdd, 3, math.MaxUint64, 0, 2},
		{wire.OpFetchAdd, math.MaxUint64, 1, 0, 0},
		{wire.OpFetchAdd, big, 0, 0, big},
	} {
		each(t, setup{}, func(p *peer) {
			p.setWord(8, tc.before)
			guard := bytes.Clone(p.target(0, 24))
			binary.LittleEndian.PutUint64(guard[8:], tc.after)
			p.send(tc.op, 0, p.word(8, tc.swapAdd, tc.compare))
			p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 0 was %d msn 1", tc.before))
			if !bytes.Equal(p.target(0, 24), guard) {
				p.Errorf("%+v: memory is %x", tc, p.target(0, 24))
			}
		})
	}
}

// rc/atm/3, rc/atm/8, rc/atm/13: Atomics that are misaligned, not allowed or out of
// range are NAKed and change nothing.
func TestRCInvalidAtomicsAreNAKed(t *testing.T) {
	for name, tc := range map[string]struct {
		off    int
		access verbs.Access
		key    func(p *peer) uint32
		want   string
	}{
		"misaligned":            {4, allAccess, nil, "invalid"},
		"QP without access":     {0, allAccess &^ verbs.AccessRemoteAtomic, nil, "invalid"},
		"region without access": {0, allAccess, func(p *peer) uint32 { return p.region(allAccess &^ verbs.AccessRemoteAtomic) }, "access"},
		"beyond the end":        {memSize - targetAt, allAccess, nil, "access"},
		"across the end":        {memSize - targetAt - 4, allAccess, nil, "invalid"},
		"before the start":      {-targetAt - 8, allAccess, nil, "access"},
		"no such key":           {0, allAccess, func(*peer) uint32 { return 0x777777 }, "access"},
		"read-only window":      {0, allAccess, func(p *peer) uint32 { return p.region(verbs.AccessRemoteRead) }, "access"},
	} {
		for _, op := range []wire.Operation{wire.OpFetchAdd, wire.OpCompareSwap} {
			t.Run(fmt.Sprint(name, " ", wire.Opcode(op)), func(t *testing.T) {
				each(t, setup{attr: func(a *verbs.QPAttr) { a.Access = tc.access }}, func(p *peer) {
					edits := []edit{p.word(tc.off, 1, p.wordValue(targetData))}
					if tc.key != nil {
						edits = append(edits, rkey(tc.key(p)))
					}
					p.send(op, 0, edits...)
					p.expect(fmt.Sprintf("NAK 0 %s msn 0", tc.want))
					p.state(verbs.QPStateErr)
					p.expectMemoryUnchanged()
				})
			})
		}
	}
}

// rc/atm/4, rc/atm/5, rc/atm/7: A duplicate atomic is answered from the last
// max_dest_rd_atomic results and is not executed again.
func TestRCDuplicateAtomicsReturnTheSavedResult(t *testing.T) {
	for _, slots := range []uint8{1, 3, 4, 128} {
		each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = slots }}, func(p *peer) {
			n := int(slots)
			for k := range n + 2 {
				p.setWord(0, uint64(1000+k))
				p.send(wire.OpFetchAdd, k, p.word(0, 1, 0))
				p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE %d was %d msn %d", k, 1000+k, k+1))
			}
			p.setWord(0, 5)
			for k := 2; k < n+2; k++ {
				want := fmt.Sprintf("ATOMIC_ACKNOWLEDGE %d was %d msn %d", k, 1000+k, k+1)
				p.send(wire.OpFetchAdd, k, p.word(0, 1, 0))
				p.expect(want)
				p.send(wire.OpCompareSwap, k, p.word(8, 9, 5))
				p.expect(want)
			}
			p.send(wire.OpFetchAdd, 1, p.word(0, 1, 0)) // too old
			p.silence(time.Second)
			if got := p.wordValue(p.target(0, 8)); got != 5 {
				p.Errorf("a duplicate was executed: %d", got)
			}
		})
	}
}

// rc/atm/10, rc/atm/11: The original value is written to local memory once, in host byte order.
func TestRCAtomicResultIsDeliveredOnce(t *testing.T) {
	original := func(v uint64) edit { return func(k *wire.Packet) { k.AtomicAckETH.Original = v } }
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpAtomicFetchAdd, 8)
		p.post(2, verbs.OpAtomicFetchAdd, 8, func(wr *verbs.SendWR) { wr.SGL = []verbs.SGE{p.h.sge(sinkAt+8, 3), p.h.sge(sinkAt+100, 5)} })
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpAtomicAcknowledge, 0, original(0x1122334455667788))
		p.wcs("1 SUCCESS FETCH_ADD 8B")
		p.send(wire.OpAtomicAcknowledge, 0, original(0xdead))
		p.wcs()
		if got := p.h.mem[sinkAt:][:8]; !bytes.Equal(got, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}) {
			p.Errorf("result is %x", got)
		}
		p.send(wire.OpAtomicAcknowledge, 1, original(0x1122334455667788))
		p.wcs("2 SUCCESS FETCH_ADD 8B")
		if got := append(bytes.Clone(p.h.mem[sinkAt+8:][:3]), p.h.mem[sinkAt+100:][:5]...); !bytes.Equal(got, p.h.mem[sinkAt:][:8]) {
			p.Errorf("scattered result is %x", got)
		}
	})
}

// rc/atm/12: The operands are in their AtomicETH fields; the compare field of FETCH_ADD is zero.
func TestRCAtomicRequestsCarryTheirOperands(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		operands := func(wr *verbs.SendWR) {
			wr.Remote.Addr += 8
			wr.Atomic = verbs.Atomic{CompareAdd: 11, Swap: 22}
		}
		p.post(1, verbs.OpAtomicFetchAdd, 8, operands)
		p.post(2, verbs.OpAtomicCmpAndSwp, 8, operands)
		p.expect("FETCH_ADD 0 va+8 11 0 ackreq", "COMPARE_SWAP 1 va+8 22 11 ackreq")
	})
}

// rc/atm/14: ATOMIC WRITE stores exactly eight aligned bytes, once.
func TestRCAtomicWriteStoresEightBytesOnce(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpAtomicWrite, 0, p.at(8, 8), payload([]byte("12345678")))
		p.expect("RR_ONLY 0 msn 1")
		p.send(wire.OpAtomicWrite, 0, p.at(8, 8), payload([]byte("abcdefgh")))
		p.expect("RR_ONLY 0 msn 1")
		if got := p.target(8, 8); string(got) != "12345678" {
			p.Errorf("memory holds %q", got)
		}
	})
	for name, wrong := range map[string]func(p *peer) []edit{
		"4 bytes":           func(p *peer) []edit { return []edit{p.at(8, 8), data(4)} },
		"16 bytes":          func(p *peer) []edit { return []edit{p.at(8, 8), data(16)} },
		"length 4":          func(p *peer) []edit { return []edit{p.at(8, 4), data(4)} },
		"misaligned":        func(p *peer) []edit { return []edit{p.at(4, 8), data(8)} },
		"7 bytes and a pad": func(p *peer) []edit { return []edit{p.at(8, 8), data(7)} },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.send(wire.OpAtomicWrite, 0, wrong(p)...)
				p.expect("NAK 0 invalid msn 0")
				if !bytes.Equal(p.target(0, 32), targetData[:32]) {
					p.Error("memory changed")
				}
			})
		})
	}
}

// rc/atm/9: Atomics of all QPs of a NIC are serialized.
func TestRCAtomicsOfSeveralQPsAddUp(t *testing.T) {
	a, b := newHost(t, "fd00::1", nil), newHost(t, "fd00::2", nil)
	net := newNetwork(a, b)
	const qps, adds = 5, 400
	for range qps {
		qa, qb := a.qp(verbs.QPTypeRC, func(c *QPConfig) { c.Caps.MaxSendWR = adds }), b.qp(verbs.QPTypeRC, nil)
		a.ready(qa, b.addr, qb.num, nil)
		b.ready(qb, a.addr, qa.num, nil)
		for i := range adds {
			a.send(qa, 0, verbs.SendWR{
				WRID: uint64(i), Opcode: verbs.OpAtomicFetchAdd, Remote: b.remote(64),
				Atomic: verbs.Atomic{CompareAdd: 3}, SGL: []verbs.SGE{a.sge(0, 8)},
			})
		}
	}
	lost := 0
	net.drop = droppingEvery(23, &lost)
	net.run(1e12)
	if got := binary.LittleEndian.Uint64(b.mem[64:]); got != 3*qps*adds || lost == 0 {
		t.Errorf("sum %d, want %d; %d packets were lost", got, 3*qps*adds, lost)
	}
}

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/len/1, rc/len/2, rc/len/3, rc/len/4, rc/len/5, rc/len/6: A packet with a wrong payload length
// for its position or message gets an invalid request NAK and changes no memory.
func TestRCPacketsOfWrongLengthAreNAKed(t *testing.T) {
	type packet struct {
		op    wire.Operation
		edits func(p *peer) []edit
	}
	sized := func(n func(mtu int) int) func(p *peer) []edit {
		return func(p *peer) []edit { return []edit{data(n(p.mtu))} }
	}
	write := func(length, n func(mtu int) int) func(p *peer) []edit {
		return func(p *peer) []edit { return []edit{p.at(0, length(p.mtu)), data(n(p.mtu))} }
	}
	full := func(mtu int) int { return mtu }
	more := func(mtu int) int { return mtu + 4 }
	half := func(mtu int) int { return mtu / 2 }
	triple := func(mtu int) int { return 3 * mtu }
	none := func(int) int { return 0 }
	four := func(int) int { return 4 }
	three := func(int) int { return 3 }
	eight := func(int) int { return 8 }
	beyond := func(int) int { return 1<<31 + 1 }
	sendFirst := packet{wire.OpSendFirst, sized(full)}
	writeFirst := packet{wire.OpWriteFirst, write(triple, full)}
	for name, packets := range map[string][]packet{
		"SEND_ONLY beyond MTU":         {{wire.OpSendOnly, sized(more)}},
		"SEND_FIRST below MTU":         {{wire.OpSendFirst, sized(half)}},
		"SEND_FIRST beyond MTU":        {{wire.OpSendFirst, sized(more)}},
		"SEND_MIDDLE below MTU":        {sendFirst, {wire.OpSendMiddle, sized(half)}},
		"SEND_MIDDLE empty":            {sendFirst, {wire.OpSendMiddle, sized(none)}},
		"SEND_LAST empty":              {sendFirst, {wire.OpSendLast, sized(none)}},
		"SEND_LAST_IMM empty":          {sendFirst, {wire.OpSendLastImm, sized(none)}},
		"SEND_LAST beyond MTU":         {sendFirst, {wire.OpSendLast, sized(more)}},
		"WRITE_ONLY beyond MTU":        {{wire.OpWriteOnly, write(more, more)}},
		"WRITE_ONLY short of length":   {{wire.OpWriteOnly, write(eight, four)}},
		"WRITE_ONLY beyond length":     {{wire.OpWriteOnly, write(four, eight)}},
		"WRITE_ONLY empty of 4":        {{wire.OpWriteOnly, write(four, none)}},
		"WRITE_ONLY with pad, of 4":    {{wire.OpWriteOnly, write(four, three)}},
		"WRITE_ONLY_IMM beyond length": {{wire.OpWriteOnlyImm, write(four, eight)}},
		"WRITE_FIRST of all":           {{wire.OpWriteFirst, write(full, full)}},
		"WRITE_FIRST beyond length":    {{wire.OpWriteFirst, write(half, full)}},
		"WRITE_FIRST below MTU":        {{wire.OpWriteFirst, write(triple, half)}},
		"WRITE_LAST too early":         {writeFirst, {wire.OpWriteLast, sized(full)}},
		"WRITE_LAST empty":             {writeFirst, {wire.OpWriteLast, sized(none)}},
		"WRITE_MIDDLE to the end":      {writeFirst, {wire.OpWriteMiddle, sized(full)}, {wire.OpWriteMiddle, sized(full)}},
		"WRITE of more than 2^31":      {{wire.OpWriteFirst, write(beyond, full)}},
		"READ of more than 2^31":       {{wire.OpReadRequest, func(p *peer) []edit { return []edit{p.at(0, 1<<31+1)} }}},
		"READ with payload":            {{wire.OpReadRequest, func(p *peer) []edit { return []edit{p.at(0, 4), data(4)} }}},
		"FETCH_ADD with payload":       {{wire.OpFetchAdd, func(p *peer) []edit { return []edit{p.word(0, 1, 0), data(4)} }}},
		"FLUSH with payload":           {{wire.OpFlush, func(p *peer) []edit { return []edit{p.at(0, 4), data(4)} }}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.recv(1, recvSize)
				last := len(packets) - 1
				for k, pk := range packets[:last] {
					p.send(pk.op, k, pk.edits(p)...)
				}
				p.expect()
				before := bytes.Clone(p.h.mem[recvAt:][:0x60000])
				p.send(packets[last].op, last, packets[last].edits(p)...)
				p.expect(fmt.Sprintf("NAK %d invalid msn 0", last))
				p.state(verbs.QPStateErr)
				if !bytes.Equal(p.h.mem[recvAt:][:0x60000], before) {
					p.Error("memory changed")
				}
			})
		})
	}
}

// rc/mtu/1: Modify with a path MTU above the MTU of the port fails and changes nothing.
func TestRCPathMTUAbovePortMTUIsRejected(t *testing.T) {
	h := newHost(t, "fd00::1", func(c *Config) { c.LinkMTU = 1500 })
	for mtu := verbs.MTU256; mtu <= verbs.MTU4096; mtu++ {
		q := h.qp(verbs.QPTypeRC, nil)
		a := connAttr(h.addr, 7)
		a.State = verbs.QPStateInit
		h.modify(q, a, initMask|verbs.QPAttrAccessFlags)
		a.State, a.PathMTU = verbs.QPStateRTR, mtu
		err := q.Modify(0, a, rcRTR)
		if want := mtu > verbs.MTU1024; want != errors.Is(err, verbs.ErrInvalid) || want != (q.State() == verbs.QPStateInit) {
			t.Errorf("MTU %v on a link of 1500: %v, state %v", mtu, err, q.State())
		}
	}
}

// acc/1, acc/2, acc/3, acc/4, acc/5, acc/6, acc/7, acc/8, rc/read/22: Access that
// key, region, protection domain or QP do not allow is NAKed and changes no memory.
// Only missing access flags of the QP are an invalid request.
func TestRCForbiddenAccessIsNAKed(t *testing.T) {
	closed := func(p *peer) uint32 {
		mr, err := p.h.nic.RegMR(p.h.pd, nic.Bytes(p.h.mem), p.h.mr.Addr, allAccess)
		if err == nil {
			err = p.h.nic.DeregMR(mr)
		}
		if err != nil {
			p.Fatal(err)
		}
		return mr.Key
	}
	foreign := func(p *peer) uint32 {
		pd := must.Get(p.h.nic.AllocPD())(p)
		mr := must.Get(p.h.nic.RegMR(pd, nic.Bytes(p.h.mem), p.h.mr.Addr, allAccess))(p)
		return mr.Key
	}
	const end = memSize - targetAt
	for name, tc := range map[string]struct {
		off    int
		va     uint64
		n      int
		rights verbs.Access
		key    func(p *peer) uint32
		want   string
		event  verbs.AsyncEventType
	}{
		"no such key":      {n: 4, key: func(p *peer) uint32 { return p.h.mr.Key ^ 0x55 }, want: "access", event: verbs.EventQPAccessErr},
		"key 0":            {n: 4, key: func(*peer) uint32 { return 0 }, want: "access", event: verbs.EventQPAccessErr},
		"last key":         {n: 4, key: func(*peer) uint32 { return math.MaxUint32 }, want: "access", event: verbs.EventQPAccessErr},
		"across the end":   {off: end - 2, n: 4, want: "access", event: verbs.EventQPAccessErr},
		"after the end":    {off: end, n: 1, want: "access", event: verbs.EventQPAccessErr},
		"before the start": {off: -targetAt - 1, n: 4, want: "access", event: verbs.EventQPAccessErr},
		"wrapping":         {va: math.MaxUint64 - 3, n: 8, want: "access", event: verbs.EventQPAccessErr},
		"up to the end":    {va: math.MaxUint64 - 3, n: 4, want: "access", event: verbs.EventQPAccessErr},
		"access of region": {n: 4, key: func(p *peer) uint32 { return p.region(verbs.AccessLocalWrite) }, want: "access", event: verbs.EventQPAccessErr},
		"other domain":     {n: 4, key: foreign, want: "access", event: verbs.EventQPAccessErr},
		"deregistered":     {n: 4, key: closed, want: "access", event: verbs.EventQPAccessErr},
		"access of QP":     {n: 4, rights: verbs.AccessLocalWrite | verbs.AccessRemoteAtomic, want: "invalid", event: verbs.EventQPReqErr},
	} {
		for _, op := range []wire.Operation{wire.OpWriteOnly, wire.OpWriteFirst, wire.OpReadRequest} {
			t.Run(fmt.Sprint(name, " ", wire.Opcode(op)), func(t *testing.T) {
				rights := tc.rights
				if rights == 0 {
					rights = allAccess
				}
				each(t, setup{attr: func(a *verbs.QPAttr) { a.Access = rights }}, func(p *peer) {
					n := tc.n
					if op == wire.OpWriteFirst {
						n += p.mtu
					}
					edits := []edit{p.at(tc.off, n)}
					if tc.va != 0 {
						edits = append(edits, func(k *wire.Packet) { k.RETH.VA = tc.va })
					}
					if tc.key != nil {
						edits = append(edits, rkey(tc.key(p)))
					}
					switch op {
					case wire.OpWriteOnly:
						edits = append(edits, data(n))
					case wire.OpWriteFirst:
						edits = append(edits, data(p.mtu))
					}
					p.recv(1, 8)
					p.send(op, 0, edits...)
					p.expect(fmt.Sprintf("NAK 0 %s msn 0", tc.want))
					p.state(verbs.QPStateErr)
					p.wcs("1 WR_FLUSH_ERR")
					p.events(tc.event)
					p.expectMemoryUnchanged()
					p.send(op, 0, edits...)
					p.silence(time.Second)
				})
			})
		}
	}
}

// acc/2: The first and the last byte of a region are accessible.
func TestRCAccessToRegionBoundaries(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpWriteOnly, 0, p.at(memSize-targetAt-1, 1), payload([]byte{0xaa}), ackReq)
		p.send(wire.OpWriteOnly, 1, p.at(-targetAt, 1), payload([]byte{0xbb}), ackReq)
		p.expect("ACK 1 msn 2")
		if p.h.mem[memSize-1] != 0xaa || p.h.mem[0] != 0xbb {
			p.Error("not written")
		}
	})
}

// acc/6, acc/8: A WRITE is NAKed when its region is deregistered between its packets.
func TestRCWriteToDeregisteredMemoryIsNAKed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		memory := make([]byte, 3*p.mtu)
		mr := must.Get(p.h.nic.RegMR(p.h.pd, nic.Bytes(memory), 0, allAccess))(p)
		p.send(wire.OpWriteFirst, 0, data(p.mtu), func(k *wire.Packet) {
			k.RETH = wire.RETH{VA: mr.Addr, RKey: mr.Key, DMALen: uint32(len(memory))}
		})
		must.Do(p, p.h.nic.DeregMR(mr))
		p.send(wire.OpWriteMiddle, 1, data(p.mtu))
		p.expect("NAK 1 access msn 0")
		if !bytes.Equal(memory[p.mtu:], make([]byte, 2*p.mtu)) {
			p.Error("written after deregistration")
		}
	})
}

package engine

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// FuzzInput sends a NIC packets of any content with a correct CRC, from a peer that knows keys and
// QP numbers. The NIC writes to registered memory only, nothing hangs, and QPs work after a reset.
func FuzzInput(f *testing.F) {
	w, a, b := pair(f, false)
	w.intercept = func(d *link.Datagram, _ *wire.Packet) bool { f.Add(bytes.Clone(d.Payload)); return false }
	b.recv(1, 0, 1000)
	a.send(b, 1, 100)
	a.post(b, writeRecord(a, b, 3000, 1))
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{RKey: 1}})
	w.run(time.Millisecond)
	w, a, b = pair(f, true)
	w.intercept = func(d *link.Datagram, _ *wire.Packet) bool { f.Add(bytes.Clone(d.Payload)); return false }
	b.recv(1, 0, 1000)
	a.send(b, 1, 100)
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 100), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
	w.run(time.Millisecond)
	f.Fuzz(func(t *testing.T, input []byte) {
		w := newNetwork(t)
		ha, hb := w.host(), w.host()
		// Only the middle of raw is registered.
		const guard = 4096
		raw := make([]byte, guard+(1<<20)+guard)
		before, after := raw[:guard], raw[guard+(1<<20):]
		hb.mem = raw[guard : guard+(1<<20)]
		must.Do(t, hb.nic.DeregMR(hb.mr))
		hb.mr, _ = hb.nic.RegMR(hb.pd, nic.Bytes(hb.mem), 0x10_0000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
		au, ar, bu, br := ha.newQP(false), ha.newQP(true), hb.newQP(false, isolated), hb.newQP(true, isolated)
		for i := range 4 {
			bu.recv(uint64(i), 1000*i, 1000)
			br.recv(uint64(i), 1000*i, 1000)
		}
		ar.send(br, 1, 10)
		w.run(time.Millisecond)
		for len(input) > 2 {
			size := min(len(input), int(input[0])<<2+20)
			packet := bytes.Clone(input[:size])
			input = input[size:]
			if size >= wire.HeaderLen {
				packet[0] = 0x10 | packet[0]&7
				binary.BigEndian.PutUint32(packet[4:], bu.QPN+uint32(packet[1]&1))
				binary.BigEndian.PutUint32(packet[8:], ar.QPN)
				if packet[2]&1 == 0 {
					binary.BigEndian.PutUint32(packet[12:], testKey)
				}
			}
			// Some packets have the epoch of the flow.
			if ps := ha.nic.rd.PeersOf(ar.QPN); len(ps) > 0 && size >= wire.HeaderLen+wire.DataLen && packet[2]&2 == 0 {
				if at := wire.HeaderLen; packet[1]&0x40 == 0 {
					binary.BigEndian.PutUint32(packet[at:], uint32(ps[0].Epoch()))
				}
			}
			hb.nic.Input(w.now, &link.Datagram{Src: ha.ah(hb.addr).path.src, Dst: ha.ah(hb.addr).path.dst, Payload: wire.AppendCRC(packet, 0)})
			w.run(50 * time.Microsecond)
		}
		w.run(time.Minute)
		for _, e := range []*testQP{au, ar, bu, br} {
			e.done = nil
			must.Do(t, e.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			e.toRTS()
		}
		bu.recv(1, 0, 1000)
		br.recv(1, 0, 1000)
		au.send(bu, 1, 10)
		ar.send(br, 1, 10)
		w.run(time.Second)
		bu.expectSuccess(1)
		br.expectSuccess(1)
		if zeros := make([]byte, guard); !bytes.Equal(before, zeros) || !bytes.Equal(after, zeros) {
			t.Fatal("memory outside of the region was written")
		}
	})
}

package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// sendMAD delivers a MAD for QP 1 to the NIC.
func (p udPeer) sendMAD(edits ...edit) {
	p.Helper()
	p.send(wire.OpSendOnly, 0, append([]edit{qkey(gsiQKey), data(MADLen), func(k *wire.Packet) {
		k.BTH.DestQP, k.DETH.SrcQP = gsiQPN, gsiQPN
	}}, edits...)...)
}

func toPartition(pkey uint16) edit { return func(k *wire.Packet) { k.BTH.PKey = pkey } }

// bth/pkey/3, ud/4: QP 1 accepts MADs of all partitions of the port, with the Q_Key
// of QP 1 and a length of 256 bytes.
func TestQP1AcceptsMADsOfAllPartitions(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.PKeys = []uint16{0xffff, 0x8002, 0x0003}; c.Limits.MADsQueue = 4 }}, func(p udPeer) {
		for _, pkey := range []uint16{0xffff, 0x0002, 0x8003} {
			p.sendMAD(toPartition(pkey))
			m, ok := p.h.nic.NextMAD()
			if !ok || m.PKey != pkey || m.Local != p.h.addr || m.Remote != p.addr || !bytes.Equal(m.Data[:], pattern(MADLen, int(wire.OpSendOnly)+0x60+MADLen)) {
				p.Errorf("partition %#x: %v, %+v", pkey, ok, m)
			}
		}
		p.drops()
		p.sendMAD(toPartition(0x0003)) // both limited
		p.sendMAD(toPartition(0x8004))
		p.sendMAD(qkey(udQKey))
		p.sendMAD(data(MADLen - 4))
		p.sendMAD(data(MADLen + 4))
		p.sendMAD(over(wire.TransportRC))
		p.sendMAD(func(k *wire.Packet) { k.BTH.Opcode = wire.MakeOpcode(wire.TransportUD, wire.OpSendOnlyImm) })
		p.drops("drop_opcode 2", "drop_pkey 2", "drop_qkey 1", "drop_length 2")
		if n := p.h.nic.MADs(); n != 0 {
			p.Errorf("%d MADs were accepted", n)
		}
		for range 5 { // one more than the limit
			p.sendMAD()
		}
		if n := p.h.nic.MADs(); n != 4 {
			p.Errorf("%d MADs are queued", n)
		}
		p.silence(time.Second)
	})
}

// ud/4, bth/ackreq/2: MADs are sent from QP 1 to QP 1 with its Q_Key and without AckReq.
func TestMADsAreSentFromQP1(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.Limits.MADsQueue = 2 }}, func(p udPeer) {
		m := MAD{Local: p.h.addr, Remote: p.addr, PKey: wire.DefaultPKey, Data: [MADLen]byte(pattern(MADLen, 1))}
		for i := range 3 {
			if ok := p.h.nic.SendMAD(m); ok != (i < 2) {
				p.Errorf("MAD %d of 2 was queued: %v", i, ok)
			}
		}
		if n := p.h.nic.Output(p.now, p.ds); n != 2 {
			p.Fatalf("%d datagrams", n)
		}
		for i := range 2 {
			d := &p.ds[i]
			var k wire.Packet
			must.Do(p, k.Parse(d.Payload))
			want := wire.BTH{Opcode: wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly), PKey: wire.DefaultPKey, DestQP: gsiQPN, PSN: wire.PSN(i)}
			if k.BTH != want || k.DETH != (wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}) || !bytes.Equal(k.Payload, m.Data[:]) {
				p.Errorf("sent %+v", k)
			}
			if d.Src.Port() != 55410 || d.Dst.Addr() != p.addr || !wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload) {
				p.Errorf("from %v to %v, or a wrong ICRC", d.Src, d.Dst)
			}
		}
	})
}
